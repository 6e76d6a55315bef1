//! Slots of one kind of rows, for block requests or packets: their owners, and the maps that lead to them, as
//! recycling changes them while the programs run.

use std::{collections::BTreeSet, mem::offset_of};

use aya::maps::{HashMap, MapData, MapError, Stack};
use pmu_common::io::{IoKey, IoOwner};

use super::lifecycle::is_same;
use crate::bpf::{LoadError, Loaded, Mapped, loaded::failed, mapped::Pod};

/// Limit of slots for common rows that may lie on top of others: no more programs than that take one at once.
const ABOVE_MAX: usize = 64;

/// Slots of one kind.
pub(super) struct Slots {
    /// Owners by slot.
    pub(super) owners: Mapped<IoOwner>,
    of: HashMap<MapData, Pod<IoKey>, u32>,
    /// Name of the map by key.
    name: &'static str,
    free: Stack<MapData, u32>,
}

impl Slots {
    /// Takes the maps with these names out of an object: of owners, of slots by key, of free slots.
    pub(super) fn open(
        loaded: &mut Loaded,
        [owners, name, free]: [&'static str; 3],
    ) -> Result<Self, LoadError> {
        let (owners, of) = (loaded.mapped(owners)?, loaded.typed(name)?);
        Ok(Self { owners, of, name, free: loaded.typed(free)? })
    }

    /// Pushes every slot but the first for the programs, so that the lowest is taken first.
    pub(super) fn offer_all(&mut self) -> Result<(), LoadError> {
        (1..self.len()).rev().try_for_each(|slot| self.free.push(slot, 0)).map_err(|error| self.failed(error))
    }

    /// Returns the number of slots, those that are kept for common rows included.
    pub(super) const fn len(&self) -> u32 {
        self.owners.len() as u32
    }

    /// Returns the owner of the slot; its device is 0 if the slot is free.
    pub(super) fn key(&self, slot: u32) -> IoKey {
        const WORD: usize = offset_of!(IoOwner, key) / 8;
        let word = |field: usize| self.owners.read_word(slot as usize, WORD + field / 8);
        IoKey { device: word(offset_of!(IoKey, device)), owner: word(offset_of!(IoKey, owner)) }
    }

    /// Returns whether the slot's key leads to it.
    pub(super) fn is_published(&self, slot: u32) -> bool {
        self.of.get(&Pod(self.key(slot)), 0).is_ok_and(|found| found == slot)
    }

    /// Deletes the keys that lead to `slots`; shared rows have many keys. Returns the slots that had any.
    pub(super) fn forget(
        &mut self,
        slots: &BTreeSet<u32>,
        is_shared: impl Fn(&IoKey) -> bool,
    ) -> Result<BTreeSet<u32>, LoadError> {
        let own: Vec<IoKey> = slots.iter().map(|&slot| self.key(slot)).collect();
        let keys = if own.iter().any(is_shared) { self.all_keys()? } else { own };
        let mut found = BTreeSet::new();
        for key in keys {
            if let Some(slot) = self.get(&key)?.filter(|slot| slots.contains(slot)) {
                found.insert(slot);
                self.remove(&key)?;
            }
        }
        Ok(found)
    }

    /// Deletes keys that lead to rows shared with other keys.
    pub(super) fn unshare(&mut self) -> Result<(), LoadError> {
        for key in self.all_keys()? {
            if self.get(&key)?.is_some_and(|slot| !is_same(&self.key(slot), &key)) {
                self.remove(&key)?;
            }
        }
        Ok(())
    }

    /// Pushes slots, lowest on top. Those that are kept for common rows, from `limit` on, go below all
    /// others. A program that pops one of these for an owner pushes it back, and no owner reaches the slots
    /// below it. That also occurs if a program held one at the moment when others were pushed.
    pub(super) fn offer(&mut self, slots: &BTreeSet<u32>, limit: u32) {
        let mut owners = slots.clone();
        let mut common = owners.split_off(&limit);
        self.put(owners);
        let mut below = BTreeSet::new();
        for _ in 0..ABOVE_MAX {
            let Ok(slot) = self.free.pop(0) else { break };
            if slot < limit {
                below.insert(slot);
                break;
            }
            common.insert(slot);
        }
        while !common.is_empty()
            && !below.is_empty()
            && let Ok(slot) = self.free.pop(0)
        {
            if slot >= limit {
                common.insert(slot);
                break;
            }
            below.insert(slot);
        }
        self.put(common);
        self.put(below);
    }

    /// Pushes slots. There is room, because they were popped before.
    fn put(&mut self, slots: BTreeSet<u32>) {
        let offered = slots.into_iter().rev().try_for_each(|slot| self.free.push(slot, 0));
        debug_assert!(offered.is_ok());
    }

    /// Returns every key. Programs that add keys during the walk may restart it, but it always ends.
    fn all_keys(&self) -> Result<Vec<IoKey>, LoadError> {
        const KEYS_MAX: usize = 1 << 16;
        let keys = self.of.keys().take(KEYS_MAX).map(|key| key.map(|key| key.0));
        keys.collect::<Result<_, _>>().map_err(|error| self.failed(error))
    }

    fn get(&self, key: &IoKey) -> Result<Option<u32>, LoadError> {
        match self.of.get(&Pod(*key), 0) {
            Ok(slot) => Ok(Some(slot)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn remove(&mut self, key: &IoKey) -> Result<(), LoadError> {
        match self.of.remove(&Pod(*key)) {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: MapError) -> LoadError {
        failed(self.name, error)
    }
}
