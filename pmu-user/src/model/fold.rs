//! Bounds on what a run keeps. Ended owners, instructions, stacks and gaps beyond them are merged, so that
//! memory does not grow with time. Sums stay exact.

#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

use pmu_common::gap::IDLE;

use super::{HotKey, Interval, Ledger, OwnerIndex, StackKey, WeightedSamples, culprit, rare, slice::sums};
use crate::{
    drain::{At, GapRow, Owner},
    untrusted::Untrusted,
};

/// Locations that stand for kernel code and for process code of which only the sum is kept.
const REST: [At; 2] = [At { source: u32::MAX, offset: 0 }, At { source: u32::MAX, offset: 1 }];

/// Returns the location that takes the samples of an instruction that is not kept apart.
const fn rest(at: At) -> At {
    if is_kernel(at) { REST[0] } else { REST[1] }
}

/// Returns whether the location stands for code that is not kept apart.
pub const fn is_rest(at: At) -> bool {
    at.source == REST[0].source
}

/// Returns whether this is kernel code, kept apart or not.
pub const fn is_kernel(at: At) -> bool {
    at.is_kernel() || is_rest(at) && at.offset == REST[0].offset
}

/// Limits of what is kept apart.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Number of owners. Beyond it, ended owners are merged by name.
    pub owners: usize,
    /// Number of names of ended owners. All beyond it are one owner.
    pub names: usize,
    /// Number of instructions that samples hit, by owner and event. Beyond it, those with the fewest samples
    /// are merged.
    pub hot: usize,
    /// Bytes of stacks, likewise. Deep stacks of interpreters and compilers are many times the size of
    /// shallow ones.
    pub stack_bytes: usize,
    /// Number of late timers that are listed. The longest stay.
    pub gaps: usize,
    /// Whether the counts of an ended cgroup may go to the cgroup above it, because that one's numbers
    /// include them anyway.
    pub upwards: bool,
}

/// Bounds of every run: some 40 MB, with room for 26,000 stacks of 25 frames.
pub const BOUNDS: Bounds =
    Bounds { owners: 8192, names: 1024, hot: 1 << 16, stack_bytes: 12 << 20, gaps: 4096, upwards: false };

impl Ledger {
    /// Merges ended owners if there are more owners than `bounds` allow, and updates `intervals`.
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
    /// Moves the counts of owners to the owners that stand for them.
    pub fn fold_owners(&mut self, to: &HashMap<OwnerIndex, OwnerIndex>) {
        if to.is_empty() {
            return;
        }
        let target = |owner: OwnerIndex| to.get(&owner).copied().unwrap_or(owner);
        for (owner, counts) in std::mem::take(&mut self.owners) {
            self.owners.entry(target(owner)).or_default().merge(&counts);
        }
        for (owner, rarely) in std::mem::take(&mut self.rare) {
            rare::add(&mut self.rare, target(owner), &rarely);
        }
        self.ended.retain(|owner| !to.contains_key(owner));
        culprit::fold(&mut self.charged, target);
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

    /// Moves the counts of processes and threads to the first of each name: another run of the same has other
    /// ids.
    pub fn put_under_names(&mut self, ledger: &Ledger) {
        let mut first: BTreeMap<(bool, &Untrusted), OwnerIndex> = BTreeMap::new();
        let mut to = HashMap::new();
        for (index, owner) in ledger.owners().collect::<BTreeMap<_, _>>() {
            let name = match owner {
                Owner::Process { name, .. } | Owner::Ended { name, .. } => (true, name),
                Owner::Thread { name, .. } => (false, name),
                Owner::Other
                | Owner::Program { .. }
                | Owner::Comm { .. }
                | Owner::Exe { .. }
                | Owner::Cgroup { .. } => continue,
            };
            to.insert(index, *first.entry(name).or_insert(index));
        }
        self.fold_owners(&to);
    }

    /// Merges what is beyond the bounds.
    fn keep_within(&mut self, bounds: &Bounds) {
        if self.hot.len() > bounds.hot {
            keep_largest(&mut self.hot, bounds.hot, |_| 1, |key| HotKey { at: rest(key.at), ..*key });
        }
        if self.stacks.keys().map(StackKey::bytes).sum::<usize>() > bounds.stack_bytes {
            keep_largest(&mut self.stacks, bounds.stack_bytes, StackKey::bytes, |key| {
                let leaf = key.frames.first().copied().unwrap_or(REST[1]);
                StackKey { frames: vec![rest(leaf)], ..*key }
            });
        }
        if self.gaps.len() > bounds.gaps {
            // A CPU that woke late was idle, which is not a gap for any owner.
            self.gaps.retain(|(_, row)| row.class as usize != IDLE);
        }
        if self.gaps.len() > bounds.gaps {
            let late = |(_, row): &(Option<OwnerIndex>, GapRow)| Reverse((row.late_ns, row.at_ns));
            self.gaps.sort_by_key(late);
            // Leaves room, so that this is rare.
            let kept = bounds.gaps / 2;
            self.gaps_left_out += (self.gaps.len() - kept) as u64;
            self.gaps.truncate(kept);
        }
    }
}

impl StackKey {
    /// Returns its size in [`Interval::stacks`], in bytes.
    const fn bytes(&self) -> usize {
        size_of::<(Self, WeightedSamples)>() + size_of::<At>() * self.frames.len()
    }
}

/// Keeps the entries with the most samples, up to half of the room of `most`. The others are merged into the
/// keys that `rest` returns.
fn keep_largest<K: Clone + Eq + Hash + Ord>(
    all: &mut HashMap<K, WeightedSamples>,
    most: usize,
    size: impl Fn(&K) -> usize,
    rest: impl Fn(&K) -> K,
) {
    let mut entries: Vec<(K, WeightedSamples)> = all.drain().collect();
    entries.sort_unstable_by(|(a, x), (b, y)| y.samples.cmp(&x.samples).then_with(|| a.cmp(b)));
    let mut kept = 0;
    let within = entries.iter().take_while(|(key, _)| {
        kept += size(key);
        kept <= most / 2
    });
    let within = within.count();
    for (key, tally) in entries.drain(within..) {
        all.entry(rest(&key)).or_default().merge(&tally);
    }
    for (key, tally) in entries {
        all.entry(key).or_default().merge(&tally);
    }
}
