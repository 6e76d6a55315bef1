//! From a report to bytes. Each format is one file and owns its words and columns; none computes anything.

mod csv;
pub mod evaluation;
pub mod hdr_log;
pub mod io;
mod json;
pub mod list;
mod run;
pub mod stat;
pub mod text;
mod words;

use std::{convert::Infallible, io::Write};

use self::hdr_log::HdrLog;
pub use self::json::SCHEMA;
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
    /// One JSON object a line, schema `pmbpf/2`.
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

/// What is being written.
#[derive(Clone, Copy)]
enum Stage<'r> {
    /// What stands before everything.
    Begin(&'r Header),
    /// An interval, and how many there were before it.
    Interval(&'r Report, u64),
    /// The whole run.
    Whole(&'r Header, &'r Report, &'r Ending),
}

/// Writes reports of one run to one place, whatever its sources are.
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
        self.log(report);
        match self.format {
            Format::Text => {
                let stage = Stage::Interval(report, self.intervals);
                run::text(&mut self.into, &self.style, stage)?;
            }
            Format::Json | Format::Csv => self.numbers(report)?,
        }
        self.intervals += 1;
        self.into.flush()
    }

    /// Writes the whole run's report and what ends it. Formats for machines tell no number twice: where intervals were told, their
    /// sums are the reader's.
    ///
    /// # Errors
    ///
    /// The stream, or the log, could not be written.
    pub fn whole(&mut self, report: &Report, ending: &Ending) -> std::io::Result<()> {
        self.begin()?;
        if self.intervals == 0 {
            self.log(report);
        }
        let stage = Stage::Whole(self.header, report, ending);
        match self.format {
            Format::Text => run::text(&mut self.into, &self.style, stage)?,
            Format::Json => {
                if self.intervals == 0 {
                    self.numbers(report)?;
                }
                run::json(&mut self.into, stage)?;
            }
            Format::Csv if self.intervals == 0 => self.numbers(report)?,
            Format::Csv => {}
        }
        self.into.flush()?;
        self.log.take().map_or(Ok(()), HdrLog::end)
    }

    fn log(&mut self, report: &Report) {
        if let Some(log) = &mut self.log {
            let _ = report.by_source::<Infallible>(|frame, numbers| {
                log.interval(frame, numbers);
                Ok(())
            });
        }
    }

    /// An interval for machines.
    fn numbers(&mut self, report: &Report) -> std::io::Result<()> {
        if self.format == Format::Csv {
            return report.by_source(|frame, numbers| csv::numbers(&mut self.into, frame, numbers));
        }
        report.by_source(|frame, numbers| json::numbers(&mut self.into, frame, numbers))?;
        run::json(&mut self.into, Stage::Interval(report, self.intervals))
    }

    fn begin(&mut self) -> std::io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        match self.format {
            Format::Text => run::text(&mut self.into, &self.style, Stage::Begin(self.header)),
            Format::Json => run::json(&mut self.into, Stage::Begin(self.header)),
            Format::Csv => csv::begin(&mut self.into),
        }
    }
}
