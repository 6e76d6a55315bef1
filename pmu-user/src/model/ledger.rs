//! Differences between drains. A row that a drain omits has not changed. A slot in a new life starts from
//! zero.

mod cpus;
mod owners;
mod rarely;
#[cfg(test)]
mod tests;

use std::collections::{self, BTreeMap, BTreeSet, HashSet};

use foldhash::{HashMap, HashMapExt as _};

use super::{
    CpuEvent,
    culprit::Charges,
    difference::{self, OwnCost},
    followed::FollowedPaths,
    interrupt::InterruptReadings,
    interval::{HotKey, Interval, OFF_CPU, StackKey},
    limit::{Readings, Submissions},
    names::{Addresses, CodeNames, NamedCode},
    off_cpu::Waits,
    owner::OwnerIndex,
    pressure::Pressures,
    rare::RareReadings,
    samples::{WeightedSamples, Weights},
    slice::sums,
    tree::Tree,
};
use crate::{
    drain::{
        At, CodeRow, CodeStackRow, CountRow, CpuRow, Handler, Located, Module, Name, Names, OffCpuStackRow,
        Owner, ProgramRow, SlotId, TasksDrain, unwinding::Unwinding,
    },
    machine::{
        cpu::{Cpu, Times},
        throttling::Throttling,
    },
    untrusted::Untrusted,
};

/// Owners, names of code, and the last reading of every row.
#[derive(Debug)]
pub struct Ledger {
    at_ns: u64,
    /// Whether anything was counted before what is reported.
    is_midway: bool,
    samples_until_ns: Option<u64>,
    /// Owners, with the time at which they ended.
    owners: BTreeMap<OwnerIndex, (Owner, Option<u64>)>,
    /// Number of owners so far.
    met: u32,
    /// Indices by owner. An owner is found under another name, too.
    known: collections::HashMap<Owner, OwnerIndex>,
    tree: Tree,
    /// Owners that stand for ended processes of one name.
    ended: BTreeMap<Untrusted, OwnerIndex>,
    owner_of_slot: HashMap<SlotId, OwnerIndex>,
    counts: HashMap<(SlotId, Cpu), CountRow>,
    charges: Charges,
    waits: Waits,
    rare: RareReadings,
    interrupts: InterruptReadings,
    cpus: HashMap<Cpu, CpuRow>,
    /// CPUs that were not flushed before the last drain.
    offline: HashSet<Cpu>,
    times: HashMap<Cpu, Times>,
    throttling: BTreeMap<Owner, Throttling>,
    pressures: Pressures,
    limits: Readings,
    submissions: Submissions,
    losses: BTreeMap<String, u64>,
    uncovered: HashMap<Cpu, u64>,
    weights: Weights,
    names: CodeNames,
    addresses: Addresses,
    programs: Vec<ProgramRow>,
    cost: OwnCost,
    followed: FollowedPaths,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger {
    /// Returns an empty ledger. Its only owner is the common one.
    pub fn new() -> Self {
        Self {
            at_ns: 0,
            is_midway: false,
            samples_until_ns: None,
            owners: BTreeMap::from([(OTHER, (Owner::Other, None))]),
            met: 1,
            known: collections::HashMap::from([(Owner::Other, OTHER)]),
            tree: Tree::default(),
            ended: BTreeMap::new(),
            owner_of_slot: HashMap::new(),
            counts: HashMap::new(),
            charges: Charges::default(),
            waits: Waits::default(),
            rare: RareReadings::default(),
            interrupts: InterruptReadings::default(),
            cpus: HashMap::new(),
            offline: HashSet::new(),
            times: HashMap::new(),
            throttling: BTreeMap::new(),
            pressures: Pressures::default(),
            limits: Readings::default(),
            submissions: Submissions::default(),
            losses: BTreeMap::new(),
            uncovered: HashMap::new(),
            weights: Weights::default(),
            names: CodeNames::default(),
            addresses: Addresses::default(),
            programs: Vec::new(),
            cost: OwnCost::default(),
            followed: FollowedPaths::default(),
        }
    }

    /// Records that a cgroup became a target.
    pub fn follow(&mut self, path: &Untrusted) {
        let Self { followed, tree, .. } = self;
        followed.insert(path.clone(), |path| tree.at(path.as_bytes()).is_some());
    }

    /// Returns whether the cgroup with this path, or one above it, became a target during counting.
    pub fn has_followed(&self, path: &[u8]) -> bool {
        self.followed.has(path)
    }

    /// Returns the owner with this index.
    pub fn owner(&self, index: OwnerIndex) -> &Owner {
        &self.owners[&index].0
    }

    /// Returns whether it is a cgroup that ran nothing itself and holds the counts of others below it.
    pub fn is_inner(&self, index: OwnerIndex) -> bool {
        self.tree.is_inner(index)
    }

    /// Returns the cgroup with this path. If several had it one after the other, the last.
    pub fn cgroup_at(&self, path: &[u8]) -> Option<OwnerIndex> {
        self.tree.at(path)
    }

    /// Returns the number of owners that are kept apart.
    pub(super) fn owner_count(&self) -> usize {
        self.owners.len()
    }

    /// Returns every owner so far.
    pub fn owners(&self) -> impl Iterator<Item = (OwnerIndex, &Owner)> {
        self.owners.iter().map(|(&index, (owner, _))| (index, owner))
    }

    /// Returns the time at which an owner ended, in ns since counting started; `None` while it lives.
    pub fn ended_ns(&self, index: OwnerIndex) -> Option<u64> {
        self.owners[&index].1
    }

    /// Returns what is known of an instruction.
    pub fn code(&self, at: At) -> NamedCode<'_> {
        self.names.of(at)
    }

    /// Returns the drivers' name for the handler of a line.
    pub fn handler_name(&self, handler: Handler) -> Option<&Untrusted> {
        self.interrupts.name(handler)
    }

    /// Returns whether a thread begins there, as unwinding found.
    pub fn is_first(&self, at: At) -> bool {
        self.names.is_first(at)
    }

    /// Takes names, which come when a run is over. Returns the samples that came with them as an interval
    /// without length.
    pub fn name(&mut self, names: &Names) -> Interval {
        let (at_ns, sampled_ns) = (self.at_ns, Some(0));
        let mut interval = Interval { from_ns: at_ns, to_ns: at_ns, sampled_ns, ..Interval::default() };
        self.sample(&names.located, &mut interval);
        self.names.learn(&names.names);
        self.cost.conclude(names.cost);
        interval
    }

    /// Returns the code hit in `interval` that has no name but a file, with the module to name it by.
    pub fn unnamed(&self, interval: &Interval) -> Vec<(At, Module)> {
        let mut hit: BTreeSet<At> = interval.hot.keys().map(|key| key.at).collect();
        hit.extend(interval.stacks.keys().flat_map(|key| key.frames.iter()));
        self.names.unnamed(hit.into_iter())
    }

    /// Takes names from elsewhere.
    pub fn learn(&mut self, names: &[Name]) {
        self.names.learn(names);
    }

    /// Takes the names in a drain of an older recording, and nothing else.
    pub fn learn_places(&mut self, drain: &TasksDrain) {
        if !drain.places.is_empty() {
            let (_, names) = self.addresses.locate(drain);
            self.names.learn(&names);
        }
    }

    /// Returns the cost of the programs so far.
    pub fn programs(&self) -> &[ProgramRow] {
        &self.programs
    }

    /// Returns the cost of the process so far.
    pub const fn cost(&self) -> OwnCost {
        self.cost
    }

    /// Takes a drain that is not reported, because counting began before what is reported.
    pub fn skip(&mut self, drain: &TasksDrain) {
        self.advance(drain);
        self.is_midway = true;
    }

    /// Returns whether what is reported begins where counting began.
    pub const fn begins_with_counting(&self) -> bool {
        !self.is_midway
    }

    /// Returns the counts since the previous drain. The first drain is the baseline: the kernel's accounts
    /// were read when counting started.
    pub fn advance(&mut self, drain: &TasksDrain) -> Interval {
        let mut interval =
            Interval { from_ns: self.at_ns, to_ns: drain.at_ns.max(self.at_ns), ..Interval::default() };
        self.meet_all(drain, &mut interval);
        let before = std::mem::replace(&mut self.samples_until_ns, drain.samples_until_ns);
        // Samples before the first drain are not in its rows.
        interval.sampled_ns =
            drain.samples_until_ns.map(|until| until.saturating_sub(before.unwrap_or(until)));
        let ran = self.weights.advance(&drain.sampled);
        for row in &drain.counts {
            self.count(row, &mut interval);
        }
        let owner_of_slot = &self.owner_of_slot;
        interval.charged =
            self.charges.advance(&drain.culprits, |slot| owner_of_slot.get(&slot).copied().unwrap_or(OTHER));
        self.wait(drain, &mut interval);
        self.happen(drain, &mut interval);
        self.interrupt(drain, &mut interval);
        for row in &drain.cpus {
            self.count_cpu(row, &mut interval);
        }
        for (event, cpu, ran) in ran {
            let events = &mut interval.cpus.entry(cpu).or_default().events;
            events.resize(events.len().max(event as usize + 1), CpuEvent::default());
            events[event as usize].ran = Some(ran);
        }
        self.throttle(drain, &mut interval);
        self.account(drain, &mut interval);
        interval.limits = self.limits.advance(&drain.limits);
        interval.io_limits = self.submissions.advance(&drain.limits);
        interval.pressure = self.pressures.advance((interval.from_ns, interval.to_ns), &drain.pressure);
        for (reason, total) in &drain.losses {
            self.lose(reason, *total, &mut interval);
        }
        for row in &drain.slices {
            interval.slices.entry(self.index_of(row.slot)).or_default().push(row.clone());
        }
        for (owner, rows) in &mut interval.slices {
            if self.owner(*owner).is_of_many() {
                *rows = sums(&*rows);
            }
        }
        self.sample(&drain.located, &mut interval);
        if !(drain.hot.is_empty() && drain.stacks.is_empty() && drain.places.is_empty()) {
            let (located, names) = self.addresses.locate(drain);
            self.sample(&located, &mut interval);
            self.names.learn(&names);
        }
        interval.gaps =
            drain.gaps.iter().map(|gap| (gap.slot.map(|slot| self.index_of(slot)), gap.clone())).collect();
        interval.shed.clone_from(&drain.shed);
        self.programs.clone_from(&drain.programs);
        self.cost.drain(drain.cost);
        self.at_ns = interval.to_ns;
        interval
    }

    /// Adds the waits of tasks.
    fn wait(&mut self, drain: &TasksDrain, interval: &mut Interval) {
        for row in &drain.off_cpu {
            let new = self.waits.advance(row);
            interval.owners.entry(self.index_of(row.slot)).or_default().off_cpu.merge(&new);
        }
    }

    /// Adds the counts of interrupt handlers.
    fn interrupt(&mut self, drain: &TasksDrain, interval: &mut Interval) {
        let new = self.interrupts.advance(drain);
        interval.handlers = new.handlers;
        interval.spare_interrupts = new.spare;
        for (slot, interrupted) in new.interrupted {
            interval.owners.entry(self.index_of(slot)).or_default().interrupted.merge(&interrupted);
        }
    }

    /// Adds samples that were located.
    fn sample(&mut self, located: &Located, interval: &mut Interval) {
        self.names.meet(located);
        for &CodeRow { slot, at, count, event, cpu } in &located.code {
            let key = HotKey { event, owner: self.index_of(slot), at };
            interval
                .hot
                .entry(key)
                .or_default()
                .merge(&WeightedSamples::new(count, self.weights.of(event, cpu)));
        }
        for CodeStackRow { slot, frames, count, event } in &located.stacks {
            let key = StackKey { event: *event, owner: self.index_of(*slot), frames: frames.clone() };
            let tally = WeightedSamples::new(*count, self.weights.of(*event, None));
            interval.stacks.entry(key).or_default().merge(&tally);
        }
        for OffCpuStackRow { slot, frames, time } in &located.off_cpu {
            let key = StackKey { event: OFF_CPU, owner: self.index_of(*slot), frames: frames.clone() };
            let squares = (time.deviation_ns as f64).powi(2);
            let tally = WeightedSamples { samples: time.waits, weighted: time.ns as f64, squares };
            interval.stacks.entry(key).or_default().merge(&tally);
        }
        interval.unwinding.append(Unwinding { first: Vec::new(), ..located.unwinding.clone() });
    }

    fn index_of(&self, slot: SlotId) -> OwnerIndex {
        // A slot without an owner row is the common one.
        self.owner_of_slot.get(&slot).copied().unwrap_or(OTHER)
    }

    fn count(&mut self, row: &CountRow, interval: &mut Interval) {
        let last = self.counts.get(&(row.slot, row.cpu));
        let mut counts = difference::of_owner(last, row);
        counts.events = difference::samples(last, row, &self.weights);
        interval.owners.entry(self.index_of(row.slot)).or_default().merge(&counts);
        let mut kept = row.clone();
        if let (true, Some(last)) = (row.latencies.is_empty(), last) {
            // Empty latencies are omitted, not zero: only the samples have changed.
            kept.latencies.clone_from(&last.latencies);
        }
        self.counts.insert((row.slot, row.cpu), kept);
    }

    fn lose(&mut self, reason: &str, total: u64, interval: &mut Interval) {
        let before = self.losses.insert(reason.to_owned(), total).unwrap_or(0);
        if total > before {
            let sum = interval.losses.entry(reason.to_owned()).or_default();
            *sum = sum.saturating_add(total - before);
        }
    }
}

/// Owner that stands for all that are not kept apart.
const OTHER: OwnerIndex = OwnerIndex(0);
