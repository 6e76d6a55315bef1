//! Conversion of reports to bytes. Each format is one file or one folder, owns its words and columns, and
//! computes nothing.

pub mod annotation;
#[cfg(feature = "parquet")]
mod columnar;
mod csv;
pub mod diff;
pub mod evaluation;
pub mod export;
pub mod exposition;
mod fields;
mod finding;
mod format;
pub mod hdr_log;
#[cfg(feature = "parquet")]
pub mod hourly;
pub mod html;
pub mod io;
mod json;
pub mod list;
mod otlp;
mod stage;
#[cfg(test)]
mod tests;
pub mod text;
pub mod top;
mod words;

use std::{convert::Infallible, io::Write};

use self::{
    export::{Export, Exporter},
    hdr_log::HdrLog,
    stage::Stage,
};
pub use self::{
    format::{Format, ReportFormat},
    json::SCHEMA,
    stage::Part,
    words::workload as workload_in_words,
};
use crate::{
    drain::{Ending, Header},
    metric::Report,
};

/// Writer of the reports of one run to one place, for all kinds of sources.
pub struct View<'a> {
    header: &'a Header,
    form: Form<'a>,
    into: Box<dyn Write + 'a>,
    log: Option<HdrLog<'a>>,
    begun: bool,
    intervals: u64,
}

/// Form in which reports are output.
enum Form<'a> {
    /// Format of pmbpf.
    Report(ReportFormat, text::Style),
    /// Format of other tools.
    Export(Box<dyn Export>),
    /// Nothing is written: the function receives each interval.
    Watched(Box<dyn FnMut(&Report) + 'a>),
}

impl<'a> View<'a> {
    /// Returns a view of the run that `header` describes.
    pub fn new(
        header: &'a Header,
        format: impl Into<ReportFormat>,
        style: text::Style,
        into: Box<dyn Write + 'a>,
    ) -> Self {
        Self::of(header, Form::Report(format.into(), style), into)
    }

    /// Returns an export of the run that `header` describes.
    pub fn export(header: &'a Header, export: Exporter, into: Box<dyn Write + 'a>) -> Self {
        Self::of(header, Form::Export(export.0), into)
    }

    /// Returns a view that passes the report of each interval to `watch`, and writes nothing.
    pub fn watched(header: &'a Header, watch: Box<dyn FnMut(&Report) + 'a>) -> Self {
        Self::of(header, Form::Watched(watch), Box::new(std::io::sink()))
    }

    fn of(header: &'a Header, form: Form<'a>, into: Box<dyn Write + 'a>) -> Self {
        Self { header, form, into, log: None, begun: false, intervals: 0 }
    }

    /// Sets a log to which the latencies of every interval are written, too.
    pub fn log_to(&mut self, log: Option<HdrLog<'a>>) {
        self.log = log;
    }

    /// Writes the report of one interval.
    ///
    /// # Errors
    ///
    /// The stream cannot be written.
    pub fn interval(&mut self, report: &Report) -> std::io::Result<()> {
        self.begin()?;
        self.log(report);
        self.stage(Stage::Interval(report, self.intervals))?;
        self.intervals += 1;
        self.into.flush()
    }

    /// Writes the report of the whole run and its ending.
    ///
    /// # Errors
    ///
    /// The stream, or the log, could not be written.
    pub fn whole(&mut self, report: &Report, ending: &Ending) -> std::io::Result<()> {
        self.begin()?;
        if self.intervals == 0 {
            self.log(report);
        }
        self.stage(Stage::Whole { header: self.header, report, ending, intervals: self.intervals })?;
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

    fn begin(&mut self) -> std::io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        self.stage(Stage::Begin(self.header))
    }

    fn stage(&mut self, stage: Stage<'_>) -> std::io::Result<()> {
        match &mut self.form {
            Form::Report(format, style) => (format.write)(&mut self.into, style, stage),
            Form::Export(export) => export.stage(&mut self.into, stage),
            Form::Watched(watch) => {
                if let Stage::Interval(report, _) = stage {
                    watch(report);
                }
                Ok(())
            }
        }
    }
}
