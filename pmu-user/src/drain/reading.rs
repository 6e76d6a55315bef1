//! What counters said: plain rows, for whoever adds them up.

use pmu_common::sample::EVENTS_MAX;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::machine::cpu::Cpu;

/// What one counter has counted since it was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Which event of the list, from 0.
    pub index: u32,
    /// What it is called.
    pub event: String,
    /// The PMU that counted.
    pub pmu: String,
    /// The CPU it was opened on; none if it follows a thread.
    pub cpu: Option<Cpu>,
    /// The thread it follows.
    pub thread: Option<u32>,
    /// Occurrences while it ran.
    pub value: u64,
    /// Time since it was enabled, in ns; for a thread or cgroup, only while that ran.
    pub enabled_ns: u64,
    /// Time of that during which it was on a counter, in ns.
    pub running_ns: u64,
}

/// What the counter of a sampling event on one CPU has counted since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingReading {
    /// The event's place in the plan.
    #[serde(deserialize_with = "event")]
    pub event: u32,
    /// The CPU.
    pub cpu: Cpu,
    /// Occurrences while it ran, whoever caused them.
    pub value: u64,
    /// Time since it was enabled, in ns.
    pub enabled_ns: u64,
    /// Time of that during which it was on a counter, in ns.
    pub running_ns: u64,
}

/// A sampling event's place in a plan: tables are made as long as these say.
pub(super) fn event<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let event = u32::deserialize(deserializer)?;
    if (event as usize) < EVENTS_MAX {
        Ok(event)
    } else {
        Err(de::Error::custom(format!("there is no event {event}")))
    }
}

impl Reading {
    /// What was added since `earlier`, a reading of the same counter.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            value: self.value.wrapping_sub(earlier.value),
            enabled_ns: self.enabled_ns.saturating_sub(earlier.enabled_ns),
            running_ns: self.running_ns.saturating_sub(earlier.running_ns),
            ..self.clone()
        }
    }
}

/// Is it the first event, which is left out?
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) const fn is_zero(number: &u32) -> bool {
    *number == 0
}
