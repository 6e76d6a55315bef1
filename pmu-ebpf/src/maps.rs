//! Every map but the one of tasks, which lies beside the way they are reached (`storage`, `table`): who writes it, who
//! reads it, how large. Sizes of 1 are set by the loader to what the plan needs.
//!
//! Rows "by slot and CPU" lie at `slot * cpus + cpu`: each has one writer, so nothing is locked, and user space reads
//! them through a mapping without a system call.

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

/// Written by user space while programs run. One row.
#[map]
pub(crate) static CONTROL: Array<Control> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by programs that run with interrupts off on that CPU. One row per possible CPU.
#[map]
pub(crate) static CPUS: Array<CpuCount> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by the sampling programs. By CPU and event.
#[map]
pub(crate) static CPU_SAMPLES: Array<CpuSamples> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by whoever allocates a slot, and by `exec`, `rename`, `exit` and `cgroup_remove`; cleared by user space. By slot.
#[map]
pub(crate) static OWNERS: Array<Owner> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by `switch`, `flush` and `timer`; cleared by user space between two owners of a slot. By slot and CPU.
#[map]
pub(crate) static COUNTS: Array<Count> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Run-queue latencies. As [`COUNTS`].
#[map]
pub(crate) static LATENCIES: Array<RunqueueBuckets> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by whoever writes [`OWNERS`], [`COUNTS`], [`LATENCIES`] or [`SAMPLES`]; cleared by user space. One row per possible CPU.
#[map]
pub(crate) static CHANGED: Array<Changed> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by `switch` and `flush`; of a freed slot, cleared by user space. One row per possible CPU.
#[map]
pub(crate) static CULPRITS: Array<Culprits> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Waits that are over. As [`COUNTS`].
#[map]
pub(crate) static OFF_CPU: Array<OffCpu> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by `waits`, or by user space where there is none; cleared by user space before. By slot.
#[map]
pub(crate) static WAITING: Array<OffCpu> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by programs where interrupt handlers begin and end, of which one may interrupt another on its CPU; the epoch, by user space.
/// One row per possible CPU where handlers are counted.
#[map]
pub(crate) static INTERRUPTS: Array<Interrupts> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by the same; of a freed slot, cleared by user space. By slot and CPU where handlers are counted.
#[map]
pub(crate) static INTERRUPTED: Array<Interrupted> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by the sampling programs. By slot, CPU and event.
#[map]
pub(crate) static SAMPLES: Array<SampleCount> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Filled by user space before an event is enabled: `Config::counters` per CPU.
#[map]
pub(crate) static COUNTERS: PerfEventArray<u64> = PerfEventArray::new(0);
/// Written by `switch` and `flush`; what is wanted, by user space. One row per possible CPU.
#[map]
pub(crate) static TURNS: Array<Turn> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by `switch` and `flush`; of a freed slot, cleared by user space. By slot, CPU and parity of the slice; a last
/// slot takes what nobody owns.
#[map]
pub(crate) static SLICES: Array<Slice> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by `sample`; the table not in use is read and cleared by user space. Two tables per CPU.
#[map]
pub(crate) static HOT: Array<Hot> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by whoever allocates a slot; removed when the owner ends, or by user space when a non-target becomes a target. Room
/// for non-targets too. Preallocated, because
/// a sampling program may run in an NMI.
#[map]
pub(crate) static SLOT_OF: HashMap<OwnerKey, u32> = HashMap::with_max_entries(1, 0);
/// Filled by user space, lowest slot on top; popped by whoever allocates. One entry per slot.
#[map]
pub(crate) static FREE_SLOTS: Stack<u32> = Stack::with_max_entries(1, 0);
/// Written by user space, before counting starts and for cgroups that a name means later, and by `cgroup_create` and
/// `cgroup_remove`. By process, thread or cgroup id, or by path ([`pmu_common::target::PathKey`]). Preallocated: before
/// Linux 6.1 a program on a perf event may not use another, and one on a raw tracepoint has the kernel warn
/// (kernel/bpf/verifier.c, `check_map_prog_compatibility`).
#[map]
pub(crate) static TARGETS: HashMap<u64, u32> = HashMap::with_max_entries(1, 0);
/// Moves between cgroups, by process id, or by that of a thread that was moved alone. Written by `cgroup_move`, read where a task of the process
/// is accounted. Processes that were moved long ago give way.
#[map]
pub(crate) static MOVES: LruHashMap<u32, Moves> = LruHashMap::with_max_entries(1024, 0);
/// Written by `timer` and `flush`: [`crate::timer::PENDING`] rows per CPU.
#[map]
pub(crate) static LATE: Array<Late> = Array::with_max_entries(1, 0);
/// Written by `sample`. One row per possible CPU.
#[map]
pub(crate) static SCRATCH: Array<StackRoom> = Array::with_max_entries(1, 0);
/// Written by `sample` where user stacks are unwound. One row per possible CPU then.
#[map]
pub(crate) static COPIES: Array<CopyRoom> = Array::with_max_entries(1, 0);
/// Written by `switch` where stacks of tasks that block are taken. One row per possible CPU then.
#[map]
pub(crate) static OFF_CPU_STACKS: Array<OffCpuRoom> = Array::with_max_entries(1, 0);
/// Written by `throttle` and `unthrottle` with the run queue locked. By its address.
#[map]
pub(crate) static THROTTLED: HashMap<u64, Throttled> = HashMap::with_max_entries(1, 0);
/// Written by `throttle`: how often. One row.
#[map]
pub(crate) static THROTTLES: Array<u64> = Array::with_max_entries(1, 0);
/// Written by every program, read by user space: gaps, stacks, and facts about processes and cgroups.
#[map]
pub(crate) static RING: RingBuf = RingBuf::with_byte_size(4096, 0);

/// A record's header and both stacks, as they go into the ring buffer.
#[repr(C)]
pub(crate) struct StackRoom {
    pub(crate) header: ring::Stack,
    pub(crate) addresses: [u64; 2 * ring::STACK_FRAMES],
}

/// A record of a task that blocks with both stacks, as it goes into the ring buffer; and how many of them there are. Not the samples'
/// room: they may come in an NMI.
#[repr(C)]
pub(crate) struct OffCpuRoom {
    pub(crate) header: ring::OffCpuStack,
    pub(crate) entered: ring::Entered,
    pub(crate) addresses: [u64; 2 * ring::STACK_FRAMES],
    pub(crate) pace: Pace,
}

/// A record with both stacks and a copy of the user stack. What begins before the last piece may be as long as the verifier
/// believes, so there is a piece more.
#[repr(C)]
pub(crate) struct CopyRoom {
    pub(crate) header: ring::Stack,
    pub(crate) copy: ring::StackCopy,
    pub(crate) behind: [u64; (ring::COPY_BYTES_MAX + ring::COPY_PIECE_BYTES) / 8],
}

/// Index of a row by what [`row`](crate::cpu::row) is by, and by sampling event.
#[inline(always)]
pub(crate) fn of_event(row: u32, event: u32) -> u32 {
    row.wrapping_mul(config!(sampling_events)).wrapping_add(event)
}
