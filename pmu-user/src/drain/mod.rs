//! What one tick read, as it was read: the seam between the privileged half and the pure one.
//!
//! Counts are as the kernel side holds them, growing and wrapping; a row that has not changed since the drain before
//! is left out. Samples by code or stack, and gaps, belong to the tick alone. [`recording`] keeps drains, never metrics.

pub mod code;
mod ending;
mod id;
pub mod io;
mod owner;
pub mod reading;
pub mod recording;
pub mod slice;
pub mod tally;
pub mod unwinding;
pub mod words;

use std::time::Duration;

use pmu_common::{
    count::Count,
    cpu::{CpuCount, CpuSamples},
    sample::SampleCount,
};
use serde::{Deserialize, Serialize};

pub use self::code::{At, Code, CodeRow, CodeStackRow, Line, Located, Module, Name, Names, SourceRow, Word};
pub use self::ending::{Ending, Stopped, Workload};
pub use self::id::Id;
pub use self::owner::{Owner, OwnerKey, OwnerRow, SlotId};
use crate::{
    machine::{
        Machine,
        cpu::{Cpu, Times},
    },
    plan::Plan,
    untrusted::{Untrusted, exact},
};

/// Reason of a loss: how many targets used CPU time, or read from block devices, as the kernel accounts it, while nothing of theirs
/// was seen.
pub const TARGET_UNSEEN: &str = "target_unseen";

/// How long the kernel measures the programs unless told otherwise: measuring costs more than some of them do.
pub const COST_WINDOW_NS: u64 = 1_000_000_000;

/// What is known before the first drain. A recording begins with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Header {
    /// pmbpf's version.
    pub version: String,
    /// When counting started, in ns since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// The same instant on CLOCK_MONOTONIC, in ns.
    pub started_ns: u64,
    /// The host.
    pub machine: Machine,
    /// What was opened.
    pub plan: Plan,
    /// How programs reach kernel memory: `tp_btf` or `raw_tp`.
    pub attach: String,
    /// Better ways to reach it, and why they are not used.
    #[serde(default)]
    pub attach_refused: Vec<Absent>,
    /// Whether the kernel tells how much the hypervisor took.
    pub knows_steal: bool,
    /// What cannot be measured here, and why.
    pub missing: Vec<Absent>,
}

/// Something that cannot be measured here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What one tick read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Drain {
    /// When, in ns since counting started.
    pub at_ns: u64,
    /// Regular ticks so far. A drain between two of them came early, because slots ran short.
    pub ticks: u64,
    /// Rows of the CPUs that count.
    pub cpus: Vec<CpuRow>,
    /// Where the kernel says their time went, since boot; only in the first drain and the last.
    #[serde(default)]
    pub times: Vec<(Cpu, Times)>,
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
    /// What counters said about owners, by slice, since the last drain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<slice::SliceRow>,
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
    /// What the programs cost.
    pub programs: Vec<ProgramRow>,
    /// What this process cost so far.
    pub cost: Cost,
    /// What user space could not keep, by reason, so far.
    pub losses: Vec<(String, u64)>,
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
    #[serde(default, skip_serializing_if = "is_zero", deserialize_with = "reading::event")]
    pub event: u32,
    /// CPU; older recordings do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
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
    #[serde(default, skip_serializing_if = "is_zero", deserialize_with = "reading::event")]
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

/// What one program cost while the kernel measured it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRow {
    /// Program.
    pub name: String,
    /// Runs that were measured, so far.
    pub measured_runs: u64,
    /// Time of those, in ns.
    pub measured_ns: u64,
    /// Runs in all, so far, where they can be counted otherwise.
    pub runs: Option<u64>,
}

/// What this process cost, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time of this process, in ns; the programs' time is not in it.
    pub cpu_ns: u64,
    /// Resident memory now.
    pub resident_bytes: u64,
    /// Resident memory at its largest.
    pub resident_max_bytes: u64,
    /// Kernel memory of the maps.
    pub map_bytes: u64,
    /// From the start of the process to the start of counting.
    pub startup_ns: u64,
    /// Drains so far.
    pub drains: u64,
    /// Time that they took.
    pub drains_ns: u64,
    /// Time that the longest took.
    pub drain_max_ns: u64,
}

impl Cost {
    /// Adds a drain that took so long.
    pub fn drained(&mut self, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.drains += 1;
        self.drains_ns += took_ns;
        self.drain_max_ns = self.drain_max_ns.max(took_ns);
    }
}
