//! Series of the owners that had the CPUs for which a target's tasks waited. There are as many as targets:
//! for each its waits for itself and for others, and the waits of others for it. Pairs would be as many as
//! the targets, squared. `pmbpf run` has them.

use super::{
    families::Families,
    family::{Family, Kind},
    target,
    value::FamilyId,
};
use crate::{
    drain::Owner,
    metric::{
        OwnerOrTarget, Report,
        culprit::{Culprit, Waited},
    },
};

/// Families of waits, which end in `_seconds`.
struct Ids {
    itself: FamilyId,
    others: FamilyId,
    caused: FamilyId,
}

impl Ids {
    fn of(families: &mut Families) -> Self {
        let mut id = |name: &str, says: &str| {
            let family =
                Family::own(&format!("pmbpf_runqueue_{name}_seconds"), Kind::Counter, Some("seconds"), says);
            families.of_counter(family)
        };
        Self {
            itself: id("behind_itself", "Part of its run-queue latency in which its own tasks had the CPU."),
            others: id(
                "behind_others",
                "Part of its run-queue latency in which tasks of others had the CPU.",
            ),
            caused: id("caused", "Run-queue latency of other targets in which its tasks had the CPU."),
        }
    }
}

fn waited(report: &Report) -> &[Waited] {
    report.tasks.as_ref().map_or(&[], |tasks| &tasks.waited)
}

/// Registers the families of a run that measures culprits, which may have no waits for a long time.
pub(super) fn begin(families: &mut Families) {
    let _ = Ids::of(families);
}

/// Registers the families if a report has culprits, so that there is room for them.
pub(super) fn meet(report: &Report, families: &mut Families) {
    if !waited(report).is_empty() {
        begin(families);
    }
}

/// Passes the waits of every owner, and the waits of others for it, in seconds, to `take`.
pub(super) fn amounts<'r>(
    report: &'r Report,
    families: &mut Families,
    mut take: impl FnMut(&'r Owner, FamilyId, f64),
) {
    let all = waited(report);
    if all.is_empty() {
        return;
    }
    let ids = Ids::of(families);
    for waited in all {
        let OwnerOrTarget::Owner(victim) = &waited.who else { continue };
        for charge in &waited.charges {
            let seconds = charge.wait_ns as f64 * 1e-9;
            match &charge.culprit {
                Culprit::Owner(culprit) if is_same(victim, culprit) => take(victim, ids.itself, seconds),
                Culprit::Owner(culprit) => {
                    take(victim, ids.others, seconds);
                    take(culprit, ids.caused, seconds);
                }
                Culprit::Outside => take(victim, ids.others, seconds),
                Culprit::Idle | Culprit::Migrated | Culprit::Unknown => {}
            }
        }
    }
}

/// Returns whether two owners belong to one target, which is everything below its cgroup.
fn is_same(one: &Owner, other: &Owner) -> bool {
    one == other || target::name(one).is_some_and(|name| target::name(other) == Some(name))
}
