//! Results of `perf::probe` for a core PMU, found by opening events. A hypervisor may leave out counters, and
//! refuse events without an error.

use serde::{Deserialize, Serialize};

/// Probe result of a core PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// Name of the PMU.
    pub pmu: String,
    /// General counters available to a group of events. `None` if they could not be probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub general: Option<u32>,
    /// Mask of missing fixed counters, as the kernel numbers them, among those that were probed.
    #[serde(default, skip_serializing_if = "is_none")]
    pub no_fixed: u64,
    /// Events that count nothing, although there was activity to count.
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
    /// Kernel's name of the event.
    pub name: String,
    /// Encoding of the event.
    pub config: u64,
}

impl Probed {
    /// Returns why an event with this encoding cannot be trusted. Returns `None` if it is not known to be
    /// dead.
    pub fn why_dead(&self, config: u64) -> Option<String> {
        let dead = self.dead.iter().find(|dead| dead.config == config)?;
        Some(format!(
            "`{}` counts nothing on the PMU `{}`, whatever runs: a hypervisor filters it, or its counter is dead",
            dead.name, self.pmu
        ))
    }
}
