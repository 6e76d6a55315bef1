//! Reads the time for which tasks were off the CPU: waits that are over, and those that last.

use std::mem::offset_of;

use pmu_common::{cpu::Control, off_cpu::OffCpu};

use super::TasksSession;
use crate::{drain::OffCpuRow, plan::request};

const STARTED_WORD: usize = offset_of!(Control, started_ns) / 8;
const UNTIL_WORD: usize = offset_of!(Control, until_ns) / 8;

impl TasksSession {
    /// Writes the start of counting for the programs: what came before does not count.
    pub(super) fn write_started(&self) {
        self.object.maps.control.write_word(0, STARTED_WORD, self.header.started_ns);
    }

    /// Returns the sums of owners that have changed since they were last read, of waits up to `until_ns`.
    pub(super) fn off_cpu_rows(&mut self, until_ns: u64) -> Vec<OffCpuRow> {
        if self.header.plan.off_cpu == request::OffCpu::No {
            return Vec::new();
        }
        let waiting = &self.object.maps.waiting;
        self.owners.in_use().for_each(|slot| waiting.clear(slot as usize));
        self.object.maps.control.write_word(0, UNTIL_WORD, until_ns);
        if self.object.add_waits(until_ns).is_err() {
            self.lost_waits += 1;
        }
        let (maps, cpus) = (&self.object.maps, self.machine.cpu.possible);
        let mut rows = Vec::new();
        for slot in self.owners.in_use() {
            let mut so_far = maps.waiting.read(slot as usize);
            for cpu in &self.header.plan.cpus {
                so_far.merge(&maps.off_cpu.read((slot * cpus + cpu.0) as usize));
            }
            if std::mem::replace(&mut self.seen_off_cpu[slot as usize], so_far) != so_far {
                rows.push(OffCpuRow { slot: self.owners.slot_id(slot), so_far });
            }
        }
        rows
    }

    /// Drops the last readings of freed slots, whose rows are clear.
    pub(super) fn forget_off_cpu(&mut self, freed: &[u32]) {
        if self.header.plan.off_cpu == request::OffCpu::Yes {
            freed.iter().for_each(|&slot| self.seen_off_cpu[slot as usize] = OffCpu::ZERO);
        }
    }
}
