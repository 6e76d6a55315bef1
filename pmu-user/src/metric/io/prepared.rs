//! Report of `pmbpf io` for an interval: every value that was counted, or the reason why it is missing.
//!
//! Some results need every tick, so only the report of a whole run has them: time of bandwidths at each
//! level, agreement of traffic with the map, and agreement of free-running counters with metrics.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Check, FormulaText, IoMetrics, IoReport, Level, LevelReport, Levels, Names, Requesters, Row, Scope,
    UncoreCounts, apportion,
    check::Ticks,
    groups, kernel,
    levels::{maxima, utilization},
    owners,
    port_map::Agreement,
    row_filter::chosen,
    scopes::places,
    traffic::{self, UNSEEN},
};
use crate::{
    drain::{Absent, TARGET_UNSEEN, io::IoHeader},
    machine::topology::Topology,
    model::io::{IoInterval, IoLedger, traffic::TrafficInterval},
    plan::io::IoPlan,
    table::{
        io::{FindError, load},
        model::{Metric, Model},
    },
};

/// Tables of a run, ready to be evaluated for any interval.
#[derive(Clone, Debug)]
pub struct Prepared<'a> {
    /// Header of the run.
    pub header: &'a IoHeader,
    sockets: f64,
    pub(super) metrics: Option<IoMetrics>,
    /// Devices that an IOMMU counts separately.
    requesters: Requesters,
    places: Vec<Scope>,
}

impl<'a> Prepared<'a> {
    /// Prepares the tables of the run that `header` describes, on a host of this topology.
    ///
    /// # Errors
    ///
    /// A table cannot be read.
    pub fn new(header: &'a IoHeader, topology: &Topology) -> Result<Self, FindError> {
        let plan = &header.plan;
        let table = plan.table.as_deref().map(load).transpose()?;
        let metrics = table.map(|table| IoMetrics::new(table, plan));
        let sockets = f64::from(topology.sockets.unwrap_or(1).max(1));
        Ok(Self { header, sockets, metrics, requesters: Requesters::new(plan)?, places: places(plan) })
    }

    /// Returns rows of uncore PMU counts: of devices with the shares of their owners, then of scopes.
    fn rows(&self, ledger: &IoLedger, counts: &UncoreCounts<'_>, names: Names<'_>) -> Vec<Row> {
        let (plan, platform) = (&self.header.plan, &self.header.platform);
        let mut rows = self.requesters.rows(counts, names, &ledger.owned);
        let Some(metrics) = &self.metrics else { return rows };
        for port in &platform.ports {
            let of_port = metrics.of_port(counts, platform, port);
            if let Some(traffic) = &counts.interval.traffic {
                rows.extend(apportion::rows(&of_port, port, traffic, names, &ledger.owned, &plan.target));
            }
            rows.extend(of_port);
        }
        rows.extend(self.places.iter().flat_map(|&place| metrics.rows(counts, place)));
        rows.extend(utilization(&rows, self.header, self.sockets));
        rows
    }
}

impl IoReport {
    /// Computes the report of `interval`. Pure.
    pub fn new(prepared: &Prepared<'_>, ledger: &IoLedger, interval: &IoInterval) -> Self {
        let (header, traffic) = (prepared.header, interval.traffic.as_ref());
        let counts = UncoreCounts::new(&header.plan, interval);
        let names = Names::new(header, ledger);
        let mut rows = prepared.rows(ledger, &counts, names);
        let checks = prepared.metrics.as_ref().map(|metrics| metrics.checks(&counts)).unwrap_or_default();
        rows.extend(checks.iter().map(Check::row));
        rows.extend(groups::rows(&interval.groups));
        rows.extend(traffic.iter().flat_map(|traffic| traffic::rows(traffic, names)));
        rows.extend(kernel::rows(&interval.kernel));
        rows.extend(traffic.iter().flat_map(|traffic| owners::rows(traffic, names)));
        Self {
            from_ns: interval.from_ns,
            // A recording may hold anything, including drains out of order.
            length_ns: interval.to_ns.saturating_sub(interval.from_ns),
            traffic_ns: interval.traffic.as_ref().map_or(0, |traffic| traffic.duration_ns),
            rows: chosen(rows, &header.plan.report, &header.platform),
            programs: Vec::new(),
            members: BTreeMap::new(),
            order: BTreeMap::new(),
            levels: Vec::new(),
            formulas: Vec::new(),
            maps: Vec::new(),
            checks,
        }
    }
}

/// Returns what turned out to be missing in the interval or in the run so far.
pub fn missing(prepared: &Prepared<'_>, ledger: &IoLedger, interval: &IoInterval) -> Vec<Absent> {
    let partly = groups::missing(&interval.groups);
    let never = |absent: &&Absent| !partly.iter().any(|partly| partly.what == absent.what);
    let untold = ledger.untold.iter().filter(never);
    let plan = &prepared.header.plan;
    let is_unseen = |traffic: &&TrafficInterval| traffic.losses.contains_key(TARGET_UNSEEN);
    let unseen = interval.traffic.as_ref().filter(is_unseen).map(|_| Absent {
        what: format!("block requests of {}", plan.target.in_words(plan.inherit, plan.descend)),
        why: UNSEEN.to_owned(),
    });
    untold.chain(&partly).cloned().chain(unseen).chain(ledger.last.gone.iter().cloned()).collect()
}

/// Returns the losses of the interval, by reason.
pub fn losses(interval: &IoInterval) -> impl Iterator<Item = (&String, &u64)> {
    let of_traffic = interval.traffic.iter().flat_map(|traffic| traffic.losses.iter().chain(&traffic.missed));
    interval.losses.iter().chain(of_traffic)
}

/// State accumulated over the ticks of a run.
#[derive(Clone, Debug)]
pub struct History {
    levels: Levels,
    /// Agreement of traffic with the map. None where no stack is counted: the host's summary gives the
    /// reason, once.
    agreement: Option<Agreement>,
    /// Verdicts of checks, by reported interval if there are any, else by tick.
    ticks: Ticks,
}

impl History {
    /// Returns an empty history for a run of `plan`.
    pub fn new(plan: &IoPlan) -> Self {
        let agreement = plan.counts_stacks().then(|| Agreement::new(plan));
        Self { levels: Levels::default(), agreement, ticks: Ticks::default() }
    }

    /// Adds a tick.
    pub fn add(&mut self, prepared: &Prepared<'_>, ledger: &IoLedger, tick: &IoInterval) {
        let (header, Some(metrics)) = (prepared.header, &prepared.metrics) else { return };
        self.levels.add(metrics, &header.plan, tick);
        let counts = UncoreCounts::new(&header.plan, tick);
        // The first drain of traffic has no predecessor.
        let traffic = tick.traffic.as_ref().filter(|traffic| traffic.duration_ns > 0);
        if let (Some(agreement), Some(traffic)) = (&mut self.agreement, traffic) {
            agreement.add(metrics, &counts, Names::new(header, ledger), traffic);
        }
        if header.plan.interval.is_none() {
            self.ticks.add(&metrics.checks(&counts));
        }
    }

    /// Adds a reported interval.
    pub fn add_interval(&mut self, report: &IoReport) {
        self.ticks.add(&report.checks);
    }

    /// Returns the report of the whole run, over which `total` was counted.
    pub fn report(&self, prepared: &Prepared<'_>, ledger: &IoLedger, total: &IoInterval) -> IoReport {
        let (header, metrics) = (prepared.header, &prepared.metrics);
        let level = |seen: LevelReport| {
            let limits = header.plan.report.limits.iter().find(|limits| limits.name == seen.name);
            let limits = limits.map(|limits| [limits.low, limits.high]);
            let known = maxima(header, prepared.sockets, seen.name);
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
        let measured: BTreeSet<&str> = report.rows.iter().map(|row| row.metric.as_str()).collect();
        let formulas = metrics.iter().flat_map(|metrics| formulas(&metrics.table.model, &measured));
        report.formulas = formulas.collect();
        report
    }
}

/// Returns the formulas of `metrics`.
fn formulas(model: &Model, metrics: &BTreeSet<&str>) -> impl Iterator<Item = FormulaText> {
    let is_wanted = |metric: &&Metric| metrics.contains(metric.name.as_str());
    model.metrics.iter().filter(is_wanted).map(|metric| FormulaText {
        metric: metric.name.clone(),
        unit: metric.unit,
        text: model.formula_of(metric),
    })
}
