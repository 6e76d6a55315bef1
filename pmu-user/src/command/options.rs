//! Options that say what is counted: the target, and metrics.

use std::{ffi::OsString, path::PathBuf};

use super::parse;
use crate::plan::{
    metrics::{Depth, MetricsRequest, Multiplex},
    request::{Inherit, Request, Target, WantedMetrics},
};

/// Choices that `run` and `stat` share.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TargetArgs {
    /// Count these processes, with their children
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = parse::id, help_heading = "Target",
          conflicts_with_all = ["tid", "cgroup", "all"])]
    pid: Vec<u32>,
    /// Count these threads only
    #[arg(short, long, value_name = "TID", value_delimiter = ',', value_parser = parse::id, help_heading = "Target",
          conflicts_with_all = ["cgroup", "all"])]
    pub(super) tid: Vec<u32>,
    /// Count this cgroup and those below (repeatable): a path, or the name of a unit, container or pod that only one has; or with
    /// what it is in front: path:, unit:, docker:, podman:, cri:, k8s:NAMESPACE/POD[/CONTAINER], slurm:JOB, pid:, self
    #[arg(long, value_name = "NAME", value_parser = parse::cgroup, help_heading = "Target", conflicts_with = "all")]
    pub(super) cgroup: Vec<String>,
    /// Count everything (the default without a command)
    #[arg(short, long, help_heading = "Target")]
    all: bool,
    /// Run this command and count it, with its children; with another target, count that as long as the command runs
    #[arg(trailing_var_arg = true, value_name = "COMMAND", help_heading = "Target")]
    pub(super) command: Vec<OsString>,
    /// Count on these CPUs only, as 0-3,7
    #[arg(short = 'C', long, value_name = "LIST", value_parser = parse::cpus, help_heading = "Target")]
    pub(super) cpu: Option<parse::CpuList>,
    /// Do not count children of the target processes
    #[arg(short = 'i', long, help_heading = "Target")]
    no_inherit: bool,
    /// Run the command in any case; say what could not be measured, and why
    #[arg(long, requires = "command", help_heading = "Target")]
    pub(super) if_possible: bool,
}

impl TargetArgs {
    /// A request for this target, and for everything else as it is by default.
    pub(super) fn request(&self) -> Request {
        let Self { pid, tid, cgroup, all, command, .. } = self;
        Request {
            target: target((command, *all), pid, tid, cgroup),
            inherit: if self.no_inherit { Inherit::No } else { Inherit::Yes },
            cpus: self.cpu.as_ref().map(|list| list.0.clone()),
            ..Request::default()
        }
    }
}

/// The target that these options name: one list that is not empty, or everything, or else the command. Beside another target the
/// command says how long to count.
pub(super) fn target(
    (command, all): (&[OsString], bool),
    pid: &[u32],
    tid: &[u32],
    cgroup: &[String],
) -> Target {
    if !pid.is_empty() {
        Target::Processes(pid.to_vec())
    } else if !tid.is_empty() {
        Target::Threads(tid.to_vec())
    } else if !cgroup.is_empty() {
        Target::Cgroups(cgroup.to_vec())
    } else if !command.is_empty() && !all {
        Target::Command(command.to_vec())
    } else {
        Target::System
    }
}

/// How deep several runs measure unless told otherwise: below it a run more costs the user a run of the command.
const LEVEL_OF_RUNS: u32 = 2;

/// Options of `run`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct MetricArgs {
    /// Measure the Top-Down tree to this level everywhere [default: 2, and below what is flagged]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=9), help_heading = "Metrics")]
    level: Option<u32>,
    /// Measure these metrics, or groups of them, too; `pmbpf list metrics` names them
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Metrics")]
    metrics: Vec<String>,
    /// Measure no metrics of the CPU model
    #[arg(long, conflicts_with_all = ["level", "metrics"], help_heading = "Metrics")]
    no_metrics: bool,
    /// Leave out what does not fit the counters at once, so that nothing is scaled
    #[arg(long, help_heading = "Metrics")]
    no_multiplex: bool,
    /// Run the command once for each group of counters, so that nothing takes turns and nothing is scaled; --level says how
    /// deep [default: 2], --dry-run how many runs that takes
    #[arg(long, conflicts_with_all = ["no_metrics", "no_multiplex", "interval"], help_heading = "Metrics")]
    pub(super) runs: bool,
    /// Use the events and formulas of this CPU model, as icelakex
    #[arg(long, value_name = "MODEL", help_heading = "Metrics")]
    pub(super) cpu_model: Option<String>,
    /// Use the events and formulas of this perfmon directory
    #[arg(long, value_name = "DIR", help_heading = "Metrics")]
    pub(super) perfmon_dir: Option<PathBuf>,
}

impl MetricArgs {
    /// What is wanted. What was asked for in so many words must be had.
    pub(super) fn wanted(&self) -> WantedMetrics {
        if self.no_metrics {
            return WantedMetrics::None;
        }
        let request = MetricsRequest {
            model: self.cpu_model.clone(),
            folder: self.perfmon_dir.clone(),
            depth: match (self.level, self.runs) {
                (Some(level), _) => Depth::Level(level),
                // What a run finds comes too late for the other groups: each has had its run, or will have it.
                (None, true) => Depth::Level(LEVEL_OF_RUNS),
                (None, false) => Depth::DrillDown,
            },
            names: self.metrics.clone(),
            multiplex: match (self.runs, self.no_multiplex) {
                (true, _) => Multiplex::Runs,
                (_, true) => Multiplex::No,
                _ => Multiplex::Yes,
            },
        };
        if request == MetricsRequest::default() {
            WantedMetrics::IfPossible(request)
        } else {
            WantedMetrics::Required(request)
        }
    }
}
