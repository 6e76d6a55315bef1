//! What one tick read, as it was read: the seam between the privileged half and the pure one.
//!
//! Counts are as the kernel side holds them, growing and wrapping; a row that has not changed since the drain before
//! is left out. Samples by code or stack, and gaps, belong to the tick alone. [`recording`] keeps drains, never metrics.

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

/// Reason of a loss: how many targets used CPU time, or read from block devices, as the kernel accounts it, while nothing of theirs
/// was seen.
pub const TARGET_UNSEEN: &str = "target_unseen";

/// How long the kernel measures the programs unless told otherwise: measuring costs more than some of them do.
pub const COST_WINDOW_NS: u64 = 1_000_000_000;

/// What is known before the first drain, with a part for each source of the run: at least one. A recording begins with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Header {
    /// The version of pmbpf that counted.
    pub version: String,
    /// When counting started, in ns since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// The host.
    pub machine: Machine,
    /// What of any source cannot be measured here, and why.
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
    /// Does the first drain hold what had been counted before ([`checkpoint`]), so that counts begin with it? A recording that began
    /// while counting went on has one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begins_midway: bool,
}

impl Header {
    /// Does the run have no source at all?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tasks.is_none() && self.io.is_none() && self.counts.is_none()
    }
}

/// What one tick read, with a part for each source that was drained.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Drain {
    /// Of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TasksDrain>,
    /// Of I/O; not in a drain that came early, because slots of tasks ran short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<IoDrain>,
    /// Counts without owners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<CountsDrain>,
    /// Whose cgroups are that the drain tells of, if that was not told before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupName>,
    /// Cgroups that became targets since the last drain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub followed: Vec<Followed>,
}

/// A cgroup that became a target while counting went on, because a name came to mean it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// Which.
    pub cgroup: Cgroup,
    /// When, in ns since counting started.
    pub at_ns: u64,
    /// How long it had been there by then, in ns, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_ns: Option<u64>,
}

impl Drain {
    /// When it was read, in ns since counting started.
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
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
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
    /// Of the runs that were measured, those in which nothing else seems to have had the CPU, and their time in ns. A run's time is taken
    /// by the clock: an interrupt in it, or a hypervisor that gives the CPU to another guest, is no cost of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undisturbed: Option<(u64, u64)>,
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
