//! Culprits: tasks that had the CPUs for which an owner's tasks waited. Charged and uncharged waits add up to
//! the run-queue latency.

use std::collections::BTreeMap;

use super::{OwnerOrTarget, groups::Groups, owners::Above};
use crate::{
    drain::{Owner, TasksHeader, Work},
    model::{CulpritIndex, Interval, Ledger, OwnerIndex, added_up},
};

/// Holder of a CPU during a wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Culprit {
    /// Tasks of an owner, possibly of the victim itself.
    Owner(Owner),
    /// The CPU was idle, and had to wake up. In recordings of pmbpf 0.1 also as [`Culprit::Migrated`].
    Idle,
    /// Task outside the target.
    Outside,
    /// Not known: the task waited for another CPU first, and was moved.
    Migrated,
    /// Not known: the wait was too long ago, or there were too many.
    Unknown,
}

/// Part of an owner's waits that is charged to one culprit.
#[derive(Clone, Debug, PartialEq)]
pub struct Charge {
    /// Culprit that is charged.
    pub culprit: Culprit,
    /// Time for which it had the CPU, of all waits together, in ns.
    pub wait_ns: u64,
    /// Share of this time in the owner's run-queue latency (0 to 1).
    pub share: f64,
}

/// Culprits of the waits of one owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Waited {
    /// Victim of the waits.
    pub who: OwnerOrTarget,
    /// Sum of its run-queue latencies, in ns.
    pub wait_ns: u64,
    /// Culprits, the longest first; together they add up to that sum.
    pub charges: Vec<Charge>,
}

impl Waited {
    /// Returns the culprits of the target, then of every owner, those that waited longest first. Empty where
    /// a recording does not contain them.
    pub(super) fn of(
        header: &TasksHeader,
        ledger: &Ledger,
        interval: &Interval,
        groups: &Groups,
    ) -> Vec<Self> {
        if interval.charged.is_empty() || interval.stopped(Work::RunqueueLatency).is_some() {
            return Vec::new();
        }
        let above = Above::new(header, ledger);
        let rows = |owner| above.with(owner).map(|owner| Some(groups.of(owner))).chain([None]);
        let waited = interval.owners.iter().filter(|(_, counts)| counts.wait_ns > 0);
        let waits = waited.flat_map(|(&owner, counts)| rows(owner).map(|row| (row, counts.wait_ns)));
        let waits = added_up(waits.collect());
        let mut charged = charged(interval, groups, rows);
        // Names are looked up once for each pair, after its waits are added up.
        let named = |culprit| match culprit {
            CulpritIndex::Owner(owner) => Culprit::Owner(groups.owner(ledger, owner)),
            CulpritIndex::Idle => Culprit::Idle,
            CulpritIndex::Outside => Culprit::Outside,
            CulpritIndex::Migrated => Culprit::Migrated,
        };
        let waited = waits.into_iter().map(|(row, wait_ns)| {
            let who =
                row.map_or(OwnerOrTarget::Target, |row| OwnerOrTarget::Owner(groups.owner(ledger, row)));
            let charged = charged.remove(&row).unwrap_or_default();
            let charged =
                added_up(charged).into_iter().map(|(culprit, wait_ns)| (named(culprit), wait_ns)).collect();
            Self { who, wait_ns, charges: charges(wait_ns, charged) }
        });
        let mut waited: Vec<Self> = waited.collect();
        sort(&mut waited);
        waited
    }
}

/// Returns waits by row and culprit, in parts.
fn charged<R: Iterator<Item = Option<OwnerIndex>>>(
    interval: &Interval,
    groups: &Groups,
    rows: impl Fn(OwnerIndex) -> R,
) -> BTreeMap<Option<OwnerIndex>, Vec<(CulpritIndex, u64)>> {
    let mut charged: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut of_victim = Vec::new();
    let mut charges = interval.charged.iter().peekable();
    // Charges of a victim follow one another, so its rows are looked up once.
    while let Some((&(victim, culprit), &wait_ns)) = charges.next() {
        let culprit = match culprit {
            CulpritIndex::Owner(owner) => CulpritIndex::Owner(groups.of(owner)),
            other => other,
        };
        of_victim.push((culprit, wait_ns));
        if charges.peek().is_none_or(|&(&(next, _), _)| next != victim) {
            for row in rows(victim) {
                charged.entry(row).or_default().extend_from_slice(&of_victim);
            }
            of_victim.clear();
        }
    }
    charged
}

/// Sorts the target first, then the owners that waited longest.
pub(super) fn sort(waited: &mut [Waited]) {
    waited.sort_by(|a, b| {
        let target = |waited: &Waited| waited.who != OwnerOrTarget::Target;
        (target(a), b.wait_ns, &a.who).cmp(&(target(b), a.wait_ns, &b.who))
    });
}

/// Returns the culprits of waits of `wait_ns` in all; the rest without a culprit is [`Culprit::Unknown`].
fn charges(wait_ns: u64, mut charged: Vec<(Culprit, u64)>) -> Vec<Charge> {
    let known = charged.iter().map(|&(_, wait_ns)| wait_ns).fold(0, u64::saturating_add);
    if wait_ns > known {
        charged.push((Culprit::Unknown, wait_ns - known));
    }
    let share = |part: u64| part as f64 / wait_ns.max(known) as f64;
    let mut charges: Vec<Charge> = charged
        .into_iter()
        .map(|(culprit, wait_ns)| Charge { culprit, wait_ns, share: share(wait_ns) })
        .collect();
    charges.sort_by(|a, b| (b.wait_ns, &a.culprit).cmp(&(a.wait_ns, &b.culprit)));
    charges
}
