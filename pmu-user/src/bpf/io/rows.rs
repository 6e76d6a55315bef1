//! Rows of the maps as plain values.

use std::{collections::BTreeMap, mem::offset_of};

use pmu_common::{
    histogram::{BLOCK, BlockBuckets},
    io::{
        IoCpu, IoKey, IoOwner, SLOT_OTHER,
        block::{
            BY_KERNEL, BY_MANY, BY_NOBODY_SEEN, BY_OUTSIDER, BY_REQUEST, BlockCount, DEVICE, HISTOGRAMS,
            INSERTED, InFlight, QUEUE, of_device_word, of_process,
        },
        loss,
        net::{NetCount, OWNER_MANY, OWNER_NONE, OWNER_OUTSIDER},
    },
};

use super::maps::Maps;
use crate::{
    bpf::Mapped,
    drain::io::{
        block::{self, BlockRow, DeviceNumber, InFlightRow, Operation, Whose},
        net::{self, Interface, NetOwner, NetRow},
        traffic::{Retired, Traffic},
    },
    machine::{cgroup::CgroupId, monotonic_ns},
    plan::request::By,
    untrusted::Untrusted,
};

const DEVICE_WORD: usize = (offset_of!(IoOwner, key) + offset_of!(IoKey, device)) / 8;
pub(super) const CHANGES_WORD: usize = offset_of!(BlockCount, changes) / 8;
const AT_WORD: usize = offset_of!(InFlight, at_ns) / 8;
const LOSSES_WORD: usize = offset_of!(IoCpu, losses) / 8;

impl Maps {
    /// Returns all counts of the programs.
    pub(super) fn traffic(&self, by: By) -> Traffic {
        let at_ns = monotonic_ns();
        Traffic {
            at_ns,
            block: self.block(by),
            in_flight: self.in_flight(by, at_ns),
            net: self.net(),
            retired: Retired::default(),
            losses: self.losses(),
            missed: Vec::new(),
        }
    }

    /// Returns the number of times that an owner got no separate row, or its key found no room.
    pub(super) fn refused(&self) -> u64 {
        let of = |cpu: usize| {
            [loss::OWNER_LIMIT, loss::MAP_FULL].map(|reason| self.cpus.read_word(cpu, LOSSES_WORD + reason))
        };
        (0..self.cpus.len()).flat_map(of).fold(0, u64::wrapping_add)
    }

    fn losses(&self) -> Vec<(String, u64)> {
        let of = |reason: usize| {
            (0..self.cpus.len()).map(|cpu| self.cpus.read_word(cpu, LOSSES_WORD + reason)).sum::<u64>()
        };
        let named = loss::NAMES.iter().enumerate().map(|(reason, name)| ((*name).to_owned(), of(reason)));
        named.filter(|&(_, count)| count > 0).collect()
    }

    fn block(&self, by: By) -> Vec<BlockRow> {
        let cpus = self.cpus.len();
        let used = used(&self.block.owners);
        // Counts without a row are in the first one, which has no device.
        used.map(|slot| self.block_row(slot, cpus, by)).filter(|row| row.count.changes > 0).collect()
    }

    pub(super) fn block_row(&self, slot: usize, cpus: usize, by: By) -> BlockRow {
        let owner = self.block.owners.read(slot);
        let (device, operation, whose) = holder_of(&owner.key, by);
        let mut count = BlockCount::ZERO;
        let (mut latency, mut queue) = (BTreeMap::new(), BTreeMap::new());
        for index in slot * cpus..(slot + 1) * cpus {
            if self.block_counts.read_word(index, CHANGES_WORD) != 0 {
                count = block::sum(&count, &self.block_counts.read(index));
            }
        }
        let lanes = self.block_latencies.len() / (HISTOGRAMS as usize * self.block.owners.len());
        for lane in slot * lanes..(slot + 1) * lanes {
            add_buckets(&self.block_latencies, lane, DEVICE, count.latency_filled, &mut latency);
            add_buckets(&self.block_latencies, lane, QUEUE, count.queue_filled, &mut queue);
        }
        BlockRow {
            device,
            operation,
            whose,
            name: Untrusted::from_zero_terminated(&owner.name),
            count,
            latency: latency.into_iter().collect(),
            queue: queue.into_iter().collect(),
        }
    }

    fn in_flight(&self, by: By, at_ns: u64) -> Vec<InFlightRow> {
        let mut rows: BTreeMap<(DeviceNumber, Operation, Whose), InFlightRow> = BTreeMap::new();
        for index in 0..self.in_flight.len() {
            // Most entries have ended, or were never used.
            if has_ended(self, index) {
                continue;
            }
            let entry = self.in_flight.read(index);
            // The entry may be written at this moment.
            if entry.seal != entry.seal_of() || entry.slot() as usize >= self.block.owners.len() {
                continue;
            }
            let key = holder_of(&self.block.owners.read(entry.slot() as usize).key, by);
            let (device, operation, whose) = key;
            let row = rows.entry(key).or_insert(InFlightRow {
                device,
                operation,
                whose,
                queued: 0,
                issued: 0,
                oldest_ns: 0,
            });
            if entry.state & INSERTED != 0 {
                row.queued += 1;
            } else {
                row.issued += 1;
                row.oldest_ns = row.oldest_ns.max(at_ns.saturating_sub(entry.at_ns));
            }
        }
        rows.into_values().collect()
    }

    fn net(&self) -> Vec<NetRow> {
        let cpus = self.cpus.len();
        let row = |slot: usize| self.net_row(slot, cpus);
        used(&self.net.owners).map(row).filter(|row| row.count != NetCount::ZERO).collect()
    }

    pub(super) fn net_row(&self, slot: usize, cpus: usize) -> NetRow {
        let owner = self.net.owners.read(slot);
        let count = (slot * cpus..(slot + 1) * cpus)
            .map(|index| self.net_counts.read(index))
            .fold(NetCount::ZERO, |sum, row| net::sum(&sum, &row));
        let interface = Interface {
            namespace: owner.namespace,
            index: owner.interface,
            name: Untrusted::from_zero_terminated(&owner.name),
        };
        let whose = if slot == SLOT_OTHER as usize { NetOwner::Many } else { net_owner_of(&owner.key) };
        NetRow { interface, owner: whose, count }
    }
}

/// Returns [`InFlight::has_ended`]. A request that begins at this moment has not.
pub(super) fn has_ended(maps: &Maps, index: usize) -> bool {
    let ended = maps.in_flight_ended.read_word(index, 0);
    maps.in_flight.read_word(index, AT_WORD) == ended
}

/// Returns the owner in a key of packets.
pub(super) const fn net_owner_of(key: &IoKey) -> NetOwner {
    match key.owner {
        OWNER_MANY => NetOwner::Many,
        OWNER_NONE => NetOwner::Nobody,
        OWNER_OUTSIDER => NetOwner::Outsider,
        id => NetOwner::Cgroup(CgroupId(id)),
    }
}

/// Returns the slots in use, and the one for counts without a slot.
fn used(owners: &Mapped<IoOwner>) -> impl Iterator<Item = usize> {
    let slots = 0..owners.len();
    slots.filter(|&slot| slot == SLOT_OTHER as usize || owners.read_word(slot, DEVICE_WORD) != 0)
}

/// Returns the contents of a key of block requests.
pub(super) fn holder_of(key: &IoKey, by: By) -> (DeviceNumber, Operation, Whose) {
    let (major, minor, operation, basis) = of_device_word(key.device);
    let operation = Operation::ALL.get(operation as usize).copied().unwrap_or(Operation::Other);
    let whose = match (basis, by) {
        // No device has the number 0: it is the row of counts without a slot.
        _ if key.device == 0 => Whose::Many,
        (BY_REQUEST, _) => Whose::OnBehalfOf(CgroupId(key.owner)),
        (BY_KERNEL, _) => Whose::Kernel,
        (BY_OUTSIDER, _) => Whose::Outsider,
        (BY_NOBODY_SEEN, _) => Whose::Unseen,
        (BY_MANY, _) => Whose::Many,
        (_, By::Cgroup) => Whose::Cgroup(CgroupId(key.owner)),
        _ => {
            let (pid, born) = of_process(key.owner);
            Whose::Process { pid, born }
        }
    };
    (DeviceNumber { major, minor }, operation, whose)
}

/// Words of a group of buckets. Two buckets share a word.
const GROUP_WORDS: usize = BLOCK.group_buckets() / 2;

fn add_buckets(
    rows: &Mapped<BlockBuckets>,
    lane: usize,
    kind: u32,
    filled: u64,
    into: &mut BTreeMap<u16, u32>,
) {
    let row = lane * HISTOGRAMS as usize + kind as usize;
    for group in (0..64).filter(|group| filled >> group & 1 == 1) {
        for word in group * GROUP_WORDS..(group + 1) * GROUP_WORDS {
            let [a, b, c, d, e, f, g, h] = rows.read_word(row, word).to_ne_bytes();
            let halves = [[a, b, c, d], [e, f, g, h]].map(u32::from_ne_bytes);
            for (place, count) in halves.into_iter().enumerate() {
                if count > 0 {
                    let bucket = into.entry((word * 2 + place) as u16).or_default();
                    *bucket = bucket.wrapping_add(count);
                }
            }
        }
    }
}
