//! Formats of results.

use std::io::{self, Write};

use super::{csv, fields, json, stage::Stage, text};

/// Format of results that every command supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Plain text for people.
    Text,
    /// One JSON object per line, schema `pmbpf/2`.
    Json,
    /// CSV (RFC 4180) with one header row.
    Csv,
}

/// Function that writes a stage of a run in one format.
type WriteStage = fn(&mut dyn Write, &text::Style, Stage<'_>) -> io::Result<()>;

/// A format of reports.
#[derive(Clone, Copy, Debug)]
pub struct ReportFormat {
    name: &'static str,
    pub(super) write: WriteStage,
}

const TEXT: ReportFormat = ReportFormat { name: "text", write: text::report::write };
const JSON: ReportFormat = ReportFormat { name: "json", write: json::report::write };
const CSV: ReportFormat = ReportFormat { name: "csv", write: csv::write };

/// Rows of `perf stat -x`, with counts only. Only `stat -x` writes them.
const FIELDS: ReportFormat = ReportFormat { name: "fields", write: fields::write };

/// Formats of reports. A new format is a file and a line here.
static FORMATS: &[ReportFormat] = &[TEXT, JSON, CSV];

impl ReportFormat {
    /// Returns the names of all formats of reports.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FORMATS.iter().map(|format| format.name)
    }

    /// Returns the format of this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        FORMATS.iter().find(|format| format.name == name).copied()
    }

    /// Returns the format of counts in perf's fields.
    pub const fn fields() -> Self {
        FIELDS
    }

    /// Returns this format as one that every command supports, if it is one.
    pub fn format(self) -> Option<Format> {
        [Format::Text, Format::Json, Format::Csv]
            .into_iter()
            .find(|&format| Self::from(format).name == self.name)
    }
}

impl From<Format> for ReportFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Text => TEXT,
            Format::Json => JSON,
            Format::Csv => CSV,
        }
    }
}
