//! Where samples hit: rows of code and stacks, and the names that are looked up once a run is over.

use serde::{Deserialize, Serialize};

use super::{At, Cost, Name, SlotId, SourceRow, reading, unwinding::Unwinding};
use crate::machine::cpu::Cpu;

/// Samples that hit one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// The instruction.
    pub at: At,
    /// Samples.
    pub count: u64,
    /// Event that took them: its place in the plan.
    #[serde(default, skip_serializing_if = "reading::is_zero", deserialize_with = "reading::event")]
    pub event: u32,
    /// CPU.
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
    /// Samples.
    pub count: u64,
    /// Event that took them: its place in the plan.
    #[serde(default, skip_serializing_if = "reading::is_zero", deserialize_with = "reading::event")]
    pub event: u32,
}

/// For how long tasks were blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpuTime {
    /// Waits whose stack was taken.
    pub waits: u64,
    /// Their time in ns, and that of the waits which they stand for.
    pub ns: u64,
    /// Standard deviation of that time in ns, by which waits were taken; 0 where all were.
    pub deviation_ns: u64,
}

/// Waits of blocked tasks with one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpuStackRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// Frames, innermost first, kernel before user.
    pub frames: Vec<At>,
    /// Of waits that ended since the drain before; with the last drain, up to there.
    pub time: OffCpuTime,
}

/// Samples that were located since the drain before: most of them came with this one.
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
    /// What became of those whose user stack was to be unwound.
    #[serde(default, skip_serializing_if = "Unwinding::is_empty")]
    pub unwinding: Unwinding,
    /// Names of code that were looked up by then, in a run that does so as it goes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Name>,
}

impl Located {
    /// Nothing at all?
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

/// What a run ends with, once it is over: names, and what looking them up has cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Names of code.
    pub names: Vec<Name>,
    /// Samples that were located after the last drain.
    #[serde(default, skip_serializing_if = "Located::is_empty")]
    pub located: Located,
    /// What the process has cost by now.
    pub cost: Cost,
}

#[cfg(test)]
mod tests {
    use pmu_common::sample::EVENTS_MAX;
    use serde_json::{Value, json};

    use super::Located;

    /// Tables are made as long as the places of events say.
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
