//! Counts without owners (`pmbpf stat`): readings of all counters at one moment. The consumer subtracts them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Ending, reading::Reading};
use crate::plan::count::CountPlan;

/// Facts that are known before the first reading.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountsHeader {
    /// Plan of the opened events.
    pub plan: CountPlan,
}

/// A reading of every counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountsDrain {
    /// Number of the run of the command, from 1.
    pub run: u32,
    /// Time since counting started in this run.
    pub at: Duration,
    /// Parts by target cgroup, in the order of the plan. A single part if no cgroups are targets.
    pub parts: Vec<Part>,
    /// Ending of the run, if this is its last reading.
    pub ended: Option<Ending>,
}

/// Readings of one target's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Counters, always in the same order.
    pub readings: Vec<Reading>,
    /// Events that lack a counter at a place that should have one.
    pub uncounted: Vec<Uncounted>,
}

/// An event without a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncounted {
    /// Index of the event in the list, from 0.
    pub index: u32,
    /// PMU that should count the event.
    pub pmu: String,
    /// Reason why the event is not counted.
    pub why: String,
}
