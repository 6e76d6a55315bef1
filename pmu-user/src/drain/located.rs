//! Locations of samples: rows of code and stacks, and the names that are looked up once a run is over.

use serde::{Deserialize, Serialize};

use super::{At, Cost, Name, SlotId, SourceRow, reading, unwinding::Unwinding};
use crate::machine::cpu::Cpu;

/// Samples that hit one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// Location of the instruction.
    pub at: At,
    /// Number of samples.
    pub count: u64,
    /// Index in the plan of the event that took them.
    #[serde(default, skip_serializing_if = "reading::is_zero", deserialize_with = "reading::event")]
    pub event: u32,
    /// CPU of the samples, if recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
}

/// Samples with one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeStackRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// Frames, innermost first, kernel before user.
    pub frames: Vec<At>,
    /// Number of samples.
    pub count: u64,
    /// Index in the plan of the event that took them.
    #[serde(default, skip_serializing_if = "reading::is_zero", deserialize_with = "reading::event")]
    pub event: u32,
}

/// Time for which tasks were blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpuTime {
    /// Waits for which a stack was taken.
    pub waits: u64,
    /// Time of these waits in ns, and of the waits that they stand for.
    pub ns: u64,
    /// Standard deviation of that time in ns, due to the choice of waits; 0 if all were taken.
    pub deviation_ns: u64,
}

/// Waits of blocked tasks with one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpuStackRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// Frames, innermost first, kernel before user.
    pub frames: Vec<At>,
    /// Time of the waits that ended since the previous drain. In the last drain, lasting waits count up to
    /// it.
    pub time: OffCpuTime,
}

/// Samples that were located since the previous drain. Most of them came with this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// Sources that are new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceRow>,
    /// Samples by instruction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<CodeRow>,
    /// Samples by stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<CodeStackRow>,
    /// Waits of blocked tasks by stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off_cpu: Vec<OffCpuStackRow>,
    /// Outcome of unwinding the user stacks.
    #[serde(default, skip_serializing_if = "Unwinding::is_empty")]
    pub unwinding: Unwinding,
    /// Names of code that were looked up by then, in a run that looks them up during counting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Name>,
}

impl Located {
    /// Returns whether nothing was located.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
            && self.code.is_empty()
            && self.stacks.is_empty()
            && self.off_cpu.is_empty()
            && self.unwinding.is_empty()
            && self.names.is_empty()
    }

    /// Appends what was located later.
    pub fn append(&mut self, mut later: Self) {
        self.sources.append(&mut later.sources);
        self.code.append(&mut later.code);
        self.stacks.append(&mut later.stacks);
        self.off_cpu.append(&mut later.off_cpu);
        self.unwinding.append(later.unwinding);
        self.names.append(&mut later.names);
    }
}

/// Last part of a run, once it is over: names, and the cost of looking them up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Names of code.
    pub names: Vec<Name>,
    /// Samples that were located after the last drain.
    #[serde(default, skip_serializing_if = "Located::is_empty")]
    pub located: Located,
    /// Cost of the process up to now.
    pub cost: Cost,
}

#[cfg(test)]
mod tests {
    use pmu_common::sample::EVENTS_MAX;
    use serde_json::{Value, json};

    use super::Located;

    /// The indices of events determine the length of tables.
    #[test]
    fn an_event_that_no_plan_has_is_refused() {
        let located = |code: Value, stack: Value| {
            let slot = json!({"slot": 1, "generation": 0});
            let at = json!([0, 16]);
            json!({"code": [{"slot": slot, "at": at, "count": 1, "event": code}],
                   "stacks": [{"slot": slot, "frames": [at], "count": 1, "event": stack}]})
        };
        let read = |code, stack| serde_json::from_value::<Located>(located(code, stack));
        let last = json!(EVENTS_MAX - 1);
        assert_eq!(read(last.clone(), last).unwrap().stacks[0].event as usize, EVENTS_MAX - 1);
        for (code, stack) in [(json!(EVENTS_MAX), json!(0)), (json!(0), json!(u32::MAX))] {
            assert!(read(code, stack).unwrap_err().to_string().contains("there is no event"));
        }
    }
}
