//! From an interval to the report of `pmbpf io`: every number of everything that was counted, or the reason why it is missing.

use super::{
    BoxCounts, Check, IoMetrics, IoReport, Names, Place, Requesters, Row, apportion,
    choice::chosen,
    groups,
    maximum::utilization,
    owners,
    places::places,
    traffic::{self, UNSEEN},
};
use crate::{
    drain::{Absent, COST_WINDOW_NS, TARGET_UNSEEN, io::IoHeader},
    model::io::{IoInterval, IoLedger, traffic::TrafficInterval},
    table::io::{FindError, load},
};

/// A run's tables, ready to be evaluated for any interval.
#[derive(Clone, Debug)]
pub struct Prepared<'a> {
    /// The run.
    pub header: &'a IoHeader,
    pub(super) metrics: Option<IoMetrics>,
    /// Devices that IOMMUs count for by themselves.
    requesters: Requesters,
    places: Vec<Place>,
}

impl<'a> Prepared<'a> {
    /// Prepares the tables of the run that `header` describes.
    ///
    /// # Errors
    ///
    /// A table cannot be read.
    pub fn new(header: &'a IoHeader) -> Result<Self, FindError> {
        let plan = &header.plan;
        let table = plan.table.as_deref().map(load).transpose()?;
        let metrics = table.map(|table| IoMetrics::new(table, plan));
        Ok(Self { header, metrics, requesters: Requesters::new(plan)?, places: places(plan) })
    }

    /// Rows of what boxes counted: of devices and what of them is whose, then of places.
    fn rows(&self, ledger: &IoLedger, counts: &BoxCounts<'_>, names: Names<'_>) -> Vec<Row> {
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
        rows.extend(utilization(&rows, self.header));
        rows
    }
}

impl IoReport {
    /// Computes the report of `interval`. Pure.
    #[must_use]
    pub fn new(prepared: &Prepared<'_>, ledger: &IoLedger, interval: &IoInterval) -> Self {
        let (header, traffic) = (prepared.header, interval.traffic.as_ref());
        let counts = BoxCounts::new(&header.plan, interval);
        let names = Names::new(header, ledger);
        let mut rows = prepared.rows(ledger, &counts, names);
        let checks = prepared.metrics.as_ref().map(|metrics| metrics.checks(&counts)).unwrap_or_default();
        rows.extend(checks.iter().map(Check::row));
        rows.extend(groups::rows(&interval.groups));
        rows.extend(traffic.iter().flat_map(|traffic| traffic::rows(traffic, names)));
        rows.extend(traffic.iter().flat_map(|traffic| owners::rows(traffic, names)));
        let lost = traffic.iter().flat_map(|traffic| traffic.losses.iter().chain(&traffic.missed));
        let lost = lost.map(|(reason, count)| (reason.clone(), *count));
        Self {
            from_ns: interval.from_ns,
            // A recording may hold anything, drains in disorder too.
            length_ns: interval.to_ns.saturating_sub(interval.from_ns),
            rows: chosen(rows, &header.plan.report, &header.platform),
            levels: Vec::new(),
            maps: Vec::new(),
            checks,
            missing: missing(header, ledger, interval),
            losses: ledger.last.losses.iter().cloned().chain(lost).collect(),
            cost: ledger.last.cost,
            programs_ns: programs_ns(ledger),
        }
    }
}

fn missing(header: &IoHeader, ledger: &IoLedger, interval: &IoInterval) -> Vec<Absent> {
    let partly = groups::missing(&interval.groups);
    let never = |absent: &&Absent| !partly.iter().any(|partly| partly.what == absent.what);
    let untold = ledger.untold.iter().filter(never);
    let plan = &header.plan;
    let is_unseen = |traffic: &&TrafficInterval| traffic.losses.contains_key(TARGET_UNSEEN);
    let unseen = interval.traffic.as_ref().filter(is_unseen).map(|_| Absent {
        what: format!("block requests of {}", plan.target.in_words(plan.inherit, plan.descend)),
        why: UNSEEN.to_owned(),
    });
    header.missing.iter().chain(untold).chain(&partly).cloned().chain(unseen).collect()
}

/// What the programs cost until now: as much as while they were measured.
fn programs_ns(ledger: &IoLedger) -> u64 {
    let measured = ledger.last.programs.iter().map(|program| program.measured_ns);
    let measured = measured.fold(0, u64::saturating_add);
    let times = (ledger.last.at_ns as f64 / COST_WINDOW_NS as f64).max(1.0);
    (measured as f64 * times) as u64
}
