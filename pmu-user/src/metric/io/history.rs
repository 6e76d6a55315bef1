//! What only the report of a whole run says, because it takes every tick: for how long bandwidths were at which level, whether the
//! traffic agrees with the map, and how often counters that always run did with metrics.

use super::{
    BoxCounts, IoReport, Level, LevelReport, Levels, Names, Prepared, agreement::Agreement, check::Ticks,
    maximum::maxima,
};
use crate::{
    model::io::{IoInterval, IoLedger},
    plan::io::IoPlan,
};

/// Ticks so far.
#[derive(Clone, Debug)]
pub struct History {
    levels: Levels,
    /// None where no stack is counted: the host's summary says why, once.
    agreement: Option<Agreement>,
    /// Of the intervals that are reported, if there are any.
    ticks: Ticks,
}

impl History {
    /// Nothing yet, for a run that counts what `plan` says.
    #[must_use]
    pub fn new(plan: &IoPlan) -> Self {
        let agreement = plan.counts_stacks().then(|| Agreement::new(plan));
        Self { levels: Levels::default(), agreement, ticks: Ticks::default() }
    }

    /// Adds a tick.
    pub fn add(&mut self, prepared: &Prepared<'_>, ledger: &IoLedger, tick: &IoInterval) {
        let (header, Some(metrics)) = (prepared.header, &prepared.metrics) else { return };
        self.levels.add(metrics, &header.plan, tick);
        let counts = BoxCounts::new(&header.plan, tick);
        // The first drain of traffic has nothing before it.
        let traffic = tick.traffic.as_ref().filter(|traffic| traffic.duration_ns > 0);
        if let (Some(agreement), Some(traffic)) = (&mut self.agreement, traffic) {
            agreement.add(metrics, &counts, Names::new(header, ledger), traffic);
        }
        if header.plan.interval.is_none() {
            self.ticks.add(&metrics.checks(&counts));
        }
    }

    /// Adds an interval that is reported.
    pub fn add_interval(&mut self, report: &IoReport) {
        self.ticks.add(&report.checks);
    }

    /// The report of the whole run, in which `total` was counted.
    #[must_use]
    pub fn report(&self, prepared: &Prepared<'_>, ledger: &IoLedger, total: &IoInterval) -> IoReport {
        let (header, metrics) = (prepared.header, &prepared.metrics);
        let level = |seen: LevelReport| {
            let limits = header.plan.report.limits.iter().find(|limits| limits.name == seen.name);
            let limits = limits.map(|limits| [limits.low, limits.high]);
            let known = maxima(header, seen.name);
            Level::new(seen, &known, limits)
        };
        let seen = metrics.iter().flat_map(|metrics| self.levels.report(metrics));
        let names = Names::new(header, ledger);
        let mut report = IoReport {
            levels: seen.map(level).collect(),
            maps: self.agreement.iter().flat_map(|agreement| agreement.report(names)).collect(),
            ..IoReport::new(prepared, ledger, total)
        };
        self.ticks.tell(&mut report.checks);
        report.missing.extend_from_slice(&ledger.last.gone);
        report
    }
}

#[cfg(test)]
mod tests;
