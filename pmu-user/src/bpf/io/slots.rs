//! The maps that lead to slots, as recycling changes them while the programs run.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::offset_of,
};

use aya::maps::{Array, HashMap, MapData, MapError, Stack};
use pmu_common::io::{
    IoKey, IoOwner, Recent,
    block::{INSERTED, InFlight, SLOT_BITS},
};

use super::recycle::is_same;
use crate::bpf::{Mapped, pod::Pod};

/// Which slot a key has.
pub(super) type SlotOf = HashMap<MapData, Pod<IoKey>, u32>;
/// Free slots.
pub(super) type Free = Stack<MapData, u32>;

/// The word of a request in flight that holds its slot.
const STATE_WORD: usize = offset_of!(InFlight, state) / 8;
const AT_WORD: usize = offset_of!(InFlight, at_ns) / 8;

/// Slots that are kept for common rows and may lie on top of others: no more programs than that take one at once.
const ABOVE_MAX: usize = 64;

pub(super) fn key(owners: &Mapped<IoOwner>, slot: u32) -> IoKey {
    const WORD: usize = offset_of!(IoOwner, key) / 8;
    let word = |field: usize| owners.read_word(slot as usize, WORD + field / 8);
    IoKey { device: word(offset_of!(IoKey, device)), owner: word(offset_of!(IoKey, owner)) }
}

pub(super) fn leads_to(slot_of: &SlotOf, key: &IoKey, slot: u32) -> bool {
    slot_of.get(&Pod(*key), 0).is_ok_and(|found| found == slot)
}

/// Deletes those of `keys`, or of all keys, that lead to `slots`.
pub(super) fn forget(
    slot_of: &mut SlotOf,
    keys: Option<Vec<IoKey>>,
    slots: &BTreeSet<u32>,
) -> Result<BTreeSet<u32>, MapError> {
    let keys = match keys {
        Some(keys) => keys,
        None => all_keys(slot_of)?,
    };
    let mut found = BTreeSet::new();
    for key in keys.into_iter().map(Pod) {
        let slot = match slot_of.get(&key, 0) {
            Ok(slot) if slots.contains(&slot) => slot,
            Ok(_) | Err(MapError::KeyNotFound) => continue,
            Err(error) => return Err(error),
        };
        found.insert(slot);
        match slot_of.remove(&key) {
            Ok(()) | Err(MapError::KeyNotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Every key. Programs that add keys meanwhile may make the walk begin anew: it ends nevertheless.
fn all_keys(slot_of: &SlotOf) -> Result<Vec<IoKey>, MapError> {
    const KEYS_MAX: usize = 1 << 16;
    slot_of.keys().take(KEYS_MAX).map(|key| key.map(|key| key.0)).collect()
}

/// Clears what was looked up and leads to `slots`, or was looked up for whose they are.
pub(super) fn forget_recent(
    recent: &mut Array<MapData, Pod<Recent>>,
    slots: &BTreeMap<u32, IoKey>,
) -> Result<(), MapError> {
    clear_recent(recent, |row| {
        slots.contains_key(&row.slot) || slots.values().any(|key| is_same(key, &row.key))
    })
}

/// A row may be written while it is read or cleared: its seal gives a mixture away.
fn clear_recent(
    recent: &mut Array<MapData, Pod<Recent>>,
    is_wrong: impl Fn(&Recent) -> bool,
) -> Result<(), MapError> {
    for index in 0..recent.len() {
        let row = recent.get(&index, 0)?.0;
        if row.seal != 0 && is_wrong(&row) {
            recent.set(index, Pod(Recent::ZERO), 0)?;
        }
    }
    Ok(())
}

/// Those of `slots` that requests in flight have.
///
/// One that waits in a queue counts even if it has ended, as requests do that others take over: where the kernel keeps
/// no time of a request's start, the next one at its place begins with what is known of it.
pub(super) fn held(
    in_flight: &Mapped<InFlight>,
    ended: &Mapped<u64>,
    slots: &BTreeSet<u32>,
) -> BTreeSet<u32> {
    let mut held = BTreeSet::new();
    for index in 0..in_flight.len() {
        let [a, b, c, d, ..] = in_flight.read_word(index, STATE_WORD).to_ne_bytes();
        let state = u32::from_ne_bytes([a, b, c, d]);
        let slot = state & SLOT_BITS;
        if slots.contains(&slot) && (state & INSERTED != 0 || !has_ended(in_flight, ended, index)) {
            held.insert(slot);
        }
    }
    held
}

/// See [`InFlight::has_ended`]. One that begins at this moment has not.
pub(super) fn has_ended(in_flight: &Mapped<InFlight>, ended: &Mapped<u64>, index: usize) -> bool {
    let ended = ended.read_word(index, 0);
    in_flight.read_word(index, AT_WORD) == ended
}

/// Offers slots, lowest on top, and those that are kept for common rows below all others: a program that finds one of
/// these for an owner puts it back, and no owner gets at what lies below it. So it is if a program had one in its hands
/// at the moment when others were offered.
pub(super) fn offer(free: &mut Free, slots: &BTreeSet<u32>, limit: u32) {
    // There is room: slots were taken out of there.
    let put = |free: &mut Free, slots: BTreeSet<u32>| {
        let offered = slots.into_iter().rev().try_for_each(|slot| free.push(slot, 0));
        debug_assert!(offered.is_ok());
    };
    let mut owners = slots.clone();
    let mut common = owners.split_off(&limit);
    put(free, owners);
    let mut below = BTreeSet::new();
    for _ in 0..ABOVE_MAX {
        let Ok(slot) = free.pop(0) else { break };
        if slot < limit {
            below.insert(slot);
            break;
        }
        common.insert(slot);
    }
    while !common.is_empty()
        && !below.is_empty()
        && let Ok(slot) = free.pop(0)
    {
        if slot >= limit {
            common.insert(slot);
            break;
        }
        below.insert(slot);
    }
    put(free, common);
    put(free, below);
}

/// Deletes keys that lead to rows which others have, too.
pub(super) fn unshare(slot_of: &mut SlotOf, owners: &Mapped<IoOwner>) -> Result<(), MapError> {
    for found in all_keys(slot_of)?.into_iter().map(Pod) {
        match slot_of.get(&found, 0) {
            Ok(slot) if is_same(&key(owners, slot), &found.0) => continue,
            Ok(_) => {}
            Err(MapError::KeyNotFound) => continue,
            Err(error) => return Err(error),
        }
        match slot_of.remove(&found) {
            Ok(()) | Err(MapError::KeyNotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Clears rows that say so of such keys.
pub(super) fn unshare_recent(
    recent: &mut Array<MapData, Pod<Recent>>,
    owners: &Mapped<IoOwner>,
) -> Result<(), MapError> {
    clear_recent(recent, |row| {
        (row.slot as usize) >= owners.len() || !is_same(&key(owners, row.slot), &row.key)
    })
}
