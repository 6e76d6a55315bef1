//! Formats of results.

use std::io::{self, Write};

use super::{csv, fields, json, stage::Stage, text};

/// How results are written: every command knows these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line, schema `pmbpf/2`.
    Json,
    /// RFC 4180 with one header row.
    Csv,
}

/// Writes what a stage of a run has in one format.
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

/// The rows of `perf stat -x`, of counts alone: `stat -x` writes them, and no other command.
const FIELDS: ReportFormat = ReportFormat { name: "fields", write: fields::write };

/// Formats of reports: a new one is a file and a line here.
static FORMATS: &[ReportFormat] = &[TEXT, JSON, CSV];

impl ReportFormat {
    /// Names of all formats of reports.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FORMATS.iter().map(|format| format.name)
    }

    /// The format of this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        FORMATS.iter().find(|format| format.name == name).copied()
    }

    /// Counts in perf's fields.
    pub const fn fields() -> Self {
        FIELDS
    }

    /// Which of the formats that every command knows this is, if it is one.
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
