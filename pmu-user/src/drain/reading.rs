//! What counters said: plain rows, for whoever adds them up.

use pmu_common::sample::EVENTS_MAX;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::SlotId;
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

/// What was counted for one owner while one group was active: sums over the CPUs of one core PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceRow {
    /// The owner; what no slot has, idle tasks and those that are not wanted, is not there.
    pub slot: SlotId,
    /// Which of the plan's [`crate::plan::multiplexing::Multiplexing`].
    pub turns: u32,
    /// Number of the slice since counting started.
    pub slice: u64,
    /// Which of the groups that take turns was active; `None` where there is none. A single one always is.
    pub group: Option<u32>,
    /// Time the owner ran in the slice, in ns, summed over CPUs: by the clock of the first group, so that one which was
    /// on counters all the time ran exactly as long.
    pub time_ns: u64,
    /// Counts of the events that always count, in the plan's order.
    pub always: Vec<u64>,
    /// Time those groups were on counters, one a group, in ns; never more than `time_ns`.
    pub always_running_ns: Vec<u64>,
    /// Counts of the group's events.
    pub counts: Vec<u64>,
    /// Time the group was on counters, in ns. Less than `time_ns` if someone else had its counters.
    pub running_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::SliceRow;
    use crate::drain::{SlotId, TasksDrain};

    #[test]
    fn a_row_survives_a_recording() {
        let row = SliceRow {
            slot: SlotId { slot: 7, generation: 2 },
            turns: 1,
            slice: u64::MAX,
            group: Some(3),
            time_ns: 10,
            always: vec![u64::MAX, 0],
            always_running_ns: vec![9],
            counts: vec![1, 2, 3],
            running_ns: 8,
        };
        let drain = TasksDrain {
            slices: vec![row.clone(), SliceRow { group: None, ..row }],
            ..TasksDrain::default()
        };
        let text = serde_json::to_string(&drain).unwrap();
        assert_eq!(serde_json::from_str::<TasksDrain>(&text).unwrap().slices, drain.slices);
    }

    #[test]
    fn a_drain_of_a_run_without_counters_does_not_mention_them() {
        assert!(!serde_json::to_string(&TasksDrain::default()).unwrap().contains("slices"));
    }
}
