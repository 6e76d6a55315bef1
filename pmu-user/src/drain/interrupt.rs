//! Interrupt handlers in a drain.

use pmu_common::interrupt::{
    CALL_FUNCTION, CALL_FUNCTION_SINGLE, IRQ_WORK, LINES, LOCAL_TIMER, OTHER_LINES, RESCHEDULE, SOFTIRQS,
};
use serde::{Deserialize, Serialize};

use super::{SlotId, Word};
use crate::machine::cpu::Cpu;

/// Softirqs by number (include/linux/interrupt.h), named as in /proc/softirqs.
const SOFTIRQ_NAMES: [&str; SOFTIRQS as usize] =
    ["hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu"];
/// Handlers of x86 vectors, named after their tracepoints.
const VECTOR_NAMES: [(u32, &str); 5] = [
    (LOCAL_TIMER, "local_timer"),
    (RESCHEDULE, "reschedule"),
    (CALL_FUNCTION, "call_function"),
    (CALL_FUNCTION_SINGLE, "call_function_single"),
    (IRQ_WORK, "irq_work"),
];

/// An interrupt handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Handler {
    /// Handler of a line, by its number in /proc/interrupts.
    Line(u32),
    /// Handlers of the lines for which there was no room, together.
    OtherLines,
    /// Handler of one of the processor's own vectors.
    Vector(u32),
    /// Handler of a softirq.
    Softirq(u32),
}

impl Handler {
    /// Returns the handler at a place of a CPU's row. For a line, `line` is its number plus 1.
    #[must_use]
    pub fn at(place: u32, line: u64) -> Option<Self> {
        match place {
            _ if place < SOFTIRQS => Some(Self::Softirq(place)),
            OTHER_LINES => Some(Self::OtherLines),
            _ if place < LINES => Some(Self::Vector(place)),
            _ => Some(Self::Line(u32::try_from(line.checked_sub(1)?).ok()?)),
        }
    }

    /// Returns the kind: `line`, `vector` or `softirq`.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Line(_) | Self::OtherLines => "line",
            Self::Vector(_) => "vector",
            Self::Softirq(_) => "softirq",
        }
    }

    /// Returns the name that does not depend on the host. The name of a line is its number.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Line(number) => format!("irq {number}"),
            Self::OtherLines => "other lines".to_owned(),
            Self::Softirq(number) => SOFTIRQ_NAMES
                .get(number as usize)
                .map_or_else(|| format!("softirq {number}"), |name| (*name).to_owned()),
            Self::Vector(place) => {
                let name = VECTOR_NAMES.iter().find(|(vector, _)| *vector == place);
                name.map_or_else(|| format!("vector {place}"), |(_, name)| (*name).to_owned())
            }
        }
    }
}

/// Counts of one handler on one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerRow {
    /// CPU of the handler.
    pub cpu: Cpu,
    /// The interrupt handler.
    pub handler: Handler,
    /// Drivers' name for a line (`/sys/kernel/irq/N/actions`), if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Word>,
    /// Number of runs so far.
    pub runs: u64,
    /// Time of the runs so far, in ns, without handlers that interrupted them.
    pub total_ns: u64,
    /// Longest run since the previous drain, in ns.
    pub longest_ns: u64,
}

/// Time of handlers that interrupted tasks of one owner, so far, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptedRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// Time of handlers of lines and vectors.
    pub hard_ns: u64,
    /// Time of softirqs.
    pub soft_ns: u64,
}

/// Time of handlers on one CPU that interrupted no counted owner, so far, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpareInterruptsRow {
    /// CPU of the handlers.
    pub cpu: Cpu,
    /// Time of handlers that interrupted the idle task.
    pub idle_ns: u64,
    /// Time of handlers that interrupted tasks without an owner.
    pub others_ns: u64,
    /// Lost runs: their begin and end did not match.
    pub missed: u64,
    /// Ticks that came late because a handler had the CPU.
    #[serde(default)]
    pub late_ticks: u64,
    /// Tick instants in those spans.
    #[serde(default)]
    pub late_instants: u64,
}

#[cfg(test)]
mod tests {
    use pmu_common::interrupt::{LINES, LOCAL_TIMER, OTHER_LINES};

    use super::Handler;

    #[test]
    fn a_place_tells_the_handler_and_what_it_is_called() {
        let named = |place, line| Handler::at(place, line).map(|handler| (handler.kind(), handler.name()));
        let is = |kind, name: &str| Some((kind, name.to_owned()));
        assert_eq!(named(3, 0), is("softirq", "net_rx"));
        assert_eq!(named(9, 0), is("softirq", "rcu"));
        assert_eq!(named(LOCAL_TIMER, 0), is("vector", "local_timer"));
        assert_eq!(named(OTHER_LINES, 0), is("line", "other lines"));
        assert_eq!(named(LINES + 5, 37), is("line", "irq 36"));
        assert_eq!(named(LINES + 5, 0), None, "a free place");
    }
}
