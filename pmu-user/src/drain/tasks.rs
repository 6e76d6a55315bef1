//! Readings of one tick of `pmbpf run`: rows of CPUs, of owners, and samples.

use pmu_common::{
    count::Count,
    cpu::{CpuCount, CpuSamples},
    off_cpu::OffCpu,
    owner::Rare,
    sample::SampleCount,
};
use serde::{Deserialize, Serialize};

use super::{
    Absent, Code, Cost, CulpritRow, Handler, HandlerRow, InterruptedRow, Located, Module, Owner, OwnerRow,
    ProgramRow, Shed, SlotId, SpareInterruptsRow, reading, words,
};
use crate::{
    machine::{
        cpu::{Cpu, Times},
        io_limit::IoLimit,
        limit::Limits,
        pressure::Stalls,
        throttling::Throttling,
    },
    plan::Plan,
    untrusted::{Untrusted, exact},
};

/// Facts that are known before the first drain of tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TasksHeader {
    /// Start of counting on CLOCK_MONOTONIC, in ns.
    pub started_ns: u64,
    /// Plan of what was opened.
    pub plan: Plan,
    /// Access of programs to kernel memory: `tp_btf` or `raw_tp`.
    pub attach: String,
    /// Better kinds of access, and the reasons why they are not used.
    #[serde(default)]
    pub attach_refused: Vec<Absent>,
    /// Whether the kernel reports steal time.
    pub knows_steal: bool,
    /// Whether the kernel excludes steal time from the time of tasks (CONFIG_PARAVIRT_TIME_ACCOUNTING).
    #[serde(default)]
    pub excludes_steal: bool,
    /// Waits that are distinguished; `None` if time off the CPU is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_cpu: Option<ToldWaits>,
    /// Start of counting on CLOCK_BOOTTIME, in ns; 0 in older recordings. Start times of processes are on
    /// this clock.
    #[serde(default)]
    pub started_boot_ns: u64,
}

/// Waits that the kernel distinguishes from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldWaits {
    /// Waits for futexes, from other sleep.
    pub futexes: bool,
    /// Waits for a limit of CPU time, from other waits for a CPU.
    pub throttling: bool,
    /// Waits of tasks that have not switched since counting began.
    pub before_first_switch: bool,
}

/// Readings of tasks in one tick.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TasksDrain {
    /// Time of the reading, in ns since counting started.
    pub at_ns: u64,
    /// Number of regular ticks so far. A drain between two ticks came early, because slots ran short.
    pub ticks: u64,
    /// Rows of the counted CPUs.
    pub cpus: Vec<CpuRow>,
    /// CPU time as the kernel accounts it, since boot; only in the first drain and the last.
    #[serde(default)]
    pub times: Vec<(Cpu, Times)>,
    /// Throttling by limits of CPU time so far, in the targets' cgroups, above and below; only in the first
    /// drain and the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttling: Vec<ThrottlingRow>,
    /// Limits of the cgroups that are targets; only in the first drain and the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitsRow>,
    /// Stall times of tasks so far, of the host and of cgroups; not in a drain that came early.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pressure: Vec<PressureRow>,
    /// Time for which CPUs lacked the events that were opened on them, in ns, so far: they were offline, and
    /// until that was noticed. CPUs that never lacked them are omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncovered: Vec<(Cpu, u64)>,
    /// Owners that are new or have changed.
    pub owners: Vec<OwnerRow>,
    /// Cgroups above new ones. They may have no tasks themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<Owner>,
    /// Counts that have changed.
    pub counts: Vec<CountRow>,
    /// Charged waits for a CPU that have changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub culprits: Vec<CulpritRow>,
    /// Time off the CPU that has changed; empty if it is not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off_cpu: Vec<OffCpuRow>,
    /// Rare events of owners that have changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rare: Vec<RareRow>,
    /// Interrupt handlers that ran since the previous drain; empty if they are not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<HandlerRow>,
    /// Time of handlers that interrupted no counted owner, by CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spare_interrupts: Vec<SpareInterruptsRow>,
    /// Owners with interrupted tasks, if their times have changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupted: Vec<InterruptedRow>,
    /// Counts of owners by slice, since the last drain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<reading::SliceRow>,
    /// Readings of the sampling events' counters, except those of clocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampled: Vec<reading::SamplingReading>,
    /// Samples that were located.
    #[serde(default, skip_serializing_if = "Located::is_empty")]
    pub located: Located,
    /// Samples by address, in older recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hot: Vec<HotRow>,
    /// Samples by stack, in older recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<StackRow>,
    /// Gaps since the last drain.
    pub gaps: Vec<GapRow>,
    /// Locations of the addresses that are new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
    /// Work that was stopped so far to keep to the budget.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shed: Vec<Shed>,
    /// Cost of the programs.
    pub programs: Vec<ProgramRow>,
    /// Cost of this process so far.
    pub cost: Cost,
    /// Losses of user space so far, by reason.
    pub losses: Vec<(String, u64)>,
    /// Time up to which the samples in rows of CPUs were taken, in ns since counting started; `None` in older
    /// recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_until_ns: Option<u64>,
}

/// A cgroup with a limit of CPU time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottlingRow {
    /// The limited cgroup.
    pub owner: Owner,
    /// Throttling since the cgroup was created.
    pub so_far: Throttling,
}

/// Limits of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsRow {
    /// The limited cgroup.
    pub owner: Owner,
    /// Limits in the cgroup's files.
    pub now: Limits,
    /// I/O limits by device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub io: Vec<IoLimit>,
}

/// Pressure (PSI) of the host or of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PressureRow {
    /// Owner under pressure; `None` for the host.
    pub owner: Option<Owner>,
    /// Stall times of tasks so far, in µs.
    pub so_far: Stalls,
}

/// Counts of one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuRow {
    /// CPU of the counts.
    pub cpu: Cpu,
    /// Counts written with interrupts off.
    #[serde(with = "words")]
    pub count: CpuCount,
    /// Counts written by the sampling programs, by event.
    #[serde(with = "words::list")]
    pub samples: Vec<CpuSamples>,
}

/// Counts of one owner on one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// CPU of the counts.
    pub cpu: Cpu,
    /// Counts from the task structs.
    #[serde(with = "words")]
    pub count: Count,
    /// Counts from the sampling events, by event; empty if nothing samples.
    #[serde(with = "words::list")]
    pub samples: Vec<SampleCount>,
    /// Run-queue latencies: nonzero buckets, with their counts modulo 2³².
    pub latencies: Vec<(u8, u32)>,
}

/// Time for which the tasks of one owner were off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpuRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// Time by kind, so far, on all CPUs, with waits that lasted when the drain was read.
    #[serde(with = "words")]
    pub so_far: OffCpu,
}

/// Rare events of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RareRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// Counts so far. Exits are 0 if processes own the counts, because the ends of these are recorded.
    #[serde(with = "words")]
    pub so_far: Rare,
}

/// Samples at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// Id of the process, 0 for the kernel.
    pub tgid: u32,
    /// Address of the instruction.
    pub address: u64,
    /// Number of samples.
    pub count: u64,
    /// Index in the plan of the event that took them.
    #[serde(default, skip_serializing_if = "reading::is_zero", deserialize_with = "reading::event")]
    pub event: u32,
    /// CPU of the samples; older recordings lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
}

/// Samples with one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// Id of the process.
    pub tgid: u32,
    /// Kernel addresses, innermost first.
    pub kernel: Vec<u64>,
    /// User addresses, innermost first.
    pub user: Vec<u64>,
    /// Number of samples.
    pub count: u64,
    /// Index in the plan of the event that took them.
    #[serde(default, skip_serializing_if = "reading::is_zero", deserialize_with = "reading::event")]
    pub event: u32,
}

/// A timer that is late enough to be listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapRow {
    /// CPU of the timer.
    pub cpu: Cpu,
    /// Arrival of the timer, in ns since counting started.
    pub at_ns: u64,
    /// Delay of the timer.
    pub late_ns: u64,
    /// Steal time around it.
    pub stolen_ns: u64,
    /// Index of its class in [`pmu_common::gap`].
    pub class: u32,
    /// Whether the tick showed the gap; if not, the sampling clock did.
    pub by_tick: bool,
    /// Whether the timer came right where the kernel enables interrupts. `None` if the recording lacks this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_enable: Option<bool>,
    /// Interrupt handler that had the CPU when the timer was due, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<Handler>,
    /// Owner that ran, if any.
    pub slot: Option<SlotId>,
    /// Thread that ran.
    pub tid: u32,
    /// Process of the thread.
    pub tgid: u32,
    /// Name of the thread.
    #[serde(with = "exact")]
    pub comm: Untrusted,
    /// Kernel stack at the late interrupt, innermost first.
    pub stack: Vec<u64>,
}

/// Location of an address, in older recordings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Id of the process, 0 for the kernel.
    pub tgid: u32,
    /// The located address.
    pub address: u64,
    /// File that is mapped there.
    pub module: Option<Module>,
    /// Function and source line, or the reason why they are not known.
    pub code: Result<Code, String>,
}
