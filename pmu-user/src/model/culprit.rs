//! Culprits, which had the CPUs that owners waited for.

use std::collections::BTreeMap;

use foldhash::HashMap;

use super::owner::OwnerIndex;
use crate::{
    drain::{Culprit, CulpritRow, SlotId},
    machine::cpu::Cpu,
};

/// Owner or task that had a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CulpritIndex {
    /// An owner, which may be the victim itself: others of its tasks.
    Owner(OwnerIndex),
    /// The idle task.
    Idle,
    /// A task that no owner counts for.
    Outside,
    /// Not known: the victim waited for another CPU than the one it got.
    Migrated,
}

/// Waits in ns by victim and culprit.
pub(super) type Charged = BTreeMap<(OwnerIndex, CulpritIndex), u64>;

/// The last reading of every charge.
#[derive(Debug, Default)]
pub(super) struct Charges(HashMap<(Cpu, SlotId, Culprit), u64>);

impl Charges {
    /// Returns the charges since the previous reading. Sums in ns never wrap. Only a recording can hold a sum
    /// that is smaller than before.
    pub(super) fn advance(
        &mut self,
        rows: &[CulpritRow],
        index_of: impl Fn(SlotId) -> OwnerIndex,
    ) -> Charged {
        let mut grown = Vec::with_capacity(rows.len());
        for &CulpritRow { cpu, victim, culprit, wait_ns } in rows {
            let before = self.0.insert((cpu, victim, culprit), wait_ns).unwrap_or(0);
            let culprit = match culprit {
                Culprit::Slot(slot) => CulpritIndex::Owner(index_of(slot)),
                Culprit::Idle => CulpritIndex::Idle,
                Culprit::Outside => CulpritIndex::Outside,
                Culprit::Migrated => CulpritIndex::Migrated,
            };
            grown.push(((index_of(victim), culprit), wait_ns.saturating_sub(before)));
        }
        // Building a tree from ordered pairs costs less than inserting them as they come.
        added_up(grown).into_iter().collect()
    }

    /// Drops the charges of slot lives that are over.
    pub(super) fn retain(&mut self, alive: impl Fn(&SlotId) -> bool) {
        self.0.retain(|(_, victim, culprit), _| {
            alive(victim) && !matches!(culprit, Culprit::Slot(slot) if !alive(slot))
        });
    }
}

/// Returns the sums by key, in the order of the keys.
pub fn added_up<K: Ord + Copy>(mut times: Vec<(K, u64)>) -> Vec<(K, u64)> {
    times.sort_unstable_by_key(|&(key, _)| key);
    times.dedup_by(|(key, more), (kept, sum)| {
        let is_same = key == kept;
        if is_same {
            *sum = sum.saturating_add(*more);
        }
        is_same
    });
    times
}

/// Adds the charges of another interval.
pub(super) fn merge(into: &mut Charged, more: &Charged) {
    for (&pair, &wait_ns) in more {
        let sum = into.entry(pair).or_default();
        *sum = sum.saturating_add(wait_ns);
    }
}

/// Moves the waits of owners, and the charges to them, to the owners that stand for them.
pub(super) fn fold(charged: &mut Charged, target: impl Fn(OwnerIndex) -> OwnerIndex) {
    for ((victim, culprit), wait_ns) in std::mem::take(charged) {
        let culprit = match culprit {
            CulpritIndex::Owner(owner) => CulpritIndex::Owner(target(owner)),
            other => other,
        };
        let sum = charged.entry((target(victim), culprit)).or_default();
        *sum = sum.saturating_add(wait_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::{Charged, Charges, CulpritIndex, OwnerIndex, fold, merge};
    use crate::{
        drain::{Culprit, CulpritRow, SlotId},
        machine::cpu::Cpu,
    };

    const fn slot(slot: u32, generation: u32) -> SlotId {
        SlotId { slot, generation }
    }

    fn row(cpu: u32, victim: SlotId, culprit: Culprit, wait_ns: u64) -> CulpritRow {
        CulpritRow { cpu: Cpu(cpu), victim, culprit, wait_ns }
    }

    /// Returns a slot's owner in these tests.
    fn index_of(slot: SlotId) -> OwnerIndex {
        OwnerIndex(10 * slot.generation + slot.slot)
    }

    #[test]
    fn what_is_new_is_charged_and_cpus_are_added_up() {
        let mut charges = Charges::default();
        let hog = Culprit::Slot(slot(2, 0));
        charges.advance(&[row(0, slot(1, 0), hog, 100), row(0, slot(1, 0), Culprit::Idle, 5)], index_of);
        let next = [row(0, slot(1, 0), hog, 140), row(1, slot(1, 0), hog, 7)];
        let charged = charges.advance(&next, index_of);
        assert_eq!(charged, Charged::from([((OwnerIndex(1), CulpritIndex::Owner(OwnerIndex(2))), 47)]));
    }

    #[test]
    fn a_slot_in_another_life_begins_at_zero() {
        let mut charges = Charges::default();
        charges.advance(&[row(0, slot(1, 0), Culprit::Idle, 100)], index_of);
        let charged = charges.advance(&[row(0, slot(1, 1), Culprit::Idle, 30)], index_of);
        assert_eq!(charged, Charged::from([((OwnerIndex(11), CulpritIndex::Idle), 30)]));
        charges.retain(|slot| slot.generation > 0);
        assert_eq!(charges.0.len(), 1);
    }

    #[test]
    fn a_sum_that_goes_back_charges_nothing() {
        let mut charges = Charges::default();
        let charged = [100, 30, 50].map(|wait_ns| {
            charges
                .advance(&[row(0, slot(1, 0), Culprit::Idle, wait_ns)], index_of)
                .into_values()
                .sum::<u64>()
        });
        assert_eq!(charged, [100, 0, 20]);
    }

    #[test]
    fn folding_and_merging_keep_the_sum() {
        let of = |owner| CulpritIndex::Owner(OwnerIndex(owner));
        let mut charged = Charged::from([((OwnerIndex(1), of(2)), 3), ((OwnerIndex(4), of(5)), 20)]);
        merge(&mut charged, &Charged::from([((OwnerIndex(1), of(2)), 100)]));
        fold(&mut charged, |owner| if owner.0 > 3 { OwnerIndex(owner.0 - 3) } else { owner });
        assert_eq!(charged, Charged::from([((OwnerIndex(1), of(2)), 123)]));
    }
}
