//! Probes of the core PMUs: the number of events that a group can have, and the events that do not count work
//! that certainly occurs.
//!
//! Hypervisors expose fewer counters than the processor has, and some events do not count where they filter
//! them. The kernel reports the first when a group is opened, without scheduling it. A busy loop of this
//! thread shows the second.

use std::{thread, time::Duration};

use super::{
    Counting,
    busy_loop::{self, this_thread},
};
use crate::{
    machine::{
        Machine,
        cpu::{Cpu, set_affinity},
        pmu::{
            catalog::{Catalog, Entry, PmuCpus},
            counters::ARM_CYCLES,
            probed::{DeadEvent, Probed},
        },
    },
    plan::schedule::{Capacity, capacity::Shares},
    table::event_syntax::{List, SelectedGroup, resolve},
};

/// Length of the work for each event: long enough for any counter.
const BUSY: Duration = Duration::from_micros(500);
/// Events that occur in the work for certain, by the names that kernels give them.
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
/// Events that any general counter counts, and no fixed one.
const GENERAL: [&str; 2] = ["branch-instructions", "br_mis_pred"];
/// Events with a separate fixed counter, with its number, by the names that kernels give them.
const FIXED: [(&str, u8); 4] =
    [("instructions", 0), ("cpu-cycles", 1), ("ref-cycles", 2), ("cpu_cycles", ARM_CYCLES)];
/// Number of general counters that no core PMU exceeds.
const GENERAL_MAX: u32 = 31;

/// Probes the core PMUs of this machine. Needs no privilege where users may count their own user mode
/// (`perf_event_paranoid` up to 2). Results that cannot be determined are left out.
#[must_use]
pub fn probe(machine: &Machine, catalog: &Catalog) -> Vec<Probed> {
    let here = |pmu: &&Entry| machine.cpu.online.iter().any(|&cpu| pmu.is_on(cpu));
    // A separate thread, with CPU affinity that need not be restored.
    let ask = |pmu: &Entry| {
        thread::scope(|scope| scope.spawn(|| of_pmu(machine, catalog, pmu)).join().ok().flatten())
    };
    catalog.cores().filter(here).filter_map(ask).collect()
}

fn of_pmu(machine: &Machine, catalog: &Catalog, pmu: &Entry) -> Option<Probed> {
    if let PmuCpus::Cores(cpus) = &pmu.place {
        let online = |cpu: &&Cpu| machine.cpu.online.contains(cpu);
        set_affinity(&cpus.iter().filter(online).copied().collect::<Vec<_>>()).ok()?;
    }
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

/// Returns the topdown event that is dead while slots are counted.
fn shares(catalog: &Catalog, pmu: &Entry) -> Option<DeadEvent> {
    let name = "topdown-retiring";
    let groups = events(catalog, &format!("{{{0}/slots/u,{0}/{name}/u}}", pmu.name))?;
    let (readings, _) = busy_loop::count(&groups, BUSY)?;
    let [slots, share] = readings.as_slice() else { return None };
    let is_dead = share.running_ns > 0 && slots.value > 0 && share.value == 0;
    let config = groups.first()?.events.get(1)?.instances.first()?.words.0[0];
    is_dead.then(|| DeadEvent { name: name.to_owned(), config })
}

/// Returns the number of general counters that a group can have: the assumed number, or the number that the
/// kernel accepts instead.
fn general(catalog: &Catalog, pmu: &Entry, assumed: u32) -> Option<u32> {
    let opens = |count: u32| opens(catalog, pmu, count, None);
    // An event that cannot be opened at all gives no information about their number.
    if !opens(1) {
        return None;
    }
    if opens(assumed) {
        return (assumed..=GENERAL_MAX).take_while(|&count| opens(count)).last();
    }
    (1..assumed).rev().find(|&count| opens(count))
}

/// Returns the fixed counters that do not exist: where all general ones are taken, their events do not fit.
fn no_fixed(catalog: &Catalog, pmu: &Entry, general: u32) -> u64 {
    let absent =
        |(name, _): &&(&str, u8)| pmu.event(name).is_some() && !opens(catalog, pmu, general, Some(name));
    FIXED.iter().filter(absent).fold(0, |mask, (_, index)| mask | 1 << index)
}

/// Returns whether a group can have `general` events that only general counters count, and another one.
fn opens(catalog: &Catalog, pmu: &Entry, general: u32, other: Option<&str>) -> bool {
    let Some(name) = GENERAL.iter().find(|name| pmu.event(name).is_some()) else { return false };
    let names = vec![*name; general as usize];
    let list: Vec<String> =
        names.into_iter().chain(other).map(|name| format!("{}/{name}/u", pmu.name)).collect();
    let groups = events(catalog, &format!("{{{}}}", list.join(",")));
    groups.is_some_and(|groups| Counting::open(&groups, &this_thread()).is_ok())
}

fn events(catalog: &Catalog, notation: &str) -> Option<Vec<SelectedGroup>> {
    resolve(&List::parse(notation).ok()?, catalog).ok()
}

/// Returns whether the first event counts; `None` if it had no counter.
fn counts(groups: &[SelectedGroup]) -> Option<bool> {
    let (readings, _) = busy_loop::count(groups, BUSY)?;
    readings.first().filter(|one| one.running_ns > 0).map(|one| one.value > 0)
}
