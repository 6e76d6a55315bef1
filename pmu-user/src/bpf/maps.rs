//! The maps: how large, and each in the form that its reader needs.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd},
};

use aya::{
    Ebpf,
    maps::{HashMap, Map, MapData, MapError, RingBuf, Stack},
};
use pmu_common::{
    count::Count,
    cpu::{Control, CpuCount, CpuSamples},
    histogram::RunqueueBuckets,
    name::map as names,
    owner::Owner,
    sample::{Hot, SampleCount},
    turn::{Slice, Turn},
    wire::Wire,
};

use super::{Events, LoadError, Log, Mapped, Ring};
use crate::{
    machine::Machine,
    plan::{Plan, Target},
};

/// Late timers that wait, per CPU; as in pmu-ebpf/src/timer.rs.
const PENDING: u32 = 4;
/// Tasks that can be told apart where their state cannot live in the tasks themselves.
const TASKS_MAX: u32 = 65_536;
/// Targets, and cgroups that are none, whose answer is kept.
const ANSWERS_MIN: u32 = 8192;

/// Targets that fit whatever the owners: every cgroup below a target is one too.
const TARGETS_MIN: u32 = 8192;

/// The words that tell slices apart: the one in force on a CPU, and the one that a row is of.
const IN_FORCE_WORD: usize = std::mem::offset_of!(Turn, slice) / 8;
const SLICE_WORD: usize = std::mem::offset_of!(Slice, slice) / 8;

/// Entries per map.
pub(super) struct Sizes {
    pub(super) entries: Vec<(&'static str, u32)>,
}

impl Sizes {
    pub(super) fn new(plan: &Plan, machine: &Machine, log: Log) -> Self {
        let cpus = machine.cpu.possible;
        let rows = plan.slots * cpus;
        let only = |wanted: bool, entries: u32| if wanted { entries } else { 1 };
        let (counters, counted) = (plan.counters(), plan.counters() > 0);
        Self {
            entries: vec![
                (names::CONTROL, 1),
                (names::CPUS, cpus),
                (names::CPU_SAMPLES, cpus * plan.events()),
                (names::OWNERS, plan.slots),
                (names::COUNTS, rows),
                (names::LATENCIES, rows),
                (names::SAMPLES, only(!plan.sampling.is_empty(), rows * plan.events())),
                (names::COUNTERS, only(counted, cpus * counters)),
                (names::TURNS, only(counted, cpus)),
                (names::SLICES, only(counted, 2 * (rows + cpus))),
                (names::HOT, 2 * cpus * plan.hot_entries),
                (names::TASKS_BY_ADDRESS, TASKS_MAX),
                (names::SLOT_OF, ANSWERS_MIN.max(plan.slots.saturating_mul(4))),
                (names::FREE_SLOTS, plan.slots),
                (names::TARGETS, targets(plan)),
                (names::MOVES, only(plan.uses_cgroups(), 4096)),
                (names::LATE, cpus * PENDING),
                (names::SCRATCH, cpus),
                (names::COPIES, only(!plan.unwind.is_fp(), cpus)),
                (names::RING, plan.ring_bytes),
                (names::LOGS, if log == Log::On { 1 << 17 } else { 4096 }),
            ],
        }
    }

    pub(super) fn of(&self, map: &str) -> u32 {
        self.entries.iter().find(|(name, _)| *name == map).map_or(0, |&(_, entries)| entries)
    }
}

/// Room for targets. The map is preallocated, so only where new ones come by themselves is there more than is needed.
fn targets(plan: &Plan) -> u32 {
    match &plan.target {
        Target::System | Target::Command(_) => 1,
        Target::Processes(ids) | Target::Threads(ids) => u32::try_from(ids.len()).unwrap_or(u32::MAX).max(1),
        Target::Cgroups(_) => TARGETS_MIN.max(plan.slots.saturating_mul(2)),
    }
}

/// The maps that user space touches.
pub struct Maps {
    /// What user space tells the running programs.
    pub control: Mapped<Control>,
    /// Rows per CPU.
    pub cpus: Mapped<CpuCount>,
    /// Rows per CPU and event, of the sampling programs.
    pub cpu_samples: Mapped<CpuSamples>,
    /// Rows per slot.
    pub owners: Mapped<Owner>,
    /// Rows per slot and CPU.
    pub counts: Mapped<Count>,
    /// Rows per slot and CPU.
    pub latencies: Mapped<RunqueueBuckets>,
    /// Rows per slot, CPU and event, of the sampling programs.
    pub samples: Mapped<SampleCount>,
    /// Events that the programs read.
    pub counters: Events,
    /// Rows per CPU; one where nothing is counted per owner.
    pub turns: Mapped<Turn>,
    /// Rows per slot, CPU and parity of the slice; one where nothing is counted per owner.
    pub slices: Mapped<Slice>,
    /// Two tables per CPU.
    pub hot: Mapped<Hot>,
    free_slots: Stack<MapData, u32>,
    targets: HashMap<MapData, u64, u32>,
    ring: Option<Ring>,
    memory_bytes: u64,
}

impl Maps {
    pub(super) fn open(ebpf: &mut Ebpf, sizes: &Sizes) -> Result<Self, LoadError> {
        let mut maps = Taking { ebpf, sizes, memory_bytes: 0 };
        let counters = Events::new(maps.take(names::COUNTERS), sizes.of(names::COUNTERS))
            .map_err(|error| LoadError::Map { name: names::COUNTERS, error })?;
        Ok(Self {
            control: maps.mapped(names::CONTROL)?,
            cpus: maps.mapped(names::CPUS)?,
            cpu_samples: maps.mapped(names::CPU_SAMPLES)?,
            owners: maps.mapped(names::OWNERS)?,
            counts: maps.mapped(names::COUNTS)?,
            latencies: maps.mapped(names::LATENCIES)?,
            samples: maps.mapped(names::SAMPLES)?,
            counters,
            turns: maps.mapped(names::TURNS)?,
            slices: maps.mapped(names::SLICES)?,
            hot: maps.mapped(names::HOT)?,
            free_slots: maps.typed(names::FREE_SLOTS)?,
            targets: maps.typed(names::TARGETS)?,
            ring: Some(Ring::new(maps.typed::<RingBuf<MapData>>(names::RING)?)),
            // After all that is taken.
            memory_bytes: maps.memory_bytes,
        })
    }

    /// Offers a slot to the programs. The last one offered is taken first.
    ///
    /// # Errors
    ///
    /// There are more than the map holds.
    pub fn offer_slot(&mut self, slot: u32) -> Result<(), LoadError> {
        self.free_slots.push(slot, 0).map_err(|error| failed(names::FREE_SLOTS, error))
    }

    /// Makes an id a target.
    ///
    /// # Errors
    ///
    /// There are more than the map holds.
    pub fn add_target(&mut self, id: u64, flags: u32) -> Result<(), LoadError> {
        self.targets.insert(id, flags, 0).map_err(|error| failed(names::TARGETS, error))
    }

    /// Has a slot counted in a slice that is still in force on one of `cpus` CPUs?
    #[must_use]
    pub fn is_counting(&self, slot: u32, cpus: u32) -> bool {
        (0..cpus as usize).take_while(|&cpu| cpu < self.turns.len()).any(|cpu| {
            let slice = self.turns.read_word(cpu, IN_FORCE_WORD);
            let row = (slot as usize * cpus as usize + cpu) * 2 + (slice & 1) as usize;
            slice != 0 && self.slices.read_word(row, SLICE_WORD) == slice
        })
    }

    /// The ring buffer's reader; once.
    pub fn take_ring(&mut self) -> Option<Ring> {
        self.ring.take()
    }

    /// Memory of the maps that were taken out of the object.
    pub(super) const fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}

pub(super) fn failed(name: &'static str, error: MapError) -> LoadError {
    LoadError::Map { name, error: io::Error::other(error) }
}

/// Takes an object's maps for those who use them, in the form that each needs.
pub(super) struct Taking<'a> {
    pub(super) ebpf: &'a mut Ebpf,
    pub(super) sizes: &'a Sizes,
    /// Memory of those that were taken out of the object.
    pub(super) memory_bytes: u64,
}

impl Taking<'_> {
    pub(super) fn take(&mut self, name: &'static str) -> Map {
        let map = self.ebpf.take_map(name).expect("tests/contract.rs checks the object's maps");
        self.memory_bytes += memory_of(&map);
        map
    }

    /// A map that is used by system calls.
    pub(super) fn typed<T: TryFrom<Map, Error = MapError>>(
        &mut self,
        name: &'static str,
    ) -> Result<T, LoadError> {
        T::try_from(self.take(name)).map_err(|error| failed(name, error))
    }

    /// An array in memory. The map itself stays with the object.
    pub(super) fn mapped<T: Wire>(&self, name: &'static str) -> Result<Mapped<T>, LoadError> {
        let Some(Map::Array(map)) = self.ebpf.map(name) else {
            return Err(LoadError::Map { name, error: io::Error::other("it is no array") });
        };
        Mapped::new(map.fd(), self.sizes.of(name)).map_err(|error| LoadError::Map { name, error })
    }
}

/// Kernel memory of a map, from its descriptor's fdinfo; 0 where the kernel does not say.
pub(super) fn memory_of(map: &Map) -> u64 {
    let data = match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerfEventArray(data)
        | Map::RingBuf(data)
        | Map::Stack(data)
        | Map::Unsupported(data) => data,
        _ => return 0,
    };
    fdinfo(data.fd().as_fd(), "memlock:")
}

/// A number that the kernel tells of a descriptor; 0 where it does not.
pub(super) fn fdinfo(descriptor: BorrowedFd<'_>, name: &str) -> u64 {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd()));
    let info = info.unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}
