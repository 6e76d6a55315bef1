//! List as text: the columns that are not empty, or a sheet of labels and sentences, then what is not in the
//! list.

use std::io::{self, Write};

use super::{
    Style, WARNING,
    table::{Align, Table, cut},
};
use crate::view::list::{Cell, Listing, Look};

pub(in crate::view) fn write(into: &mut dyn Write, style: &Style, list: &Listing) -> io::Result<()> {
    match list.look {
        Look::Table => {
            columns(into, style, list)?;
            list.notes.iter().try_for_each(|note| writeln!(into, "{WARNING}{note}{WARNING:#}"))
        }
        Look::Sheet(words) => {
            sheet(into, style, list, words)?;
            list.notes.iter().try_for_each(|note| writeln!(into, "\n{note}"))
        }
    }
}

fn columns(into: &mut dyn Write, style: &Style, list: &Listing) -> io::Result<()> {
    // A sentence of the notes is not repeated in every row.
    let is_noted = |cell: &Cell| matches!(cell, Cell::Text(text) if list.notes.iter().any(|note| note.as_bytes() == text.as_bytes()));
    let tells = |cell: &Cell| *cell != Cell::Empty && !is_noted(cell);
    let told = |column: &usize| list.rows.iter().filter_map(|row| row.get(*column)).any(tells);
    let columns: Vec<usize> = shown(list).filter(told).collect();
    let number = |column: usize| list.rows.iter().any(|row| matches!(row.get(column), Some(Cell::Number(_))));
    let speaks = |column: usize| {
        let is_sentence = |cell: &Cell| matches!(cell, Cell::Text(text) if text.as_bytes().contains(&b' '));
        columns.last() == Some(&column) && list.rows.iter().filter_map(|row| row.get(column)).any(is_sentence)
    };
    let align = |column| match () {
        () if number(column) => Align::Right,
        () if speaks(column) => Align::Words,
        () => Align::Left,
    };
    let titles: Vec<_> = columns.iter().map(|&column| (list.columns[column], align(column))).collect();
    let mut table = Table::new(&titles);
    for row in &list.rows {
        table.row(columns.iter().map(|&column| row.get(column).map_or_else(String::new, cell)).collect());
    }
    if list.rows.is_empty() { Ok(()) } else { table.write(into, style) }
}

/// Returns the columns that text shows.
fn shown(list: &Listing) -> impl Iterator<Item = usize> {
    (0..list.columns.len()).filter(|&column| !list.hidden.contains(&list.columns[column]))
}

fn sheet(into: &mut dyn Write, style: &Style, list: &Listing, words: &str) -> io::Result<()> {
    let is_label = |column: &usize| list.columns[*column] != words;
    let labels: Vec<usize> = shown(list).take_while(is_label).collect();
    let below: Vec<usize> = shown(list).skip_while(is_label).skip(1).collect();
    let mut titles = vec![("", Align::Left); labels.len()];
    titles.push(("", Align::Words));
    let mut table = Table::new(&titles);
    for row in &list.rows {
        let text = |column: usize| row.get(column).map_or_else(String::new, cell);
        let mut said = list.columns.iter().position(|name| *name == words).map_or_else(String::new, text);
        for &column in &below {
            let lines = row.get(column).map(lines).unwrap_or_default();
            lines.iter().for_each(|line| said.extend(["\n", list.columns[column], ": ", line]));
        }
        table.row(labels.iter().map(|&column| text(column)).chain([said]).collect());
    }
    table.write(into, style)
}

/// Returns the content of a cell, one sentence per line.
fn lines(of: &Cell) -> Vec<String> {
    match of {
        Cell::Empty => Vec::new(),
        Cell::Several(sentences) => sentences.iter().map(|one| one.terminal().into_owned()).collect(),
        Cell::Text(_) | Cell::Number(_) => vec![cell(of)],
    }
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::Text(text) => text.terminal().into_owned(),
        Cell::Number(number) => number.to_string(),
        Cell::Several(names) => {
            cut(&names.iter().map(|name| name.terminal().into_owned()).collect::<Vec<_>>().join(","))
        }
    }
}
