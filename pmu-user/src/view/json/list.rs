//! List as JSON: an object per row, then a `note` for each sentence on what is not in the list.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::{SCHEMA, line};
use crate::view::list::{Cell, Listing};

pub(in crate::view) fn write(into: &mut dyn Write, list: &Listing) -> io::Result<()> {
    for row in &list.rows {
        let mut object = json!({"schema": SCHEMA, "kind": list.kind});
        if let Some(fields) = object.as_object_mut() {
            fields
                .extend(list.columns.iter().zip(row).map(|(name, value)| ((*name).to_owned(), cell(value))));
        }
        line(into, &object)?;
    }
    list.notes
        .iter()
        .try_for_each(|note| line(into, &json!({"schema": SCHEMA, "kind": "note", "text": note})))
}

fn cell(cell: &Cell) -> Json {
    match cell {
        Cell::Empty => Json::Null,
        Cell::Text(text) => json!(text),
        Cell::Number(number) => json!(number),
        Cell::Several(names) => json!(names),
    }
}
