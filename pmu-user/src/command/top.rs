//! `pmbpf top`: a run or a recording, on an interactive screen.

mod events;
mod live;
mod recorded;
mod screen;

use std::{io::IsTerminal as _, path::PathBuf, time::Duration};

use super::{examples, failure::Usage, live::KernelArgs, parse};
use crate::{
    metric::filter::{Filter, Processes},
    plan::request::By,
};

/// Arguments of `pmbpf top`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::TOP)]
pub(super) struct Args {
    /// Recording to show, made by `run` or `io` with -o FILE; without one, this host is measured
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Count these processes, with their children
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = parse::id, help_heading = "Target",
          conflicts_with_all = ["tid", "cgroup", "all", "file"])]
    pid: Vec<u32>,
    /// Count these threads only
    #[arg(short, long, value_name = "TID", value_delimiter = ',', value_parser = parse::id, help_heading = "Target",
          conflicts_with_all = ["cgroup", "all", "file"])]
    tid: Vec<u32>,
    /// Count this cgroup and its descendants: a path, or a unique name (repeatable)
    #[arg(long, value_name = "NAME", value_parser = parse::cgroup, help_heading = "Target", conflicts_with_all = ["all", "file"])]
    cgroup: Vec<String>,
    /// Count everything (the default)
    #[arg(short, long, help_heading = "Target", conflicts_with = "file")]
    all: bool,
    /// Aggregate by process, thread, comm, executable or cgroup [default: process; cgroup if cgroups or
    /// everything are the target]
    #[arg(long, value_name = "OWNER", help_heading = "Target", conflicts_with = "file")]
    by: Option<By>,
    /// Show one row per process, instead of one for all processes of a program
    #[arg(long, help_heading = "Rows")]
    per_process: bool,
    /// Set the interval; for a recording, at least its own [default: 1s; for a recording, its own]
    #[arg(short = 'I', long, value_name = "TIME", value_parser = parse::interval, allow_negative_numbers = true, help_heading = "Time")]
    interval: Option<Duration>,
    /// Stop after this time, in seconds or with a unit, e.g. 500ms or 2m
    #[arg(short, long, value_name = "TIME", value_parser = parse::duration, allow_negative_numbers = true, help_heading = "Time", conflicts_with = "file")]
    duration: Option<Duration>,
    /// Measure I/O as well: block devices and networks by the same owners, and uncore PMUs
    #[arg(long, help_heading = "I/O", conflicts_with = "file")]
    io: bool,
    #[command(flatten)]
    kernel: KernelArgs,
}

impl Args {
    /// Returns the filter for each interval.
    fn filter(&self) -> Filter {
        let processes = if self.per_process { Processes::OneByOne } else { Processes::Together };
        Filter { processes, ..Filter::default() }
    }
}

/// Shows the run or the recording, and returns the exit code.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let instead = match &args.file {
            Some(_) => "`pmbpf report FILE` writes the same numbers",
            None => "`pmbpf run -I 1s` writes the same numbers",
        };
        return Err(Usage(format!("top needs a terminal for input and output: {instead} without one")).into());
    }
    match &args.file {
        Some(file) => recorded::show(args, file),
        None => live::show(args),
    }
}
