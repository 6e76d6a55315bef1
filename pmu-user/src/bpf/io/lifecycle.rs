//! The lifecycle of a slot: one whose owner is gone is used again, while the programs run.
//!
//! A slot may be given to someone else when nothing can count there for its former owner any more. A program may have
//! its number from the map of keys, from `IO_RECENT`, or from the table of requests in flight, and each of them may be
//! at work on what it read before it was taken away. So each is taken away in turn, and each time a *grace period* passes:
//! whatever program ran when it began has ended when it is over.
//!
//! ```text
//! chosen ─► Forgotten ─► Uncached ─► Counted ─► given up, free
//! ```
//!
//! 1. *Forgotten*: the slots' keys are deleted. A program that found one before may still write it to `IO_RECENT` or to
//!    a request, and may still let another key share it. After the grace period none does; keys that came in meanwhile
//!    are deleted, too, and a grace period passes again until there are none.
//! 2. *Uncached*: rows of `IO_RECENT` with the slots are cleared. Only what found a key writes such rows, so none comes
//!    back. After the grace period no program has a slot's number but from a request in flight.
//! 3. *Counted*: slots of requests in flight have to wait: there will be no new ones, and the old ones end. Those of
//!    none wait for a last grace period, because a completion marks its request as ended first and counts it then.
//! 4. What the slot has counted is read for the last time and told in the next drain; its rows are cleared, and it is
//!    offered again.
//!
//! Nothing of this depends on the owner being gone. A cgroup that was removed can still own writeback; its key, once
//! deleted, gets a new slot as any new one does, and whoever subtracts drains adds up what has the same key. That an
//! owner is gone only says that this will be rare. A preallocated element of the map of keys may be used for another key
//! as soon as it is deleted, so a program that found the old key at that very moment may read the new key's slot, and
//! write it to `IO_RECENT`: rows there with deleted keys are cleared likewise. What remains is a request whose start the
//! kernel left out, which is told: if its device gives it back, it is taken for the one that was there before.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use pmu_common::io::IoKey;

use crate::bpf::LoadError;

/// Between two looks for owners that are gone. Their rows must not have changed from one to the next.
const LOOK_NS: u64 = 500_000_000;
/// The same if there are nearly no slots left.
const LOOK_UNDER_PRESSURE_NS: u64 = 100_000_000;
/// An owner who exists, but has done nothing for so long, may lose his slot if there are nearly none left.
const IDLE_NS: u64 = 60_000_000_000;
/// Between two times at which owners who share a row get another chance.
const UNSHARE_NS: u64 = 10_000_000_000;

/// What recycling does to the rows of one kind.
pub(super) trait Rows {
    /// Slots that owners may have: those from 1 to below this one.
    fn owner_slots(&self) -> u32;
    /// All slots, those that are kept for common rows included.
    fn slots(&self) -> u32;
    /// Who has the slot; its device is 0 if nobody has.
    fn key(&self, slot: u32) -> IoKey;
    /// Changes whenever the slot counts.
    fn changes(&self, slot: u32) -> u64;
    /// Does the slot's key lead to it?
    fn is_published(&self, slot: u32) -> bool;
    /// Deletes the keys of slots; the slots that had any.
    fn forget(&mut self, slots: &BTreeSet<u32>) -> Result<BTreeSet<u32>, LoadError>;
    /// Clears rows of `IO_RECENT` with these slots or keys.
    fn forget_recent(&mut self, slots: &BTreeMap<u32, IoKey>) -> Result<(), LoadError>;
    /// Deletes the keys of owners who share a row with others.
    fn unshare(&mut self) -> Result<(), LoadError>;
    /// Clears rows of `IO_RECENT` whose key is not that of their slot.
    fn unshare_recent(&mut self) -> Result<(), LoadError>;
    /// Those of `slots` that requests in flight will be counted in.
    fn held(&self, slots: &BTreeSet<u32>) -> BTreeSet<u32>;
    /// Reads slots for the last time, clears their rows and offers them.
    fn give_up(&mut self, slots: &BTreeSet<u32>);
    /// A grace period begins.
    fn begin_grace(&mut self);
    /// Is it over?
    fn is_grace_over(&mut self) -> bool;
}

/// May a row be given up?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Its owner or its device is gone.
    Gone,
    /// Both are there, and a second row of the same owner would be the same to whoever reads it.
    Replaceable,
    /// It stays.
    Stays,
}

/// How far the slots of [`Lifecycle::batch`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Forgotten,
    Uncached,
    Counted,
    /// No slots, but owners who shared one: see [`Lifecycle::unshare`].
    Unshared,
}

/// A row as it was at the last look.
#[derive(Clone, Copy, Debug)]
struct Seen {
    key: IoKey,
    changes: u64,
    since_ns: u64,
}

/// Which slots of one kind are on their way to be used again.
#[derive(Debug)]
pub(super) struct Lifecycle {
    stage: Stage,
    /// Slots on their way, and whose they were.
    batch: BTreeMap<u32, IoKey>,
    /// Forgotten and uncached, but of requests in flight.
    held: BTreeMap<u32, IoKey>,
    /// Empty unless slots run low.
    seen: BTreeMap<u32, Seen>,
    looked_ns: Option<u64>,
    is_short: bool,
    /// How often an owner had been refused a row, and when, when those who were got another chance.
    unshared: (u64, u64),
    /// Owners who share a row may be targets by now.
    judges_again: bool,
}

impl Lifecycle {
    pub(super) const fn new() -> Self {
        Self {
            stage: Stage::Idle,
            batch: BTreeMap::new(),
            held: BTreeMap::new(),
            seen: BTreeMap::new(),
            looked_ns: None,
            is_short: false,
            unshared: (0, 0),
            judges_again: false,
        }
    }

    /// Has owners who share a row, as those do that are no targets, get one of their own if they are to have one by now.
    pub(super) const fn judge_again(&mut self) {
        self.judges_again = true;
    }

    /// Are slots on their way?
    pub(super) const fn is_busy(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// Was more than half of the slots in use at the last look?
    pub(super) const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Chooses slots if they run low. An ordinary run has enough of them, and this does nothing but count them. `refused`:
    /// how often an owner got none so far.
    pub(super) fn look(
        &mut self,
        rows: &mut impl Rows,
        now_ns: u64,
        refused: u64,
        fate: &mut impl FnMut(&IoKey) -> Eviction,
    ) -> Result<(), LoadError> {
        if self.judges_again && !self.is_busy() {
            self.judges_again = false;
            return self.unshare_all(rows);
        }
        let limit = rows.owner_slots();
        let free = (1..limit).filter(|&slot| rows.key(slot).device == 0).count();
        self.is_short = free < limit as usize / 2;
        if free >= limit as usize / 4 {
            self.seen.clear();
            self.looked_ns = None;
            return self.unshare(rows, now_ns, refused);
        }
        let is_pressed = free < limit as usize / 8;
        let pause_ns = if is_pressed { LOOK_UNDER_PRESSURE_NS } else { LOOK_NS };
        let too_soon = self.looked_ns.is_some_and(|looked_ns| now_ns < looked_ns.saturating_add(pause_ns));
        if self.is_busy() || too_soon {
            return Ok(());
        }
        self.looked_ns = Some(now_ns);
        let used = (1..rows.slots()).map(|slot| (slot, rows.key(slot))).filter(|(_, key)| key.device != 0);
        let seen: BTreeMap<u32, Seen> =
            used.map(|(slot, key)| (slot, self.seen(rows, slot, key, now_ns))).collect();
        let idle_ns = if is_pressed { IDLE_NS } else { u64::MAX };
        for (&slot, seen) in &seen {
            let quiet_ns = now_ns - seen.since_ns;
            if quiet_ns == 0 || self.held.contains_key(&slot) {
                continue;
            }
            let fate = fate(&seen.key);
            let may_go = fate == Eviction::Gone || fate == Eviction::Replaceable && quiet_ns >= idle_ns;
            // One that its key does not lead to is being allocated at this moment, or given back.
            if may_go && rows.is_published(slot) {
                self.batch.insert(slot, seen.key);
            }
        }
        self.seen = seen;
        self.seen.retain(|slot, _| !self.batch.contains_key(slot));
        self.begin(rows)
    }

    /// Gives owners who share a row another chance, because there is room now. Without this, a key that was refused once
    /// shares for ever, and keys of owners who are gone fill their map. The shared row stays, so nothing has to be waited
    /// for, but for what a program may have read of a deleted key: see above.
    fn unshare(&mut self, rows: &mut impl Rows, now_ns: u64, refused: u64) -> Result<(), LoadError> {
        let is_due = now_ns >= self.unshared.1.saturating_add(UNSHARE_NS);
        if refused <= self.unshared.0 || !is_due || self.is_busy() {
            return Ok(());
        }
        self.unshared = (refused, now_ns);
        self.unshare_all(rows)
    }

    fn unshare_all(&mut self, rows: &mut impl Rows) -> Result<(), LoadError> {
        rows.unshare()?;
        self.stage = Stage::Unshared;
        rows.begin_grace();
        Ok(())
    }

    fn seen(&self, rows: &impl Rows, slot: u32, key: IoKey, now_ns: u64) -> Seen {
        let changes = rows.changes(slot);
        let same = |seen: &&Seen| is_same(&seen.key, &key) && seen.changes == changes;
        self.seen.get(&slot).filter(same).copied().unwrap_or(Seen { key, changes, since_ns: now_ns })
    }

    fn begin(&mut self, rows: &mut impl Rows) -> Result<(), LoadError> {
        self.stage = match (self.batch.is_empty(), self.held.is_empty()) {
            (false, _) => Stage::Forgotten,
            (true, false) => Stage::Uncached,
            (true, true) => return Ok(()),
        };
        let forgotten = rows.forget(&slots(&self.batch));
        rows.begin_grace();
        forgotten.map(drop)
    }

    /// Does what is next, if it can be done yet. What fails is tried again.
    pub(super) fn advance(&mut self, rows: &mut impl Rows) -> Result<(), LoadError> {
        if !self.is_busy() || !rows.is_grace_over() {
            return Ok(());
        }
        match self.stage {
            Stage::Idle => {}
            Stage::Forgotten => {
                if rows.forget(&slots(&self.batch))?.is_empty() {
                    rows.forget_recent(&self.batch)?;
                    self.stage = Stage::Uncached;
                }
                rows.begin_grace();
            }
            Stage::Uncached => {
                self.batch.append(&mut self.held);
                let held = rows.held(&slots(&self.batch));
                self.held = self.batch.extract_if(.., |slot, _| held.contains(slot)).collect();
                if self.batch.is_empty() {
                    // The next look tries again.
                    self.stage = Stage::Idle;
                } else {
                    self.stage = Stage::Counted;
                    rows.begin_grace();
                }
            }
            Stage::Unshared => {
                rows.unshare_recent()?;
                self.stage = Stage::Idle;
            }
            Stage::Counted => {
                rows.give_up(&slots(&self.batch));
                self.batch.clear();
                self.stage = Stage::Idle;
            }
        }
        Ok(())
    }
}

fn slots(batch: &BTreeMap<u32, IoKey>) -> BTreeSet<u32> {
    batch.keys().copied().collect()
}

/// Do two keys name the same owner?
pub(super) const fn is_same(left: &IoKey, right: &IoKey) -> bool {
    left.device == right.device && left.owner == right.owner
}
