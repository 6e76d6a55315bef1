//! NDJSON, schema `pmbpf/2`. A header row comes first, then rows of numbers (`metric`, `histogram`) and of
//! other facts of an interval. Rows of the whole run and a summary follow. Rows of a kind have the same
//! fields in every command.
//!
//! Numbers are JSON numbers, and a missing one is `null` with a `reason`. Times are in ns: `t` since counting
//! started, `dt` the length. Names are UTF-8, and other bytes become `\xff`-like text.

mod end;
mod finding;
mod header;
mod interval;
pub(super) mod list;
mod number;
pub(super) mod report;
mod who;

use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::Value as Json;

pub(super) use self::{end::frame, who::SubjectCell};
use self::{
    end::{end, summary},
    header::header,
    interval::interval,
    number::{OF_OWNERS, OF_PROGRAMS, numbers},
};

/// Version of the rows, contained in each of them.
pub const SCHEMA: &str = "pmbpf/2";

/// Capacity for most rows, so that one is written to memory without growing it.
const ROW_BYTES: usize = 512;

/// Writes one row in one piece. A serializer writes every word separately.
pub(super) fn line(into: &mut dyn Write, row: &impl Serialize) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(ROW_BYTES);
    serde_json::to_writer(&mut bytes, row)?;
    bytes.push(b'\n');
    into.write_all(&bytes)
}

/// Serializes a finite number. A whole number has no fraction, as far as a double is exact.
fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}

#[derive(Serialize)]
pub(super) struct Number(#[serde(serialize_with = "number")] pub(super) f64);

/// Adds the fields of a single source to a row.
fn extend(row: &mut Json, part: Option<Json>) {
    if let (Some(row), Some(Json::Object(part))) = (row.as_object_mut(), part) {
        row.extend(part);
    }
}
