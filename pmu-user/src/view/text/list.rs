//! A list for people: columns that hold anything, then what is not in it.

use std::io::{self, Write};

use super::{
    Style, WARNING,
    table::{Align, Table, cut},
};
use crate::view::list::{Cell, Listing};

pub(in crate::view) fn write(into: &mut dyn Write, style: &Style, list: &Listing) -> io::Result<()> {
    // What the notes say once need not stand in every row.
    let is_noted = |cell: &Cell| matches!(cell, Cell::Text(text) if list.notes.iter().any(|note| note.as_bytes() == text.as_bytes()));
    let tells = |cell: &Cell| *cell != Cell::Empty && !is_noted(cell);
    let told = |column: &usize| list.rows.iter().filter_map(|row| row.get(*column)).any(tells);
    let columns: Vec<usize> = (0..list.columns.len()).filter(told).collect();
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
    if !list.rows.is_empty() {
        table.write(into, style)?;
    }
    list.notes.iter().try_for_each(|note| writeln!(into, "{WARNING}{note}{WARNING:#}"))
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
