//! What counters said about one owner in one slice.

use serde::{Deserialize, Serialize};

use super::SlotId;

/// What was counted for one owner while one group was in force: sums over the CPUs of one core PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceRow {
    /// The owner; what no slot has, idle tasks and those that are not wanted, is not there.
    pub slot: SlotId,
    /// Which of the plan's [`crate::plan::turns::Turns`].
    pub turns: u32,
    /// Number of the slice since counting started.
    pub slice: u64,
    /// Which of the groups that take turns was in force; `None` where there is none. A single one always is.
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
