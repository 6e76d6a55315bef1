//! Rows of a slice that has ended: the chain of used rows, summed over CPUs.

use std::collections::BTreeMap;

use pmu_common::turn::{NO_SLOT, PLACES, Turn};

use crate::{
    bpf::Maps,
    drain::reading::SliceRow,
    machine::cpu::Cpu,
    plan::multiplexing::{EventGroup, Multiplexing},
};

const HEADS_WORD: usize = std::mem::offset_of!(Turn, heads) / 8;

/// Counts of an owner in a slice, by place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    time_ns: u64,
    places: [u64; PLACES],
}

/// Returns the sums over `of` by slot. `cpus` is the number of possible CPUs.
pub(super) fn read(maps: &Maps, cpus: u32, of: impl Iterator<Item = Cpu>, slice: u64) -> BTreeMap<u32, Sum> {
    let parity = (slice & 1) as usize;
    let rows = maps.slices.len() as u64 / 2 / u64::from(cpus);
    let mut sums: BTreeMap<u32, Sum> = BTreeMap::new();
    for cpu in of {
        let mut slot = maps.turns.read_word(cpu.0 as usize, HEADS_WORD + parity);
        // A CPU that never reached the slice has an older one's chain, which its rows show.
        for _ in 0..rows {
            if slot == NO_SLOT || slot >= rows {
                break;
            }
            let row = maps.slices.read(((slot * u64::from(cpus) + u64::from(cpu.0)) * 2) as usize + parity);
            if row.slice != slice {
                break;
            }
            sums.entry(slot as u32).or_default().add(row.time_ns, &row.places);
            slot = row.next;
        }
    }
    sums
}

impl Sum {
    const fn add(&mut self, time_ns: u64, places: &[u64; PLACES]) {
        self.time_ns = self.time_ns.wrapping_add(time_ns);
        let mut place = 0;
        while place < PLACES {
            self.places[place] = self.places[place].wrapping_add(places[place]);
            place += 1;
        }
    }

    /// Returns the row that the places stand for while the group number `group` was active.
    pub(super) fn row(&self, turns: &Multiplexing, group: Option<u32>) -> SliceRow {
        let mut row = SliceRow { group, time_ns: self.time_ns, ..SliceRow::default() };
        let mut places = self.places.iter().copied();
        let mut take = |group: &EventGroup| {
            // Groups are read one after the other, so one may seem to have run for a fraction of a
            // microsecond longer.
            let running_ns = places.next().unwrap_or_default().min(self.time_ns);
            (running_ns, places.by_ref().take(group.events.len()).collect::<Vec<u64>>())
        };
        for group in &turns.always {
            let (running_ns, counts) = take(group);
            row.always_running_ns.push(running_ns);
            row.always.extend(counts);
        }
        if let Some(group) = group.and_then(|group| turns.groups.get(group as usize)) {
            (row.running_ns, row.counts) = take(group);
        }
        row
    }
}
