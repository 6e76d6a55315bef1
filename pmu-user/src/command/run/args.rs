//! Options of `pmbpf run`, and the request that they form.

use std::time::{Duration, Instant};

use crate::{
    bpf::Log,
    command::{
        examples,
        failure::Usage,
        io::IoChoice,
        live::{Common, Live, ProgramArgs},
        options::{MetricArgs, TargetArgs},
        parse,
    },
    plan::{
        io::request::IoRequest,
        request::{By, Culprits, Descend, Force, Interrupts, OffCpu, Rate, Request, Stacks, Target, Unwind},
    },
    session::{Measure, launch::Inherited},
};

/// Arguments of `pmbpf run`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::RUN)]
pub(in crate::command) struct Args {
    #[command(flatten)]
    pub(in crate::command) target: TargetArgs,
    /// Count every cgroup
    #[arg(long, help_heading = "Target", conflicts_with_all = ["pid", "tid", "cgroup", "all", "command"])]
    pub(in crate::command) all_cgroups: bool,
    /// Do not count cgroups below the target cgroups
    #[arg(long, help_heading = "Target")]
    pub(in crate::command) no_descend: bool,
    /// Aggregate by process, thread, comm, executable or cgroup [default: process; cgroup if cgroups are the
    /// target]
    #[arg(long, value_name = "OWNER", help_heading = "Target")]
    pub(in crate::command) by: Option<By>,

    /// Sample on these events, in perf's event syntax (repeatable) [default: cycles, or cpu-clock without a
    /// PMU]
    #[arg(short, long, value_name = "LIST", help_heading = "Events")]
    pub(in crate::command) event: Vec<String>,
    /// Sample the events of a predefined configuration
    #[arg(long, value_name = "NAME", help_heading = "Samples", value_parser = parse::profile(),
          conflicts_with_all = ["event", "period", "frequency", "no_sampling"])]
    config: Option<String>,
    /// Sample every N counts of an event (ns for a clock), unless the event has `period=` [default for
    /// tracepoints: 1]
    #[arg(short = 'c', long, value_name = "N", conflicts_with = "frequency", help_heading = "Samples",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(in crate::command) period: Option<u64>,
    /// Allow periods short enough for the kernel to throttle
    #[arg(long, help_heading = "Samples")]
    force_period: bool,
    /// Sample N times per second on each CPU, converted once to a fixed period [default: 99]
    #[arg(short = 'F', long, value_name = "N", help_heading = "Samples",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::command) frequency: Option<u32>,
    /// Do not sample
    #[arg(long, conflicts_with_all = ["event", "period", "frequency"], help_heading = "Samples")]
    pub(in crate::command) no_sampling: bool,
    /// Record the kernel and user stack of every sample; with --off-cpu, also those of the longest waits
    #[arg(short = 'g', long, help_heading = "Samples")]
    pub(in crate::command) stacks: bool,
    /// With --stacks, unwind user stacks by frame pointers (fp), or by DWARF call frame information for
    /// programs without them
    #[arg(long, value_name = "WAY", default_value = "fp", help_heading = "Samples")]
    pub(in crate::command) unwind: Unwind,
    /// Count off-CPU time, by what tasks wait for: a CPU, I/O, a lock, or anything else
    #[arg(long, help_heading = "Events")]
    pub(in crate::command) off_cpu: bool,
    /// Count interrupt handlers, their time on the CPUs, and the tasks that they interrupt
    #[arg(long, help_heading = "Events")]
    pub(in crate::command) interrupts: bool,
    /// List gaps of at least this length
    #[arg(long, value_name = "TIME", default_value = "300us", value_parser = parse::duration, help_heading = "Samples")]
    gap_min: Duration,

    #[command(flatten)]
    pub(in crate::command) metrics: MetricArgs,

    #[command(flatten)]
    pub(in crate::command) common: Common,
    #[command(flatten)]
    pub(in crate::command) programs: ProgramArgs,

    /// Measure I/O as well, on the same clock: block devices and networks by the same owners, and uncore PMUs
    #[arg(long, help_heading = "I/O")]
    io: bool,
    #[command(flatten)]
    pub(in crate::command) of_io: IoChoice,

    /// Track at most N owners at once; the rest are summed as `other`
    #[arg(long, value_name = "N", help_heading = "Kernel side", value_parser = clap::value_parser!(u32).range(1..1_000_000))]
    pub(in crate::command) max_owners: Option<u32>,
    /// Limit the overhead while counting to this share of the CPUs, e.g. 1%; above it, interrupt handlers,
    /// samples and run-queue latency are turned off, in that order, and the report states when
    #[arg(long, value_name = "SHARE", help_heading = "Kernel side", value_parser = parse::budget)]
    pub(in crate::command) budget: Option<f64>,
    /// Measure the cost of the BPF programs during the whole run, not only for the first second
    #[arg(long, help_heading = "Kernel side")]
    pub(in crate::command) measure: bool,
    /// Do not charge waits for a CPU to the task that had it
    #[arg(long, hide = true)]
    pub(in crate::command) no_culprits: bool,
    /// Print what the BPF programs log on rare paths
    #[arg(long, help_heading = "Kernel side")]
    pub(in crate::command) bpf_log: bool,
}

impl Args {
    pub(in crate::command) fn request(&self) -> Result<Request, Usage> {
        if self.unwind == Unwind::Dwarf && (!self.stacks || self.no_sampling) {
            let add = if self.stacks { "leave out --no-sampling" } else { "add --stacks" };
            return Err(Usage(format!("--unwind dwarf needs stacks of samples to unwind: {add}")));
        }
        if self.stacks && self.no_sampling && !self.off_cpu {
            let why =
                "--stacks with --no-sampling records no stacks: add --off-cpu for those of blocked tasks";
            return Err(Usage(why.to_owned()));
        }
        let request = self.target.request();
        Ok(Request {
            target: if self.all_cgroups { Target::AllCgroups } else { request.target },
            by: self.by,
            descend: if self.no_descend { Descend::No } else { Descend::Yes },
            events: self.event.clone(),
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
            culprits: if self.no_culprits { Culprits::No } else { Culprits::Yes },
            off_cpu: if self.off_cpu { OffCpu::Yes } else { OffCpu::No },
            interrupts: if self.interrupts { Interrupts::Yes } else { Interrupts::No },
            budget: self.budget,
            interval: self.common.interval,
            duration: self.common.duration,
            owners_max: self.max_owners,
            gap_min: self.gap_min,
            ..request
        })
    }

    /// Returns whether messages may go to stderr.
    pub(in crate::command) fn talks(&self) -> bool {
        self.common.talks(&self.target.command)
    }

    /// Returns the requested run.
    pub(in crate::command) fn live<'a>(&'a self, inherited: &'a Inherited, launched: Instant) -> Live<'a> {
        Live {
            common: &self.common,
            programs: Some(&self.programs),
            command: &self.target.command,
            inherited,
            ends_command: false,
            cgroups: &self.target.cgroup,
            measure: if self.measure { Measure::Always } else { Measure::Window },
            log: if self.bpf_log { Log::On } else { Log::Off },
            folder: self.metrics.perfmon_dir.as_deref(),
            launched,
        }
    }

    /// Returns the requested I/O measurement, if any.
    pub(in crate::command) fn io_request(&self, request: &Request) -> Result<Option<IoRequest>, Usage> {
        if let Some(flag) = self.of_io.given().filter(|_| !self.io) {
            return Err(Usage(format!("{flag} is about I/O: add --io")));
        }
        if !self.io {
            return Ok(None);
        }
        let wrong = [
            (
                !self.target.tid.is_empty(),
                "--tid: requests are attributed by process; name processes with --pid",
            ),
            (self.target.cpu.is_some(), "--cpu: requests and packets belong to no CPU"),
            (self.metrics.runs, "--runs: it reports several runs as one"),
        ];
        if let Some((_, why)) = wrong.iter().find(|(given, _)| *given) {
            return Err(Usage(format!("--io cannot be used with {why}")));
        }
        Ok(Some(self.of_io.request(request, self.metrics.cpu_model.clone())))
    }
}
