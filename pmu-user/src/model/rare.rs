//! Rare events of owners between readings: exits of processes, waits for locks.

use std::collections::BTreeMap;

use foldhash::HashMap;

use pmu_common::owner::Rare;

use super::OwnerIndex;
use crate::drain::{RareRow, SlotId};

/// Rare events in an interval, by owner.
pub type Rarely = BTreeMap<OwnerIndex, Rare>;

/// The last reading of every slot.
#[derive(Debug, Default)]
pub(super) struct RareReadings(HashMap<SlotId, Rare>);

impl RareReadings {
    /// Returns the events since the previous reading.
    pub(super) fn advance(&mut self, row: &RareRow) -> Rare {
        let last = self.0.insert(row.slot, row.so_far).unwrap_or(Rare::ZERO);
        // A recording may hold readings in any order.
        Rare {
            exits: row.so_far.exits.saturating_sub(last.exits),
            lock_waits: row.so_far.lock_waits.saturating_sub(last.lock_waits),
            lock_wait_ns: row.so_far.lock_wait_ns.saturating_sub(last.lock_wait_ns),
        }
    }

    /// Drops slot lives that are over.
    pub(super) fn retain(&mut self, alive: impl Fn(&SlotId) -> bool) {
        self.0.retain(|slot, _| alive(slot));
    }
}

/// Adds the events of one owner.
pub fn add(into: &mut Rarely, owner: OwnerIndex, new: &Rare) {
    if *new != Rare::ZERO {
        let sum = into.entry(owner).or_default();
        *sum = plus(sum, new);
    }
}

/// Adds the events of the interval that follows, or of owners with another name by then.
pub(super) fn merge(into: &mut Rarely, other: &Rarely) {
    other.iter().for_each(|(&owner, new)| add(into, owner, new));
}

/// Returns the sum of both.
#[must_use]
pub const fn plus(one: &Rare, other: &Rare) -> Rare {
    Rare {
        exits: one.exits.saturating_add(other.exits),
        lock_waits: one.lock_waits.saturating_add(other.lock_waits),
        lock_wait_ns: one.lock_wait_ns.saturating_add(other.lock_wait_ns),
    }
}

#[cfg(test)]
mod tests {
    use pmu_common::owner::Rare;

    use super::RareReadings;
    use crate::drain::{RareRow, SlotId};

    #[test]
    fn readings_are_subtracted_in_each_life_of_a_slot() {
        let mut readings = RareReadings::default();
        let mut read = |generation, exits, lock_wait_ns| {
            let so_far = Rare { exits, lock_waits: exits, lock_wait_ns };
            let new = readings.advance(&RareRow { slot: SlotId { slot: 1, generation }, so_far });
            (new.exits, new.lock_waits, new.lock_wait_ns)
        };
        assert_eq!([read(0, 3, 100), read(0, 5, 150), read(1, 2, 7)], [(3, 3, 100), (2, 2, 50), (2, 2, 7)]);
        assert_eq!(read(0, 4, 150), (0, 0, 0), "older than the one before");
    }
}
