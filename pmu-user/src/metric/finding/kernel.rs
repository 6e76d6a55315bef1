//! Findings on what the kernel already accounts: limits of cgroups, and pressure.

use super::{
    Cause, Finding, exact,
    rules::{PERIODS_LEAST, STALLED_LEAST_NS},
};
use crate::{
    drain::TasksHeader,
    metric::{Limited, OwnerOrTarget, Pressure, TasksReport, Throttled},
    plan::Target,
    table::{
        metric::{self, Metric},
        unit::Unit,
    },
};

/// Returns the findings, in no order.
pub(super) fn findings(header: &TasksHeader, report: &TasksReport) -> Vec<Finding> {
    let mut found: Vec<Finding> = report.throttled.iter().filter_map(throttled).collect();
    for of in &report.limits {
        found.extend(limit(of, Cause::OomKill, &metric::MEMORY_OOM_KILLS, &metric::MEMORY_MAX));
        found.extend(limit(of, Cause::MemoryHigh, &metric::MEMORY_HIGH_EVENTS, &metric::MEMORY_HIGH));
    }
    // The pressure of the host is not a finding on a target.
    let is_of_it = |pressure: &&Pressure| pressure.whose.is_some() || header.plan.target == Target::System;
    for of in report.pressure.iter().filter(is_of_it) {
        let memory = pressure(report, of, Cause::MemoryPressure, &metric::PRESSURE_MEMORY_SOME);
        let io = pressure(report, of, Cause::IoPressure, &metric::PRESSURE_IO_FULL);
        found.extend([memory, io].into_iter().flatten());
    }
    found
}

/// Returns the finding on a limit that throttled a cgroup, with the time that it lost.
fn throttled(limit: &Throttled) -> Option<Finding> {
    let (share, time) =
        (limit.share.known().filter(|_| limit.periods >= PERIODS_LEAST)?, limit.time.known()?);
    let finding = Finding::of(Cause::Throttled, *share)?.of_whom(&OwnerOrTarget::Owner(limit.owner.clone()));
    let periods = exact(limit.periods as f64);
    let finding = finding.resting_on(metric::THROTTLED_TIME.name, Unit::Ns, *time).resting_on(
        "periods",
        Unit::UNKNOWN,
        periods,
    );
    let Some(of) = limit.limit else { return Some(finding) };
    let [quota, period] = of.files();
    Some(finding.resting_on(quota, Unit::Ns, exact(of.quota_ns as f64)).resting_on(
        period,
        Unit::Ns,
        exact(of.period_ns as f64),
    ))
}

/// Returns the finding on a limit of memory that was reached.
fn limit(of: &Limited, cause: Cause, events: &Metric, limit: &Metric) -> Option<Finding> {
    let finding = Finding::of(cause, *of.value(events)?)?.of_whom(&OwnerOrTarget::Owner(of.owner.clone()));
    let known = of.value(limit);
    Some(known.into_iter().fold(finding, |finding, known| finding.resting_on(limit.name, limit.unit, *known)))
}

/// Returns the finding on the time for which tasks stalled.
fn pressure(report: &TasksReport, of: &Pressure, cause: Cause, metric: &Metric) -> Option<Finding> {
    let share = of.share(metric)?;
    let stalled = share.times(report.length_ns as f64 / 100.0);
    let finding = Finding::of(cause, *share).filter(|_| stalled.low >= STALLED_LEAST_NS)?;
    let finding = finding.resting_on("stalled_time", Unit::Ns, stalled);
    Some(match &of.whose {
        Some(owner) => finding.of_whom(&OwnerOrTarget::Owner(owner.clone())),
        None => finding,
    })
}
