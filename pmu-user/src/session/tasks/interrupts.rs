//! Reads which interrupt handlers ran, and which owners they interrupted.

use std::{collections::HashMap, fs, path::Path};

use pmu_common::{
    interrupt::{
        CALL_FUNCTION, CALL_FUNCTION_SINGLE, DEPTH_WORD, EPOCH_WORD, Interrupts, LOCAL_TIMER, RESCHEDULE,
    },
    name::program,
};

use super::TasksSession;
use crate::{
    bpf::Mapped,
    drain::{Handler, HandlerRow, InterruptedRow, SpareInterruptsRow, Word, Work},
    machine::cpu::Cpu,
    untrusted::Untrusted,
};

/// Last readings of interrupts.
#[derive(Debug, Default)]
pub(super) struct SeenInterrupts {
    epoch: u64,
    runs: HashMap<(Cpu, Handler), u64>,
    interrupted: HashMap<u32, (u64, u64)>,
    /// Drivers' names of lines.
    lines: HashMap<u32, Option<Word>>,
}

impl SeenInterrupts {
    /// Returns the drivers' name of a line, with commas if several drivers share it.
    fn name(&mut self, handler: Handler, root: &Path) -> Option<Word> {
        let Handler::Line(number) = handler else { return None };
        let read = || {
            let actions = fs::read(root.join(format!("sys/kernel/irq/{number}/actions"))).ok()?;
            let actions = actions.trim_ascii();
            (!actions.is_empty()).then(|| Word(Untrusted::new(actions)))
        };
        self.lines.entry(number).or_insert_with(read).clone()
    }

    /// Returns the number of runs of a program on handlers so far, on all CPUs; `None` for any other program,
    /// and if handlers are not counted.
    pub(super) fn runs_of(&self, program: &str) -> Option<u64> {
        if self.runs.is_empty() || program::INTERRUPTS.iter().all(|(name, _)| *name != program) {
            return None;
        }
        let is_its = |handler: Handler| match handler {
            Handler::Line(_) | Handler::OtherLines => program.starts_with("line_"),
            Handler::Softirq(_) => program.starts_with("softirq_"),
            Handler::Vector(LOCAL_TIMER) => program.starts_with("local_timer_"),
            Handler::Vector(RESCHEDULE) => program.starts_with("reschedule_"),
            Handler::Vector(CALL_FUNCTION_SINGLE) => program.starts_with("call_single_"),
            Handler::Vector(CALL_FUNCTION) => program == "call_begin" || program == "call_end",
            Handler::Vector(_) => program.starts_with("irq_work_"),
        };
        let each = self.runs.iter().filter(|((_, handler), _)| is_its(*handler)).map(|(_, runs)| *runs);
        Some(each.fold(0, u64::wrapping_add))
    }
}

impl TasksSession {
    /// Returns the handlers that ran since they were last read, and the time in which they interrupted no
    /// counted owner.
    pub(super) fn handler_rows(&mut self) -> (Vec<HandlerRow>, Vec<SpareInterruptsRow>) {
        if self.header.plan.interrupts.is_no() || self.has_stopped(Work::Interrupts) {
            return (Vec::new(), Vec::new());
        }
        let (map, seen) = (&self.object.maps.interrupts, &mut self.interrupts);
        let epoch = seen.epoch;
        seen.epoch += 1;
        let (mut handlers, mut spare) = (Vec::new(), Vec::new());
        for &cpu in &self.header.plan.cpus {
            map.write_word(cpu.0 as usize, EPOCH_WORD, seen.epoch);
            let row = map.read(cpu.0 as usize);
            spare.push(SpareInterruptsRow {
                cpu,
                idle_ns: row.of_idle_ns,
                others_ns: row.of_others_ns,
                missed: row.missed,
                late_ticks: row.late_ticks,
                late_instants: row.late_instants,
            });
            for (place, of) in (0..).zip(&row.handlers).filter(|(_, of)| of.runs > 0) {
                let Some(handler) = Handler::at(place, of.line) else { continue };
                if seen.runs.insert((cpu, handler), of.runs) == Some(of.runs) {
                    continue;
                }
                handlers.push(HandlerRow {
                    cpu,
                    handler,
                    name: seen.name(handler, &self.root),
                    runs: of.runs,
                    total_ns: of.total_ns,
                    longest_ns: of.longest_ns(epoch),
                });
            }
        }
        (handlers, spare)
    }

    /// Returns the handler at a place of a CPU's row. `place` is the place plus 1; `None` for 0.
    pub(super) fn handler(map: &Mapped<Interrupts>, cpu: u32, place: u32) -> Option<Handler> {
        let place = place.checked_sub(1)?;
        let row = if (cpu as usize) < map.len() { map.read(cpu as usize) } else { return None };
        Handler::at(place, row.handlers.get(place as usize)?.line)
    }

    /// Returns the owners whose tasks were interrupted since the last read.
    pub(super) fn interrupted_rows(&mut self) -> Vec<InterruptedRow> {
        if self.header.plan.interrupts.is_no() || self.has_stopped(Work::Interrupts) {
            return Vec::new();
        }
        let (map, cpus) = (&self.object.maps.interrupted, self.machine.cpu.possible);
        let mut rows = Vec::new();
        for slot in self.owners.in_use() {
            let (mut hard_ns, mut soft_ns) = (0_u64, 0_u64);
            for cpu in &self.header.plan.cpus {
                let row = map.read((slot * cpus + cpu.0) as usize);
                hard_ns = hard_ns.wrapping_add(row.hard_ns);
                soft_ns = soft_ns.wrapping_add(row.soft_ns);
            }
            if self.interrupts.interrupted.insert(slot, (hard_ns, soft_ns)).unwrap_or((0, 0))
                != (hard_ns, soft_ns)
            {
                rows.push(InterruptedRow { slot: self.owners.slot_id(slot), hard_ns, soft_ns });
            }
        }
        rows
    }

    /// Marks handlers as ended that ran when their programs were detached: late ticks can no longer be
    /// attributed to a handler. To be called only when no program writes the same word.
    pub(super) fn end_handlers(&self) {
        for cpu in &self.header.plan.cpus {
            self.object.maps.interrupts.write_word(cpu.0 as usize, DEPTH_WORD, 0);
        }
    }

    /// Drops the last readings of freed slots, whose rows are clear.
    pub(super) fn forget_interrupted(&mut self, freed: &[u32]) {
        for slot in freed {
            self.interrupts.interrupted.remove(slot);
        }
    }
}
