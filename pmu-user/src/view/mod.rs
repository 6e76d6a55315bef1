//! From a report to bytes. Each format is one file and owns its words and columns; none computes anything.

mod csv;
pub mod evaluation;
pub mod hdr_log;
pub mod io;
mod json;
pub mod list;
pub mod stat;
pub mod text;
mod words;

use std::io::Write;

use self::hdr_log::HdrLog;
pub use self::words::workload as workload_in_words;
use crate::{
    drain::{Ending, Header},
    metric::Report,
};

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line, schema `pmbpf/1`.
    Json,
    /// RFC 4180 with one header row.
    Csv,
}

/// Is this report all, or one of many?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One interval of a run that reports while it runs.
    Interval,
    /// The whole run.
    Whole,
}

/// Writes reports of one run to one place.
pub struct View<'a> {
    header: &'a Header,
    format: Format,
    style: text::Style,
    into: Box<dyn Write + 'a>,
    log: Option<HdrLog<'a>>,
    begun: bool,
    intervals: u64,
}

impl<'a> View<'a> {
    /// A view of the run that `header` describes.
    pub fn new(header: &'a Header, format: Format, style: text::Style, into: Box<dyn Write + 'a>) -> Self {
        Self { header, format, style, into, log: None, begun: false, intervals: 0 }
    }

    /// Writes the latencies of every interval to a log, too.
    pub fn log_to(&mut self, log: Option<HdrLog<'a>>) {
        self.log = log;
    }

    /// Writes one interval's report.
    ///
    /// # Errors
    ///
    /// The stream cannot be written.
    pub fn interval(&mut self, report: &Report) -> std::io::Result<()> {
        self.begin()?;
        self.intervals += 1;
        self.log(report);
        match self.format {
            Format::Text => text::interval(&mut self.into, &self.style, report, self.intervals == 1)?,
            Format::Json => json::interval(&mut self.into, report)?,
            Format::Csv => csv::interval(&mut self.into, report)?,
        }
        self.into.flush()
    }

    /// Writes the whole run's report and what ends it.
    ///
    /// # Errors
    ///
    /// The stream, or the log, could not be written.
    pub fn whole(&mut self, report: &Report, ending: &Ending) -> std::io::Result<()> {
        self.begin()?;
        if self.intervals == 0 {
            self.log(report);
        }
        match self.format {
            Format::Text => text::whole(&mut self.into, &self.style, self.header, report, ending)?,
            Format::Json => {
                if self.intervals == 0 {
                    json::interval(&mut self.into, report)?;
                }
                json::end(&mut self.into, self.header, report, ending)?;
            }
            Format::Csv => {
                if self.intervals == 0 {
                    csv::interval(&mut self.into, report)?;
                }
            }
        }
        self.into.flush()?;
        self.log.take().map_or(Ok(()), HdrLog::end)
    }

    fn log(&mut self, report: &Report) {
        if let Some(log) = &mut self.log {
            log.interval(report);
        }
    }

    fn begin(&mut self) -> std::io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        match self.format {
            Format::Text => Ok(()),
            Format::Json => json::begin(&mut self.into, self.header),
            Format::Csv => csv::begin(&mut self.into),
        }
    }
}
