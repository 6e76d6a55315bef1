//! Simulation of the programs in `pmu-ebpf/src/io`, cut where another CPU may run in between, and of their
//! maps.

use std::collections::{BTreeMap, BTreeSet};

use pmu_common::io::IoKey;

use super::super::Rows;
use crate::bpf::LoadError;

const SLOTS: u32 = 16;
/// Limit of the slots that owners may have.
pub(super) const OWNER_SLOTS: u32 = 13;
/// Simulated time of a step.
pub(super) const STEP_NS: u64 = 100_000_000;
const DEVICE: u64 = 7;
/// Owner of counts without a slot.
const OTHER: u64 = 0;

/// Next step of the simulation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A request begins on a CPU.
    Begin(usize),
    /// The program on a CPU continues.
    Go(usize),
    /// A request ends on a CPU.
    End(usize),
    /// User space runs.
    User,
}

impl Step {
    pub(super) const ALL: [Self; 9] = [
        Self::Begin(0),
        Self::Begin(1),
        Self::Go(0),
        Self::Go(0),
        Self::Go(1),
        Self::Go(1),
        Self::End(0),
        Self::End(1),
        Self::User,
    ];
}

/// Part that recycling leaves out, to test that it matters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Patience {
    /// Nothing is left out.
    Waits,
    /// Grace periods are left out.
    None,
    /// Clearing of recent lookups is left out.
    KeepsRecent,
    /// Requests in flight are left out.
    IgnoresRequests,
}

/// Next step of the program on a CPU, for an owner.
#[derive(Clone, Copy, Debug)]
enum Program {
    Idle,
    LookUp(u64),
    Publish(u64, u32),
    Cache(u64, u32),
    Remember(u64, u32),
    Count(u64, u32),
}

pub(super) struct Kernel {
    patience: Patience,
    slot_of: BTreeMap<u64, u32>,
    free: Vec<u32>,
    owners: Vec<u64>,
    counts: Vec<u64>,
    /// Last lookup of each CPU: owner and slot.
    recent: [Option<(u64, u32)>; 2],
    programs: [Program; 2],
    /// Numbers of the running programs, and the next number.
    numbers: [u64; 2],
    next: u64,
    /// Programs below this number must have ended.
    grace: u64,
    /// Requests in flight: the true owner, and the slot.
    requests: Vec<(u64, u32)>,
    retired: BTreeMap<u64, u64>,
    /// True counts of each owner.
    pub(super) truth: BTreeMap<u64, u64>,
    /// Number of slots that were given up.
    pub(super) given_up: usize,
    /// Number of retries for owners that share.
    pub(super) chances: usize,
}

impl Kernel {
    pub(super) fn new(patience: Patience) -> Self {
        Self {
            patience,
            slot_of: BTreeMap::new(),
            free: (1..SLOTS).rev().collect(),
            owners: vec![0; SLOTS as usize],
            counts: vec![0; SLOTS as usize],
            recent: [None; 2],
            programs: [Program::Idle; 2],
            numbers: [0; 2],
            next: 1,
            grace: 0,
            requests: Vec::new(),
            retired: BTreeMap::new(),
            truth: BTreeMap::new(),
            given_up: 0,
            chances: 0,
        }
    }

    pub(super) fn step(&mut self, step: Step, owner: u64) {
        match step {
            Step::Begin(cpu) => self.run(cpu, Program::LookUp(owner)),
            Step::End(cpu) if self.is_idle(cpu) && !self.requests.is_empty() => {
                // The request is marked as ended first, and counted then.
                let (owner, slot) = self.requests.remove(owner as usize % self.requests.len());
                self.run(cpu, Program::Count(owner, slot));
            }
            Step::Go(cpu) => self.programs[cpu] = self.go(cpu),
            Step::End(_) | Step::User => {}
        }
    }

    fn is_idle(&self, cpu: usize) -> bool {
        matches!(self.programs[cpu], Program::Idle)
    }

    fn run(&mut self, cpu: usize, program: Program) {
        if self.is_idle(cpu) {
            self.programs[cpu] = program;
            self.numbers[cpu] = self.next;
            self.next += 1;
        }
    }

    fn go(&mut self, cpu: usize) -> Program {
        match self.programs[cpu] {
            Program::Idle => Program::Idle,
            Program::LookUp(owner) => match (self.recent[cpu], self.slot_of.get(&owner)) {
                (Some((known, slot)), _) if known == owner => Program::Remember(owner, slot),
                (_, Some(&slot)) => Program::Cache(owner, slot),
                (_, None) => self.allocate(owner),
            },
            Program::Publish(owner, slot) => {
                let known = *self.slot_of.entry(owner).or_insert(slot);
                if known != slot {
                    self.owners[slot as usize] = 0;
                    self.free.push(slot);
                }
                Program::Cache(owner, known)
            }
            Program::Cache(owner, slot) => {
                self.recent[cpu] = Some((owner, slot));
                Program::Remember(owner, slot)
            }
            Program::Remember(owner, slot) => {
                self.requests.push((owner, slot));
                Program::Idle
            }
            Program::Count(owner, slot) => {
                self.counts[slot as usize] += 1;
                *self.truth.entry(owner).or_default() += 1;
                Program::Idle
            }
        }
    }

    fn allocate(&mut self, owner: u64) -> Program {
        let popped = self.free.pop();
        if let Some(slot) = popped.filter(|&slot| slot < OWNER_SLOTS) {
            self.owners[slot as usize] = owner;
            return Program::Publish(owner, slot);
        }
        self.free.extend(popped);
        Program::Remember(OTHER, 0)
    }

    /// Runs the program on the first CPU to its end.
    fn settle(&mut self) {
        while !self.is_idle(0) {
            self.programs[0] = self.go(0);
        }
    }

    /// Begins a request, undisturbed.
    pub(super) fn start(&mut self, owner: u64) {
        self.run(0, Program::LookUp(owner));
        self.settle();
    }

    /// Runs a request, undisturbed.
    pub(super) fn request(&mut self, owner: u64) {
        self.start(owner);
        self.end();
    }

    fn end(&mut self) {
        if let Some((owner, slot)) = self.requests.pop() {
            self.run(0, Program::Count(owner, slot));
            self.settle();
        }
    }

    /// Ends all programs and requests that have begun.
    pub(super) fn finish(&mut self) {
        self.settle();
        while !self.is_idle(1) {
            self.programs[1] = self.go(1);
        }
        while !self.requests.is_empty() {
            self.end();
        }
    }

    /// Returns the counts of the existing rows, by owner.
    pub(super) fn live(&self) -> BTreeMap<u64, u64> {
        let mut live = BTreeMap::new();
        for (&owner, &count) in self.owners.iter().zip(&self.counts).filter(|&(_, &count)| count > 0) {
            *live.entry(owner).or_default() += count;
        }
        live
    }

    /// Returns all counts, by owner.
    pub(super) fn counted(&self) -> BTreeMap<u64, u64> {
        let mut all = self.retired.clone();
        for (owner, count) in self.live() {
            *all.entry(owner).or_default() += count;
        }
        all
    }
}

impl Rows for Kernel {
    fn owner_slots(&self) -> u32 {
        OWNER_SLOTS
    }

    fn slots(&self) -> u32 {
        SLOTS
    }

    fn key(&self, slot: u32) -> IoKey {
        let owner = self.owners[slot as usize];
        IoKey { device: if owner == 0 { 0 } else { DEVICE }, owner }
    }

    fn changes(&self, slot: u32) -> u64 {
        self.counts[slot as usize]
    }

    fn is_published(&self, slot: u32) -> bool {
        self.slot_of.get(&self.owners[slot as usize]) == Some(&slot)
    }

    fn forget(&mut self, slots: &BTreeSet<u32>) -> Result<BTreeSet<u32>, LoadError> {
        let found = self.slot_of.extract_if(.., |_, slot| slots.contains(slot));
        Ok(found.map(|(_, slot)| slot).collect())
    }

    fn forget_recent(&mut self, slots: &BTreeMap<u32, IoKey>) -> Result<(), LoadError> {
        if self.patience != Patience::KeepsRecent {
            for recent in &mut self.recent {
                *recent = recent.filter(|(_, slot)| !slots.contains_key(slot));
            }
        }
        Ok(())
    }

    fn unshare(&mut self) -> Result<(), LoadError> {
        self.chances += 1;
        Ok(())
    }

    fn unshare_recent(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    fn held(&self, slots: &BTreeSet<u32>) -> BTreeSet<u32> {
        if self.patience == Patience::IgnoresRequests {
            return BTreeSet::new();
        }
        self.requests.iter().map(|&(_, slot)| slot).filter(|slot| slots.contains(slot)).collect()
    }

    fn give_up(&mut self, slots: &BTreeSet<u32>) {
        for row in slots.iter().map(|&slot| slot as usize) {
            *self.retired.entry(self.owners[row]).or_default() += std::mem::take(&mut self.counts[row]);
            self.owners[row] = 0;
            self.given_up += 1;
        }
        // In order, as the real ones are pushed.
        self.free.extend(slots);
        self.free.sort_unstable_by(|left, right| right.cmp(left));
    }

    fn begin_grace(&mut self) {
        self.grace = self.next;
    }

    fn is_grace_over(&mut self) -> bool {
        let has_ended = |cpu: usize| self.is_idle(cpu) || self.numbers[cpu] >= self.grace;
        self.patience == Patience::None || (has_ended(0) && has_ended(1))
    }
}
