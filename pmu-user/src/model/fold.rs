//! Bounds on what a run keeps: owners that have ended, instructions, stacks and gaps beyond them are put together, so that
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

/// Code of the kernel, and of processes, of which only the sum is kept.
const REST: [At; 2] = [At { source: u32::MAX, offset: 0 }, At { source: u32::MAX, offset: 1 }];

/// Where the samples of an instruction go that is not kept apart.
const fn rest(at: At) -> At {
    if is_kernel(at) { REST[0] } else { REST[1] }
}

/// Does it stand for code that is not kept apart?
pub const fn is_rest(at: At) -> bool {
    at.source == REST[0].source
}

/// Is it kernel code, kept apart or not?
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
    /// Bytes of stacks, likewise: deep ones of interpreters and compilers are many times the size of shallow ones.
    pub stack_bytes: usize,
    /// Late timers that are listed; the longest stay.
    pub gaps: usize,
    /// May what an ended cgroup did be given to the cgroup above it, because that one's numbers hold it anyhow?
    pub upwards: bool,
}

/// What every run keeps at most: some 40 MB, of which stacks of 25 frames are 26,000.
pub const BOUNDS: Bounds =
    Bounds { owners: 8192, names: 1024, hot: 1 << 16, stack_bytes: 12 << 20, gaps: 4096, upwards: false };

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

    /// Gives what processes and threads did to the first of each name: another run of the same has other ids.
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

    /// Puts together what is beyond the bounds.
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

impl StackKey {
    /// What it takes in [`Interval::stacks`], in bytes.
    const fn bytes(&self) -> usize {
        size_of::<(Self, WeightedSamples)>() + size_of::<At>() * self.frames.len()
    }
}

/// Keeps the entries with the most samples, up to half of the room of `most`; the others are given to where `rest` says.
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
