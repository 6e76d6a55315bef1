//! `pmbpf stat`: counts events on plain counters, as perf stat does, without a BPF program. A run of that source alone.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    begin::read_machine,
    examples,
    failure::{Usage, of_command},
    gate::Gate,
    live::{Common, Live},
    options::TargetArgs,
    pipeline::check_counts,
    sources::Sources,
};
use crate::{
    bpf::Log,
    machine::pmu::catalog::Catalog,
    plan::{
        count::CountPlan,
        metrics::MetricsRequest,
        request::{Request, Target, WantedMetrics},
    },
    session::{Measure, launch},
};

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::STAT)]
pub(super) struct Args {
    #[command(flatten)]
    target: TargetArgs,
    /// Events to count, in perf's notation (repeatable); by default those of perf stat that this host has
    #[arg(short, long, value_name = "LIST", help_heading = "Events")]
    event: Vec<String>,
    /// Run the command N times and report the mean
    #[arg(short, long, value_name = "N", help_heading = "Events", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: Option<u32>,
    /// Use the events of this CPU model, as icelakex
    #[arg(long, value_name = "MODEL", help_heading = "Events")]
    cpu_model: Option<String>,
    /// Use the events of this perfmon directory
    #[arg(long, value_name = "DIR", help_heading = "Events")]
    perfmon_dir: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
    /// What this command was called as an option of `run`
    #[arg(long, hide = true)]
    pub(super) count: bool,
}

/// Counts, and returns the exit code.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    of_command(&args.target.command, collect(args, Instant::now()))
}

fn collect(args: &Args, launched: Instant) -> anyhow::Result<u8> {
    let (common, command, root) = (&args.common, &args.target.command, Path::new("/"));
    let inherited = common.begin.inherited(root, common.talks(command) && !common.dry_run, &common.keep)?;
    let machine = read_machine(root)?;
    launch::check(command)?;
    let request = args.request();
    args.check(&request.target)?;
    let plan = CountPlan::new(&request, &args.event, &machine, &Catalog::read(root)?, root)?;
    let plan = CountPlan { runs: args.repeat.unwrap_or(1), ..plan };
    check_counts(&plan)?;
    let live = Live {
        common,
        programs: None,
        command,
        inherited: &inherited,
        cgroups: &args.target.cgroup,
        measure: Measure::Window,
        log: Log::Off,
        folder: None,
        launched,
    };
    live.execute(Sources { machine, tasks: None, io: None, counts: Some((plan, 1)) })
}

impl Args {
    fn request(&self) -> Request {
        let tables = MetricsRequest {
            model: self.cpu_model.clone(),
            folder: self.perfmon_dir.clone(),
            ..MetricsRequest::default()
        };
        Request {
            metrics: WantedMetrics::IfPossible(tables),
            interval: self.common.interval,
            duration: self.common.duration,
            ..self.target.request()
        }
    }

    /// What options mean nothing beside each other, and what to do instead.
    fn check(&self, target: &Target) -> Result<(), Usage> {
        let of_tasks = matches!(target, Target::Command(_) | Target::Processes(_) | Target::Threads(_));
        let repeats = self.repeat.is_some_and(|runs| runs > 1);
        let wrong = [
            (
                of_tasks && self.target.cpu.is_some(),
                "a task is counted wherever it runs, and everything on a CPU: leave out -C or the task",
            ),
            (
                repeats && self.target.command.is_empty(),
                "--repeat runs a command several times: give one after `--`",
            ),
            (
                repeats && self.common.interval.is_some(),
                "--repeat reports the mean of whole runs: leave out --interval",
            ),
            (
                repeats && self.common.duration.is_some(),
                "--repeat runs the command to its end: leave out --duration",
            ),
            (
                self.common.fail_on.iter().any(|gate| *gate != Gate::Unsupported),
                "counts without owners know one condition for --fail-on: unsupported",
            ),
        ];
        match wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, why)) => Err(Usage((*why).to_owned())),
            None => Ok(()),
        }
    }
}
