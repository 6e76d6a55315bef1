//! `pmbpf io`: activity of PCIe devices, memory, links, block and network devices, attributed to owners. A
//! run of that source alone.

use std::{ffi::OsString, io::Write as _, path::Path, time::Instant};

use super::{
    begin::{probe, read_machine},
    examples,
    failure::{Usage, of_command},
    gate,
    live::{Common, Live, ProgramArgs},
    options,
    output::Stream,
    parse,
    sources::Sources,
};
use crate::{
    bpf::Log,
    machine::{Machine, io::Platform, pmu::catalog::Catalog},
    plan::{
        Plan,
        io::{
            IoPlan,
            request::{Grouping, IoRequest, Limits, Reporting},
        },
        request::Request,
    },
    session::{Measure, io::memory_bandwidth, launch},
    view::{
        Format,
        io::summary::{self, Summary},
    },
};

/// Arguments of `pmbpf io`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::IO)]
pub(super) struct Args {
    /// Attribute I/O to these processes, with their children
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = parse::id, help_heading = "Target",
          conflicts_with_all = ["cgroup", "all"])]
    pid: Vec<u32>,
    /// Attribute I/O to this cgroup and its descendants: a path, or a unique name (repeatable)
    #[arg(long, value_name = "NAME", value_parser = parse::cgroup, help_heading = "Target", conflicts_with = "all")]
    cgroup: Vec<String>,
    /// Attribute I/O to every cgroup (the default without a command)
    #[arg(short, long, help_heading = "Target")]
    all: bool,
    /// Run this command and attribute I/O to it, with its children; with another target, measure that target
    /// while the command runs
    #[arg(trailing_var_arg = true, value_name = "COMMAND", help_heading = "Target")]
    command: Vec<OsString>,

    /// Use the metrics of this CPU model's table instead of this machine's, e.g. icelakex
    #[arg(long, value_name = "MODEL", help_heading = "I/O")]
    cpu_model: Option<String>,
    #[command(flatten)]
    choice: IoChoice,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    programs: ProgramArgs,
    /// Print the I/O side of this host (sockets, memory, links, stacks, devices) and measure nothing
    #[arg(long, conflicts_with_all = ["dry_run", "command"], help_heading = "Output")]
    summary: bool,
}

/// I/O options of every command that measures it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct IoChoice {
    /// Set the maximum memory bandwidth in GB/s, of all sockets together [default: the specification of the
    /// modules]
    #[arg(long, value_name = "GB/S", value_parser = parse::gigabytes, alias = "dram-bandwidth-limits", help_heading = "I/O")]
    dram_max: Option<f64>,
    /// Measure the maximum memory bandwidth before the run: all CPUs copy for half a second
    #[arg(long, conflicts_with = "dram_max", help_heading = "I/O")]
    measure_max_bandwidth: bool,
    /// Show I/O rows by package, stack, device or event (repeatable) [default: all but event]
    #[arg(long, value_name = "GROUPING", value_delimiter = ',', help_heading = "I/O")]
    group_by: Vec<Grouping>,
    /// Show only this PCI device, disk or interface, by address or name (repeatable); its IOMMU counts for it
    /// alone if it can
    #[arg(long, value_name = "DEVICE", help_heading = "I/O")]
    device: Vec<String>,
    /// Set the thresholds between low, medium and high bandwidth, e.g. dram=60,120 (GB/s), pcie=2000,8000
    /// (MB/s), upi=30,60 (%) (repeatable) [default: thirds of the maximum]
    #[arg(long, value_name = "NAME=LOW,HIGH", value_parser = parse::limits, help_heading = "I/O")]
    limits: Vec<Limits>,
}

impl IoChoice {
    /// Returns the first option that was given, if any.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.dram_max.is_some(), "--dram-max"),
            (self.measure_max_bandwidth, "--measure-max-bandwidth"),
            (!self.group_by.is_empty(), "--group-by"),
            (!self.device.is_empty(), "--device"),
            (!self.limits.is_empty(), "--limits"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, flag)| flag)
    }

    /// Returns the I/O request for the same target and time as the task request.
    pub(super) fn request(&self, request: &Request, model: Option<String>) -> IoRequest {
        IoRequest {
            target: request.target.clone(),
            inherit: request.inherit,
            descend: request.descend,
            model,
            report: Reporting {
                by: self.group_by.clone(),
                devices: self.device.clone(),
                dram_max_gb_s: self.dram_max,
                dram_measured_gb_s: None,
                limits: self.limits.clone(),
            },
            interval: request.interval,
            tick_max: request.tick_max,
            duration: request.duration,
        }
    }

    /// Returns the plan of what is opened, and the I/O side of this host.
    pub(super) fn plan(
        &self,
        request: &IoRequest,
        machine: &Machine,
        is_dry: bool,
    ) -> anyhow::Result<(IoPlan, Platform)> {
        let root = Path::new("/");
        let catalog = Catalog::read(root)?;
        let platform = Platform::read(root, &catalog);
        let mut plan = IoPlan::new(request, machine, &catalog, &platform, root)?;
        if self.measure_max_bandwidth && !is_dry {
            plan.report.dram_measured_gb_s =
                Some(memory_bandwidth::bytes_per_second(&machine.cpu.online) / 1e9);
        }
        Ok((plan, platform))
    }
}

impl Args {
    fn request(&self) -> IoRequest {
        let target = options::target((&self.command, self.all), &self.pid, &[], &self.cgroup);
        let Common { interval, duration, .. } = self.common;
        let request = Request { target, interval, duration, ..Request::default() };
        self.choice.request(&request, self.cpu_model.clone())
    }
}

/// Returns sources for the tasks of a request and, if wanted, for I/O with default options.
pub(super) fn beside_tasks(
    request: &Request,
    with_io: bool,
    mut machine: Machine,
    root: &Path,
) -> anyhow::Result<Sources> {
    probe(&mut machine, &request.metrics, root);
    let plan = Plan::new(request, &machine, root)?;
    let choice = IoChoice::default();
    let io = with_io.then(|| choice.plan(&choice.request(request, None), &machine, false)).transpose()?;
    Ok(Sources { machine, tasks: Some(plan), io, counts: None })
}

fn summary(args: &Args, machine: &Machine, platform: &Platform) -> anyhow::Result<u8> {
    let output = args.common.output();
    let mut into = output.open(Stream::Stdout);
    let summary = Summary { machine, platform };
    match output.format() {
        Format::Text => summary::text(&mut *into, &output.style(Stream::Stdout), &summary)?,
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
    let (common, root) = (&args.common, Path::new("/"));
    gate::check_without_tasks(&common.fail_on)?;
    let talks = common.talks(&args.command);
    let inherited = common.begin.inherited(root, talks && !common.dry_run, &common.keep)?;
    let machine = read_machine(root)?;
    launch::check(&args.command)?;
    let (plan, platform) = args.choice.plan(&args.request(), &machine, common.dry_run || args.summary)?;
    if args.summary {
        let redacting = common.keep.redaction.begin();
        return summary(args, &redacting.of(machine)?, &redacting.of(platform)?);
    }
    let live = Live {
        common,
        programs: Some(&args.programs),
        command: &args.command,
        inherited: &inherited,
        ends_command: false,
        cgroups: &args.cgroup,
        measure: Measure::Window,
        log: Log::Off,
        folder: None,
        launched,
    };
    live.execute(Sources { machine, tasks: None, io: Some((plan, platform)), counts: None })
}
