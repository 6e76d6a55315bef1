//! `pmbpf stat`: counts events on plain counters, as perf stat does, without a BPF program. A run of that
//! source alone.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    begin::read_machine,
    examples,
    failure::{Usage, is_refusal, of_command},
    gate::Gate,
    live::{Common, Live},
    options::TargetArgs,
    output, parse,
    pipeline::check_counts,
    sources::Sources,
};
use crate::{
    bpf::Log,
    machine::{pmu::catalog::Catalog, privilege::Privileges},
    plan::{
        count::{Aggregate, CountPlan, Wanted},
        metrics::MetricsRequest,
        request::{Request, Target, WantedMetrics},
    },
    session::{
        Measure,
        launch::{self, LaunchError},
    },
};

/// Arguments of `pmbpf stat`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::STAT)]
pub(super) struct Args {
    #[command(flatten)]
    target: TargetArgs,
    /// Count these events, in perf's event syntax (repeatable) [default: those of perf stat that this host
    /// has]
    #[arg(short, long, value_name = "LIST", help_heading = "Events")]
    event: Vec<String>,
    #[command(flatten)]
    of_perf: OfPerf,
    /// Run the command N times and report the mean
    #[arg(short, long, value_name = "N", help_heading = "Events", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: Option<u32>,
    /// Use the events of this CPU model, e.g. icelakex
    #[arg(long, value_name = "MODEL", help_heading = "Events")]
    cpu_model: Option<String>,
    /// Use the events of this perfmon directory
    #[arg(long, value_name = "DIR", help_heading = "Events")]
    perfmon_dir: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
    /// Former name of this command, as an option of `run`
    #[arg(long, hide = true)]
    pub(super) count: bool,
    /// Measurements left out of a run that is counted instead
    #[arg(skip)]
    left_out: Option<String>,
}

/// Options that perf stat has by the same names.
#[derive(Clone, Debug, Default, clap::Args)]
struct OfPerf {
    /// Count cache events as well; twice for more of them, three times for prefetches. `-d` without a time is
    /// the same
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1", help_heading = "Events")]
    detailed: Vec<u8>,
    /// Count no events and report only times
    #[arg(short, long, conflicts_with_all = ["event", "detailed", "topdown"], help_heading = "Events")]
    null: bool,
    /// Count the first level of the Top-Down tree, if the core PMU has it
    #[arg(long, help_heading = "Events")]
    topdown: bool,
    /// Write one row per CPU and event
    #[arg(short = 'A', long, group = "places", help_heading = "Rows")]
    no_aggr: bool,
    /// Aggregate counts per core
    #[arg(long, group = "places", help_heading = "Rows")]
    per_core: bool,
    /// Aggregate counts per die
    #[arg(long, group = "places", help_heading = "Rows")]
    per_die: bool,
    /// Aggregate counts per NUMA node
    #[arg(long, group = "places", help_heading = "Rows")]
    per_node: bool,
    /// Aggregate counts per socket
    #[arg(long, group = "places", help_heading = "Rows")]
    per_socket: bool,
    /// Write one row per event and thread of -p or -t; a thread that starts later counts with the thread that
    /// started it
    #[arg(long, group = "places", help_heading = "Rows")]
    per_thread: bool,
    /// Stop after MS milliseconds, and end the command with SIGTERM
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "duration",
          help_heading = "Time")]
    timeout: Option<u64>,
    /// Start the counters MS milliseconds after the command
    #[arg(short = 'D', long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Time")]
    delay: Option<u64>,
    /// Write the fields of `perf stat -x`, separated by SEP
    #[arg(short = 'x', long, value_name = "SEP", value_parser = parse::separator, conflicts_with_all = ["json", "csv", "format"],
          help_heading = "Output")]
    field_separator: Option<char>,
    /// Group digits by thousands (always done)
    #[arg(short = 'B', long, help_heading = "Output")]
    big_num: bool,
}

impl OfPerf {
    /// Returns the requested level of detail.
    fn detail(&self) -> u8 {
        self.detailed.iter().fold(0, |all, one| all.saturating_add(*one))
    }

    /// Returns how counts are aggregated.
    fn aggregate(&self) -> Aggregate {
        let chosen = [
            (self.no_aggr, Aggregate::None),
            (self.per_core, Aggregate::Core),
            (self.per_die, Aggregate::Die),
            (self.per_node, Aggregate::Node),
            (self.per_socket, Aggregate::Socket),
            (self.per_thread, Aggregate::Thread),
        ];
        chosen.iter().find(|(is_chosen, _)| *is_chosen).map(|(_, aggregate)| *aggregate).unwrap_or_default()
    }
}

/// Counts, and returns the exit code.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    let counted = collect(args, Instant::now());
    let counted = match counted {
        Err(error) if args.target.if_possible && is_refusal(&error) => {
            args.common.begin.unmeasured(&args.target.command, error)
        }
        counted => counted,
    };
    of_command(&args.target.command, counted)
}

/// Counts a command for which owners and samples were refused. The report states it, too.
pub(super) fn instead_of_owners(
    target: &TargetArgs,
    common: &Common,
    left_out: String,
) -> anyhow::Result<u8> {
    execute(&Args {
        target: target.clone(),
        event: Vec::new(),
        of_perf: OfPerf::default(),
        repeat: None,
        cpu_model: None,
        perfmon_dir: None,
        common: common.clone(),
        count: false,
        left_out: Some(left_out),
    })
}

fn collect(args: &Args, launched: Instant) -> anyhow::Result<u8> {
    let (common, command, root) = (&args.results(), &args.target.command, Path::new("/"));
    let inherited = common.begin.inherited(root, common.talks(command) && !common.dry_run, &common.keep)?;
    let machine = read_machine(root)?;
    launch::check(command).map_err(|error| of_no_command(command, error))?;
    let request = args.request();
    args.check(&request.target)?;
    let user_mode = only_user_mode(&request.target, &Privileges::read(root));
    let wanted = args.wanted(user_mode.clone());
    let plan = CountPlan::new(&request, &wanted, &machine, &Catalog::read(root)?, root)?;
    let plan = CountPlan {
        runs: args.repeat.unwrap_or(1),
        delay: args.of_perf.delay.map(Duration::from_millis),
        if_possible: args.target.if_possible,
        ..plan
    };
    check_counts(&plan)?;
    if let Some(why) =
        user_mode.filter(|_| common.talks(command) && plan.events().any(|event| event.modifiers.user))
    {
        output::talk(&format!("counting user mode only (:u): {why}"));
    }
    let live = Live {
        common,
        programs: None,
        command,
        inherited: &inherited,
        ends_command: args.of_perf.timeout.is_some(),
        cgroups: &args.target.cgroup,
        measure: Measure::Window,
        log: Log::Off,
        folder: None,
        launched,
    };
    live.execute(Sources { machine, tasks: None, io: None, counts: Some((plan, 1)) })
}

/// Returns the error of a command that cannot be run, or the counterpart of `perf stat record` and `perf stat
/// report`.
fn of_no_command(command: &[OsString], error: LaunchError) -> anyhow::Error {
    match command.first().and_then(|word| word.to_str()) {
        Some(word @ ("record" | "report")) => Usage(format!(
            "there is no program `{word}`; `pmbpf stat -o FILE -- COMMAND` records, `pmbpf report FILE` reports"
        ))
        .into(),
        _ => error.into(),
    }
}

/// Returns why tasks can be counted in user mode alone, if that is so.
pub(super) fn only_user_mode(target: &Target, privileges: &Privileges) -> Option<String> {
    // Levels from 3 on are specific to distributions, and refuse everything.
    let is_limited = privileges.paranoid == Some(2) && !privileges.can_count();
    (is_of_tasks(target) && is_limited)
        .then(|| "kernel.perf_event_paranoid is 2, and CAP_PERFMON is missing".to_owned())
}

const fn is_of_tasks(target: &Target) -> bool {
    matches!(target, Target::Command(_) | Target::Processes(_) | Target::Threads(_))
}

impl Args {
    /// Returns the detail and the duration that `-d` was parsed as.
    #[cfg(test)]
    pub(super) fn detail_and_duration(&self) -> (u8, Option<Duration>) {
        (self.of_perf.detail(), self.common.duration)
    }

    fn request(&self) -> Request {
        let tables = MetricsRequest {
            model: self.cpu_model.clone(),
            folder: self.perfmon_dir.clone(),
            ..MetricsRequest::default()
        };
        Request {
            metrics: WantedMetrics::IfPossible(tables),
            interval: self.common.interval,
            duration: self.of_perf.timeout.map(Duration::from_millis).or(self.common.duration),
            ..self.target.request()
        }
    }

    fn wanted(&self, user_mode: Option<String>) -> Wanted {
        let OfPerf { null, topdown, .. } = self.of_perf;
        Wanted {
            lists: self.event.clone(),
            detailed: self.of_perf.detail(),
            unsupported_too: self.of_perf.field_separator.is_some(),
            null,
            topdown,
            aggregate: self.of_perf.aggregate(),
            user_mode,
            left_out: self.left_out.clone(),
        }
    }

    /// Returns the common options, with the destination and look of results. `-o` receives results if its
    /// name or `-x` implies it.
    fn results(&self) -> Common {
        let mut common = self.common.clone();
        if let Some(separator) = self.of_perf.field_separator {
            common.report.write_fields(separator);
        }
        let named = common.keep.named_format();
        let is_fields = self.of_perf.field_separator.is_some() && !common.keep.is_named_recording();
        if named.is_some() || is_fields {
            common.keep.take_results();
        }
        if let Some(format) = named.filter(|_| !common.report.is_for_machines()) {
            common.report.write_as(format);
        }
        common
    }

    /// Refuses options that exclude each other, and names the alternative.
    fn check(&self, target: &Target) -> Result<(), Usage> {
        let of_tasks = is_of_tasks(target);
        let repeats = self.repeat.is_some_and(|runs| runs > 1);
        let OfPerf { timeout, delay, .. } = self.of_perf;
        let by_thread = self.of_perf.aggregate() == Aggregate::Thread;
        let by_cpu = self.of_perf.aggregate() != Aggregate::All && !by_thread;
        let wrong = [
            (
                of_tasks && self.target.cpu.is_some(),
                "a task is counted wherever it runs: leave out -C, or count everything on these CPUs with -a",
            ),
            (
                of_tasks && by_cpu,
                "a task has no rows of CPUs: -A, --per-core, --per-die, --per-node and --per-socket are of everything (-a) or of cgroups",
            ),
            (
                by_thread && !matches!(target, Target::Processes(_) | Target::Threads(_)),
                "--per-thread takes existing threads: name them with -p or -t; `pmbpf run --by thread` has rows of others",
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
                repeats && (self.common.duration.is_some() || timeout.is_some()),
                "--repeat runs the command to its end: leave out --duration",
            ),
            (
                delay.is_some() && self.target.command.is_empty(),
                "--delay is for a command: give one after `--`",
            ),
            (
                self.common.fail_on.iter().any(|gate| *gate != Gate::Unsupported),
                "counts without owners take one condition for --fail-on: unsupported",
            ),
        ];
        match wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, why)) => Err(Usage((*why).to_owned())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::only_user_mode;
    use crate::{machine::privilege::Privileges, plan::request::Target};

    #[test]
    fn a_process_without_rights_counts_its_tasks_in_user_mode() {
        let nobody = Privileges { paranoid: Some(2), ..Privileges::read(Path::new("/no/such/root")) };
        let command = Target::Command(vec!["true".into()]);
        assert!(only_user_mode(&command, &nobody).unwrap().contains("paranoid is 2"));
        assert_eq!(only_user_mode(&Target::System, &nobody), None);
        let is_limited = |privileges| only_user_mode(&command, &privileges).is_some();
        assert!(!is_limited(Privileges { paranoid: Some(1), ..nobody.clone() }));
        assert!(!is_limited(Privileges { effective: 1 << 38, ..nobody.clone() }));
        // Capabilities of a user namespace have no effect here.
        assert!(is_limited(Privileges { effective: 1 << 38, host_users: Some(false), ..nobody }));
    }
}
