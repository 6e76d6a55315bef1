//! `pmbpf io`: what PCIe devices, memory, links and block and network devices did, and whose doing it was.

mod dry_run;
mod limits;
mod pipeline;

use std::{
    ffi::OsString,
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

pub(super) use self::pipeline::IoPipeline;
use super::{
    begin::{Begin, read_machine, say_which},
    examples,
    failure::{Usage, of_command},
    gate::{self, Gate},
    hdr_log::HdrLogArgs,
    output::{self, Stream},
    parse,
    recorder::Keep,
    run::exit_code,
};
use crate::{
    drain::{Absent, io::IoDrain},
    machine::{Machine, io::Platform, pmu::catalog::Catalog},
    plan::{
        io::{
            IoPlan,
            request::{Grouping, IoRequest, Limits, Reporting},
        },
        request::{Descend, Inherit, Target},
    },
    session::{
        Signals,
        confine::{Duty, confine},
        io::{IoSession, run, stream},
        launch::{self, Inherited, Launched},
        runtime,
    },
    view::{
        Format,
        io::summary::{self, Summary},
        text::duration,
    },
};

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::IO)]
pub(super) struct Args {
    /// Tell apart what these processes did, with their children
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = parse::id, help_heading = "Target",
          conflicts_with_all = ["cgroup", "all", "command"])]
    pid: Vec<u32>,
    /// Tell apart what this cgroup and those below did: a path, or a unique name (repeatable)
    #[arg(long, value_name = "NAME", help_heading = "Target", conflicts_with_all = ["all", "command"])]
    cgroup: Vec<String>,
    /// Tell every cgroup apart (the default); with a command, as long as that runs
    #[arg(short, long, help_heading = "Target")]
    all: bool,
    /// Run this command and tell apart what it did, with its children
    #[arg(trailing_var_arg = true, value_name = "COMMAND", help_heading = "Target")]
    command: Vec<OsString>,

    /// Stop after this time: seconds, or as 500ms or 2m
    #[arg(short, long, value_name = "TIME", value_parser = parse::duration, help_heading = "Time")]
    duration: Option<Duration>,
    /// Report every so often while running
    #[arg(short = 'I', long, value_name = "TIME", value_parser = parse::interval, help_heading = "Time")]
    interval: Option<Duration>,

    /// Metrics of this CPU model's table instead of this machine's, as icelakex
    #[arg(long, value_name = "MODEL", help_heading = "Counters")]
    cpu_model: Option<String>,

    /// The most that memory can carry in GB/s, of all sockets together; by default what its modules are specified for
    #[arg(long, value_name = "GB/S", value_parser = limits::gigabytes, alias = "dram-bandwidth-limits", help_heading = "Counters")]
    dram_max: Option<f64>,
    /// Measure before the run what memory can carry: all CPUs copy for half a second
    #[arg(long, conflicts_with = "dram_max", help_heading = "Counters")]
    measure_max_bandwidth: bool,

    /// Show rows by package, stack, device or event (repeatable); by default all but events
    #[arg(long, value_name = "GROUPING", value_delimiter = ',', help_heading = "Output")]
    by: Vec<Grouping>,
    /// Show this PCI device, disk or interface only, by address or name, and have its IOMMU count for it alone if it can (repeatable)
    #[arg(long, value_name = "DEVICE", help_heading = "Output")]
    device: Vec<String>,
    /// Where a bandwidth ends to be low and begins to be high, as dram=60,120 (GB/s), pcie=2000,8000 (MB/s), upi=30,60 (%); by
    /// default thirds of the maximum (repeatable)
    #[arg(long, value_name = "NAME=LOW,HIGH", value_parser = limits::limits, help_heading = "Output")]
    limits: Vec<Limits>,
    #[command(flatten)]
    begin: Begin,
    #[command(flatten)]
    keep: Keep,
    #[command(flatten)]
    hdr_log: HdrLogArgs,
    #[command(flatten)]
    format: output::Output,
    /// Say nothing but results and errors
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
    /// Exit with 3 if the result is not good enough: lost
    #[arg(long, value_name = "CONDITION", help_heading = "Output")]
    fail_on: Vec<Gate>,
    /// Print what stands on the I/O side of this host: sockets, memory, links, stacks, devices; measure nothing
    #[arg(long, conflicts_with_all = ["dry_run", "command"], help_heading = "Output")]
    summary: bool,
    /// Print what would be opened, and open nothing
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
}

impl Args {
    fn request(&self) -> IoRequest {
        let target = if !self.command.is_empty() && !self.all {
            Target::Command(self.command.clone())
        } else if !self.pid.is_empty() {
            Target::Processes(self.pid.clone())
        } else if !self.cgroup.is_empty() {
            Target::Cgroups(self.cgroup.clone())
        } else {
            Target::System
        };
        IoRequest {
            target,
            inherit: Inherit::Yes,
            descend: Descend::Yes,
            model: self.cpu_model.clone(),
            report: Reporting {
                by: self.by.clone(),
                devices: self.device.clone(),
                dram_max_gb_s: self.dram_max,
                dram_measured_gb_s: None,
                limits: self.limits.clone(),
            },
            interval: self.interval,
            duration: self.duration,
        }
    }

    fn stream(&self) -> Stream {
        self.keep.stream(&self.command)
    }

    /// May we talk? Not into the middle of a machine's results.
    fn talks(&self) -> bool {
        !self.quiet && (self.format.format() == Format::Text || self.stream() == Stream::Stdout)
    }
}

fn summary(args: &Args, machine: &Machine, platform: &Platform) -> anyhow::Result<u8> {
    let mut into = args.format.open(Stream::Stdout);
    let summary = Summary { machine, platform };
    match args.format.format() {
        Format::Text => summary::text(&mut *into, &summary)?,
        Format::Json => summary::json(&mut *into, &summary)?,
        Format::Csv => return Err(Usage("--summary writes text or JSON; leave out --csv".to_owned()).into()),
    }
    into.flush()?;
    Ok(0)
}

/// Measures, and returns the exit code.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    of_command(&args.command, collect(args, Instant::now()))
}

fn collect(args: &Args, launched: Instant) -> anyhow::Result<u8> {
    let root = Path::new("/");
    gate::check_io_gates(&args.fail_on)?;
    let inherited = args.begin.inherited(root, args.talks() && !args.dry_run, &args.keep)?;
    let machine = read_machine(root)?;
    launch::check(&args.command)?;
    let catalog = Catalog::read(root)?;
    let platform = Platform::read(root, &catalog);
    let mut plan = IoPlan::new(&args.request(), &machine, &catalog, &platform, root)?;
    if args.measure_max_bandwidth && !args.dry_run {
        plan.report.dram_measured_gb_s = Some(stream::bytes_per_second(&machine.cpu.online) / 1e9);
    }
    if args.summary {
        let redacting = args.keep.redaction.begin();
        return summary(args, &redacting.of(machine)?, &redacting.of(platform)?);
    }
    if args.dry_run {
        let plan = args.keep.redaction.begin().of(plan)?;
        dry_run::print(&plan, &mut *args.format.open(Stream::Stdout), args.format.format())?;
        return Ok(0);
    }
    args.keep.check()?;
    if args.talks() && !args.keep.redaction.is_on() {
        say_which(&args.cgroup, &machine);
    }
    let runtime = runtime()?;
    runtime.block_on(live((args, &inherited), plan, (machine, platform), launched))
}

async fn live(
    (args, inherited): (&Args, &Inherited),
    plan: IoPlan,
    (machine, platform): (Machine, Platform),
    launched: Instant,
) -> anyhow::Result<u8> {
    let command =
        if args.command.is_empty() { None } else { Some(Launched::start(&args.command, inherited)?) };
    let pid = command.as_ref().and_then(|command| command.child.id());
    let mut session = IoSession::open(plan, machine, platform, Path::new("/"), pid)?;
    session.start(launched);
    let redacting = args.keep.redaction.begin();
    let header = redacting.of(session.header.clone())?;
    let mut recorder = args.keep.begin(&header)?;
    let into = args.format.open_for(args.stream(), args.keep.if_unread(&args.command));
    let mut pipeline = IoPipeline::new(&header, args.format.format(), args.format.style(), into)?;
    pipeline.log_to(args.hdr_log.begin(header.started_unix_ns)?);
    confine(if command.is_some() { Duty::CollectAndSignal } else { Duty::Collect });
    if let (Some(length), Some(enough)) = (header.plan.duration, header.plan.shortest())
        && length < enough
        && !args.quiet
    {
        let enough = duration(enough.as_nanos() as f64);
        output::talk(&format!("the counters take turns: a run shorter than {enough} leaves numbers out"));
    }
    if let Some(Absent { what, why }) = session.warning()
        && !args.quiet
    {
        output::talk(&redacting.sentence(&format!("not measured: {what}: {why}")));
    }
    let signals = Signals::new()?;
    args.begin.announce(args.talks(), "report");
    let mut keep = |drain: IoDrain| -> anyhow::Result<()> {
        let drain = redacting.of(drain)?;
        recorder.drain(&drain);
        Ok(pipeline.drain(drain)?)
    };
    let outcome = run(&mut session, command, signals, &mut keep).await?;
    keep(outcome.last)?;
    recorder.end(&outcome.ending);
    let report = pipeline.finish(&outcome.ending)?;
    recorder.result()?;
    if args.talks() {
        args.keep.say_what_is_written();
    }
    gate::check_io(&args.fail_on, &report)?;
    Ok(exit_code(outcome.ending.stopped, outcome.ending.workload))
}
