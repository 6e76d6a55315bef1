//! Work that was stopped during counting, to keep to a budget.

use serde::{Deserialize, Serialize};

use crate::named::named;

named! {
    /// Work that a run can do without, in the order in which it is stopped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Work {
        Interrupts = "interrupt handlers", "Programs on interrupt handlers.";
        Samples = "samples", "Sampling events, with their stacks.";
        RunqueueLatency = "run-queue latency", "Programs on wake-ups.";
    }
}

/// Action on a cost above the budget.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shed {
    /// Work that was stopped; `None` if nothing was left to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// Time of the action, in ns since counting started.
    pub at_ns: u64,
    /// Share of the CPUs (0 to 1) that pmbpf took since the previous check.
    pub share: f64,
}
