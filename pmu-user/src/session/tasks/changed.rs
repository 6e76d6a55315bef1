//! Rows that are read: those of slots that programs have marked since the last read. Thousands of owners that
//! do nothing cost nothing to read.

use std::sync::atomic::{Ordering, fence};

use pmu_common::changed::{Changed, MARKS};

use super::TasksSession;
use crate::{bpf::Mapped, machine::cpu::Cpu};

/// Words of a CPU's marks.
const WORDS: usize = MARKS / 8;

/// Slots whose rows may have been written since they were last read.
#[derive(Debug)]
pub(super) enum Written {
    /// Every slot: at the beginning of counting, and at its end, when nothing may be left. A CPU that does
    /// not order its stores may show a mark before its row. That row is then read only when it is written
    /// again.
    All,
    /// Marked slots, each with the CPU on which it was marked. Those of a slot follow one another.
    Marked(Vec<(u32, Cpu)>),
}

impl Written {
    /// Returns the slots in any order of CPUs, each once; `None` for all.
    pub(super) fn slots(&self) -> Option<impl Iterator<Item = u32>> {
        let Self::Marked(rows) = self else { return None };
        let mut last = None;
        Some(rows.iter().filter_map(move |&(slot, _)| (last.replace(slot) != Some(slot)).then_some(slot)))
    }
}

impl TasksSession {
    /// Takes the marks of all CPUs. A CPU that counts nothing may also see an owner end.
    pub(super) fn take_marks(&mut self) -> Written {
        let cpus = self.machine.cpu.possible;
        let mut marked = Vec::with_capacity(self.changed_rows);
        take(&self.object.maps.changed, cpus, self.header.plan.slots, &mut marked);
        for slot in self.owners.take_unread() {
            marked.extend((0..cpus).map(|cpu| (slot, Cpu(cpu))));
        }
        // Rows are read after their marks are cleared. A program marks again what it writes from here on.
        fence(Ordering::SeqCst);
        Written::Marked(marked)
    }
}

/// Takes the marks of `cpus` CPUs, each for every slot below `slots` that shares it. Those of a slot follow
/// one another.
fn take(map: &Mapped<Changed>, cpus: u32, slots: u32, marked: &mut Vec<(u32, Cpu)>) {
    let mut of_cpus = vec![0; cpus as usize];
    for word in 0..WORDS.min((slots as usize).div_ceil(8)) {
        let mut any = 0_u64;
        for (cpu, marks) in of_cpus.iter_mut().enumerate() {
            *marks = map.read_word(cpu, word);
            any |= *marks;
        }
        if any == 0 {
            continue;
        }
        for (byte, _) in any.to_ne_bytes().into_iter().enumerate().filter(|(_, any)| *any != 0) {
            let place = word * 8 + byte;
            let here = |&(_, marks): &(usize, &u64)| marks.to_ne_bytes()[byte] != 0;
            let all = of_cpus.iter().enumerate();
            all.clone().filter(here).for_each(|(cpu, _)| map.clear_byte(cpu, place));
            for slot in (place as u32..slots).step_by(MARKS) {
                marked.extend(all.clone().filter(here).map(|(cpu, _)| (slot, Cpu(cpu as u32))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cpu, Written};

    #[test]
    fn a_slot_that_was_marked_on_two_cpus_is_looked_at_once() {
        let written = Written::Marked(vec![(0, Cpu(1)), (3, Cpu(0)), (3, Cpu(1)), (4, Cpu(1))]);
        assert!(written.slots().is_some_and(|slots| slots.eq([0, 3, 4])));
        assert!(Written::All.slots().is_none());
    }
}
