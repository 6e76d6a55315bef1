//! Counts without owners (`pmbpf stat`): what counters said at one moment, for whoever subtracts them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Ending, reading::Reading};
use crate::plan::count::CountPlan;

/// What is known before the first reading.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountsHeader {
    /// What was opened.
    pub plan: CountPlan,
}

/// A reading of every counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountsDrain {
    /// Which run of the command, from 1.
    pub run: u32,
    /// Time since counting started in this run.
    pub at: Duration,
    /// By target cgroup, in the order of the plan; a single part if cgroups are no target.
    pub parts: Vec<Part>,
    /// How the run ended, if this is its last reading.
    pub ended: Option<Ending>,
}

/// What one target's counters said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Counters, always in the same order.
    pub readings: Vec<Reading>,
    /// Events that have no counter at a place where they should have.
    pub uncounted: Vec<Uncounted>,
}

/// An event without a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncounted {
    /// Which event of the list, from 0.
    pub index: u32,
    /// The PMU that should count it.
    pub pmu: String,
    /// Why it does not.
    pub why: String,
}
