//! Limits of I/O that throttle a cgroup: its throughput compared with the limit.

use super::{Cause, Finding, exact};
use crate::{
    machine::io_limit::Submitted,
    metric::{
        IoLimited, Limited, OwnerOrTarget,
        io::{IoReport, Subject},
        value::Known,
    },
    table::metric::{self, Metric},
};

/// Returns the limits that are used up, in no order. The throughput is in `report`. For a v1 hierarchy the
/// kernel counts it, over `length_ns`.
pub(super) fn findings(limits: &[Limited], report: Option<&IoReport>, length_ns: u64) -> Vec<Finding> {
    let of = |of: &Limited, limit: &IoLimited| found(of, limit, report, length_ns);
    limits.iter().flat_map(|limited| limited.io.iter().filter_map(move |limit| of(limited, limit))).collect()
}

fn found(of: &Limited, limit: &IoLimited, report: Option<&IoReport>, length_ns: u64) -> Option<Finding> {
    let (rate, size) = (rate_of(&limit.metric), &metric::BLOCK_REQUEST_SIZE);
    let whose = Subject::Owner(of.owner.clone(), Box::new(limit.subject.clone()));
    let measured = |wanted: &Metric| {
        let mut rows = report?.rows.iter().filter(|row| row.metric == wanted.name && row.subject == whose);
        rows.next()?.value.known().copied()
    };
    // A kernel worker submits throttled requests. They carry their cgroup of the v1 hierarchy only, so none
    // is attributed to this cgroup.
    let value = |wanted: &Metric| match limit.limit.submitted {
        Some(submitted) => counted(submitted, wanted, length_ns),
        None => measured(wanted),
    };
    let (moved, most) = (value(&rate)?, *limit.value.known()?);
    let used = share(&moved, most.estimate)?;
    let mut finding = Finding::of(Cause::IoLimited, used)?
        .of_whom(&OwnerOrTarget::Owner(of.owner.clone()))
        .about(&limit.subject)
        .resting_on(rate.name, rate.unit, moved)
        .resting_on(limit.metric.name, limit.metric.unit, most);
    for beside in [&metric::BLOCK_REQUESTS_RATE, size].into_iter().filter(|beside| **beside != rate) {
        if let Some(known) = value(beside) {
            finding = finding.resting_on(beside.name, beside.unit, known);
        }
    }
    finding.names.push(limit.limit.in_words().into());
    Some(finding)
}

/// Returns a metric of the kernel's counts over `length_ns`.
fn counted(Submitted { bytes, bios }: Submitted, wanted: &Metric, length_ns: u64) -> Option<Known> {
    let (bytes, bios, seconds) = (bytes as f64, bios as f64, length_ns as f64 / 1e9);
    let value = if *wanted == metric::BLOCK_BANDWIDTH {
        bytes / 1e6 / seconds
    } else if *wanted == metric::BLOCK_REQUEST_SIZE {
        bytes / bios
    } else {
        bios / seconds
    };
    value.is_finite().then(|| exact(value))
}

/// Returns the metric that a limit bounds.
fn rate_of(limit: &Metric) -> Metric {
    if *limit == metric::IO_MAX_RBPS || *limit == metric::IO_MAX_WBPS {
        metric::BLOCK_BANDWIDTH
    } else {
        metric::BLOCK_REQUESTS_RATE
    }
}

/// Returns the throughput as a share of the limit, in per cent. A run may begin with a saved-up burst, which
/// is capped at the limit.
fn share(moved: &Known, most: f64) -> Option<Known> {
    let of = |moved: f64| (100.0 * moved / most).min(100.0);
    (most > 0.0).then(|| Known {
        estimate: of(moved.estimate),
        low: of(moved.low),
        high: of(moved.high),
        ..*moved
    })
}
