//! `pmbpf top`: a run, or a recording, on a screen that keys steer.

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

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::TOP)]
pub(super) struct Args {
    /// A recording to look at, which `run` or `io` made with -o FILE; without one this host is measured
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
    /// Count this cgroup and those below: a path, or a unique name (repeatable)
    #[arg(long, value_name = "NAME", value_parser = parse::cgroup, help_heading = "Target", conflicts_with_all = ["all", "file"])]
    cgroup: Vec<String>,
    /// Count everything (the default)
    #[arg(short, long, help_heading = "Target", conflicts_with = "file")]
    all: bool,
    /// Whose row a count goes to; by default processes, or cgroups if cgroups or everything are the target
    #[arg(long, value_name = "OWNER", help_heading = "Target", conflicts_with = "file")]
    by: Option<By>,
    /// A row for each process, instead of one for all processes of a program
    #[arg(long, help_heading = "Rows")]
    per_process: bool,
    /// Length of an interval; of a recording at least its own [default: 1s]
    #[arg(short = 'I', long, value_name = "TIME", value_parser = parse::interval, allow_negative_numbers = true, help_heading = "Time")]
    interval: Option<Duration>,
    /// Stop after this time: seconds, or as 500ms or 2m
    #[arg(short, long, value_name = "TIME", value_parser = parse::duration, allow_negative_numbers = true, help_heading = "Time", conflicts_with = "file")]
    duration: Option<Duration>,
    /// Measure I/O, too: what the same owners did to block devices and networks, and what uncore PMUs count
    #[arg(long, help_heading = "I/O", conflicts_with = "file")]
    io: bool,
    #[command(flatten)]
    kernel: KernelArgs,
}

impl Args {
    /// What is shown of each interval.
    fn filter(&self) -> Filter {
        let processes = if self.per_process { Processes::OneByOne } else { Processes::Together };
        Filter { processes, ..Filter::default() }
    }
}

/// Shows it, and returns the exit code.
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
