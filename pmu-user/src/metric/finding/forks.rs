//! Processes that begin and end faster than they do work, regardless of the rows that they are in.

use super::{Cause, Finding, exact, rate, rules::RATE_LEAST_NS, waits::is_above};
use crate::{
    drain::Owner,
    metric::{OwnerOrTarget, OwnerReport, TasksReport},
    table::unit::Unit,
    untrusted::Untrusted,
};

/// Returns the finding on processes that exited during counting, with the name or the cgroup of most of them.
pub(super) fn fork_storm(report: &TasksReport) -> Option<Finding> {
    if report.length_ns < RATE_LEAST_NS {
        return None;
    }
    let all = exact(report.total.rare.exits as f64);
    let finding = Finding::of(Cause::ForkStorm, rate(&all, &exact(report.length_ns as f64)))?;
    let most = most(report.by_program())?;
    let finding = finding.naming(name(most)).resting_on("processes_ended", Unit::UNKNOWN, all);
    Some(finding.resting_on("processes_ended.most", Unit::UNKNOWN, exact(most.rare.exits as f64)))
}

/// Returns the owner with most exits. Of nested cgroups it is the innermost with at least half of the exits
/// of the one above.
fn most(rows: &[OwnerReport]) -> Option<&OwnerReport> {
    let mut most = rows.iter().max_by_key(|row| row.rare.exits)?;
    loop {
        let below = rows.iter().filter(|row| holds(most, row) && 2 * row.rare.exits >= most.rare.exits);
        match below.max_by_key(|row| row.rare.exits) {
            Some(inner) => most = inner,
            None => return Some(most),
        }
    }
}

/// Returns whether the first owner is a cgroup above the second.
fn holds(above: &OwnerReport, row: &OwnerReport) -> bool {
    match (above.who.owner(), row.who.owner()) {
        (Some(Owner::Cgroup { path: above, .. }), Some(Owner::Cgroup { path, .. })) => is_above(above, path),
        _ => false,
    }
}

/// Returns the name of a row's processes.
fn name(row: &OwnerReport) -> Option<Untrusted> {
    match &row.who {
        OwnerOrTarget::Owner(owner) => called(owner).cloned(),
        OwnerOrTarget::Target => None,
    }
}

/// Returns the name of an owner, without what distinguishes it from others of that name.
pub(super) const fn called(owner: &Owner) -> Option<&Untrusted> {
    match owner {
        Owner::Process { name, .. }
        | Owner::Ended { name, .. }
        | Owner::Program { name, .. }
        | Owner::Thread { name, .. }
        | Owner::Comm { name }
        | Owner::Exe { name }
        | Owner::Cgroup { path: name, .. } => Some(name),
        Owner::Other => None,
    }
}
