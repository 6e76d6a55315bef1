//! `pmbpf io`: what PCIe devices, memory, links and block and network devices did, and whose doing it was. A run of that source alone.

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

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::IO)]
pub(super) struct Args {
    /// Tell apart what these processes did, with their children
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = parse::id, help_heading = "Target",
          conflicts_with_all = ["cgroup", "all"])]
    pid: Vec<u32>,
    /// Tell apart what this cgroup and those below did: a path, or a unique name (repeatable)
    #[arg(long, value_name = "NAME", value_parser = parse::cgroup, help_heading = "Target", conflicts_with = "all")]
    cgroup: Vec<String>,
    /// Tell every cgroup apart (the default without a command)
    #[arg(short, long, help_heading = "Target")]
    all: bool,
    /// Run this command and tell apart what it did, with its children; with another target, measure that as long as the command runs
    #[arg(trailing_var_arg = true, value_name = "COMMAND", help_heading = "Target")]
    command: Vec<OsString>,

    /// Metrics of this CPU model's table instead of this machine's, as icelakex
    #[arg(long, value_name = "MODEL", help_heading = "I/O")]
    cpu_model: Option<String>,
    #[command(flatten)]
    choice: IoChoice,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    programs: ProgramArgs,
    /// Print what stands on the I/O side of this host: sockets, memory, links, stacks, devices; measure nothing
    #[arg(long, conflicts_with_all = ["dry_run", "command"], help_heading = "Output")]
    summary: bool,
}

/// Choices about I/O, of every command that measures it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct IoChoice {
    /// The most that memory can carry in GB/s, of all sockets together; by default what its modules are specified for
    #[arg(long, value_name = "GB/S", value_parser = parse::gigabytes, alias = "dram-bandwidth-limits", help_heading = "I/O")]
    dram_max: Option<f64>,
    /// Measure before the run what memory can carry: all CPUs copy for half a second
    #[arg(long, conflicts_with = "dram_max", help_heading = "I/O")]
    measure_max_bandwidth: bool,
    /// Show rows of I/O by package, stack, device or event (repeatable); by default all but events
    #[arg(long, value_name = "GROUPING", value_delimiter = ',', help_heading = "I/O")]
    group_by: Vec<Grouping>,
    /// Show this PCI device, disk or interface only, by address or name, and have its IOMMU count for it alone if it can (repeatable)
    #[arg(long, value_name = "DEVICE", help_heading = "I/O")]
    device: Vec<String>,
    /// Where a bandwidth ends to be low and begins to be high, as dram=60,120 (GB/s), pcie=2000,8000 (MB/s), upi=30,60 (%); by
    /// default thirds of the maximum (repeatable)
    #[arg(long, value_name = "NAME=LOW,HIGH", value_parser = parse::limits, help_heading = "I/O")]
    limits: Vec<Limits>,
}

impl IoChoice {
    /// The first option that was given, if any was.
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

    /// What is asked of I/O where `request` is asked of tasks: of the same target, for the same time.
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

    /// What is opened for it, and what stands on the I/O side of this host.
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

/// Tasks of a request, and I/O beside them if that is wanted, with what it measures by default.
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
