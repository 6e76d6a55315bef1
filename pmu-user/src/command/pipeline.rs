//! Drain → interval → report → bytes: the pure half, the same for a live run and for a recording.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::output;
use crate::{
    drain::{Drain, Ending, Header, Names},
    machine::topology::Topology,
    metric::{
        Report,
        drilling::Drilling,
        topdown::{OneRun, Prepared},
    },
    model::{BOUNDS, Bounds, Interval, Ledger},
    plan::{Plan, request::Descend},
    session::Next,
    symbol::name_recorded,
    table::model::{self, TaskForms},
    view::{Format, RunView, hdr_log::HdrLog, text::Style},
};

/// Turns drains into reports.
pub(super) struct Pipeline<'a> {
    header: &'a Header,
    prepared: Option<Prepared>,
    drilling: Option<Drilling>,
    /// Owners, places and totals so far.
    pub(super) ledger: Ledger,
    view: RunView<'a>,
    /// Regular ticks in an interval that is reported; `None` to report only the whole.
    ticks_per_interval: Option<u64>,
    open: Interval,
    reported_ticks: u64,
    total: Interval,
}

impl<'a> Pipeline<'a> {
    /// A pipeline for the run that `header` describes. `prepared`: the formulas of its metrics.
    pub(super) fn new(
        header: &'a Header,
        prepared: Option<Prepared>,
        format: Format,
        style: Style,
        into: Box<dyn Write + 'a>,
    ) -> Self {
        let ticks = |interval: std::time::Duration| {
            (interval.as_secs_f64() / header.plan.tick.as_secs_f64()).round().max(1.0) as u64
        };
        let metrics = header.plan.metrics.as_ref();
        Self {
            header,
            drilling: prepared.as_ref().and_then(|prepared| Drilling::new(prepared, metrics?)),
            prepared,
            ledger: Ledger::new(),
            view: RunView::new(header, format, style, into),
            ticks_per_interval: header.plan.interval.map(ticks),
            open: Interval::default(),
            reported_ticks: 0,
            total: Interval::default(),
        }
    }

    /// Writes the latencies of every interval to a log, too.
    pub(super) fn log_to(&mut self, log: Option<HdrLog<'a>>) {
        self.view.log_to(log);
    }

    /// Takes a drain; writes a report if an interval is complete. What is to be counted next.
    pub(super) fn drain(&mut self, drain: &Drain) -> io::Result<Next> {
        let interval = self.ledger.advance(drain);
        self.total.extend(&interval);
        let next = self.drill(&interval);
        if self.ticks_per_interval.is_some() {
            self.open.extend(&interval);
        }
        let bounds = Bounds { upwards: self.header.plan.descend == Descend::Yes, ..BOUNDS };
        self.ledger.fold(&bounds, &mut [&mut self.total, &mut self.open]);
        let Some(ticks) = self.ticks_per_interval else { return Ok(next) };
        if drain.ticks >= self.reported_ticks.saturating_add(ticks) {
            self.reported_ticks = drain.ticks;
            let open = std::mem::take(&mut self.open);
            self.view.interval(&self.report(&open))?;
        }
        Ok(next)
    }

    /// Takes names, which come when the run is over.
    pub(super) fn name(&mut self, names: &Names) {
        let late = self.ledger.name(names);
        self.total.extend(&late);
        self.open.extend(&late);
    }

    /// Looks up the names that a recording lacks in files of `folders`.
    pub(super) fn name_from(&mut self, folders: &[PathBuf]) {
        let names = name_recorded(self.ledger.unnamed(&self.total), folders);
        self.ledger.learn(&names);
    }

    fn drill(&mut self, interval: &Interval) -> Next {
        // A tick without slices says nothing.
        let drilling = self.drilling.as_mut().filter(|_| !interval.slices.is_empty())?;
        Some(drilling.after(&self.prepared.as_ref()?.topdown(self.header, &self.ledger, interval)))
    }

    fn report(&self, interval: &Interval) -> Report {
        Report::new(self.header, &self.ledger, interval, self.prepared.as_ref())
    }

    /// Writes the interval that is still open, and the whole run's report.
    pub(super) fn finish(&mut self, ending: &Ending) -> io::Result<Report> {
        if self.ticks_per_interval.is_some() && self.open.length_ns() > 0 {
            let open = std::mem::take(&mut self.open);
            self.view.interval(&self.report(&open))?;
        }
        let report = self.report(&self.total);
        self.view.whole(&report, ending)?;
        Ok(report)
    }

    /// One of several runs: its report, which is not written, and what of it goes into the report of all.
    pub(super) fn conclude(&self) -> (Report, Option<OneRun>) {
        let report = self.report(&self.total);
        let turns = self.header.plan.turns.first();
        let run = turns.and_then(|turns| OneRun::new(&report, turns, &self.total));
        (report, run)
    }
}

/// The formulas of the metrics that a run measures; out of `folder`, a perfmon directory, if one is given.
pub(super) fn prepare(
    plan: &Plan,
    topology: &Topology,
    folder: Option<&Path>,
) -> Result<Option<Prepared>, model::FindError> {
    let (Some(metrics), Some(turns)) = (&plan.metrics, plan.turns.first()) else { return Ok(None) };
    let forms = TaskForms::new(model::load(&metrics.model, folder)?, topology.smt);
    Ok(Some(Prepared::new(forms, metrics, turns)))
}

/// Says on stderr, in one line, what was lost.
pub(super) fn closing_line(report: &Report) {
    let losses: Vec<String> =
        report.quality.losses.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    if !losses.is_empty() {
        output::talk(&format!("lost: {}", losses.join(", ")));
    }
}
