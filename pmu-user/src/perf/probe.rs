//! What core PMUs really count: how many events a group can have, and which events count work that is known to be there.
//!
//! Hypervisors show fewer counters than the processor has, and some events count nothing where they filter them. The kernel answers the
//! first when a group is opened, without scheduling it; the second shows in a piece of work of this thread.

use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

use super::{CountTarget, Counting};
use crate::{
    machine::{
        Machine,
        pmu::{
            catalog::{Catalog, Entry, PmuCpus},
            counters::ARM_CYCLES,
            probed::{DeadEvent, Probed},
        },
    },
    plan::{
        request::Inherit,
        schedule::{Capacity, capacity::Shares},
    },
    table::event_syntax::{List, SelectedGroup, resolve},
};

/// Work for each event: long enough for any counter.
const BUSY: Duration = Duration::from_micros(500);
/// Events that the work has for certain, by the names that kernels give them; the first few of Top-Down count in a group with `slots`.
const CERTAIN: [&str; 8] = [
    "cpu-cycles",
    "instructions",
    "branch-instructions",
    "ref-cycles",
    "cpu_cycles",
    "inst_retired",
    "br_retired",
    "slots",
];
/// An event that any general counter counts, and no fixed one.
const GENERAL: [&str; 2] = ["branch-instructions", "br_mis_pred"];
/// Events that a fixed counter has for itself, with its number, by the names that kernels give them.
const FIXED: [(&str, u8); 4] =
    [("instructions", 0), ("cpu-cycles", 1), ("ref-cycles", 2), ("cpu_cycles", ARM_CYCLES)];
/// More general counters than any core PMU has.
const GENERAL_MAX: u32 = 31;

/// What the core PMUs of this machine count. Needs no privilege where users may count their own user mode
/// (`perf_event_paranoid` up to 2); what cannot be asked is left out.
#[must_use]
pub fn probe(machine: &Machine, catalog: &Catalog) -> Vec<Probed> {
    let here = |pmu: &&Entry| machine.cpu.online.iter().any(|&cpu| pmu.is_on(cpu));
    // A thread of its own, whose CPUs nobody has to restore.
    let ask = |pmu: &Entry| {
        thread::scope(|scope| scope.spawn(|| of_pmu(machine, catalog, pmu)).join().ok().flatten())
    };
    catalog.cores().filter(here).filter_map(ask).collect()
}

fn of_pmu(machine: &Machine, catalog: &Catalog, pmu: &Entry) -> Option<Probed> {
    stay_on(machine, pmu)?;
    let assumed = Capacity::read(pmu, &machine.cpu, std::path::Path::new("/"));
    let general = general(catalog, pmu, assumed.general.count_ones());
    let mut dead: Vec<DeadEvent> = Vec::new();
    // Only a hypervisor filters events.
    let filtered = machine.cpu.guest;
    for name in CERTAIN.iter().filter(|name| filtered && pmu.event(name).is_some()) {
        let groups = events(catalog, &format!("{}/{name}/u", pmu.name))?;
        if counts(&groups) == Some(false) {
            let config = groups.first()?.events.first()?.instances.first()?.words.0[0];
            dead.push(DeadEvent { name: (*name).to_owned(), config });
        }
    }
    if filtered && assumed.shares == Shares::Offered {
        dead.extend(shares(catalog, pmu));
    }
    let no_fixed = general.map_or(0, |general| no_fixed(catalog, pmu, general));
    Some(Probed { pmu: pmu.name.clone(), general, no_fixed, dead })
}

/// The share that is not there where there are slots.
fn shares(catalog: &Catalog, pmu: &Entry) -> Option<DeadEvent> {
    let name = "topdown-retiring";
    let groups = events(catalog, &format!("{{{0}/slots/u,{0}/{name}/u}}", pmu.name))?;
    let readings = readings(&groups)?;
    let [slots, share] = readings.as_slice() else { return None };
    let is_dead = share.1 > 0 && slots.0 > 0 && share.0 == 0;
    let config = groups.first()?.events.get(1)?.instances.first()?.words.0[0];
    is_dead.then(|| DeadEvent { name: name.to_owned(), config })
}

/// General counters that a group can have: as many as are assumed, or what the kernel says instead.
fn general(catalog: &Catalog, pmu: &Entry, assumed: u32) -> Option<u32> {
    let opens = |count: u32| opens(catalog, pmu, count, None);
    // One that cannot be opened at all says nothing about how many there are.
    if !opens(1) {
        return None;
    }
    if opens(assumed) {
        return (assumed..=GENERAL_MAX).take_while(|&count| opens(count)).last();
    }
    (1..assumed).rev().find(|&count| opens(count))
}

/// Fixed counters that are not there: where all general ones are taken, their events do not fit.
fn no_fixed(catalog: &Catalog, pmu: &Entry, general: u32) -> u64 {
    let absent =
        |(name, _): &&(&str, u8)| pmu.event(name).is_some() && !opens(catalog, pmu, general, Some(name));
    FIXED.iter().filter(absent).fold(0, |mask, (_, index)| mask | 1 << index)
}

/// Can a group have so many events that only general counters count, and another one?
fn opens(catalog: &Catalog, pmu: &Entry, general: u32, other: Option<&str>) -> bool {
    let Some(name) = GENERAL.iter().find(|name| pmu.event(name).is_some()) else { return false };
    let names = vec![*name; general as usize];
    let list: Vec<String> =
        names.into_iter().chain(other).map(|name| format!("{}/{name}/u", pmu.name)).collect();
    let groups = events(catalog, &format!("{{{}}}", list.join(",")));
    groups.is_some_and(|groups| Counting::open(&groups, &this_thread()).is_ok())
}

fn this_thread() -> CountTarget {
    let id = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    CountTarget::Threads(vec![id], Inherit::No)
}

fn events(catalog: &Catalog, notation: &str) -> Option<Vec<SelectedGroup>> {
    resolve(&List::parse(notation).ok()?, catalog).ok()
}

/// Does the first event count? `None` if it had no counter.
fn counts(groups: &[SelectedGroup]) -> Option<bool> {
    let readings = readings(groups)?;
    readings.first().filter(|(_, running_ns)| *running_ns > 0).map(|(value, _)| *value > 0)
}

/// What the events count in a piece of work: each one's count, and for how long it had a counter, in ns.
fn readings(groups: &[SelectedGroup]) -> Option<Vec<(u64, u64)>> {
    let counting = Counting::open(groups, &this_thread()).ok()?;
    counting.enable().ok()?;
    work();
    counting.disable().ok()?;
    let readings = counting.read().ok()?;
    Some(readings.iter().map(|one| (one.value, one.running_ns)).collect())
}

/// Cycles, instructions and branches for a while.
fn work() {
    let begun = Instant::now();
    let mut number = 1_u64;
    while begun.elapsed() < BUSY {
        for _ in 0..1_000 {
            number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// Keeps this thread on CPUs that the PMU counts on.
fn stay_on(machine: &Machine, pmu: &Entry) -> Option<()> {
    let PmuCpus::Cores(cpus) = &pmu.place else { return Some(()) };
    let mut only = rustix::thread::CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| machine.cpu.online.contains(cpu)) {
        only.set(usize::try_from(cpu.0).ok().filter(|&index| index < rustix::thread::CpuSet::MAX_CPU)?);
    }
    rustix::thread::sched_setaffinity(None, &only).ok()
}
