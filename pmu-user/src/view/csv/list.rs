//! List as CSV. Notes appear in text and JSON only: a row has no room for them.

use std::io::{self, Write};

use super::Rows;
use crate::view::list::{Cell, Listing};

pub(in crate::view) fn write(into: &mut dyn Write, list: &Listing) -> io::Result<()> {
    let mut rows = Rows::from_writer(into);
    rows.write_record(list.columns)?;
    for row in &list.rows {
        rows.write_record(row.iter().map(cell))?;
    }
    rows.flush()
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::Text(text) => text.csv().into_owned(),
        Cell::Number(number) => number.to_string(),
        Cell::Several(names) => {
            names.iter().map(|name| name.csv().into_owned()).collect::<Vec<_>>().join(" ")
        }
    }
}
