//! Who had the CPUs that a target's tasks waited for, in series that are as many as there are targets: of each what it waited for
//! itself and for others, and what others waited for it. Pairs would be as many as the targets, squared; `pmbpf run` has them.

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
            itself: id("behind_itself", "Of its run-queue latency, while its own tasks had the CPU."),
            others: id("behind_others", "Of its run-queue latency, while tasks of others had the CPU."),
            caused: id("caused", "Run-queue latency of other targets while its tasks had the CPU."),
        }
    }
}

fn waited(report: &Report) -> &[Waited] {
    report.tasks.as_ref().map_or(&[], |tasks| &tasks.waited)
}

/// Registers the families of a run that measures culprits, in which nothing may wait for long.
pub(super) fn begin(families: &mut Families) {
    let _ = Ids::of(families);
}

/// Meets the families where a report tells culprits, so that there is room for them.
pub(super) fn meet(report: &Report, families: &mut Families) {
    if !waited(report).is_empty() {
        begin(families);
    }
}

/// Gives what every owner waited, and what others waited for it, in seconds, to `take`.
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

/// Are two owners of one target, which is everything below its cgroup?
fn is_same(one: &Owner, other: &Owner) -> bool {
    one == other || target::name(one).is_some_and(|name| target::name(other) == Some(name))
}
