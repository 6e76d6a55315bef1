//! Drain → interval → report → bytes: the pure half, the same for a live run and for a recording, whatever its sources are.

mod io;
mod tasks;
#[cfg(test)]
mod tests;

use std::{
    io::{self as std_io, Write},
    path::{Path, PathBuf},
};

use self::{io::IoPart, tasks::TasksPart};
use super::output;
use crate::{
    drain::{Drain, Ending, Header, Names},
    metric::{Report, TasksReport, topdown::OneRun},
    session::Next,
    view::{Format, RunView, hdr_log::HdrLog, text::Style},
};

pub(super) use self::tasks::prepare;

/// Turns drains into reports.
pub(super) struct Pipeline<'a> {
    tasks: Option<TasksPart<'a>>,
    io: Option<IoPart<'a>>,
    view: RunView<'a>,
}

impl<'a> Pipeline<'a> {
    /// A pipeline for the run that `header` describes. `folder`: a perfmon directory with the formulas of its Top-Down metrics, if not
    /// the built-in ones.
    ///
    /// # Errors
    ///
    /// A table of metrics cannot be read.
    pub(super) fn new(
        header: &'a Header,
        folder: Option<&Path>,
        (format, style): (Format, Style),
        into: Box<dyn Write + 'a>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            tasks: header.tasks.as_ref().map(|header| TasksPart::new(header, folder)).transpose()?,
            io: header.io.as_ref().map(IoPart::new).transpose()?,
            view: RunView::new(header, format, style, into),
        })
    }

    /// Writes the latencies of every interval to a log, too.
    pub(super) fn log_to(&mut self, log: Option<HdrLog<'a>>) {
        self.view.log_to(log);
    }

    /// Takes a drain; writes a report if an interval is complete. What is to be counted next.
    pub(super) fn drain(&mut self, drain: Drain) -> std_io::Result<Next> {
        let mut next = None;
        if let (Some(part), Some(drain)) = (&mut self.tasks, &drain.tasks) {
            next = part.drain(drain);
        }
        if let (Some(part), Some(drain)) = (&mut self.io, drain.io) {
            part.drain(drain);
        }
        // Of a run with both, ticks of tasks decide: each of them drains I/O, too.
        let is_due = match (&self.tasks, &self.io) {
            (Some(tasks), _) => tasks.is_due(),
            (None, Some(io)) => io.is_due(),
            (None, None) => false,
        };
        if is_due {
            self.interval()?;
        }
        Ok(next)
    }

    /// Takes names, which come when the run is over.
    pub(super) fn name(&mut self, names: &Names) {
        if let Some(tasks) = &mut self.tasks {
            tasks.name(names);
        }
    }

    /// Looks up the names that a recording lacks in files of `folders`.
    pub(super) fn name_from(&mut self, folders: &[PathBuf]) {
        if let Some(tasks) = &mut self.tasks {
            tasks.name_from(folders);
        }
    }

    fn interval(&mut self) -> std_io::Result<()> {
        let report = Report {
            tasks: self.tasks.as_mut().map(TasksPart::interval),
            io: self.io.as_mut().map(IoPart::interval),
        };
        self.view.interval(&report)
    }

    /// Writes the interval that is still open, and the whole run's report.
    pub(super) fn finish(&mut self, ending: &Ending) -> std_io::Result<Report> {
        let is_open = match (&self.tasks, &self.io) {
            (Some(tasks), _) => tasks.is_open(),
            (None, io) => io.as_ref().is_some_and(IoPart::is_open),
        };
        if is_open {
            self.interval()?;
        }
        let report = Report {
            tasks: self.tasks.as_ref().map(TasksPart::whole),
            io: self.io.as_ref().map(IoPart::whole),
        };
        self.view.whole(&report, ending)?;
        Ok(report)
    }

    /// One of several runs: its report of tasks, which is not written, and what of it goes into the report of all.
    pub(super) fn conclude(&self) -> Option<(TasksReport, Option<OneRun>)> {
        self.tasks.as_ref().map(TasksPart::conclude)
    }
}

/// Says on stderr, in one line, what was lost.
pub(super) fn closing_line(report: &Report) {
    let losses = report.tasks.iter().flat_map(|report| &report.quality.losses);
    let losses: Vec<String> = losses.map(|(reason, count)| format!("{reason} {count}")).collect();
    if !losses.is_empty() {
        output::talk(&format!("lost: {}", losses.join(", ")));
    }
}
