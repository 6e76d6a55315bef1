//! Bounds on what a run keeps: owners that have ended, instructions, stacks and gaps beyond them are put together, so that
//! memory does not grow with time. Sums stay exact.

use std::{cmp::Reverse, collections::HashMap, hash::Hash};

use pmu_common::gap::IDLE;

use super::{HotKey, Interval, Ledger, OwnerIndex, StackKey, Tally, slice::sums};
use crate::drain::{At, GapRow};

/// Code of the kernel, and of processes, of which only the sum is kept.
const REST: [At; 2] = [At { source: u32::MAX, offset: 0 }, At { source: u32::MAX, offset: 1 }];

/// Where the samples of an instruction go that is not kept apart.
const fn rest(at: At) -> At {
    if is_kernel(at) { REST[0] } else { REST[1] }
}

/// Does it stand for code that is not kept apart?
#[must_use]
pub const fn is_rest(at: At) -> bool {
    at.source == REST[0].source
}

/// Is it kernel code, kept apart or not?
#[must_use]
pub const fn is_kernel(at: At) -> bool {
    at.is_kernel() || is_rest(at) && at.offset == REST[0].offset
}

/// The most that is kept apart.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Owners; of those beyond, the ones that have ended are put together by name.
    pub owners: usize,
    /// Names of owners that have ended; all beyond are one.
    pub names: usize,
    /// Instructions that samples hit, by owner and event; of those beyond, the ones with the fewest samples are put together.
    pub hot: usize,
    /// Stacks, likewise.
    pub stacks: usize,
    /// Late timers that are listed; the longest stay.
    pub gaps: usize,
    /// May what an ended cgroup did be given to the cgroup above it, because that one's numbers hold it anyhow?
    pub upwards: bool,
}

/// What every run keeps at most: some 60 MB.
pub const BOUNDS: Bounds =
    Bounds { owners: 8192, names: 1024, hot: 1 << 17, stacks: 1 << 16, gaps: 4096, upwards: false };

impl Ledger {
    /// Puts owners that have ended together where there are more owners than `bounds` allow, and tells `intervals`.
    pub fn fold(&mut self, bounds: &Bounds, intervals: &mut [&mut Interval]) {
        if self.owner_count() > bounds.owners {
            let to = self.fold_ended(bounds);
            intervals.iter_mut().for_each(|interval| interval.fold_owners(&to));
        }
        self.forget_slots(bounds.owners);
        intervals.iter_mut().for_each(|interval| interval.keep_within(bounds));
    }
}

impl Interval {
    /// Gives what owners did to those that stand for them.
    fn fold_owners(&mut self, to: &HashMap<OwnerIndex, OwnerIndex>) {
        if to.is_empty() {
            return;
        }
        let target = |owner: OwnerIndex| to.get(&owner).copied().unwrap_or(owner);
        for (owner, counts) in std::mem::take(&mut self.owners) {
            self.owners.entry(target(owner)).or_default().merge(&counts);
        }
        for (owner, rows) in std::mem::take(&mut self.slices) {
            let all = self.slices.entry(target(owner)).or_default();
            *all = if all.is_empty() { rows } else { sums(all.iter().chain(&rows)) };
        }
        for (key, tally) in std::mem::take(&mut self.hot) {
            let key = HotKey { owner: target(key.owner), ..key };
            self.hot.entry(key).or_default().merge(&tally);
        }
        for (key, tally) in std::mem::take(&mut self.stacks) {
            let key = StackKey { owner: target(key.owner), ..key };
            self.stacks.entry(key).or_default().merge(&tally);
        }
        for (owner, _) in &mut self.gaps {
            *owner = owner.map(target);
        }
    }

    /// Puts together what is beyond the bounds.
    fn keep_within(&mut self, bounds: &Bounds) {
        keep_largest(&mut self.hot, bounds.hot, |key| HotKey { at: rest(key.at), ..*key });
        keep_largest(&mut self.stacks, bounds.stacks, |key| {
            let leaf = key.frames.first().copied().unwrap_or(REST[1]);
            StackKey { frames: vec![rest(leaf)], ..*key }
        });
        if self.gaps.len() > bounds.gaps {
            // No gaps to anybody: a CPU that woke late was idle.
            self.gaps.retain(|(_, row)| row.class as usize != IDLE);
        }
        if self.gaps.len() > bounds.gaps {
            let late = |(_, row): &(Option<OwnerIndex>, GapRow)| Reverse((row.late_ns, row.at_ns));
            self.gaps.sort_by_key(late);
            // Room, so that this is rare.
            let kept = bounds.gaps / 2;
            self.gaps_left_out += (self.gaps.len() - kept) as u64;
            self.gaps.truncate(kept);
        }
    }
}

/// Keeps the entries with the most samples, and half of the room; the others are given to where `rest` says.
fn keep_largest<K: Clone + Eq + Hash + Ord>(
    all: &mut HashMap<K, Tally>,
    most: usize,
    rest: impl Fn(&K) -> K,
) {
    if all.len() <= most {
        return;
    }
    let mut entries: Vec<(K, Tally)> = all.drain().collect();
    entries.sort_unstable_by(|(a, x), (b, y)| y.samples.cmp(&x.samples).then_with(|| a.cmp(b)));
    for (key, tally) in entries.drain(most / 2..) {
        all.entry(rest(&key)).or_default().merge(&tally);
    }
    for (key, tally) in entries {
        all.entry(key).or_default().merge(&tally);
    }
}

#[cfg(test)]
mod tests;
