//! Maps of the programs on tasks: their sizes, and each in the form that its reader needs.

use aya::maps::{HashMap, MapData, MapError, RingBuf, Stack};
use pmu_common::{
    changed::Changed,
    count::{Count, SLOT_NONE, TaskState, WAITS_FOR_EXEC},
    cpu::{Control, CpuCount, CpuSamples},
    culprit::Culprits,
    histogram::RunqueueBuckets,
    interrupt::{Interrupted, Interrupts},
    name::map as names,
    off_cpu::{OffCpu, RUN_QUEUE},
    owner::{Owner, OwnerKey},
    sample::{Hot, SampleCount},
    turn::{Slice, Turn},
};

use super::super::{
    Attach, Events, LoadError, Loaded, Log, Mapped, Ring,
    loaded::{Sizes, failed},
    mapped::Pod,
};
use crate::{
    machine::Machine,
    plan::{Plan, Target, request},
};

/// Late timers that can wait, per CPU; as in pmu-ebpf/src/timer.rs.
const PENDING: u32 = 4;
/// Run queues that can be throttled where programs time it: those of each cgroup with a limit, and of those
/// below, one per CPU.
pub(super) const RUN_QUEUES: u32 = 8192;
/// Tasks that can have a state where it cannot lie in the tasks themselves.
const TASKS_MAX: u32 = 65_536;
/// Targets and cgroups that are not targets, with a cached result.
const ANSWERS_MIN: u32 = 8192;

/// Targets that fit for any number of owners: every cgroup below a target is one too.
const TARGETS_MIN: u32 = 8192;

/// Words that hold slice numbers: of the slice active on a CPU, and of the slice of a row.
const IN_FORCE_WORD: usize = std::mem::offset_of!(Turn, slice) / 8;
const SLICE_WORD: usize = std::mem::offset_of!(Slice, slice) / 8;

/// Returns the entries per map.
pub(super) fn sizes(plan: &Plan, machine: &Machine, log: Log, run_queues: u32) -> Sizes {
    let cpus = machine.cpu.possible;
    let rows = plan.slots * cpus;
    let only = |wanted: bool, entries: u32| if wanted { entries } else { 1 };
    let (counters, counted) = (plan.counters(), plan.counters() > 0);
    let (off_cpu, interrupts) = (plan.off_cpu == request::OffCpu::Yes, !plan.interrupts.is_no());
    Sizes(vec![
        (names::CONTROL, 1),
        (names::CPUS, cpus),
        (names::CPU_SAMPLES, cpus * plan.events()),
        (names::OWNERS, plan.slots),
        (names::COUNTS, rows),
        (names::LATENCIES, rows),
        (names::CHANGED, cpus),
        (names::CULPRITS, cpus),
        (names::OFF_CPU, only(off_cpu, rows)),
        (names::WAITING, only(off_cpu, plan.slots)),
        (names::INTERRUPTS, only(interrupts, cpus)),
        (names::THROTTLED, run_queues),
        (names::INTERRUPTED, only(interrupts, rows)),
        (names::SAMPLES, only(!plan.sampling.is_empty(), rows * plan.events())),
        (names::COUNTERS, only(counted, cpus * counters)),
        (names::TURNS, only(counted, cpus)),
        (names::SLICES, only(counted, 2 * (rows + cpus))),
        (names::HOT, 2 * cpus * plan.hot_entries),
        (names::TASKS_BY_ADDRESS, TASKS_MAX),
        (names::SLOT_OF, ANSWERS_MIN.max(plan.slots.saturating_mul(4))),
        (names::FREE_SLOTS, plan.slots),
        (names::TARGETS, targets(plan)),
        (names::MOVES, only(plan.uses_cgroups(), 512)),
        (names::LATE, cpus * PENDING),
        (names::SCRATCH, cpus),
        (names::COPIES, only(!plan.unwind.is_fp(), cpus)),
        (names::OFF_CPU_STACKS, only(plan.takes_off_cpu_stacks(), cpus)),
        (names::RING, plan.ring_bytes),
        (names::LOGS, if log == Log::On { 1 << 17 } else { 4096 }),
    ])
}

/// Returns the room for targets. The map is preallocated, so it is larger than needed only where the programs
/// add targets.
fn targets(plan: &Plan) -> u32 {
    match &plan.target {
        Target::System | Target::Command(_) => 1,
        Target::Processes(ids) | Target::Threads(ids) => u32::try_from(ids.len()).unwrap_or(u32::MAX).max(1),
        Target::Cgroups(_) => TARGETS_MIN.max(plan.slots.saturating_mul(2)),
    }
}

/// Maps that user space accesses.
pub struct Maps {
    /// Words that user space writes for the running programs.
    pub control: Mapped<Control>,
    /// Rows of each CPU.
    pub cpus: Mapped<CpuCount>,
    /// Rows per CPU and event, of the sampling programs.
    pub cpu_samples: Mapped<CpuSamples>,
    /// Rows per slot of owners.
    pub owners: Mapped<Owner>,
    /// Rows per slot and CPU.
    pub counts: Mapped<Count>,
    /// Rows per slot and CPU.
    pub latencies: Mapped<RunqueueBuckets>,
    /// Rows of each CPU.
    pub changed: Mapped<Changed>,
    /// Rows of each CPU.
    pub culprits: Mapped<Culprits>,
    /// Rows per slot and CPU; one where time off the CPU does not count.
    pub off_cpu: Mapped<OffCpu>,
    /// Rows per slot; one where time off the CPU does not count.
    pub waiting: Mapped<OffCpu>,
    /// Rows per CPU; one where interrupt handlers do not count.
    pub interrupts: Mapped<Interrupts>,
    /// Rows per slot and CPU; one where interrupt handlers do not count.
    pub interrupted: Mapped<Interrupted>,
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
    slot_of: HashMap<MapData, Pod<OwnerKey>, u32>,
    /// State by address of the task, where it is not in the task.
    tasks: Option<HashMap<MapData, u64, Pod<TaskState>>>,
    ring: Option<Ring>,
}

impl Maps {
    pub(super) fn open(maps: &mut Loaded) -> Result<Self, LoadError> {
        let counters = Events::new(maps.take(names::COUNTERS), maps.entries(names::COUNTERS))
            .map_err(|error| LoadError::Map { name: names::COUNTERS, error })?;
        Ok(Self {
            control: maps.mapped(names::CONTROL)?,
            cpus: maps.mapped(names::CPUS)?,
            cpu_samples: maps.mapped(names::CPU_SAMPLES)?,
            owners: maps.mapped(names::OWNERS)?,
            counts: maps.mapped(names::COUNTS)?,
            latencies: maps.mapped(names::LATENCIES)?,
            changed: maps.mapped(names::CHANGED)?,
            culprits: maps.mapped(names::CULPRITS)?,
            off_cpu: maps.mapped(names::OFF_CPU)?,
            waiting: maps.mapped(names::WAITING)?,
            interrupts: maps.mapped(names::INTERRUPTS)?,
            interrupted: maps.mapped(names::INTERRUPTED)?,
            samples: maps.mapped(names::SAMPLES)?,
            counters,
            turns: maps.mapped(names::TURNS)?,
            slices: maps.mapped(names::SLICES)?,
            hot: maps.mapped(names::HOT)?,
            free_slots: maps.typed(names::FREE_SLOTS)?,
            targets: maps.typed(names::TARGETS)?,
            slot_of: maps.typed(names::SLOT_OF)?,
            tasks: match maps.attach_kind() {
                Attach::TpBtf => None,
                Attach::RawTp => Some(maps.typed(names::TASKS_BY_ADDRESS)?),
            },
            ring: Some(Ring::new(maps.typed::<RingBuf<MapData>>(names::RING)?)),
        })
    }

    /// Pushes a slot for the programs. The last one pushed is taken first.
    ///
    /// # Errors
    ///
    /// There are more slots than the map holds.
    pub fn offer_slot(&mut self, slot: u32) -> Result<(), LoadError> {
        self.free_slots.push(slot, 0).map_err(|error| failed(names::FREE_SLOTS, error))
    }

    /// Makes an id a target.
    ///
    /// # Errors
    ///
    /// There are more targets than the map holds.
    pub fn add_target(&mut self, id: u64, flags: u32) -> Result<(), LoadError> {
        self.targets.insert(id, flags, 0).map_err(|error| failed(names::TARGETS, error))
    }

    /// Removes the id of a cgroup from the targets, if it is there. When the cgroup is removed, a program
    /// does so.
    pub fn forget_cgroup(&mut self, id: u64) {
        let _ = self.targets.remove(&id);
    }

    /// Makes a cgroup a target in which tasks may have run already. Call it again when programs that judged
    /// it before have ended.
    ///
    /// # Errors
    ///
    /// There are more targets than the map holds.
    pub fn adopt_cgroup(&mut self, id: u64) -> Result<(), LoadError> {
        self.add_target(id, 0)?;
        let key = Pod(OwnerKey { id, born_ns: 0 });
        match self.slot_of.get(&key, 0) {
            // An entry that is gone by now needs no removal.
            Ok(SLOT_NONE) => match self.slot_of.remove(&key) {
                Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
                Err(error) => Err(failed(names::SLOT_OF, error)),
            },
            _ => Ok(()),
        }
    }

    /// Returns whether a slot has counted in a slice that is still active on one of `cpus` CPUs.
    #[must_use]
    pub fn is_counting(&self, slot: u32, cpus: u32) -> bool {
        (0..cpus as usize).take_while(|&cpu| cpu < self.turns.len()).any(|cpu| {
            let slice = self.turns.read_word(cpu, IN_FORCE_WORD);
            let row = (slot as usize * cpus as usize + cpu) * 2 + (slice & 1) as usize;
            slice != 0 && self.slices.read_word(row, SLICE_WORD) == slice
        })
    }

    /// Adds the waits that last at `until_ns` to the rows of their owners, where the state of tasks lies in a
    /// map. The program `waits` does so elsewhere. The start of a wait is known only for tasks that have left
    /// a CPU.
    pub(super) fn add_waits(&self, until_ns: u64) -> Result<(), MapError> {
        // A key that is removed during the walk sends the reader back to the first.
        let mut tasks = std::collections::HashMap::new();
        for entry in self.tasks.iter().flat_map(|tasks| tasks.iter().take(TASKS_MAX as usize)) {
            let (address, Pod(state)) = entry?;
            tasks.insert(address, state);
        }
        let counted = |state: &&TaskState| state.slot < SLOT_NONE && state.flags & WAITS_FOR_EXEC == 0;
        for state in tasks.values().filter(counted) {
            if let Some(wait) = state.wait(0, until_ns) {
                for (kind, ns) in [(state.off_kind, wait.blocked_ns), (RUN_QUEUE, wait.ready_ns)] {
                    let (row, word) = (state.slot as usize, kind as usize);
                    self.waiting.write_word(row, word, self.waiting.read_word(row, word).wrapping_add(ns));
                }
            }
        }
        Ok(())
    }

    /// Takes the reader of the ring buffer; once.
    pub fn take_ring(&mut self) -> Option<Ring> {
        self.ring.take()
    }
}
