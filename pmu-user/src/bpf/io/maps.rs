//! Maps of the programs for I/O: their sizes, and each in the form that its reader needs.

use aya::maps::{Array, HashMap, MapData};
use pmu_common::{
    histogram::BlockBuckets,
    io::{
        IoCpu, RECENT, Recent,
        block::{BlockCount, HISTOGRAMS, InFlight, LANES_MAX},
        net::NetCount,
    },
    name::io::map as names,
};

use super::{IoOptions, LoadError, Wanted, slots::Slots};
use crate::{
    bpf::{
        Loaded, Mapped,
        loaded::{Sizes, failed},
        mapped::Pod,
    },
    machine::Machine,
};

/// Largest memory of the rows of requests, and of packets.
const BLOCK_BYTES_MAX: usize = 64 << 20;
const NET_BYTES_MAX: usize = 16 << 20;
/// Limits of the number of slots, for any number of CPUs.
const BLOCK_SLOTS: (usize, usize) = (64, 1024);
const NET_SLOTS: (usize, usize) = (256, 4096);
/// Room for requests in flight, per CPU and in all. A device's queues are seldom deeper than a thousand.
const IN_FLIGHT_PER_CPU: u32 = 4096;
const IN_FLIGHT: (u32, u32) = (8192, 131_072);
/// Room for bios that limits hold back, where they are timed, including those that were then merged into
/// another request.
pub(super) const HELD: u32 = 8192;
/// Identities kept for each slot: owners that share a row have one each.
const IDENTITIES_PER_SLOT: u32 = 4;

/// Keys of a cgroup among targets: its path, and its present id.
const KEYS_PER_CGROUP: usize = 2;

/// Cgroups that become targets later and exist at the same time.
const LATER: u32 = 4096;

/// Returns the entries per map.
pub(super) fn sizes(wanted: &IoOptions, machine: &Machine, held: u32) -> Sizes {
    let cpus = machine.cpu.possible;
    let slots = |bytes_max: usize, (min, max): (usize, usize), slot_bytes: usize| {
        (bytes_max / slot_bytes).clamp(min, max) as u32
    };
    let lanes = lanes(machine);
    let histograms = lanes * HISTOGRAMS;
    let block_bytes =
        cpus as usize * size_of::<BlockCount>() + histograms as usize * size_of::<BlockBuckets>();
    let block = if wanted.parts.has_block() { slots(BLOCK_BYTES_MAX, BLOCK_SLOTS, block_bytes) } else { 1 };
    let net_bytes = cpus as usize * size_of::<NetCount>();
    let net = if wanted.parts.has_net() { slots(NET_BYTES_MAX, NET_SLOTS, net_bytes) } else { 1 };
    let in_flight = (IN_FLIGHT_PER_CPU * cpus).next_power_of_two().clamp(IN_FLIGHT.0, IN_FLIGHT.1);
    let in_flight = if wanted.parts.has_block() { in_flight } else { 1 };
    let targets = match &wanted.wanted {
        Wanted::Everybody(_) => 1,
        Wanted::Processes(ids, _) => ids.len().max(1) as u32,
        Wanted::Cgroups(cgroups, _) => (cgroups.len() * KEYS_PER_CGROUP) as u32 + LATER,
    };
    Sizes(vec![
        (names::CPUS, cpus),
        (names::RECENT, cpus * RECENT),
        (names::TARGETS, targets),
        (names::IN_FLIGHT, in_flight),
        (names::IN_FLIGHT_ENDED, in_flight),
        (names::BLOCK_OWNERS, block),
        (names::BLOCK_COUNTS, block * cpus),
        (names::BLOCK_LATENCIES, block * histograms),
        (names::BLOCK_SLOT_OF, block * IDENTITIES_PER_SLOT),
        (names::BLOCK_FREE, block),
        (names::NET_OWNERS, net),
        (names::NET_COUNTS, net * cpus),
        (names::NET_SLOT_OF, net * IDENTITIES_PER_SLOT),
        (names::NET_FREE, net),
        (names::HELD, held),
    ])
}

/// Returns the number of histograms of a kind per slot.
pub(super) fn lanes(machine: &Machine) -> u32 {
    machine.cpu.possible.next_power_of_two().min(LANES_MAX)
}

/// Returns the limit below which slots are for owners; the others are for rows that a device's owners share.
pub(super) const fn owner_slots(slots: u32) -> u32 {
    slots - slots / 4
}

/// Maps that user space accesses.
pub(super) struct Maps {
    pub(super) cpus: Mapped<IoCpu>,
    pub(super) in_flight: Mapped<InFlight>,
    pub(super) in_flight_ended: Mapped<u64>,
    pub(super) block_counts: Mapped<BlockCount>,
    pub(super) block_latencies: Mapped<BlockBuckets>,
    pub(super) net_counts: Mapped<NetCount>,
    pub(super) recent: Array<MapData, Pod<Recent>>,
    pub(super) block: Slots,
    pub(super) net: Slots,
    targets: HashMap<MapData, u64, u32>,
}

impl Maps {
    pub(super) fn open(maps: &mut Loaded) -> Result<Self, LoadError> {
        Ok(Self {
            cpus: maps.mapped(names::CPUS)?,
            in_flight: maps.mapped(names::IN_FLIGHT)?,
            in_flight_ended: maps.mapped(names::IN_FLIGHT_ENDED)?,
            block_counts: maps.mapped(names::BLOCK_COUNTS)?,
            block_latencies: maps.mapped(names::BLOCK_LATENCIES)?,
            net_counts: maps.mapped(names::NET_COUNTS)?,
            recent: maps.typed(names::RECENT)?,
            block: Slots::open(maps, [names::BLOCK_OWNERS, names::BLOCK_SLOT_OF, names::BLOCK_FREE])?,
            net: Slots::open(maps, [names::NET_OWNERS, names::NET_SLOT_OF, names::NET_FREE])?,
            targets: maps.typed(names::TARGETS)?,
        })
    }

    /// Returns the rows of a slot that exist per CPU.
    pub(super) fn by_cpu(&self, slot: u32) -> std::ops::Range<usize> {
        let cpus = self.cpus.len();
        slot as usize * cpus..(slot as usize + 1) * cpus
    }

    /// Removes a target with I/O that is no longer wanted.
    pub(super) fn remove_target(&mut self, id: u64) {
        let _ = self.targets.remove(&id);
    }

    /// Adds targets with wanted I/O.
    pub(super) fn add_targets(&mut self, ids: impl Iterator<Item = u64>) -> Result<(), LoadError> {
        for id in ids {
            self.targets.insert(id, 0, 0).map_err(|error| failed(names::TARGETS, error))?;
        }
        Ok(())
    }
}
