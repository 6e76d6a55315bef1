//! What a core PMU turned out to count, as `perf::probe` found by opening events: a hypervisor may leave out counters, and refuse events
//! without saying so.

use serde::{Deserialize, Serialize};

/// What was found out about a core PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// Which.
    pub pmu: String,
    /// General counters that a group of events can have; `None` if that could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub general: Option<u32>,
    /// Fixed counters that are not there, as the kernel numbers them, of those that were looked for.
    #[serde(default, skip_serializing_if = "is_none")]
    pub no_fixed: u64,
    /// Events that count nothing, although there was something to count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead: Vec<DeadEvent>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_none(mask: &u64) -> bool {
    *mask == 0
}

/// An event that counts nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadEvent {
    /// What the kernel calls it.
    pub name: String,
    /// How it is encoded.
    pub config: u64,
}

impl Probed {
    /// Why an event that is encoded so cannot be believed; `None` if nothing is known against it.
    pub fn why_dead(&self, config: u64) -> Option<String> {
        let dead = self.dead.iter().find(|dead| dead.config == config)?;
        Some(format!(
            "`{}` counts nothing on the PMU `{}`, whatever runs: a hypervisor filters it, or its counter is dead",
            dead.name, self.pmu
        ))
    }
}
