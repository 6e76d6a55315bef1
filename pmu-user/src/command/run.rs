//! `pmbpf run`: counts, samples, reports.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    begin::{Begin, read_machine, say_which},
    count, dry_run, examples,
    failure::{Usage, of_command},
    gate::{self, Gate},
    hdr_log::HdrLogArgs,
    metrics::MetricArgs,
    output::{self, ReaderGone, Stream},
    parse,
    pipeline::{self, Pipeline},
    recorder::Keep,
    runs,
};
use crate::{
    bpf::{Attach, Log, Options},
    drain::{Drain, Stopped, Workload},
    machine::{Machine, pmu::catalog::Catalog},
    perf::self_test,
    plan::{
        self, Plan,
        request::{By, Descend, Force, Inherit, Rate, Request, Stacks, Target, Unwind},
    },
    session::{
        self, Measure, Session, Signals,
        confine::{Duty, confine},
        launch::{self, Inherited, Launched},
        runtime,
    },
    view::Format,
};

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::RUN)]
pub(super) struct Args {
    /// Count these processes, with their children
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = parse::id, help_heading = "Target",
          conflicts_with_all = ["tid", "cgroup", "all_cgroups", "all", "command"])]
    pub(super) pid: Vec<u32>,
    /// Count these threads only
    #[arg(short, long, value_name = "TID", value_delimiter = ',', value_parser = parse::id, help_heading = "Target",
          conflicts_with_all = ["cgroup", "all_cgroups", "all", "command"])]
    pub(super) tid: Vec<u32>,
    /// Count this cgroup and those below: a path, or a unique name (repeatable)
    #[arg(long, value_name = "NAME", help_heading = "Target", conflicts_with_all = ["all_cgroups", "all", "command"])]
    cgroup: Vec<String>,
    /// Count every cgroup
    #[arg(long, help_heading = "Target", conflicts_with_all = ["all", "command"])]
    pub(super) all_cgroups: bool,
    /// Count everything (the default); with a command, as long as that runs
    #[arg(short, long, help_heading = "Target")]
    all: bool,
    /// Run this command and count it, with its children
    #[arg(trailing_var_arg = true, value_name = "COMMAND", help_heading = "Target")]
    pub(super) command: Vec<OsString>,
    /// Count on these CPUs only, as 0-3,7
    #[arg(short = 'C', long, value_name = "LIST", value_parser = parse::cpus, help_heading = "Target")]
    pub(super) cpu: Option<parse::CpuList>,
    /// Do not count children of the target processes
    #[arg(long, help_heading = "Target")]
    no_inherit: bool,
    /// Do not count cgroups below the target cgroups
    #[arg(long, help_heading = "Target")]
    pub(super) no_descend: bool,
    /// Whose row a count goes to; by default processes, or cgroups if cgroups are the target
    #[arg(long, value_name = "OWNER", help_heading = "Target")]
    pub(super) by: Option<By>,

    /// Events to sample on, in perf's notation (repeatable); by default cycles, or cpu-clock where there is no PMU. With
    /// --count, events to count
    #[arg(short, long, value_name = "LIST", help_heading = "Events")]
    pub(super) event: Vec<String>,
    /// Only count, as perf stat does: an event a line, without samples, owners and BPF programs
    #[arg(long, help_heading = "Events")]
    count: bool,
    /// With --count, run the command N times and report the mean
    #[arg(short, long, value_name = "N", requires = "count", help_heading = "Events",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) repeat: Option<u32>,
    /// Sample what a predefined configuration names
    #[arg(long, value_name = "NAME", help_heading = "Samples", value_parser = parse::profile(),
          conflicts_with_all = ["event", "period", "frequency", "no_sampling"])]
    config: Option<String>,
    /// Sample every N counts of an event (ns for a clock), unless the event says `period=`; of a tracepoint 1 by default
    #[arg(short = 'c', long, value_name = "N", conflicts_with = "frequency", help_heading = "Samples",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) period: Option<u64>,
    /// Take a period that the kernel will throttle
    #[arg(long, help_heading = "Samples")]
    force_period: bool,
    /// Sample N times a second on each CPU; converted once to a fixed period [default: 99]
    #[arg(short = 'F', long, value_name = "N", help_heading = "Samples",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) frequency: Option<u32>,
    /// Do not sample
    #[arg(long, conflicts_with_all = ["event", "period", "frequency", "stacks"], help_heading = "Samples")]
    pub(super) no_sampling: bool,
    /// Keep the kernel and user stack of every sample
    #[arg(short = 'g', long, help_heading = "Samples")]
    pub(super) stacks: bool,
    /// How user stacks are unwound, with --stacks: by frame pointers (fp), or by DWARF's call frame information for programs
    /// that keep none
    #[arg(long, value_name = "WAY", default_value = "fp", help_heading = "Samples")]
    pub(super) unwind: Unwind,
    /// List gaps at least this long
    #[arg(long, value_name = "TIME", default_value = "300us", value_parser = parse::duration, help_heading = "Samples")]
    gap_min: Duration,

    #[command(flatten)]
    pub(super) metrics: MetricArgs,

    /// Stop after this time: seconds, or as 500ms or 2m
    #[arg(short, long, value_name = "TIME", value_parser = parse::duration, help_heading = "Time")]
    pub(super) duration: Option<Duration>,
    /// Report every so often while running
    #[arg(short = 'I', long, value_name = "TIME", value_parser = parse::interval, help_heading = "Time")]
    pub(super) interval: Option<Duration>,

    #[command(flatten)]
    pub(super) begin: Begin,
    #[command(flatten)]
    pub(super) keep: Keep,
    #[command(flatten)]
    pub(super) hdr_log: HdrLogArgs,
    #[command(flatten)]
    pub(super) format: output::Output,
    /// Say nothing but results and errors
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
    /// Exit with 3 if the result is not good enough: lost, unsupported, blind>N%, samples<N% (repeatable)
    #[arg(long, value_name = "CONDITION", help_heading = "Output")]
    pub(super) fail_on: Vec<Gate>,
    /// Print what would be opened, and open nothing
    #[arg(long, help_heading = "Output")]
    pub(super) dry_run: bool,

    /// Owners that can be told apart at a time; the others are counted together
    #[arg(long, value_name = "N", help_heading = "Kernel side", value_parser = clap::value_parser!(u32).range(1..1_000_000))]
    pub(super) max_owners: Option<u32>,
    /// How programs reach kernel memory; by default the best that works here
    #[arg(long, value_name = "WAY", help_heading = "Kernel side")]
    pub(super) attach: Option<Attach>,
    /// The kernel's types, for a kernel that does not carry them
    #[arg(long, value_name = "FILE", help_heading = "Kernel side")]
    pub(super) btf: Option<PathBuf>,
    /// Measure the programs' cost as long as they run, not only for the first second
    #[arg(long, help_heading = "Kernel side")]
    pub(super) measure: bool,
    /// Print what the programs log on rare paths
    #[arg(long, help_heading = "Kernel side")]
    pub(super) bpf_log: bool,
}

impl Args {
    pub(super) fn request(&self) -> Result<Request, Usage> {
        let target = if !self.command.is_empty() && !self.all {
            Target::Command(self.command.clone())
        } else if !self.pid.is_empty() {
            Target::Processes(self.pid.clone())
        } else if !self.tid.is_empty() {
            Target::Threads(self.tid.clone())
        } else if !self.cgroup.is_empty() {
            Target::Cgroups(self.cgroup.clone())
        } else if self.all_cgroups {
            Target::AllCgroups
        } else {
            Target::System
        };
        if self.unwind == Unwind::Dwarf && !self.stacks {
            return Err(Usage("--unwind dwarf needs stacks to unwind: add --stacks".to_owned()));
        }
        Ok(Request {
            target,
            by: self.by,
            inherit: if self.no_inherit { Inherit::No } else { Inherit::Yes },
            descend: if self.no_descend { Descend::No } else { Descend::Yes },
            cpus: self.cpu.as_ref().map(|list| list.0.clone()),
            // With --count they are read by whoever counts.
            events: if self.count { Vec::new() } else { self.event.clone() },
            profile: self.config.clone(),
            force: if self.force_period { Force::Yes } else { Force::No },
            rate: match (self.no_sampling, self.period, self.frequency) {
                (true, _, _) => Rate::Off,
                (_, Some(period), _) => Rate::Period(period),
                (_, _, frequency) => frequency.map_or(Rate::Default, Rate::Frequency),
            },
            metrics: self.metrics.wanted(),
            stacks: if self.stacks { Stacks::Yes } else { Stacks::No },
            unwind: self.unwind,
            interval: self.interval,
            duration: self.duration,
            owners_max: self.max_owners,
            gap_min: self.gap_min,
        })
    }

    fn options(&self) -> Options {
        Options {
            attach: self.attach,
            btf: self.btf.clone(),
            log: if self.bpf_log { Log::On } else { Log::Off },
        }
    }

    pub(super) fn stream(&self) -> Stream {
        self.keep.stream(&self.command)
    }

    pub(super) fn if_unread(&self) -> ReaderGone {
        self.keep.if_unread(&self.command)
    }

    /// May we talk? Not into the middle of a machine's results.
    pub(super) fn talks(&self) -> bool {
        !self.quiet && (self.format.format() == Format::Text || self.stream() == Stream::Stdout)
    }
}

/// Runs, and returns the exit code.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    of_command(&args.command, collect(args, Instant::now()))
}

fn collect(args: &Args, launched: Instant) -> anyhow::Result<u8> {
    let root = Path::new("/");
    let inherited = args.begin.inherited(root, args.talks() && !args.dry_run, &args.keep)?;
    let machine = read_machine(root)?;
    launch::check(&args.command)?;
    if args.metrics.runs {
        runs::check(args)?;
    }
    if args.count {
        return count::execute(args, &inherited, &machine, root);
    }
    let plan = Plan::new(&args.request()?, &machine, root)?;
    if args.dry_run {
        let plan = args.keep.redaction.begin().of(plan)?;
        dry_run::print(&plan, &machine, &mut *args.format.open(Stream::Stdout), args.format.format())?;
        return Ok(0);
    }
    args.keep.check()?;
    if args.talks() && !args.keep.redaction.is_on() {
        say_which(&args.cgroup, &machine);
    }
    let runtime = runtime()?;
    match plan.runs() {
        Some(planned) => runtime.block_on(runs::live((args, &inherited), &plan, planned, &machine, launched)),
        None => runtime.block_on(live((args, &inherited), plan, machine, launched)),
    }
}

async fn live(
    (args, inherited): (&Args, &Inherited),
    mut plan: Plan,
    machine: Machine,
    launched: Instant,
) -> anyhow::Result<u8> {
    if !plan.turns.is_empty()
        && let Some(why) = self_test::dead(&Catalog::read(Path::new("/"))?)
    {
        plan.give_up_metrics(why);
    }
    let (mut session, command) = begin((args, inherited), plan, machine, launched)?;
    let redacting = args.keep.redaction.begin();
    let header = redacting.of(session.header.clone())?;
    let mut recorder = args.keep.begin(&header)?;
    let into = args.format.open_for(args.stream(), args.if_unread());
    let prepared =
        pipeline::prepare(&header.plan, &header.machine.topology, args.metrics.perfmon_dir.as_deref())?;
    let mut pipeline = Pipeline::new(&header, prepared, args.format.format(), args.format.style(), into);
    pipeline.log_to(args.hdr_log.begin(header.started_unix_ns)?);
    confine(if command.is_some() { Duty::CollectAndSignal } else { Duty::Collect });
    let signals = Signals::new()?;
    args.begin.announce(args.talks(), "report");
    let mut keep = |drain: Drain| -> anyhow::Result<session::Next> {
        let drain = redacting.of(drain)?;
        recorder.drain(&drain);
        Ok(pipeline.drain(&drain)?)
    };
    let outcome = session::run(&mut session, command, signals, &mut keep).await?;
    keep(outcome.last)?;
    recorder.end(&outcome.ending);
    let names = redacting.of(session.name())?;
    recorder.names(&names);
    pipeline.name(&names);
    let report = pipeline.finish(&outcome.ending)?;
    if args.talks() {
        pipeline::closing_line(&report);
    }
    recorder.result()?;
    if args.talks() {
        args.keep.say_what_is_written();
    }
    gate::check(&args.fail_on, &header, &report)?;
    Ok(exit_code(outcome.ending.stopped, outcome.ending.workload))
}

/// A session that counts, and the command that waits for it to be watched, if there is one.
pub(super) fn begin(
    (args, inherited): (&Args, &Inherited),
    plan: Plan,
    machine: Machine,
    launched: Instant,
) -> anyhow::Result<(Session, Option<Launched>)> {
    let mut session = Session::open(plan, machine, Path::new("/"), &args.options())?;
    let mut command = None;
    if !args.command.is_empty() {
        let started = Launched::start(&args.command, inherited)?;
        let pid = started.child.id().ok_or_else(|| anyhow::anyhow!("the command ended before it began"))?;
        if matches!(session.header.plan.target, plan::Target::Command(_)) {
            session.target_command(pid)?;
        }
        command = Some(started);
    }
    session.start(if args.measure { Measure::Always } else { Measure::Window }, launched)?;
    Ok((session, command))
}

/// The command's own code; else what the signal says: Ctrl-C is the ordinary end of a run, the others are not.
pub(super) fn exit_code(stopped: Stopped, workload: Option<Workload>) -> u8 {
    let of_signal = |number: i32| u8::try_from(128 + number).unwrap_or(u8::MAX);
    match (workload, stopped) {
        (_, Stopped::Signal(number)) if number != SIGINT => of_signal(number),
        (Some(Workload::Exited(code)), _) => code as u8,
        (Some(Workload::Killed(number)), _) => of_signal(number),
        _ => 0,
    }
}

const SIGINT: i32 = 2;
