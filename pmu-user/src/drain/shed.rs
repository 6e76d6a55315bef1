//! Work that was stopped while counting went on, to keep to a budget.

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

/// What was done about a cost above the budget.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shed {
    /// What was stopped; `None` where nothing was left to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// When, in ns since counting started.
    pub at_ns: u64,
    /// The share of the CPUs (0 to 1) that pmbpf had taken until then, since it was last looked at.
    pub share: f64,
}
