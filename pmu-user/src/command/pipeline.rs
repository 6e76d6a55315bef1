//! Drain → interval → report → bytes: the pure half, the same for a live run and for a recording, whatever its sources are.

mod counts;
mod io;
mod tasks;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    io::{self as std_io, Write},
    path::{Path, PathBuf},
};

use self::{counts::CountsPart, io::IoPart, tasks::TasksPart};
use super::{output, progress::SoFar};
use crate::{
    drain::{Absent, Drain, Ending, Header, Names, Owner},
    metric::{Report, finding::findings, stat::Stat, topdown::OneRun},
    session::Next,
    view::{ReportFormat, View, hdr_log::HdrLog, text::Style},
};

pub(super) use self::{counts::check as check_counts, tasks::prepare};

/// Turns drains into reports.
pub(super) struct Pipeline<'a> {
    header: &'a Header,
    tasks: Option<TasksPart<'a>>,
    io: Option<IoPart<'a>>,
    counts: Option<CountsPart<'a>>,
    view: View<'a>,
    /// Whose numbers intervals have; `None`: everybody's.
    only: Option<&'a BTreeSet<Owner>>,
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
        (format, style): (ReportFormat, Style),
        into: Box<dyn Write + 'a>,
    ) -> anyhow::Result<Self> {
        Self::into_view(header, folder, View::new(header, format, style, into))
    }

    /// The same, whose reports go to `view`.
    ///
    /// # Errors
    ///
    /// As for [`Pipeline::new`].
    pub(super) fn into_view(
        header: &'a Header,
        folder: Option<&Path>,
        view: View<'a>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            header,
            tasks: header
                .tasks
                .as_ref()
                .map(|tasks| TasksPart::new(&header.machine, tasks, folder))
                .transpose()?,
            io: header.io.as_ref().map(|io| IoPart::new(&header.machine, io)).transpose()?,
            counts: header.counts.as_ref().map(CountsPart::new),
            view,
            only: None,
        })
    }

    /// Writes the latencies of every interval to a log, too.
    pub(super) fn log_to(&mut self, log: Option<HdrLog<'a>>) {
        self.view.log_to(log);
    }

    /// Leaves out of intervals whoever is not among these.
    pub(super) const fn keep_only(&mut self, owners: &'a BTreeSet<Owner>) {
        self.only = Some(owners);
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
        if let (Some(part), Some(drain)) = (&mut self.counts, drain.counts) {
            part.drain(drain);
        }
        // Of a run with both, ticks of tasks decide: each of them drains I/O, too.
        let is_due = match (&self.tasks, &self.io) {
            (Some(tasks), _) => tasks.is_due(),
            (None, Some(io)) => io.is_due(),
            (None, None) => self.counts.as_ref().is_some_and(CountsPart::is_due),
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

    /// What the run has done until now.
    pub(super) fn so_far(&self) -> SoFar {
        let mut so_far = self.tasks.as_ref().map(TasksPart::so_far).unwrap_or_default();
        if let Some(io) = &self.io {
            let of_io = io.so_far();
            so_far.owners = so_far.owners.or(of_io.owners);
            so_far.lost = so_far.lost.saturating_add(of_io.lost);
            so_far.cost = so_far.cost.or(of_io.cost);
        }
        so_far
    }

    fn interval(&mut self) -> std_io::Result<()> {
        let counts = self.counts.as_mut().and_then(CountsPart::interval);
        let mut report = self.report(counts);
        self.tasks.iter_mut().for_each(|tasks| tasks.interval(&mut report));
        self.io.iter_mut().for_each(|io| io.interval(&mut report));
        report.name_alike();
        if let Some(owners) = self.only {
            report.keep_only(owners);
        }
        self.view.interval(&report)
    }

    /// A report of what was counted, with what was known to be missing before.
    fn report(&self, counts: Option<Stat>) -> Report {
        let left_out = self.header.counts.iter().filter_map(|counts| counts.plan.left_out.as_ref());
        let left_out = left_out.map(|why| Absent { what: "events".to_owned(), why: why.clone() });
        let missing = self.header.missing.iter().cloned().chain(left_out).collect();
        Report { counts, missing, ..Report::default() }
    }

    fn whole(&self) -> Report {
        let mut report = self.report(self.counts.as_ref().map(CountsPart::whole));
        self.tasks.iter().for_each(|tasks| tasks.whole(&mut report));
        self.io.iter().for_each(|io| io.whole(&mut report));
        report.name_alike();
        report.findings = findings(self.header, &report);
        report
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
        let report = self.whole();
        self.view.whole(&report, ending)?;
        Ok(report)
    }

    /// Which of several runs of a command are not in the report, and why: those that did not end well, and those that were too many.
    pub(super) fn left_out(&self) -> Option<String> {
        self.counts.as_ref().and_then(CountsPart::left_out)
    }

    /// One of several runs: its report, which is not written, and what of it goes into the report of all.
    pub(super) fn conclude(&self) -> (Report, Option<OneRun>) {
        let report = self.whole();
        let tasks = self.tasks.as_ref().zip(report.tasks.as_ref());
        let run = tasks.and_then(|(tasks, report)| tasks.one_run(report));
        (report, run)
    }
}

/// Says on stderr, in one line, what was lost.
pub(super) fn closing_line(report: &Report) {
    lost(report).iter().for_each(|line| output::talk(line));
}

/// What was lost of any source, if anything was.
fn lost(report: &Report) -> Option<String> {
    let all = report.losses.iter().filter(|(_, count)| **count > 0);
    let all: Vec<String> = all.map(|(reason, count)| format!("{reason} {count}")).collect();
    (!all.is_empty()).then(|| format!("lost: {}", all.join(", ")))
}
