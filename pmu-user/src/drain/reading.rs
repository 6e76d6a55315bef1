//! Readings of counters: plain rows that the consumer adds up.

use pmu_common::sample::EVENTS_MAX;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::SlotId;
use crate::machine::cpu::Cpu;

/// Reading of one counter since it was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Index of the event in the list, from 0.
    pub index: u32,
    /// Name of the event.
    pub event: String,
    /// PMU that counted the event.
    pub pmu: String,
    /// CPU on which the counter was opened; `None` if it follows a thread.
    pub cpu: Option<Cpu>,
    /// Thread that the counter follows.
    pub thread: Option<u32>,
    /// Occurrences while the counter ran.
    pub value: u64,
    /// Time since the counter was enabled, in ns. For a thread or cgroup, only the time for which that ran.
    pub enabled_ns: u64,
    /// Time for which the counter was running, in ns.
    pub running_ns: u64,
}

/// Reading of the counter of a sampling event on one CPU since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingReading {
    /// Index of the event in the plan.
    #[serde(deserialize_with = "event")]
    pub event: u32,
    /// CPU of the counter.
    pub cpu: Cpu,
    /// Occurrences while the counter ran, whatever caused them.
    pub value: u64,
    /// Time since the counter was enabled, in ns.
    pub enabled_ns: u64,
    /// Time for which the counter was running, in ns.
    pub running_ns: u64,
}

/// Reads the index of a sampling event in a plan. The index determines the length of tables, so it is
/// bounded.
pub(super) fn event<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let event = u32::deserialize(deserializer)?;
    if (event as usize) < EVENTS_MAX {
        Ok(event)
    } else {
        Err(de::Error::custom(format!("there is no event {event}")))
    }
}

impl Reading {
    /// Returns the difference from `earlier`, a reading of the same counter.
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

/// Returns whether this is the index of the first event, which is omitted.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Counts of one owner while one group was active, summed over the CPUs of one core PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceRow {
    /// Slot of the owner. Tasks without a slot, idle tasks and those outside the targets, have no row.
    pub slot: SlotId,
    /// Index of the [`crate::plan::multiplexing::Multiplexing`] in the plan.
    pub turns: u32,
    /// Number of the slice since counting started.
    pub slice: u64,
    /// Index of the active group among those that take turns; `None` if there are none. A single group is
    /// always active.
    pub group: Option<u32>,
    /// Time for which the owner ran in the slice, in ns, summed over CPUs. The first group is the clock: a
    /// group that was running all the time has exactly this time.
    pub time_ns: u64,
    /// Counts of the events that always count, in the plan's order.
    pub always: Vec<u64>,
    /// Time for which each of those groups was running, in ns; never more than `time_ns`.
    pub always_running_ns: Vec<u64>,
    /// Counts of the group's events.
    pub counts: Vec<u64>,
    /// Time for which the group was running, in ns. Less than `time_ns` if another user had its counters.
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
