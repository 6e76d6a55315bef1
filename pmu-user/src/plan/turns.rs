//! Counters per owner: some are on the PMU all the time, the others take turns in groups.
//!
//! A *slice* is a span during which one group is in force on every CPU. The order of the groups is random, so that no
//! habit of the workload keeps step with it; what is always counted tells what the other groups missed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::schedule::{Counters, Need, Schedule};

/// Shortest mean slice. Every slice begins and ends between two switches of tasks, and what ran across its edges is cut.
const SLICE_MIN: Duration = Duration::from_millis(20);
/// Most of a CPU's time that changing groups may take: 1 in so many.
const COST_SHARE: u32 = 500;
/// What a change of groups costs the CPU on which it happens: two interrupts from the CPU that asks, and about ten
/// counters programmed. An estimate, on the high side.
const CHANGE: Duration = Duration::from_micros(20);
/// The same in a guest, where the hypervisor is asked for every register.
const CHANGE_IN_GUEST: Duration = Duration::from_micros(100);
/// What a change costs the thread that asks for it, for each CPU: two system calls that wait for the other CPU.
const ASKING: Duration = Duration::from_micros(10);
/// The CPUs change one after the other: all have within 1 in so many of a slice.
const SWEEP_SHARE: u32 = 20;

/// How long a group stays in force on average, on a machine with so many CPUs.
///
/// Long enough that changing takes at most 0.2 % of every CPU's time, and that the CPUs, which change one after the
/// other, are on the same group for most of it.
#[must_use]
pub fn slice(cpus: usize, host: Host) -> Duration {
    let change = match host {
        Host::Bare => CHANGE,
        Host::Guest => CHANGE_IN_GUEST,
    };
    let sweep = ASKING.saturating_mul(u32::try_from(cpus).unwrap_or(u32::MAX));
    SLICE_MIN.max(change * COST_SHARE).max(sweep.saturating_mul(SWEEP_SHARE))
}

/// What pmbpf runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The machine itself.
    Bare,
    /// A virtual machine.
    Guest,
}

/// What is counted for every owner on the CPUs of one core PMU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    /// Name of the PMU: core types are never added up.
    pub pmu: String,
    /// Groups that count all the time.
    pub always: Vec<EventGroup>,
    /// Groups of which one at a time counts. With at most one, nothing takes turns.
    pub groups: Vec<EventGroup>,
    /// Mean length of a slice.
    pub slice: Duration,
}

/// Events that are on the counters together or not at all; the first leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventGroup {
    /// Its events, at least one.
    pub events: Vec<PlannedEvent>,
}

/// An event to be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedEvent {
    /// What results call it: as formulas write it, or as it was typed.
    pub name: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `config` to `config3`.
    pub words: [u64; 4],
    /// Modes that count, in perf's letters: `u`, `k`, `h`; all of them if empty.
    #[serde(default)]
    pub modes: String,
}

impl Turns {
    /// What to open for a schedule. `resolved` says how to open each of `needs`.
    ///
    /// What always counts is opened in up to three groups: `slots` with what rides on it, which the hardware counts and
    /// the kernel reads as one; events on counters; and those that need none.
    #[must_use]
    pub fn new(
        schedule: &Schedule,
        needs: &[Need],
        resolved: &[PlannedEvent],
        pmu: &str,
        slice: Duration,
    ) -> Self {
        let group = |events: &[usize]| EventGroup {
            events: events.iter().map(|&event| resolved[event].clone()).collect(),
        };
        let always = |belongs: fn(Counters) -> bool| {
            let events = schedule.always.iter().copied();
            events.filter(|&event| belongs(needs[event].counters)).collect::<Vec<usize>>()
        };
        let leader = always(|counters| counters == Counters::Slots);
        let shares = always(|counters| counters == Counters::Share);
        let counted = always(|counters| matches!(counters, Counters::Fixed { .. } | Counters::General(_)));
        let free = always(|counters| counters == Counters::Free);
        let always = [[leader, shares].concat(), counted, free];
        Self {
            pmu: pmu.to_owned(),
            always: always.iter().filter(|events| !events.is_empty()).map(|events| group(events)).collect(),
            groups: schedule.groups.iter().map(|events| group(events)).collect(),
            slice,
        }
    }

    /// How long it takes on average until every group has had its turn.
    #[must_use]
    pub fn round(&self) -> Duration {
        self.slice.saturating_mul(u32::try_from(self.groups.len()).unwrap_or(u32::MAX))
    }

    /// Events that count all the time, in order.
    pub fn always_events(&self) -> impl Iterator<Item = &PlannedEvent> {
        self.always.iter().flat_map(|group| &group.events)
    }

    /// Descriptors that one CPU takes.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.always.iter().chain(&self.groups).map(|group| group.events.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Host, PlannedEvent, Turns, slice};
    use crate::plan::schedule::{Counters, Need, Schedule};

    #[test]
    fn slots_lead_and_what_needs_no_counter_stands_apart() {
        let counters = [
            Counters::Share,
            Counters::Free,
            Counters::Fixed { index: 1, general: 0 },
            Counters::Slots,
            Counters::General(0xf),
        ];
        let names = ["retiring", "clock", "cycles", "slots", "misses"];
        let need =
            |(name, counters): (&str, Counters)| Need { name: name.to_owned(), counters, resource: None };
        let needs: Vec<Need> = names.into_iter().zip(counters).map(need).collect();
        let event =
            |name: &str| PlannedEvent { name: name.to_owned(), kind: 4, words: [0; 4], modes: String::new() };
        let resolved = names.map(event);
        let schedule = Schedule { always: vec![0, 1, 2, 3], groups: vec![vec![4]], ..Schedule::default() };
        let turns = Turns::new(&schedule, &needs, &resolved, "cpu", Duration::from_millis(20));
        let found: Vec<Vec<&str>> = turns
            .always
            .iter()
            .chain(&turns.groups)
            .map(|group| group.events.iter().map(|event| event.name.as_str()).collect())
            .collect();
        assert_eq!(found, [vec!["slots", "retiring"], vec!["cycles"], vec!["clock"], vec!["misses"]]);
        assert_eq!((turns.pmu.as_str(), turns.round()), ("cpu", Duration::from_millis(20)));
    }

    #[test]
    fn changing_groups_costs_little_on_any_machine() {
        for cpus in [1, 2, 64, 512, 8192] {
            for (host, change_us) in [(Host::Bare, 20.0), (Host::Guest, 100.0)] {
                let slice_us = slice(cpus, host).as_secs_f64() * 1e6;
                assert!(change_us / slice_us <= 0.002 + 1e-9, "{cpus} CPUs, {host:?}");
                assert!(cpus as f64 * 10.0 / slice_us <= 0.05 + 1e-9, "{cpus} CPUs, {host:?}");
            }
        }
    }

    #[test]
    fn few_cpus_have_short_slices() {
        assert_eq!(slice(2, Host::Bare), Duration::from_millis(20));
        assert_eq!(slice(2, Host::Guest), Duration::from_millis(50));
        assert_eq!(slice(256, Host::Bare), Duration::from_millis(51) + Duration::from_micros(200));
    }
}
