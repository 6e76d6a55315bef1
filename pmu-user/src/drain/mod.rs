//! Unprocessed readings of one tick: the seam between the privileged half and the pure one.
//!
//! Counts have the kernel side's form: they grow and wrap. A row that has not changed since the previous
//! drain is omitted. Samples by code or stack, and gaps, belong to the tick alone. [`recording`] keeps
//! drains, never metrics.

pub mod checkpoint;
pub mod code;
pub mod counts;
mod culprit;
mod ending;
mod interrupt;
pub mod io;
mod located;
pub mod origin;
mod owner;
pub mod reading;
pub mod recording;
mod shed;
pub mod tasks;
pub mod unwinding;
pub mod words;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::code::{At, Code, Cut, Line, Loaded, Module, Name, SourceRow, Word, in_time};
pub use self::counts::{CountsDrain, CountsHeader};
pub use self::culprit::{Culprit, CulpritRow};
pub use self::ending::{Ending, Stopped, Usage, Workload};
pub use self::interrupt::{Handler, HandlerRow, InterruptedRow, SpareInterruptsRow};
use self::io::{IoDrain, IoHeader};
pub use self::located::{CodeRow, CodeStackRow, Located, Names, OffCpuStackRow, OffCpuTime};
pub use self::owner::{CgroupName, Id, Owner, OwnerKey, OwnerRow, SlotId};
pub use self::shed::{Shed, Work};
pub use self::tasks::{
    CountRow, CpuRow, GapRow, HotRow, LimitsRow, OffCpuRow, Place, PressureRow, RareRow, StackRow,
    TasksDrain, TasksHeader, ThrottlingRow, ToldWaits,
};
use crate::machine::{Machine, cgroup::Cgroup, duration_ns};

/// Reason of a loss. Counts the targets that used CPU time, or read from block devices, by the kernel's
/// accounting, although nothing of theirs was seen.
pub const TARGET_UNSEEN: &str = "target_unseen";

/// Default time for which the kernel measures the programs. Measuring costs more than some of them do.
pub const COST_WINDOW_NS: u64 = 1_000_000_000;

/// Facts that are known before the first drain, with a part for each source of the run, at least one. A
/// recording begins with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Header {
    /// Version of pmbpf that counted.
    pub version: String,
    /// Start of counting, in ns since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// The measured host.
    pub machine: Machine,
    /// Parts of any source that cannot be measured here, with the reason.
    #[serde(default)]
    pub missing: Vec<Absent>,
    /// Tasks: switches, samples, timers and counters of the cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TasksHeader>,
    /// I/O: uncore PMUs, block requests, packets, resctrl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<IoHeader>,
    /// Counts without owners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<CountsHeader>,
    /// Whether the first drain holds the earlier counts ([`checkpoint`]), with which counting begins. This is
    /// so in a recording that began during counting.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begins_midway: bool,
}

impl Header {
    /// Returns whether the run has no source.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tasks.is_none() && self.io.is_none() && self.counts.is_none()
    }
}

/// Readings of one tick, with a part for each source that was drained.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Drain {
    /// Readings of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TasksDrain>,
    /// Readings of I/O. They are absent from a drain that came early because slots of tasks ran short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<IoDrain>,
    /// Counts without owners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<CountsDrain>,
    /// Identities of the cgroups in the drain that were not recorded before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupName>,
    /// Cgroups that became targets since the last drain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub followed: Vec<Followed>,
}

/// A cgroup that became a target during counting, because a name came to match it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// The new target.
    pub cgroup: Cgroup,
    /// Time at which it became a target, in ns since counting started.
    pub at_ns: u64,
    /// Age of the cgroup at that time, in ns, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_ns: Option<u64>,
}

impl Drain {
    /// Returns the time of the reading, in ns since counting started.
    #[must_use]
    pub fn at_ns(&self) -> u64 {
        let tasks = self.tasks.as_ref().map_or(0, |tasks| tasks.at_ns);
        let io = self.io.as_ref().map_or(0, |io| io.at_ns);
        tasks.max(io).max(self.counts.as_ref().map_or(0, |counts| duration_ns(counts.at)))
    }
}

impl From<TasksDrain> for Drain {
    fn from(tasks: TasksDrain) -> Self {
        Self { tasks: Some(tasks), ..Self::default() }
    }
}

impl From<IoDrain> for Drain {
    fn from(io: IoDrain) -> Self {
        Self { io: Some(io), ..Self::default() }
    }
}

/// Something that cannot be measured here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Name of what is missing.
    pub what: String,
    /// Reason why it is missing.
    pub why: String,
}

/// Cost of one program while the kernel measured it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRow {
    /// Name of the program.
    pub name: String,
    /// Measured runs so far.
    pub measured_runs: u64,
    /// Time of the measured runs, in ns.
    pub measured_ns: u64,
    /// Total runs so far, where they can be counted otherwise.
    pub runs: Option<u64>,
    /// Measured runs in which nothing else seems to have had the CPU, and their time in ns. The clock times a
    /// run. An interrupt in it, or a hypervisor that gives the CPU to another guest, is not a cost of the
    /// program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undisturbed: Option<(u64, u64)>,
}

/// Cost of this process so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time of this process, in ns, without the time of the programs.
    pub cpu_ns: u64,
    /// Resident memory now.
    pub resident_bytes: u64,
    /// Peak resident memory.
    pub resident_max_bytes: u64,
    /// Kernel memory of the maps.
    pub map_bytes: u64,
    /// Time from the start of the process to the start of counting.
    pub startup_ns: u64,
    /// Number of drains so far.
    pub drains: u64,
    /// Time of all drains.
    pub drains_ns: u64,
    /// Time of the longest drain.
    pub drain_max_ns: u64,
}

impl Cost {
    /// Adds a drain that took this long.
    pub fn drained(&mut self, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.drains += 1;
        self.drains_ns += took_ns;
        self.drain_max_ns = self.drain_max_ns.max(took_ns);
    }
}
