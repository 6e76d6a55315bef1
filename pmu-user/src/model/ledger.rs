//! Subtracts drains. A row that a drain leaves out has not changed; a slot in a new life starts from zero.

use std::collections::{BTreeMap, HashMap};

use pmu_common::{count::Count, cpu::CpuSamples, loss, sample::SampleCount};

use super::{
    interval::{Counts, CpuCounts, CpuEvent, HotKey, Interval, OwnerEvent},
    tally::{Tally, Weights},
};
use crate::{
    drain::{
        At, Code, CountRow, CpuRow, Drain, HotRow, Module, Names, Owner, OwnerRow, Place, ProgramRow, SlotId,
    },
    machine::cpu::{Cpu, Times},
    model::histogram::Buckets,
};

/// An owner in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerIndex(u32);

/// Where an address lies, and what is there.
#[derive(Clone, Copy, Debug)]
pub struct Located<'a> {
    /// File that is mapped there.
    pub module: Option<&'a Module>,
    /// Function and source line, or why they are not known.
    pub code: Result<&'a Code, &'a str>,
}

/// Owners, places, and the last reading of every row.
#[derive(Debug)]
pub struct Ledger {
    at_ns: u64,
    owners: Vec<(Owner, Option<u64>)>,
    /// Owners again, by what stays the same under another name.
    known: HashMap<Identity, OwnerIndex>,
    owner_of_slot: HashMap<SlotId, OwnerIndex>,
    counts: HashMap<(SlotId, Cpu), CountRow>,
    cpus: HashMap<Cpu, CpuRow>,
    times: HashMap<Cpu, Times>,
    losses: BTreeMap<String, u64>,
    weights: Weights,
    places: HashMap<(u32, u64), Place>,
    names: HashMap<At, Result<Code, String>>,
    programs: Vec<ProgramRow>,
    cost: crate::drain::Cost,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger {
    /// An empty ledger: the one owner it knows is the common one.
    #[must_use]
    pub fn new() -> Self {
        Self {
            at_ns: 0,
            owners: vec![(Owner::Other, None)],
            known: HashMap::from([(identity(&Owner::Other), OwnerIndex(0))]),
            owner_of_slot: HashMap::new(),
            counts: HashMap::new(),
            cpus: HashMap::new(),
            times: HashMap::new(),
            losses: BTreeMap::new(),
            weights: Weights::default(),
            places: HashMap::new(),
            names: HashMap::new(),
            programs: Vec::new(),
            cost: crate::drain::Cost::default(),
        }
    }

    /// Who an index is.
    #[must_use]
    pub fn owner(&self, index: OwnerIndex) -> &Owner {
        &self.owners[index.0 as usize].0
    }

    /// Every owner met so far.
    pub fn owners(&self) -> impl Iterator<Item = (OwnerIndex, &Owner)> {
        self.owners.iter().enumerate().map(|(index, (owner, _))| (OwnerIndex(index as u32), owner))
    }

    /// When an owner ended, in ns since counting started; `None` while it lives.
    #[must_use]
    pub fn ended_ns(&self, index: OwnerIndex) -> Option<u64> {
        self.owners[index.0 as usize].1
    }

    /// Where an address lies, and what is there. Kernel addresses have process 0.
    #[must_use]
    pub fn place(&self, tgid: u32, address: u64) -> Option<Located<'_>> {
        let place = self.places.get(&(tgid, address))?;
        let named = place.at.and_then(|at| self.names.get(&at));
        let code = named.unwrap_or(&place.code).as_ref().map_err(String::as_str);
        Some(Located { module: place.module.as_ref(), code })
    }

    /// Takes names, which come when a run is over.
    pub fn name(&mut self, names: &Names) {
        self.names.extend(names.names.iter().map(|name| (name.at, name.code.clone())));
        self.keep_places(&names.places);
        self.cost = names.cost;
    }

    /// Files and offsets in them whose names are missing.
    #[must_use]
    pub fn unnamed(&self) -> Vec<Module> {
        let places = self.places.values().filter(|place| {
            let named = place.at.and_then(|at| self.names.get(&at));
            named.unwrap_or(&place.code).is_err()
        });
        places.filter_map(|place| place.module.clone()).collect()
    }

    /// Takes names from elsewhere.
    pub fn name_modules(&mut self, names: Vec<(Module, Code)>) {
        let names: HashMap<Module, Code> = names.into_iter().collect();
        for place in self.places.values_mut() {
            if let Some(code) = place.module.as_ref().and_then(|module| names.get(module)) {
                place.at = None;
                place.code = Ok(code.clone());
            }
        }
    }

    fn keep_places(&mut self, places: &[Place]) {
        self.places.extend(places.iter().map(|place| ((place.tgid, place.address), place.clone())));
    }

    /// What the programs have cost so far.
    #[must_use]
    pub fn programs(&self) -> &[ProgramRow] {
        &self.programs
    }

    /// What the process has cost so far.
    #[must_use]
    pub const fn cost(&self) -> crate::drain::Cost {
        self.cost
    }

    /// What happened since the drain before. The first drain is the baseline: it has no length.
    pub fn advance(&mut self, drain: &Drain) -> Interval {
        let mut interval =
            Interval { from_ns: self.at_ns, to_ns: drain.at_ns.max(self.at_ns), ..Interval::default() };
        drain.owners.iter().for_each(|row| self.meet(row));
        let ran = self.weights.advance(&drain.sampled);
        for row in &drain.counts {
            self.count(row, &mut interval);
        }
        for row in &drain.cpus {
            self.count_cpu(row, &mut interval);
        }
        for (event, cpu, ran) in ran {
            let events = &mut interval.cpus.entry(cpu).or_default().events;
            events.resize(events.len().max(event as usize + 1), CpuEvent::default());
            events[event as usize].ran = Some(ran);
        }
        for &(cpu, times) in &drain.times {
            let before = self.times.insert(cpu, times);
            interval.cpus.entry(cpu).or_default().times = before.map(|before| times.since(&before));
        }
        for (reason, total) in &drain.losses {
            self.lose(reason, *total, &mut interval);
        }
        for row in &drain.slices {
            interval.slices.entry(self.index_of(row.slot)).or_default().push(row.clone());
        }
        for row in &drain.hot {
            let &HotRow { event, tgid, address, count, cpu, slot } = row;
            let key = HotKey { event, owner: self.index_of(slot), tgid, address };
            interval.hot.entry(key).or_default().merge(&Tally::new(count, self.weights.of(event, cpu)));
        }
        for row in &drain.stacks {
            let key = (row.event, self.index_of(row.slot), row.tgid, row.kernel.clone(), row.user.clone());
            let tally = Tally::new(row.count, self.weights.of(row.event, None));
            interval.stacks.entry(key).or_default().merge(&tally);
        }
        interval.gaps =
            drain.gaps.iter().map(|gap| (gap.slot.map(|slot| self.index_of(slot)), gap.clone())).collect();
        self.keep_places(&drain.places);
        self.programs.clone_from(&drain.programs);
        self.cost = drain.cost;
        self.at_ns = interval.to_ns;
        interval
    }

    fn meet(&mut self, row: &OwnerRow) {
        let index = *self.known.entry(identity(&row.owner)).or_insert_with(|| {
            self.owners.push((row.owner.clone(), None));
            OwnerIndex(self.owners.len() as u32 - 1)
        });
        self.owners[index.0 as usize] = (row.owner.clone(), row.ended_ns);
        self.owner_of_slot.insert(row.slot, index);
    }

    fn index_of(&self, slot: SlotId) -> OwnerIndex {
        // A slot without an owner row is the common one.
        self.owner_of_slot.get(&slot).copied().unwrap_or(OwnerIndex(0))
    }

    fn count(&mut self, row: &CountRow, interval: &mut Interval) {
        let last = self.counts.get(&(row.slot, row.cpu));
        let mut counts = difference(last, row);
        counts.events = samples(last, row, &self.weights);
        interval.owners.entry(self.index_of(row.slot)).or_default().merge(&counts);
        let mut kept = row.clone();
        if let (true, Some(last)) = (row.latencies.is_empty(), last) {
            // Left out, not zero: only the samples have changed.
            kept.latencies.clone_from(&last.latencies);
        }
        self.counts.insert((row.slot, row.cpu), kept);
    }

    fn count_cpu(&mut self, row: &CpuRow, interval: &mut Interval) {
        let last = self.cpus.insert(row.cpu, row.clone()).unwrap_or_else(|| row.clone());
        for reason in 0..loss::REASONS {
            let lost = |row: &CpuRow| {
                row.count.losses[reason] + row.samples.iter().map(|event| event.losses[reason]).sum::<u64>()
            };
            let count = lost(row).wrapping_sub(lost(&last));
            if count > 0 {
                *interval.losses.entry(loss::NAMES[reason].to_owned()).or_default() += count;
            }
        }
        interval.cpus.insert(row.cpu, cpu_difference(&last, row));
    }

    fn lose(&mut self, reason: &str, total: u64, interval: &mut Interval) {
        let before = self.losses.insert(reason.to_owned(), total).unwrap_or(0);
        if total > before {
            *interval.losses.entry(reason.to_owned()).or_default() += total - before;
        }
    }
}

/// What makes an owner the same one under another name: a process may execute another program.
type Identity = (u8, u64, u64);

fn identity(owner: &Owner) -> Identity {
    match owner {
        Owner::Other => (0, 0, 0),
        Owner::Process { pid, born_ns, .. } => (1, u64::from(*pid), *born_ns),
        Owner::Cgroup { id, .. } => (2, *id, 0),
    }
}

fn difference(last: Option<&CountRow>, row: &CountRow) -> Counts {
    let zero = Count::ZERO;
    let before = last.map_or(&zero, |last| &last.count);
    let now = &row.count;
    let waits = if row.latencies.is_empty() {
        Buckets::default()
    } else {
        Buckets::between(last.map_or(&[], |last| &last.latencies), &row.latencies)
    };
    let longest = if now.wait_max_ns > before.wait_max_ns {
        (now.wait_max_ns, now.wait_max_ns)
    } else {
        // Not the longest ever, so only its bucket is known.
        waits.last().map_or((0, 0), |within| (within.low, within.high.min(now.wait_max_ns).max(within.low)))
    };
    let cpu_time_ns = now.cpu_time_ns.wrapping_sub(before.cpu_time_ns);
    Counts {
        cpu_time_ns,
        voluntary_switches: now.voluntary_switches.wrapping_sub(before.voluntary_switches),
        involuntary_switches: now.involuntary_switches.wrapping_sub(before.involuntary_switches),
        minor_faults: now.minor_faults.wrapping_sub(before.minor_faults),
        major_faults: now.major_faults.wrapping_sub(before.major_faults),
        migrations: now.migrations.wrapping_sub(before.migrations),
        waits,
        wait_ns: now.wait_ns.wrapping_sub(before.wait_ns),
        wait_max_ns: longest,
        late_ticks: now.late_ticks.wrapping_sub(before.late_ticks),
        blind_ticks: now.blind_ticks.wrapping_sub(before.blind_ticks),
        events: Vec::new(),
        cpus: (cpu_time_ns > 0).then_some(row.cpu).into_iter().collect(),
    }
}

/// Samples of every event since the last reading, each with the weight that it has now.
fn samples(last: Option<&CountRow>, row: &CountRow, weights: &Weights) -> Vec<OwnerEvent> {
    let event = |(event, now): (usize, &SampleCount)| {
        let before = last.and_then(|last| last.samples.get(event)).copied().unwrap_or_default();
        let weight = weights.of(event as u32, Some(row.cpu));
        OwnerEvent {
            user: Tally::new(now.user.wrapping_sub(before.user), weight),
            kernel: Tally::new(now.kernel.wrapping_sub(before.kernel), weight),
            masked: now.masked.wrapping_sub(before.masked),
        }
    };
    row.samples.iter().enumerate().map(event).collect()
}

fn cpu_difference(last: &CpuRow, row: &CpuRow) -> CpuCounts {
    let classes =
        |now: [u64; 3], before: [u64; 3]| std::array::from_fn(|class| now[class].wrapping_sub(before[class]));
    let (count, before) = (&row.count, &last.count);
    let event = |(event, now): (usize, &CpuSamples)| {
        let before = last.samples.get(event).copied().unwrap_or_default();
        CpuEvent {
            samples: now.samples.wrapping_sub(before.samples),
            idle_samples: now.idle_samples.wrapping_sub(before.idle_samples),
            ran: None,
        }
    };
    // Only a clock has silences.
    let silent = |pick: fn(&CpuSamples) -> u64| {
        let sum = |row: &CpuRow| row.samples.iter().map(pick).fold(0, u64::wrapping_add);
        sum(row).wrapping_sub(sum(last))
    };
    CpuCounts {
        switches: count.switches.wrapping_sub(before.switches),
        switches_missing: count.switches_missing.wrapping_sub(before.switches_missing),
        times: None,
        ticks: count.ticks.wrapping_sub(before.ticks),
        late_ticks: classes(count.late_ticks, before.late_ticks),
        blind_ticks: classes(count.blind_ticks, before.blind_ticks),
        events: row.samples.iter().enumerate().map(event).collect(),
        silences: silent(|event| event.silences),
        silent_ns: silent(|event| event.silent_ns),
        withheld: silent(|event| event.withheld),
    }
}

#[cfg(test)]
mod tests;
