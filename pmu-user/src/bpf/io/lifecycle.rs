//! Lifecycle of a slot: the slot of an owner that is gone is reused, while the programs run.
//!
//! A slot may be given to another owner when nothing can count there for its former owner any longer. A
//! program may have its number from the map of keys, from `IO_RECENT`, or from the table of requests in
//! flight. It may still be using the number when its source is removed. So each source is removed in turn,
//! and each time a *grace period* passes: every program that ran when it began has ended when it is over.
//!
//! ```text
//! chosen ─► Forgotten ─► Uncached ─► Counted ─► given up, free
//! ```
//!
//! 1. *Forgotten*: the slots' keys are deleted. A program that found one before may still write it to
//!    `IO_RECENT` or to a request, and may still let another key share it. After the grace period none does.
//!    Keys that were added in between are deleted, too, and a grace period passes again until there are none.
//! 2. *Uncached*: rows of `IO_RECENT` with the slots are cleared. Only programs that found a key write such
//!    rows, so none reappears. After the grace period programs have a slot's number only from a request in
//!    flight.
//! 3. *Counted*: slots of requests in flight have to wait: there will be no new ones, and the old ones end.
//!    Slots without requests wait for a last grace period, because a completion marks its request as ended
//!    first and counts it then.
//! 4. The slot's counts are read for the last time and reported in the next drain. Its rows are cleared, and
//!    it is offered again.
//!
//! None of this depends on the owner being gone. A cgroup that was removed can still own writeback. Its key,
//! once deleted, gets a new slot like any new one, and the reader of two drains adds up rows with the same
//! key. An owner being gone only means that this is rare. A preallocated element of the map of keys may be
//! reused for another key as soon as it is deleted. So a program that found the old key at that very moment
//! may read the new key's slot, and write it to `IO_RECENT`: rows there with deleted keys are cleared
//! likewise. One case remains: a request with a start that the kernel skipped, which is reported. If its
//! device requeues it, it is taken for the former request.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use pmu_common::io::IoKey;

use crate::bpf::LoadError;

/// Time between two looks for owners that are gone. Their rows must not have changed from one to the next.
const LOOK_NS: u64 = 500_000_000;
/// Time between two looks if nearly no slots are left.
const LOOK_UNDER_PRESSURE_NS: u64 = 100_000_000;
/// Idle time after which an existing owner may lose its slot if nearly none are left.
const IDLE_NS: u64 = 60_000_000_000;
/// Time between two retries for owners that share a row.
const UNSHARE_NS: u64 = 10_000_000_000;

/// Operations of recycling on the rows of one kind.
pub(super) trait Rows {
    /// Returns the limit of the slots that owners may have: those from 1 to below it.
    fn owner_slots(&self) -> u32;
    /// Returns the number of slots, those that are kept for common rows included.
    fn slots(&self) -> u32;
    /// Returns the owner of the slot; its device is 0 if the slot is free.
    fn key(&self, slot: u32) -> IoKey;
    /// Returns a number that changes whenever the slot counts.
    fn changes(&self, slot: u32) -> u64;
    /// Returns whether the slot's key leads to it.
    fn is_published(&self, slot: u32) -> bool;
    /// Deletes the keys of slots. Returns the slots that had any.
    fn forget(&mut self, slots: &BTreeSet<u32>) -> Result<BTreeSet<u32>, LoadError>;
    /// Clears rows of `IO_RECENT` with these slots or keys.
    fn forget_recent(&mut self, slots: &BTreeMap<u32, IoKey>) -> Result<(), LoadError>;
    /// Deletes the keys of owners that share a row with others.
    fn unshare(&mut self) -> Result<(), LoadError>;
    /// Clears rows of `IO_RECENT` with a key that is not that of their slot.
    fn unshare_recent(&mut self) -> Result<(), LoadError>;
    /// Returns those of `slots` that requests in flight will be counted in.
    fn held(&self, slots: &BTreeSet<u32>) -> BTreeSet<u32>;
    /// Reads slots for the last time, clears their rows and offers them.
    fn give_up(&mut self, slots: &BTreeSet<u32>);
    /// Begins a grace period.
    fn begin_grace(&mut self);
    /// Returns whether the grace period is over.
    fn is_grace_over(&mut self) -> bool;
}

/// Decision on whether a row may be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The owner or the device of the row is gone.
    Gone,
    /// Both exist, and a second row of the same owner would be the same to the reader.
    Replaceable,
    /// The row stays.
    Stays,
}

/// Stage of the slots of [`Lifecycle::batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Forgotten,
    Uncached,
    Counted,
    /// No slots, but owners that shared one: see [`Lifecycle::unshare`].
    Unshared,
}

/// State of a row at the last look.
#[derive(Clone, Copy, Debug)]
struct Seen {
    key: IoKey,
    changes: u64,
    since_ns: u64,
}

/// Slots of one kind that are on their way to reuse.
#[derive(Debug)]
pub(super) struct Lifecycle {
    stage: Stage,
    /// Slots on their way, and their former owners.
    batch: BTreeMap<u32, IoKey>,
    /// Slots that are forgotten and uncached, but have requests in flight.
    held: BTreeMap<u32, IoKey>,
    /// Rows at the last look. Empty unless slots run low.
    seen: BTreeMap<u32, Seen>,
    looked_ns: Option<u64>,
    is_short: bool,
    /// Refusals of rows so far, and the time, at the last retry for refused owners.
    unshared: (u64, u64),
    /// Whether owners that share a row may be targets by now.
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

    /// Schedules a retry for owners that share a row, as non-targets do: they get a separate row if they are
    /// to have one by now.
    pub(super) const fn judge_again(&mut self) {
        self.judges_again = true;
    }

    /// Returns whether slots are on their way.
    pub(super) const fn is_busy(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// Returns whether more than half of the slots were in use at the last look.
    pub(super) const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Chooses slots if they run low. An ordinary run has enough of them, and this only counts them.
    /// `refused`: the number of times that an owner got none so far.
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
            // A slot without a key that leads to it is being allocated or returned at this moment.
            if may_go && rows.is_published(slot) {
                self.batch.insert(slot, seen.key);
            }
        }
        self.seen = seen;
        self.seen.retain(|slot, _| !self.batch.contains_key(slot));
        self.begin(rows)
    }

    /// Retries owners that share a row, because there is room now. Without this, a key that was refused once
    /// shares forever, and keys of owners that are gone fill their map. The shared row stays. So the only
    /// wait is for what a program may have read of a deleted key: see above.
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

    /// Takes the next step, if it is possible yet. A failed step is retried.
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

/// Returns whether two keys are of the same owner.
pub(super) const fn is_same(left: &IoKey, right: &IoKey) -> bool {
    left.device == right.device && left.owner == right.owner
}
