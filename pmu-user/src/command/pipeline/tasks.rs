//! Tasks: their drains, until they form a report.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::super::progress::SoFar;
use crate::{
    drain::{Names, TasksDrain, TasksHeader},
    machine::{Machine, topology::Topology},
    metric::{
        CostReport, Report, TasksReport,
        annotate::{Annotated, annotate},
        filter::{Pattern, Unmet},
        shed,
        topdown::{Drilling, OneRun, Prepared, topdown},
        unnamed,
    },
    model::{BOUNDS, Bounds, Interval, Ledger},
    plan::{Plan, metrics::Metrics, multiplexing::Multiplexing, request::Descend},
    session::Next,
    symbol::{Unfound, name_recorded},
    table::model::{self, TaskForms},
    untrusted::Untrusted,
};

/// Tasks of a run so far.
pub(super) struct TasksPart<'a> {
    machine: &'a Machine,
    header: &'a TasksHeader,
    /// Prepared metrics, by core PMU.
    prepared: Vec<Prepared>,
    drilling: Vec<Option<Drilling>>,
    /// Owners, places and totals so far.
    ledger: Ledger,
    /// Regular ticks per reported interval; `None` to report only the whole.
    ticks_per_interval: Option<u64>,
    open: Interval,
    ticks: u64,
    reported_ticks: u64,
    /// Interval of the whole run.
    total: Interval,
    /// Whether the whole run is requested. If not, its intervals are not summed.
    has_whole: bool,
}

impl<'a> TasksPart<'a> {
    pub(super) fn new(
        machine: &'a Machine,
        header: &'a TasksHeader,
        folder: Option<&Path>,
    ) -> Result<Self, model::FindError> {
        let ticks = |interval: Duration| {
            (interval.as_secs_f64() / header.plan.tick.as_secs_f64()).round().max(1.0) as u64
        };
        let prepared = prepare(&header.plan, &machine.topology, folder)?;
        Ok(Self {
            machine,
            header,
            drilling: prepared
                .iter()
                .zip(header.plan.by_core_type())
                .map(|(one, (turns, metrics))| Drilling::new(one, metrics, turns.groups_in(header.plan.tick)))
                .collect(),
            prepared,
            ledger: Ledger::new(),
            ticks_per_interval: header.plan.interval.map(ticks),
            open: Interval::default(),
            ticks: 0,
            reported_ticks: 0,
            total: Interval::default(),
            has_whole: true,
        })
    }

    /// Sums nothing for the whole run from here on.
    pub(super) const fn only_intervals(&mut self) {
        self.has_whole = false;
    }

    /// Adds the whole run so far to a report, and begins again.
    pub(super) fn take_whole(&mut self, into: &mut Report) {
        let total = std::mem::take(&mut self.total);
        self.report(&total, into);
    }

    /// Takes a drain. Returns what is to be counted next.
    pub(super) fn drain(&mut self, drain: &TasksDrain) -> Next {
        let interval = self.ledger.advance(drain);
        if self.has_whole {
            self.total.extend(&interval);
        }
        let next = self.drill(&interval);
        if self.ticks_per_interval.is_some() {
            self.open.append(interval);
        }
        self.keep_within_bounds();
        self.ticks = drain.ticks;
        next
    }

    /// Takes a drain that is not reported, as the baseline of the counts.
    pub(super) fn skip(&mut self, drain: &TasksDrain) {
        self.ledger.skip(drain);
        self.keep_within_bounds();
        self.ticks = drain.ticks;
        self.reported_ticks = drain.ticks;
    }

    /// Returns whether a later report may have the cgroup at this path.
    pub(super) fn has_cgroup(&self, path: &Untrusted) -> bool {
        self.ledger.cgroup_at(path.as_bytes()).is_some()
    }

    /// Records that a cgroup became a target.
    pub(super) fn follow(&mut self, path: &Untrusted) {
        self.ledger.follow(path);
    }

    fn keep_within_bounds(&mut self) {
        let bounds = Bounds { upwards: self.header.plan.descend == Descend::Yes, ..BOUNDS };
        self.ledger.fold(&bounds, &mut [&mut self.total, &mut self.open]);
    }

    /// Returns whether an interval is complete.
    pub(super) fn is_due(&self) -> bool {
        self.ticks_per_interval.is_some_and(|ticks| self.ticks >= self.reported_ticks.saturating_add(ticks))
    }

    /// Returns whether anything is in the open interval.
    pub(super) fn is_open(&self) -> bool {
        self.ticks_per_interval.is_some() && self.open.length_ns() > 0
    }

    /// Adds the open interval to a report, and closes it.
    pub(super) fn interval(&mut self, into: &mut Report) {
        self.reported_ticks = self.ticks;
        let open = std::mem::take(&mut self.open);
        self.report(&open, into);
    }

    /// Adds the whole run to a report.
    pub(super) fn whole(&self, into: &mut Report) {
        self.report(&self.total, into);
        into.missing.extend(unnamed::missing(&self.ledger, &self.total));
    }

    pub(super) fn name(&mut self, names: &Names) {
        let late = self.ledger.name(names);
        self.total.extend(&late);
        self.open.extend(&late);
    }

    /// Takes only names, before the drains that they are for.
    pub(super) fn learn(&mut self, names: &Names) {
        self.ledger.learn(&names.names);
    }

    /// Takes the names of a drain that is not reported.
    pub(super) fn learn_places(&mut self, drain: &TasksDrain) {
        self.ledger.learn_places(drain);
    }

    pub(super) fn name_from(&mut self, folders: &[PathBuf]) -> Vec<Unfound> {
        let (names, unfound) = name_recorded(self.ledger.unnamed(&self.total), folders);
        self.ledger.learn(&names);
        unfound
    }

    /// Returns the functions with this name, by line and instruction.
    pub(super) fn annotate(&self, wanted: &str, owners: &[Pattern]) -> Result<Vec<Annotated>, Unmet> {
        annotate(&self.ledger, &self.total, wanted, owners)
    }

    /// Returns the part of this run in the report of several.
    pub(super) fn one_run(&self, report: &TasksReport) -> Vec<OneRun> {
        let trees = report.topdown.iter().flatten().filter_map(|topdown| topdown.owners.first());
        let each = self.header.plan.turns.iter().enumerate().zip(trees);
        each.map(|((at, turns), (_, tree))| OneRun::new((report.length_ns, tree), (at, turns), &self.total))
            .collect()
    }

    /// Returns the progress of tasks.
    pub(super) fn so_far(&self) -> SoFar {
        let is_sampled = !self.header.plan.sampling.is_empty();
        let events = || self.total.owners.values().flat_map(|counts| &counts.events);
        let samples = || events().map(|event| event.all().samples).fold(0, u64::saturating_add);
        let capacity = self.total.to_ns.saturating_mul(self.total.cpus.len() as u64);
        SoFar {
            owners: Some(self.total.owners.len()),
            samples: is_sampled.then(samples),
            lost: self.total.losses.values().copied().fold(0, u64::saturating_add),
            cost: (capacity > 0).then(|| self.ledger.cost().counting_cpu_ns() as f64 / capacity as f64),
        }
    }

    fn drill(&mut self, interval: &Interval) -> Next {
        // A tick without slices carries no information.
        if interval.slices.is_empty() || self.drilling.iter().all(Option::is_none) {
            return Next::new();
        }
        let all = topdown(&self.prepared, self.machine, self.header, &self.ledger, interval);
        let each = self.drilling.iter_mut().zip(&all);
        each.map(|(drilling, topdown)| Some(drilling.as_mut()?.after(topdown))).collect()
    }

    fn report(&self, interval: &Interval, into: &mut Report) {
        let (cpus, prepared) = (interval.cpus.len(), self.prepared.as_slice());
        into.tasks = Some(TasksReport::new(self.machine, self.header, &self.ledger, interval, prepared));
        into.lose(&interval.losses);
        into.missing.extend(shed::missing(self.header, interval));
        into.spend(CostReport::new(self.ledger.programs(), self.ledger.cost(), interval.to_ns, cpus));
    }
}

/// Returns the formulas of the metrics that a run measures, by core PMU. They come from `folder`, a perfmon
/// directory, if one is given.
pub(in crate::command) fn prepare(
    plan: &Plan,
    topology: &Topology,
    folder: Option<&Path>,
) -> Result<Vec<Prepared>, model::FindError> {
    let prepared = |(turns, metrics): (&Multiplexing, &Metrics)| {
        let model = model::load(&metrics.model, folder)?;
        let model = if metrics.without_shares { model.without_shares() } else { model };
        let forms = TaskForms::new(model, topology.smt);
        Ok(Prepared::new(forms, metrics, turns))
    };
    plan.by_core_type().map(prepared).collect()
}
