//! Maps, except the one of tasks, which lies with the access to them (`storage`, `table`): their writers,
//! readers and sizes. Sizes of 1 are set by the loader to the size in the plan.
//!
//! Rows "by slot and CPU" lie at `slot * cpus + cpu`. Each has one writer, so nothing is locked, and user
//! space reads them through a mapping without a system call.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerfEventArray, RingBuf, Stack},
};
use pmu_common::{
    changed::Changed,
    count::Count,
    cpu::{Control, CpuCount, CpuSamples},
    culprit::Culprits,
    gap::Late,
    histogram::RunqueueBuckets,
    interrupt::{Interrupted, Interrupts},
    moves::Moves,
    off_cpu::OffCpu,
    off_cpu_stack::Pace,
    owner::{Owner, OwnerKey},
    ring,
    sample::{Hot, SampleCount},
    throttling::Throttled,
    turn::{Slice, Turn},
};

use crate::config::config;

/// Control words, one row. Written by user space while programs run.
#[map]
pub(crate) static CONTROL: Array<Control> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Counts of each possible CPU, one row each. Written by programs that run with interrupts off on that CPU.
#[map]
pub(crate) static CPUS: Array<CpuCount> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Samples by CPU and event. Written by the sampling programs.
#[map]
pub(crate) static CPU_SAMPLES: Array<CpuSamples> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Owners by slot. Written by the program that allocates the slot, and by `exec`, `rename`, `exit` and
/// `cgroup_remove`; cleared by user space.
#[map]
pub(crate) static OWNERS: Array<Owner> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Counts by slot and CPU. Written by `switch`, `flush` and `timer`; cleared by user space between two owners
/// of a slot.
#[map]
pub(crate) static COUNTS: Array<Count> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Run-queue latencies, as [`COUNTS`].
#[map]
pub(crate) static LATENCIES: Array<RunqueueBuckets> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Marks of changed slots, one row per possible CPU. Written by the writers of [`OWNERS`], [`COUNTS`],
/// [`LATENCIES`] and [`SAMPLES`]; cleared by user space.
#[map]
pub(crate) static CHANGED: Array<Changed> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Charged waits, one row per possible CPU. Written by `switch` and `flush`; those of a freed slot are
/// cleared by user space.
#[map]
pub(crate) static CULPRITS: Array<Culprits> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Waits that are over, as [`COUNTS`].
#[map]
pub(crate) static OFF_CPU: Array<OffCpu> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Waits that still last, by slot. Written by `waits`, or by user space where there is none; cleared by user
/// space before.
#[map]
pub(crate) static WAITING: Array<OffCpu> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Interrupt handlers, one row per possible CPU where handlers are counted. Written by programs where they
/// begin and end; one may interrupt another on its CPU. User space writes the epoch.
#[map]
pub(crate) static INTERRUPTS: Array<Interrupts> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Time of handlers by interrupted slot and CPU, where handlers are counted. Written by the same programs;
/// rows of a freed slot are cleared by user space.
#[map]
pub(crate) static INTERRUPTED: Array<Interrupted> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Samples by slot, CPU and event. Written by the sampling programs.
#[map]
pub(crate) static SAMPLES: Array<SampleCount> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Descriptors of events, `Config::counters` per CPU. Filled by user space before an event is enabled.
#[map]
pub(crate) static COUNTERS: PerfEventArray<u64> = PerfEventArray::new(0);
/// Counters in force, one row per possible CPU. Written by `switch` and `flush`; user space writes the wanted
/// ones.
#[map]
pub(crate) static TURNS: Array<Turn> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Counts by slot, CPU and parity of the slice; a last slot takes unowned counts. Written by `switch` and
/// `flush`; rows of a freed slot are cleared by user space.
#[map]
pub(crate) static SLICES: Array<Slice> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Samples by address, two tables per CPU. Written by `sample`; user space reads and clears the table not in
/// use.
#[map]
pub(crate) static HOT: Array<Hot> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Slots by owner, with room for non-targets too. Written by the program that allocates a slot; removed when
/// the owner ends, or by user space when a non-target becomes a target. Preallocated, because a sampling
/// program may run in an NMI.
#[map]
pub(crate) static SLOT_OF: HashMap<OwnerKey, u32> = HashMap::with_max_entries(1, 0);
/// Free slots, one entry per slot. Filled by user space, lowest slot on top; popped by the program that
/// allocates one.
#[map]
pub(crate) static FREE_SLOTS: Stack<u32> = Stack::with_max_entries(1, 0);
/// Targets by process, thread or cgroup id, or by path ([`pmu_common::target::PathKey`]). Written by user
/// space, before counting starts and for cgroups that match a name later, and by `cgroup_create` and
/// `cgroup_remove`. Preallocated: before Linux 6.1 a program on a perf event must not use another kind, and
/// for one on a raw tracepoint the kernel warns (kernel/bpf/verifier.c, `check_map_prog_compatibility`).
#[map]
pub(crate) static TARGETS: HashMap<u64, u32> = HashMap::with_max_entries(1, 0);
/// Moves between cgroups, by process id, or by the id of a thread that was moved alone. Written by
/// `cgroup_move`, read where a task of the process is accounted. Processes that were moved long ago are
/// evicted.
#[map]
pub(crate) static MOVES: LruHashMap<u32, Moves> = LruHashMap::with_max_entries(1024, 0);
/// Late timers, [`crate::timer::PENDING`] rows per CPU. Written by `timer` and `flush`.
#[map]
pub(crate) static LATE: Array<Late> = Array::with_max_entries(1, 0);
/// Buffers for stacks, one row per possible CPU. Written by `sample`.
#[map]
pub(crate) static SCRATCH: Array<StackRoom> = Array::with_max_entries(1, 0);
/// Buffers for copies of user stacks, one row per possible CPU where they are unwound. Written by `sample`.
#[map]
pub(crate) static COPIES: Array<CopyRoom> = Array::with_max_entries(1, 0);
/// Buffers for stacks of blocking tasks, one row per possible CPU where they are taken. Written by `switch`.
#[map]
pub(crate) static OFF_CPU_STACKS: Array<OffCpuRoom> = Array::with_max_entries(1, 0);
/// Throttled time by address of the run queue. Written by `throttle` and `unthrottle` with the run queue
/// locked.
#[map]
pub(crate) static THROTTLED: HashMap<u64, Throttled> = HashMap::with_max_entries(1, 0);
/// Number of throttles, in one row. Written by `throttle`.
#[map]
pub(crate) static THROTTLES: Array<u64> = Array::with_max_entries(1, 0);
/// Records of gaps, stacks, and events of processes and cgroups. Written by every program, read by user
/// space.
#[map]
pub(crate) static RING: RingBuf = RingBuf::with_byte_size(4096, 0);

/// Header of a record and both stacks, as they go into the ring buffer.
#[repr(C)]
pub(crate) struct StackRoom {
    pub(crate) header: ring::Stack,
    pub(crate) addresses: [u64; 2 * ring::STACK_FRAMES],
}

/// Record of a blocking task with both stacks, as it goes into the ring buffer, and the rate of such records.
/// It is separate from the samples' buffer: samples may come in an NMI.
#[repr(C)]
pub(crate) struct OffCpuRoom {
    pub(crate) header: ring::OffCpuStack,
    pub(crate) entered: ring::Entered,
    pub(crate) addresses: [u64; 2 * ring::STACK_FRAMES],
    pub(crate) pace: Pace,
}

/// Record with both stacks and a copy of the user stack. A part that begins before the last piece may be as
/// long as the verifier assumes, so there is one more piece.
#[repr(C)]
pub(crate) struct CopyRoom {
    pub(crate) header: ring::Stack,
    pub(crate) copy: ring::StackCopy,
    pub(crate) behind: [u64; (ring::COPY_BYTES_MAX + ring::COPY_PIECE_BYTES) / 8],
}

/// Returns the index of a row by the key of [`row`](crate::cpu::row) and by sampling event.
#[inline(always)]
pub(crate) fn of_event(row: u32, event: u32) -> u32 {
    row.wrapping_mul(config!(sampling_events)).wrapping_add(event)
}
