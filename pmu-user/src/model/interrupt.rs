//! Counts of interrupt handlers between readings.

use std::collections::BTreeMap;

use foldhash::HashMap;

use crate::{
    drain::{Handler, HandlerRow, InterruptedRow, SlotId, SpareInterruptsRow, TasksDrain},
    machine::cpu::Cpu,
    untrusted::Untrusted,
};

/// Completed runs of one handler on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerRuns {
    /// Number of runs.
    pub runs: u64,
    /// Time of the runs in ns, without that of handlers that interrupted them.
    pub total_ns: u64,
    /// Longest run, in ns.
    pub longest_ns: u64,
}

/// Time for which interrupt handlers had a CPU while an owner's tasks ran there, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupted {
    /// Time of handlers of lines and vectors.
    pub hard_ns: u64,
    /// Time of softirqs.
    pub soft_ns: u64,
}

/// Handlers on one CPU that interrupted no counted owner, and lost runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpareInterrupts {
    /// Time of handlers that interrupted the idle task, in ns.
    pub idle_ns: u64,
    /// Time of handlers that interrupted tasks without an owner, in ns.
    pub others_ns: u64,
    /// Lost runs: their begin and end did not match.
    pub missed: u64,
    /// Ticks that came late because a handler had the CPU.
    pub late_ticks: u64,
    /// Tick instants in those spans.
    pub late_instants: u64,
}

impl HandlerRuns {
    /// Adds other runs.
    pub const fn merge(&mut self, other: &Self) {
        self.runs = self.runs.saturating_add(other.runs);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        if other.longest_ns > self.longest_ns {
            self.longest_ns = other.longest_ns;
        }
    }
}

impl Interrupted {
    pub(super) const fn merge(&mut self, other: &Self) {
        self.hard_ns = self.hard_ns.saturating_add(other.hard_ns);
        self.soft_ns = self.soft_ns.saturating_add(other.soft_ns);
    }

    /// Returns the time of both kinds.
    pub const fn all_ns(&self) -> u64 {
        self.hard_ns.saturating_add(self.soft_ns)
    }
}

impl SpareInterrupts {
    pub(super) const fn merge(&mut self, other: &Self) {
        self.idle_ns = self.idle_ns.saturating_add(other.idle_ns);
        self.others_ns = self.others_ns.saturating_add(other.others_ns);
        self.missed = self.missed.saturating_add(other.missed);
        self.late_ticks = self.late_ticks.saturating_add(other.late_ticks);
        self.late_instants = self.late_instants.saturating_add(other.late_instants);
    }
}

/// Counts of handlers since the previous drain.
pub(super) struct NewInterrupts {
    pub(super) handlers: BTreeMap<(Cpu, Handler), HandlerRuns>,
    pub(super) spare: BTreeMap<Cpu, SpareInterrupts>,
    pub(super) interrupted: Vec<(SlotId, Interrupted)>,
}

/// Last readings, and names of lines.
#[derive(Debug, Default)]
pub(super) struct InterruptReadings {
    handlers: HashMap<(Cpu, Handler), (u64, u64)>,
    spare: HashMap<Cpu, SpareInterruptsRow>,
    interrupted: HashMap<SlotId, InterruptedRow>,
    names: BTreeMap<Handler, Untrusted>,
    /// Whether anything was read. Handler runs before the first drain do not count.
    has_begun: bool,
}

impl InterruptReadings {
    /// Returns the counts since the previous reading. Rows are read while they grow: what one reading lacks
    /// comes with the next.
    pub(super) fn advance(&mut self, drain: &TasksDrain) -> NewInterrupts {
        let mut handlers: BTreeMap<_, _> =
            drain.handlers.iter().map(|row| ((row.cpu, row.handler), self.handler(row))).collect();
        let mut spare: BTreeMap<_, _> =
            drain.spare_interrupts.iter().map(|row| (row.cpu, self.spare(row))).collect();
        let interrupted = drain.interrupted.iter().map(|row| (row.slot, self.owner(row))).collect();
        if !std::mem::replace(&mut self.has_begun, true) {
            (handlers, spare) = (BTreeMap::new(), BTreeMap::new());
        }
        NewInterrupts { handlers, spare, interrupted }
    }

    fn handler(&mut self, row: &HandlerRow) -> HandlerRuns {
        if let Some(name) = &row.name {
            self.names.insert(row.handler, name.0.clone());
        }
        let (runs, total_ns) =
            self.handlers.insert((row.cpu, row.handler), (row.runs, row.total_ns)).unwrap_or_default();
        HandlerRuns {
            runs: row.runs.wrapping_sub(runs),
            total_ns: row.total_ns.wrapping_sub(total_ns),
            longest_ns: row.longest_ns,
        }
    }

    fn spare(&mut self, row: &SpareInterruptsRow) -> SpareInterrupts {
        let before = self.spare.insert(row.cpu, *row);
        let since =
            |pick: fn(&SpareInterruptsRow) -> u64| pick(row).wrapping_sub(before.as_ref().map_or(0, pick));
        SpareInterrupts {
            idle_ns: since(|row| row.idle_ns),
            others_ns: since(|row| row.others_ns),
            missed: since(|row| row.missed),
            late_ticks: since(|row| row.late_ticks),
            late_instants: since(|row| row.late_instants),
        }
    }

    fn owner(&mut self, row: &InterruptedRow) -> Interrupted {
        let before = self.interrupted.insert(row.slot, *row);
        let since =
            |pick: fn(&InterruptedRow) -> u64| pick(row).wrapping_sub(before.as_ref().map_or(0, pick));
        Interrupted { hard_ns: since(|row| row.hard_ns), soft_ns: since(|row| row.soft_ns) }
    }

    /// Returns the drivers' name for the handler of a line.
    pub(super) fn name(&self, handler: Handler) -> Option<&Untrusted> {
        self.names.get(&handler)
    }

    /// Drops slot lives that are over.
    pub(super) fn retain(&mut self, alive: impl Fn(&SlotId) -> bool) {
        self.interrupted.retain(|slot, _| alive(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::{Handler, HandlerRow, HandlerRuns, InterruptReadings, Interrupted, InterruptedRow, SlotId};
    use crate::{drain::TasksDrain, machine::cpu::Cpu};

    #[test]
    fn readings_are_subtracted_by_cpu_and_handler_and_a_slot_in_another_life_begins_at_zero() {
        let mut readings = InterruptReadings::default();
        let mut advance = |cpu: u32, runs: u64, (generation, hard_ns): (u32, u64)| {
            let handler = HandlerRow {
                cpu: Cpu(cpu),
                handler: Handler::Softirq(3),
                name: None,
                runs,
                total_ns: runs * 10,
                longest_ns: 7,
            };
            let slot = SlotId { slot: 4, generation };
            let drain = TasksDrain {
                handlers: vec![handler],
                interrupted: vec![InterruptedRow { slot, hard_ns, soft_ns: 1 }],
                ..TasksDrain::default()
            };
            let new = readings.advance(&drain);
            let handler = new.handlers.get(&(Cpu(cpu), Handler::Softirq(3))).copied();
            (handler.unwrap_or_default(), new.interrupted[0].1)
        };
        assert_eq!(advance(0, 5, (0, 100)).0, HandlerRuns::default(), "it ran before anything was counted");
        assert_eq!(
            advance(0, 8, (0, 130)),
            (HandlerRuns { runs: 3, total_ns: 30, longest_ns: 7 }, Interrupted { hard_ns: 30, soft_ns: 0 })
        );
        let (other_cpu, other_life) = advance(1, 2, (1, 20));
        assert_eq!((other_cpu.runs, other_life), (2, Interrupted { hard_ns: 20, soft_ns: 1 }));
    }
}
