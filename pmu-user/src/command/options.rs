//! Options for what is counted: the target and metrics.

use std::{ffi::OsString, path::PathBuf};

use super::parse;
use crate::plan::{
    metrics::{Depth, MetricsRequest, Multiplex},
    request::{Inherit, Request, Target, WantedMetrics},
};

/// Options that `run` and `stat` share.
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
    /// Count this cgroup and its descendants (repeatable): a path, the unique name of a unit, container or
    /// pod, or a name after path:, unit:, docker:, podman:, cri:, k8s:NAMESPACE/POD[/CONTAINER], slurm:JOB or
    /// pid:; or self
    #[arg(long, value_name = "NAME", value_parser = parse::cgroup, help_heading = "Target", conflicts_with = "all")]
    pub(super) cgroup: Vec<String>,
    /// Count everything (the default without a command)
    #[arg(short, long, help_heading = "Target")]
    all: bool,
    /// Run this command and count it, with its children; with another target, count that target while the
    /// command runs
    #[arg(trailing_var_arg = true, value_name = "COMMAND", help_heading = "Target")]
    pub(super) command: Vec<OsString>,
    /// Count on these CPUs only, e.g. 0-3,7
    #[arg(short = 'C', long, value_name = "LIST", value_parser = parse::cpus, help_heading = "Target")]
    pub(super) cpu: Option<parse::CpuList>,
    /// Do not count children of the target processes
    #[arg(short = 'i', long, help_heading = "Target")]
    no_inherit: bool,
    /// Run the command even if it cannot be measured, and report what was not measured and why
    #[arg(long, requires = "command", help_heading = "Target")]
    pub(super) if_possible: bool,
}

impl TargetArgs {
    /// Returns a request for this target, with defaults for everything else.
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

/// Returns the target that these options name: the one list that is not empty, or everything, or else the
/// command. With another target, the command only sets how long to count.
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

/// Default Top-Down level of several runs: deeper levels take further runs of the command.
const LEVEL_OF_RUNS: u32 = 2;

/// Metric options of `run`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct MetricArgs {
    /// Measure the whole Top-Down tree to this level [default: 2, and deeper below flagged nodes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=9), help_heading = "Metrics")]
    level: Option<u32>,
    /// Measure these metrics or groups of metrics as well; `pmbpf list metrics` lists them
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Metrics")]
    metrics: Vec<String>,
    /// Do not measure metrics of the CPU model
    #[arg(long, conflicts_with_all = ["level", "metrics"], help_heading = "Metrics")]
    no_metrics: bool,
    /// Count only what fits the counters without multiplexing
    #[arg(long, help_heading = "Metrics")]
    no_multiplex: bool,
    /// Run the command once per counter group instead of multiplexing; --level sets the depth [default: 2],
    /// --dry-run shows the number of runs
    #[arg(long, conflicts_with_all = ["no_metrics", "no_multiplex", "interval"], help_heading = "Metrics")]
    pub(super) runs: bool,
    /// Use the events and formulas of this CPU model, e.g. icelakex
    #[arg(long, value_name = "MODEL", help_heading = "Metrics")]
    pub(super) cpu_model: Option<String>,
    /// Use the events and formulas of this perfmon directory
    #[arg(long, value_name = "DIR", help_heading = "Metrics")]
    pub(super) perfmon_dir: Option<PathBuf>,
}

impl MetricArgs {
    /// Returns the wanted metrics. Explicitly requested ones are required.
    pub(super) fn wanted(&self) -> WantedMetrics {
        if self.no_metrics {
            return WantedMetrics::None;
        }
        let request = MetricsRequest {
            model: self.cpu_model.clone(),
            folder: self.perfmon_dir.clone(),
            depth: match (self.level, self.runs) {
                (Some(level), _) => Depth::Level(level),
                // A run's findings come too late for the other groups: each has had its run, or will have it.
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
