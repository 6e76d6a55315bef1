//! What was asked for, before it is known whether it can be had.

use std::{ffi::OsString, time::Duration};

use pmu_common::config::{KEEPS_SLOT, OWNER_IS_COMM, OWNER_IS_EXE};
use serde::{Deserialize, Serialize};

use super::metrics::MetricsRequest;
use crate::machine::cpu::Cpu;

/// Whose time is counted.
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
    /// The same, where a name may mean none yet.
    CgroupsToCome(Vec<String>),
    /// Every cgroup of the host.
    AllCgroups,
    /// A command, started for the purpose.
    Command(Vec<OsString>),
}

/// What an owner of counts is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// A process.
    Process,
    /// A thread.
    Thread,
    /// Processes of one name (`comm`), each for as long as it has it.
    Comm,
    /// Processes whose executable files have one name, which is whole where `comm` ends after 15 bytes or was chosen.
    Exe,
    /// A cgroup of the v2 hierarchy.
    Cgroup,
}

impl By {
    /// Whether owners are names, as programs have it.
    pub(super) const fn names(self) -> u32 {
        match self {
            Self::Comm => OWNER_IS_COMM,
            Self::Exe => OWNER_IS_EXE,
            Self::Process | Self::Thread | Self::Cgroup => KEEPS_SLOT,
        }
    }
}

/// Do children of a target process count?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inherit {
    /// Its children and theirs, those that exist already included.
    Yes,
    /// Only the process itself.
    No,
}

/// Do cgroups below a target cgroup count?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Descend {
    /// The whole subtree.
    Yes,
    /// Only the cgroup itself.
    No,
}

/// Do samples carry stacks?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stacks {
    /// Kernel and user stack.
    Yes,
    /// Only the address that was hit.
    No,
}

/// Is pressure of cgroups in every drain, beside the host's?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupPressure {
    /// It is.
    #[default]
    Yes,
    /// It is not: another one reads it.
    No,
}

/// Does time off the CPU count, by what tasks wait for?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffCpu {
    /// It does.
    Yes,
    /// It does not.
    #[default]
    No,
}

impl OffCpu {
    /// Is it not counted?
    pub fn is_no(&self) -> bool {
        *self == Self::No
    }
}

/// Are interrupt handlers counted, and whom they interrupt?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interrupts {
    /// They are.
    Yes,
    /// They are not.
    #[default]
    No,
}

impl Interrupts {
    /// Are they not counted?
    pub fn is_no(&self) -> bool {
        *self == Self::No
    }
}

/// Are waits for a CPU charged to whoever had it?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Culprits {
    /// They are.
    #[default]
    Yes,
    /// They are not: what that costs can be measured.
    No,
}

impl Culprits {
    /// Are they charged?
    pub fn is_yes(&self) -> bool {
        *self == Self::Yes
    }
}

/// How user stacks are unwound
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
    /// By frame pointers?
    pub fn is_fp(&self) -> bool {
        *self == Self::Fp
    }
}

/// May samples come more often than the kernel lets them? It will throttle the event, and says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Such a period is refused.
    No,
    /// It is taken.
    Yes,
}

/// How often to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Not at all.
    Off,
    /// Every so many counts of the event.
    Period(u64),
    /// So many times a second and CPU, converted once to a period.
    Frequency(u32),
    /// [`super::FREQUENCY`] times a second, and, as perf does, at every hit of a tracepoint.
    Default,
}

/// Metrics that are counted for every owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedMetrics {
    /// None.
    None,
    /// These, or none where they cannot be had.
    IfPossible(MetricsRequest),
    /// These, or it is an error.
    Required(MetricsRequest),
}

/// Everything `pmbpf run` was told.
#[derive(Clone, Debug)]
pub struct Request {
    /// Whose time.
    pub target: Target,
    /// Owners, where the target does not decide it.
    pub by: Option<By>,
    /// Children of processes.
    pub inherit: Inherit,
    /// Cgroups below.
    pub descend: Descend,
    /// CPUs; all if none are named.
    pub cpus: Option<Vec<Cpu>>,
    /// Events to sample on, in perf's event syntax; a default if there are none.
    pub events: Vec<String>,
    /// A predefined configuration instead of events.
    pub profile: Option<String>,
    /// Periods below the safe limit.
    pub force: Force,
    /// How often.
    pub rate: Rate,
    /// Metrics.
    pub metrics: WantedMetrics,
    /// Stacks.
    pub stacks: Stacks,
    /// How those of user mode are unwound.
    pub unwind: Unwind,
    /// Who had the CPU.
    pub culprits: Culprits,
    /// Time off the CPU.
    pub off_cpu: OffCpu,
    /// Interrupt handlers.
    pub interrupts: Interrupts,
    /// Pressure of cgroups.
    pub cgroup_pressure: CgroupPressure,
    /// Share of the CPUs (0 to 1) that counting may cost before work is stopped.
    pub budget: Option<f64>,
    /// Report every so often.
    pub interval: Option<Duration>,
    /// The longest time between two drains.
    pub tick_max: Duration,
    /// Stop after.
    pub duration: Option<Duration>,
    /// Owners that can be told apart at a time.
    pub owners_max: Option<u32>,
    /// Shortest gap that is listed.
    pub gap_min: Duration,
}

/// Everything, as `pmbpf run` without options.
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
