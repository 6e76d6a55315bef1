//! Reads which owners had the CPUs that tasks waited for, and clears the charges of owners whose slots are
//! freed.

use std::{collections::HashSet, mem::offset_of};

use foldhash::{HashMap, HashMapExt as _};
use pmu_common::{
    culprit::{CHARGES, Charge, Culprits as Row, of_pair},
    ring,
};

use super::TasksSession;
use crate::{bpf::Mapped, drain::CulpritRow, machine::cpu::Cpu};

/// Last readings of the charges.
#[derive(Debug)]
pub(super) struct Culprits {
    /// Waits by CPU and place.
    seen_ns: Vec<u64>,
    /// Charges without a place, by CPU and pair, and whether each has grown since it was last read.
    beyond: HashMap<(u32, u64), Beyond>,
    /// Whether any of these has grown since it was last read.
    any_grew: bool,
}

/// Waits of a pair that found no place.
#[derive(Clone, Copy, Debug, Default)]
struct Beyond {
    wait_ns: u64,
    has_grown: bool,
}

impl Culprits {
    pub(super) fn new(cpus: u32) -> Self {
        Self { seen_ns: vec![0; cpus as usize * CHARGES], beyond: HashMap::new(), any_grew: false }
    }

    /// Takes a wait that found no place.
    pub(super) fn add(&mut self, charge: &ring::Charge) {
        let beyond = self.beyond.entry((charge.cpu, charge.pair)).or_default();
        beyond.wait_ns = beyond.wait_ns.saturating_add(charge.wait_ns);
        beyond.has_grown = true;
        self.any_grew = true;
    }

    /// Returns the waits of a pair on a CPU, of which `placed_ns` found a place; `None` if they have not
    /// changed.
    fn grown(&mut self, cpu: u32, place: usize, (pair, placed_ns): (u64, u64)) -> Option<u64> {
        let seen_ns = &mut self.seen_ns[cpu as usize * CHARGES + place];
        let has_grown = std::mem::replace(seen_ns, placed_ns) != placed_ns;
        // Most places have not changed, and most pairs have nothing elsewhere.
        if !has_grown && !self.any_grew {
            return None;
        }
        match self.beyond.get_mut(&(cpu, pair)) {
            Some(beyond) => {
                let grew = std::mem::take(&mut beyond.has_grown);
                (has_grown || grew).then(|| placed_ns.saturating_add(beyond.wait_ns))
            }
            None => has_grown.then_some(placed_ns),
        }
    }

    /// Returns the charges without a place that have grown since the last call: CPU, pair and waits.
    fn take_beyond(&mut self) -> Vec<(u32, Charge)> {
        if !std::mem::take(&mut self.any_grew) {
            return Vec::new();
        }
        let take = |(&(cpu, pair), beyond): (&(u32, u64), &mut Beyond)| {
            let has_grown = std::mem::take(&mut beyond.has_grown);
            has_grown.then_some((cpu, Charge { pair, wait_ns: beyond.wait_ns }))
        };
        let mut grown: Vec<_> = self.beyond.iter_mut().filter_map(take).collect();
        grown.sort_by_key(|(cpu, charge)| (*cpu, charge.pair));
        grown
    }

    /// Drops the charges by, and to, the owners of `freed` slots: the next owners there are others.
    pub(super) fn forget(&mut self, maps: &Mapped<Row>, freed: &[u32]) {
        if freed.is_empty() {
            return;
        }
        let freed: HashSet<u32> = freed.iter().copied().collect();
        let is_of_freed = |pair| {
            of_pair(pair).is_some_and(|(victim, culprit)| freed.contains(&victim) || freed.contains(&culprit))
        };
        self.beyond.retain(|(_, pair), _| !is_of_freed(*pair));
        for cpu in 0..maps.len() {
            for place in used(maps, cpu) {
                if is_of_freed(maps.read_word(cpu, word(place))) {
                    maps.write_word(cpu, word(place) + 1, 0);
                    maps.write_word(cpu, word(place), 0);
                    self.seen_ns[cpu * CHARGES + place] = 0;
                }
            }
        }
    }
}

impl TasksSession {
    /// Returns the charges that have changed since they were last read.
    pub(super) fn culprit_rows(&mut self) -> Vec<CulpritRow> {
        let (maps, owners) = (&self.object.maps.culprits, &self.owners);
        let mut rows = Vec::new();
        for &Cpu(cpu) in &self.header.plan.cpus {
            for place in used(maps, cpu as usize) {
                let pair = maps.read_word(cpu as usize, word(place));
                if pair == 0 {
                    continue;
                }
                let placed_ns = maps.read_word(cpu as usize, word(place) + 1);
                if let Some(wait_ns) = self.culprits.grown(cpu, place, (pair, placed_ns)) {
                    let charge = Charge { pair, wait_ns };
                    rows.extend(CulpritRow::of(Cpu(cpu), &charge, |slot| owners.slot_id(slot)));
                }
            }
        }
        for (cpu, charge) in self.culprits.take_beyond() {
            rows.extend(CulpritRow::of(Cpu(cpu), &charge, |slot| owners.slot_id(slot)));
        }
        rows
    }
}

/// Returns the places of a CPU that have held a pair.
fn used(maps: &Mapped<Row>, cpu: usize) -> impl Iterator<Item = usize> {
    (0..CHARGES / BITS).flat_map(move |word| {
        let bits = maps.read_word(cpu, USED_WORD + word);
        (0..BITS).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| word * BITS + bit)
    })
}

const BITS: usize = u64::BITS as usize;
const USED_WORD: usize = offset_of!(Row, used) / 8;

/// Returns the first word of a place: its pair, which the wait follows.
const fn word(place: usize) -> usize {
    (offset_of!(Row, charges) + place * size_of::<Charge>()) / 8
}

const _: () = assert!(offset_of!(Charge, pair) == 0 && offset_of!(Charge, wait_ns) == 8);

#[cfg(test)]
mod tests {
    use pmu_common::{culprit::pair, ring};

    use super::Culprits;

    fn charge(pair: u64, wait_ns: u64) -> ring::Charge {
        ring::Charge { kind: ring::CHARGE, cpu: 0, pair, wait_ns }
    }

    #[test]
    fn a_wait_without_a_place_is_one_of_its_pair_whether_or_not_that_finds_one_later() {
        let mut culprits = Culprits::new(1);
        let (one, other) = (pair(1, 2), pair(3, 4));
        culprits.add(&charge(one, 5));
        culprits.add(&charge(other, 7));
        assert_eq!(culprits.grown(0, 9, (one, 100)), Some(105));
        let beyond: Vec<u64> = culprits.take_beyond().iter().map(|(_, charge)| charge.wait_ns).collect();
        assert_eq!(beyond, [7], "the first one was read with its place");
        assert_eq!((culprits.grown(0, 9, (one, 100)), culprits.take_beyond().len()), (None, 0));
        culprits.add(&charge(one, 1));
        assert_eq!(culprits.grown(0, 9, (one, 100)), Some(106));
        assert_eq!(culprits.grown(0, 9, (one, 130)), Some(136));
    }
}
