//! What one tick of `pmbpf run` read: rows of CPUs, of owners, and samples.

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

/// What is known before the first drain of tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TasksHeader {
    /// When counting started on CLOCK_MONOTONIC, in ns.
    pub started_ns: u64,
    /// What was opened.
    pub plan: Plan,
    /// How programs reach kernel memory: `tp_btf` or `raw_tp`.
    pub attach: String,
    /// Better ways to reach it, and why they are not used.
    #[serde(default)]
    pub attach_refused: Vec<Absent>,
    /// Whether the kernel tells how much the hypervisor took.
    pub knows_steal: bool,
    /// Whether the kernel leaves stolen time out of the time of tasks (CONFIG_PARAVIRT_TIME_ACCOUNTING).
    #[serde(default)]
    pub excludes_steal: bool,
    /// Which waits are told from others; none where time off the CPU does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_cpu: Option<ToldWaits>,
    /// When counting started on CLOCK_BOOTTIME, by which processes tell when they began, in ns; 0 in older recordings.
    #[serde(default)]
    pub started_boot_ns: u64,
}

/// Which waits the kernel tells from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldWaits {
    /// Those for futexes, from other sleep.
    pub futexes: bool,
    /// Those for a limit of CPU time, from others for a CPU.
    pub throttling: bool,
    /// Those of tasks that have not switched since counting began.
    pub before_first_switch: bool,
}

/// What one tick read of tasks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TasksDrain {
    /// When, in ns since counting started.
    pub at_ns: u64,
    /// Regular ticks so far. A drain between two of them came early, because slots ran short.
    pub ticks: u64,
    /// Rows of the CPUs that count.
    pub cpus: Vec<CpuRow>,
    /// Where the kernel says their time went, since boot; only in the first drain and the last.
    #[serde(default)]
    pub times: Vec<(Cpu, Times)>,
    /// What limits of CPU time did so far to the cgroups that targets are in, above and below; only in the first drain and the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttling: Vec<ThrottlingRow>,
    /// Limits of the cgroups that are targets; only in the first drain and the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitsRow>,
    /// For how long tasks stood still so far, of the host and of cgroups; not in a drain that came early.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pressure: Vec<PressureRow>,
    /// Time that CPUs were without the events that were opened on them, in ns, so far: they were offline, and until that was
    /// noticed. Those that never were are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncovered: Vec<(Cpu, u64)>,
    /// Owners that are new or have changed.
    pub owners: Vec<OwnerRow>,
    /// Cgroups above new ones, which may run nothing themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<Owner>,
    /// Counts that have changed.
    pub counts: Vec<CountRow>,
    /// Waits for a CPU that were charged, as far as they have changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub culprits: Vec<CulpritRow>,
    /// Time off the CPU, as far as it has changed; none where it does not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off_cpu: Vec<OffCpuRow>,
    /// What seldom happens to owners, as far as it has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rare: Vec<RareRow>,
    /// Interrupt handlers that ran since the drain before; none where they do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<HandlerRow>,
    /// Time of those that interrupted nobody who counts, by CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spare_interrupts: Vec<SpareInterruptsRow>,
    /// Owners whose tasks were interrupted, as far as that has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupted: Vec<InterruptedRow>,
    /// What counters said about owners, by slice, since the last drain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<reading::SliceRow>,
    /// What the sampling events' counters said, those of clocks excepted.
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
    /// Where those addresses lie, for those that are new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
    /// What was stopped so far to keep to the budget.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shed: Vec<Shed>,
    /// What the programs cost.
    pub programs: Vec<ProgramRow>,
    /// What this process cost so far.
    pub cost: Cost,
    /// What user space could not keep, by reason, so far.
    pub losses: Vec<(String, u64)>,
    /// Up to when the samples in rows of CPUs were taken, in ns since counting started; `None` in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_until_ns: Option<u64>,
}

/// A cgroup with a limit of CPU time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottlingRow {
    /// Which.
    pub owner: Owner,
    /// What the limit did since the cgroup is there.
    pub so_far: Throttling,
}

/// Limits of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsRow {
    /// Which.
    pub owner: Owner,
    /// What its files say.
    pub now: Limits,
    /// Limits of its I/O, by device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub io: Vec<IoLimit>,
}

/// Pressure (PSI) of the host or of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PressureRow {
    /// Whose; `None` of the host.
    pub owner: Option<Owner>,
    /// For how long tasks stood still so far, in µs.
    pub so_far: Stalls,
}

/// One CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuRow {
    /// Which.
    pub cpu: Cpu,
    /// Written with interrupts off.
    #[serde(with = "words")]
    pub count: CpuCount,
    /// Written by the sampling programs, by event.
    #[serde(with = "words::list")]
    pub samples: Vec<CpuSamples>,
}

/// Counts of one owner on one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// The CPU.
    pub cpu: Cpu,
    /// From the task structs.
    #[serde(with = "words")]
    pub count: Count,
    /// From the sampling events, by event; none where nothing samples.
    #[serde(with = "words::list")]
    pub samples: Vec<SampleCount>,
    /// Run-queue latencies: buckets that are not zero, and their counts modulo 2³².
    pub latencies: Vec<(u8, u32)>,
}

/// Time that the tasks of one owner were off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpuRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// By kind, so far: of all CPUs, and of waits that lasted when the drain was read.
    #[serde(with = "words")]
    pub so_far: OffCpu,
}

/// What seldom happens to one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RareRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// So far. Exits are 0 where processes own the counts: the ends of those say it.
    #[serde(with = "words")]
    pub so_far: Rare,
}

/// Samples at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// Process, 0 for the kernel.
    pub tgid: u32,
    /// Instruction address.
    pub address: u64,
    /// Samples.
    pub count: u64,
    /// Event that took them: its place in the plan.
    #[serde(default, skip_serializing_if = "reading::is_zero", deserialize_with = "reading::event")]
    pub event: u32,
    /// CPU; older recordings do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
}

/// Samples with one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackRow {
    /// The owner's slot.
    pub slot: SlotId,
    /// Process.
    pub tgid: u32,
    /// Kernel addresses, innermost first.
    pub kernel: Vec<u64>,
    /// User addresses, innermost first.
    pub user: Vec<u64>,
    /// Samples.
    pub count: u64,
    /// Event that took them: its place in the plan.
    #[serde(default, skip_serializing_if = "reading::is_zero", deserialize_with = "reading::event")]
    pub event: u32,
}

/// A late timer that is long enough to be listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapRow {
    /// CPU.
    pub cpu: Cpu,
    /// When the timer came, in ns since counting started.
    pub at_ns: u64,
    /// How late.
    pub late_ns: u64,
    /// What the hypervisor took around it.
    pub stolen_ns: u64,
    /// Index of its class in [`pmu_common::gap`].
    pub class: u32,
    /// Did the tick show it, or the sampling clock?
    pub by_tick: bool,
    /// Did it come right where the kernel lets interrupts in? `None`: the recording does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_enable: Option<bool>,
    /// Interrupt handler that had the CPU when it was due, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<Handler>,
    /// Owner that ran, if it is one.
    pub slot: Option<SlotId>,
    /// Thread that ran.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// Its name.
    #[serde(with = "exact")]
    pub comm: Untrusted,
    /// Kernel stack at the late interrupt, innermost first.
    pub stack: Vec<u64>,
}

/// Where an address lies, in older recordings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Process, 0 for the kernel.
    pub tgid: u32,
    /// Address.
    pub address: u64,
    /// File that is mapped there.
    pub module: Option<Module>,
    /// Function and source line, or why they are not known.
    pub code: Result<Code, String>,
}
