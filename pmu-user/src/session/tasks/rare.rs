//! Reads rare events of owners: exits of processes, waits for locks.

use std::mem::offset_of;

use pmu_common::owner::{Owner, Rare};

use super::{TasksSession, changed::Written};
use crate::{drain::RareRow, plan::request::By};

const EXITS_WORD: usize = (offset_of!(Owner, rare) + offset_of!(Rare, exits)) / 8;
const LOCK_WAITS_WORD: usize = (offset_of!(Owner, rare) + offset_of!(Rare, lock_waits)) / 8;
const LOCK_WAIT_NS_WORD: usize = (offset_of!(Owner, rare) + offset_of!(Rare, lock_wait_ns)) / 8;

impl TasksSession {
    /// Returns the sums of `written` slots that have changed since they were last read.
    pub(super) fn rare_rows(&mut self, written: &Written) -> Vec<RareRow> {
        let slots: Vec<u32> = match written.slots() {
            Some(slots) => slots.filter(|&slot| self.owners.is_in_use(slot)).collect(),
            None => self.owners.in_use().collect(),
        };
        let mut rows = Vec::new();
        for slot in slots {
            let word = |number| self.object.maps.owners.read_word(slot as usize, number);
            let exits = match self.header.plan.by {
                By::Process => 0,
                By::Thread | By::Comm | By::Exe | By::Cgroup => word(EXITS_WORD),
            };
            let so_far =
                Rare { exits, lock_waits: word(LOCK_WAITS_WORD), lock_wait_ns: word(LOCK_WAIT_NS_WORD) };
            if std::mem::replace(&mut self.seen_rare[slot as usize], so_far) != so_far {
                rows.push(RareRow { slot: self.owners.slot_id(slot), so_far });
            }
        }
        rows
    }

    /// Resets the last readings of freed slots, whose rows are zero again.
    pub(super) fn forget_rare(&mut self, freed: &[u32]) {
        freed.iter().for_each(|&slot| self.seen_rare[slot as usize] = Rare::ZERO);
    }
}
