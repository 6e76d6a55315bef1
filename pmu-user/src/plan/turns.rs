//! Counters per owner: some are on the PMU all the time, the others take turns in groups.
//!
//! A *slice* is a span during which one group is in force on every CPU. The order of the groups is random, so that no
//! habit of the workload keeps step with it; what is always counted tells what the other groups missed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

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
