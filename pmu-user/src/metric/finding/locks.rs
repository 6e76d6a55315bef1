//! Convoys: threads that wait for each other's locks.

use super::{
    Cause, Finding, exact,
    rules::{LOCK_LEAST, LOCK_WAITS_LEAST, RATE_LEAST_NS},
    share_beside,
};
use crate::{
    metric::{OwnerReport, TasksReport, value::Known},
    table::{metric, unit::Unit},
};

/// Returns the finding on waits for locks, as a share of the time in which the owner's tasks had work: on a
/// CPU, waiting for one, or for a lock. Other waits, as of a pool of workers for requests, are not work that
/// a lock delays.
pub(super) fn convoy(report: &TasksReport, owner: &OwnerReport) -> Option<Finding> {
    let (time, waited) = (owner.value(&metric::CPU_TIME)?, exact(owner.rare.lock_wait_ns as f64));
    let is_much = waited.low > LOCK_LEAST * report.length_ns as f64;
    if !is_much || owner.rare.lock_waits < LOCK_WAITS_LEAST || report.length_ns < RATE_LEAST_NS {
        return None;
    }
    let queued = owner.waits.as_ref().map_or(0.0, |waits| waits.sum as f64);
    let other =
        Known { estimate: time.estimate + queued, low: time.low + queued, high: time.high + queued, ..*time };
    let mean = waited.times(1.0 / owner.rare.lock_waits as f64);
    let finding = Finding::of(Cause::Convoy, share_beside(waited.estimate, &other))?.of_whom(&owner.who);
    Some(
        finding
            .resting_on("lock_wait.time", Unit::Ns, waited)
            .resting_on("lock_wait.count", Unit::UNKNOWN, exact(owner.rare.lock_waits as f64))
            .resting_on("lock_wait.mean", Unit::Ns, mean)
            .resting_on(metric::CPU_TIME.name, Unit::Ns, *time),
    )
}
