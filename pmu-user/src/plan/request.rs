//! Request of a run, before it is known whether it can be met.

use std::{ffi::OsString, time::Duration};

use pmu_common::config::{KEEPS_SLOT, OWNER_IS_COMM, OWNER_IS_EXE};
use serde::{Deserialize, Serialize};

use super::metrics::MetricsRequest;
use crate::machine::cpu::Cpu;

/// Target that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything on the chosen CPUs.
    System,
    /// Processes by id.
    Processes(Vec<u32>),
    /// Threads by id.
    Threads(Vec<u32>),
    /// Cgroups by name or path.
    Cgroups(Vec<String>),
    /// Cgroups by name or path, which may not exist yet.
    CgroupsToCome(Vec<String>),
    /// Every cgroup of the host.
    AllCgroups,
    /// A command that is started for the run.
    Command(Vec<OsString>),
}

/// Kind of owner of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Process
    Process,
    /// Thread
    Thread,
    /// All processes with the same comm, each while it has that name
    Comm,
    /// All processes that run an executable with the same file name (comm is cut at 15 bytes and can be changed)
    Exe,
    /// Cgroup of the v2 hierarchy
    Cgroup,
}

impl By {
    /// Returns the setting of the programs for owners that are names.
    pub(super) const fn names(self) -> u32 {
        match self {
            Self::Comm => OWNER_IS_COMM,
            Self::Exe => OWNER_IS_EXE,
            Self::Process | Self::Thread | Self::Cgroup => KEEPS_SLOT,
        }
    }
}

/// Whether children of a target process count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inherit {
    /// Children at any depth, including those that exist already.
    Yes,
    /// Only the process itself.
    No,
}

/// Whether cgroups below a target cgroup count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Descend {
    /// The whole subtree.
    Yes,
    /// Only the cgroup itself.
    No,
}

/// Whether samples carry stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stacks {
    /// Kernel and user stack.
    Yes,
    /// Only the sampled address.
    No,
}

/// Whether every drain has the pressure of cgroups, in addition to the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupPressure {
    /// Pressure of cgroups is read.
    #[default]
    Yes,
    /// Pressure of cgroups is not read, since another reader has it.
    No,
}

/// Whether time off the CPU is counted, by what tasks wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffCpu {
    /// Time off the CPU is counted.
    Yes,
    /// Time off the CPU is not counted.
    #[default]
    No,
}

impl OffCpu {
    /// Returns whether it is not counted.
    pub fn is_no(&self) -> bool {
        *self == Self::No
    }
}

/// Whether interrupt handlers are counted, with the tasks that they interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interrupts {
    /// Interrupt handlers are counted.
    Yes,
    /// Interrupt handlers are not counted.
    #[default]
    No,
}

impl Interrupts {
    /// Returns whether they are not counted.
    pub fn is_no(&self) -> bool {
        *self == Self::No
    }
}

/// Whether waits for a CPU are charged to the owner that had it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Culprits {
    /// Waits are charged.
    #[default]
    Yes,
    /// Waits are not charged, so that the cost of charging can be measured.
    No,
}

impl Culprits {
    /// Returns whether waits are charged.
    pub fn is_yes(&self) -> bool {
        *self == Self::Yes
    }
}

/// Method of unwinding user stacks
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Unwind {
    /// By the kernel, which follows frame pointers
    #[default]
    Fp,
    /// By the call frame information of .eh_frame and .debug_frame, from copies of at most 16 KiB of the stack
    Dwarf,
}

impl Unwind {
    /// Returns whether stacks are unwound by frame pointers.
    pub fn is_fp(&self) -> bool {
        *self == Self::Fp
    }
}

/// Whether samples may come more often than the kernel allows. The kernel then throttles the event and
/// reports that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Such a period is refused.
    No,
    /// Such a period is accepted.
    Yes,
}

/// Rate at which samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// No samples are taken.
    Off,
    /// One sample per this many counts of the event.
    Period(u64),
    /// Samples per second and CPU, converted once to a period.
    Frequency(u32),
    /// [`super::FREQUENCY`] samples per second, or, as in perf, one at every hit of a tracepoint.
    Default,
}

/// Metrics that are counted for every owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedMetrics {
    /// No metrics at all.
    None,
    /// Metrics that are counted where they are available.
    IfPossible(MetricsRequest),
    /// Metrics that are required: a missing one is an error.
    Required(MetricsRequest),
}

/// Complete request of `pmbpf run`.
#[derive(Clone, Debug)]
pub struct Request {
    /// Target that is counted.
    pub target: Target,
    /// Kind of owner, where the target does not decide it.
    pub by: Option<By>,
    /// Inheritance by children of processes.
    pub inherit: Inherit,
    /// Treatment of cgroups below the target.
    pub descend: Descend,
    /// CPUs that count; all if `None`.
    pub cpus: Option<Vec<Cpu>>,
    /// Events to sample on, in perf's event syntax; a default if empty.
    pub events: Vec<String>,
    /// Predefined configuration instead of events.
    pub profile: Option<String>,
    /// Whether periods below the safe limit are accepted.
    pub force: Force,
    /// Rate at which samples are taken.
    pub rate: Rate,
    /// Metrics that are counted.
    pub metrics: WantedMetrics,
    /// Whether samples carry stacks.
    pub stacks: Stacks,
    /// Method of unwinding user stacks.
    pub unwind: Unwind,
    /// Whether waits for a CPU are charged.
    pub culprits: Culprits,
    /// Whether time off the CPU is counted.
    pub off_cpu: OffCpu,
    /// Whether interrupt handlers are counted.
    pub interrupts: Interrupts,
    /// Whether the pressure of cgroups is read.
    pub cgroup_pressure: CgroupPressure,
    /// Share of the CPUs (0 to 1) that counting may cost before work is stopped.
    pub budget: Option<f64>,
    /// Interval between two reports.
    pub interval: Option<Duration>,
    /// Maximum time between two drains.
    pub tick_max: Duration,
    /// Duration after which counting stops.
    pub duration: Option<Duration>,
    /// Owners that can be distinguished at a time.
    pub owners_max: Option<u32>,
    /// Shortest gap that is listed.
    pub gap_min: Duration,
}

/// Request for everything, as `pmbpf run` without options.
impl Default for Request {
    fn default() -> Self {
        Self {
            target: Target::System,
            by: None,
            inherit: Inherit::Yes,
            descend: Descend::Yes,
            cpus: None,
            events: Vec::new(),
            profile: None,
            force: Force::No,
            rate: Rate::Default,
            metrics: WantedMetrics::IfPossible(MetricsRequest::default()),
            stacks: Stacks::No,
            unwind: Unwind::Fp,
            culprits: Culprits::Yes,
            off_cpu: OffCpu::No,
            interrupts: Interrupts::No,
            cgroup_pressure: CgroupPressure::Yes,
            budget: None,
            interval: None,
            tick_max: super::TICK,
            duration: None,
            owners_max: None,
            gap_min: Duration::from_micros(300),
        }
    }
}
