//! Reads who had the CPUs that tasks waited for, and clears what is charged to owners whose slots are freed.

use std::{collections::HashSet, mem::offset_of};

use pmu_common::culprit::{CHARGES, Charge, Culprits as Row, of_pair};

use super::TasksSession;
use crate::{bpf::Mapped, drain::CulpritRow, machine::cpu::Cpu};

/// What was read last.
#[derive(Debug)]
pub(super) struct Culprits {
    /// Waits by CPU and place.
    seen_ns: Vec<u64>,
}

impl Culprits {
    pub(super) fn new(cpus: u32) -> Self {
        Self { seen_ns: vec![0; cpus as usize * CHARGES] }
    }

    /// Forgets what is charged by, or to, the owners of `freed` slots: the next ones there are others.
    pub(super) fn forget(&mut self, maps: &Mapped<Row>, freed: &[u32]) {
        if freed.is_empty() {
            return;
        }
        let freed: HashSet<u32> = freed.iter().copied().collect();
        for cpu in 0..maps.len() {
            for place in 0..CHARGES {
                let is_theirs = of_pair(maps.read_word(cpu, word(place)))
                    .is_some_and(|(victim, culprit)| freed.contains(&victim) || freed.contains(&culprit));
                if is_theirs {
                    maps.write_word(cpu, word(place) + 1, 0);
                    maps.write_word(cpu, word(place), 0);
                    self.seen_ns[cpu * CHARGES + place] = 0;
                }
            }
        }
    }
}

impl TasksSession {
    /// Charges that have changed since they were last read.
    pub(super) fn culprit_rows(&mut self) -> Vec<CulpritRow> {
        let (maps, owners) = (&self.object.maps.culprits, &self.owners);
        let mut rows = Vec::new();
        for &Cpu(cpu) in &self.header.plan.cpus {
            for place in 0..CHARGES {
                let pair = maps.read_word(cpu as usize, word(place));
                if pair == 0 {
                    continue;
                }
                let wait_ns = maps.read_word(cpu as usize, word(place) + 1);
                let seen_ns = &mut self.culprits.seen_ns[cpu as usize * CHARGES + place];
                if std::mem::replace(seen_ns, wait_ns) != wait_ns {
                    let charge = Charge { pair, wait_ns };
                    rows.extend(CulpritRow::of(Cpu(cpu), &charge, |slot| owners.slot_id(slot)));
                }
            }
        }
        rows
    }
}

/// The first word of a place: its pair, which the wait follows.
const fn word(place: usize) -> usize {
    (offset_of!(Row, charges) + place * size_of::<Charge>()) / 8
}

const _: () = assert!(offset_of!(Charge, pair) == 0 && offset_of!(Charge, wait_ns) == 8);
