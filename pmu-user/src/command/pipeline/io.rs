//! I/O: its drains, until they form a report.

use std::collections::BTreeSet;

use super::super::progress::SoFar;
use crate::{
    drain::io::{IoDrain, IoHeader},
    machine::Machine,
    metric::{
        CostReport, Report,
        io::{History, IoReport, Prepared, losses, missing},
    },
    model::io::{IoInterval, IoLedger},
    table::io::FindError,
    untrusted::Untrusted,
};

/// I/O of a run so far.
pub(super) struct IoPart<'a> {
    /// Number of online CPUs of the host.
    cpus: usize,
    prepared: Prepared<'a>,
    ledger: IoLedger,
    history: History,
    /// Interval since the last report.
    open: IoInterval,
    total: IoInterval,
}

impl<'a> IoPart<'a> {
    pub(super) fn new(machine: &Machine, header: &'a IoHeader) -> Result<Self, FindError> {
        Ok(Self {
            cpus: machine.cpu.online.len(),
            prepared: Prepared::new(header, &machine.topology)?,
            ledger: IoLedger::new(&header.plan),
            history: History::new(&header.plan),
            open: IoInterval::default(),
            total: IoInterval::default(),
        })
    }

    /// Returns whether a later report may have the cgroup at this path.
    pub(super) fn has_cgroup(&self, path: &Untrusted) -> bool {
        self.ledger.cgroups.id(path).is_some()
    }

    /// Records that a cgroup became a target.
    pub(super) fn follow(&mut self, path: &Untrusted) {
        let IoLedger { followed, cgroups, .. } = &mut self.ledger;
        followed.insert(path.clone(), |path| cgroups.id(path).is_some());
    }

    /// Takes a drain.
    pub(super) fn drain(&mut self, drain: IoDrain) {
        let tick = self.ledger.advance(drain);
        self.history.add(&self.prepared, &self.ledger, &tick);
        let reports = self.prepared.header.plan.interval.is_some();
        let into = if reports { &mut self.open } else { &mut self.total };
        into.append(tick);
        self.keep_within_bounds();
    }

    /// Takes a drain that is not reported, as the baseline of the counts.
    pub(super) fn skip(&mut self, drain: IoDrain) {
        self.ledger.advance(drain);
        self.keep_within_bounds();
    }

    /// Returns whether an interval is complete.
    pub(super) fn is_due(&self) -> bool {
        let plan = &self.prepared.header.plan;
        let Some(length) = plan.interval else { return false };
        // The kernel decides how far ticks are apart: one that is a little early ends its interval, too.
        let early = length.saturating_sub(plan.tick / 2);
        self.open.to_ns >= self.open.from_ns.saturating_add(early.as_nanos() as u64)
    }

    /// Returns whether anything is in the open interval.
    pub(super) const fn is_open(&self) -> bool {
        self.open.to_ns > self.open.from_ns
    }

    /// Adds the open interval to a report, and closes it.
    pub(super) fn interval(&mut self, into: &mut Report) {
        let open = std::mem::take(&mut self.open);
        let report = IoReport::new(&self.prepared, &self.ledger, &open);
        self.history.add_interval(&report);
        self.add(report, &open, into);
        self.total.append(open);
        self.keep_within_bounds();
    }

    fn keep_within_bounds(&mut self) {
        self.ledger.fold(&mut [&mut self.total, &mut self.open]);
    }

    /// Adds the whole run to a report.
    pub(super) fn whole(&self, into: &mut Report) {
        let report = self.history.report(&self.prepared, &self.ledger, &self.total);
        self.add(report, &self.total, into);
    }

    /// Returns the progress of I/O.
    pub(super) fn so_far(&self) -> SoFar {
        let parts = || [&self.total, &self.open].into_iter().filter_map(|part| part.traffic.as_ref());
        let owners = parts().flat_map(|traffic| traffic.block.keys()).map(|key| key.whose);
        let lost = parts().flat_map(|traffic| traffic.losses.values()).copied();
        let last = &self.ledger.last;
        let capacity = last.at_ns.saturating_mul(self.cpus as u64);
        SoFar {
            owners: parts().next().map(|_| owners.collect::<BTreeSet<_>>().len()),
            samples: None,
            lost: lost.fold(0, u64::saturating_add),
            cost: (capacity > 0).then(|| self.ledger.cost.counting_cpu_ns() as f64 / capacity as f64),
        }
    }

    fn add(&self, report: IoReport, interval: &IoInterval, into: &mut Report) {
        let last = &self.ledger.last;
        into.io = Some(report);
        into.missing.extend(missing(&self.prepared, &self.ledger, interval));
        into.lose(losses(interval));
        into.spend(CostReport::new(&last.programs, self.ledger.cost, last.at_ns, self.cpus));
    }
}
