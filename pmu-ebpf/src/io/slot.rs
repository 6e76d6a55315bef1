//! Slots: rows that count for a device, an operation on it, and an owner.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    maps::{Array, HashMap, Stack},
};
use pmu_common::io::{IoKey, IoOwner, SLOT_OTHER, loss};

use crate::cpu::lose;

/// Maps of one kind of rows.
pub(crate) struct Slots {
    pub(crate) of: &'static HashMap<IoKey, u32>,
    pub(crate) free: &'static Stack<u32>,
    pub(crate) owners: &'static Array<IoOwner>,
}

impl Slots {
    /// Returns the slot of a key that has been seen before.
    #[inline(always)]
    pub(crate) fn known(&self, key: &IoKey) -> Option<u32> {
        // SAFETY: the value is copied at once. User space removes the keys of owners that are gone. If that
        // happens at this very moment, the entry may be another key's. Its state is cleared before the slot
        // is used again.
        unsafe { self.of.get(key) }.copied()
    }

    /// Gives `key` a slot below `limit`, unless there is none. `describe` fills the row before it is
    /// published.
    #[inline(always)]
    pub(crate) fn allocate(
        &self,
        key: &IoKey,
        limit: u32,
        describe: impl FnOnce(*mut IoOwner),
    ) -> Option<u32> {
        let Ok(Some(slot)) = self.free.pop() else { return None };
        if slot >= limit {
            self.give_back(slot);
            return None;
        }
        let owner = self.owners.get_ptr_mut(slot)?;
        describe(owner);
        // SAFETY: the lookup gave a live row.
        unsafe { (*owner).key.owner = key.owner };
        // SAFETY: as above; the device is written last, because it marks the slot as used.
        unsafe { (*owner).key.device = key.device };
        if self.of.insert(key, slot, u64::from(BPF_NOEXIST)).is_ok() {
            return Some(slot);
        }
        // Another CPU gave the key a slot first, or the map is full.
        // SAFETY: the row was never published.
        unsafe { (*owner).key.device = 0 };
        self.give_back(slot);
        let known = self.known(key);
        if known.is_none() {
            lose(loss::MAP_FULL);
        }
        known
    }

    /// Returns the slot of a row that several owners share; `key` counts there from now on.
    #[inline(always)]
    pub(crate) fn share(&self, key: &IoKey, common: &IoKey, describe: impl FnOnce(*mut IoOwner)) -> u32 {
        let slot = self.known(common).or_else(|| self.allocate(common, u32::MAX, describe));
        let slot = slot.unwrap_or(SLOT_OTHER);
        if self.of.insert(key, slot, 0).is_err() {
            lose(loss::MAP_FULL);
        }
        slot
    }

    #[inline(always)]
    fn give_back(&self, slot: u32) {
        // There is room: the slot was popped a moment ago.
        let _ = self.free.push(slot, 0);
    }
}
