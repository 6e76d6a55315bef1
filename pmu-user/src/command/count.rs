//! `pmbpf run --count`: counts events on plain counters, as perf stat does, without a BPF program.

use std::path::Path;

use super::{failure::Usage, gate::Gate, live::exit_code, output, recorder::Redacting, run::Args};
use crate::{
    drain::tally::{Ended, Tally},
    machine::{Machine, pmu::catalog::Catalog},
    metric::stat::{Stat, Support},
    perf::Counting,
    plan::{Target, count::CountPlan},
    session::{
        counting::{count, count_targets},
        launch::Inherited,
        runtime,
    },
    view::{StatView, stat::write_plan},
};

/// Counts, and returns the exit code.
pub(super) fn execute(
    args: &Args,
    inherited: &Inherited,
    machine: &Machine,
    root: &Path,
) -> anyhow::Result<u8> {
    check(args)?;
    let catalog = Catalog::read(root)?;
    let plan = CountPlan::new(&args.request()?, &args.event, machine, &catalog, root)?;
    let plan = CountPlan { runs: args.repeat.unwrap_or(1), ..plan };
    if args.common.dry_run {
        let targets = count_targets(&plan, machine, None);
        let counters = targets.iter().map(|target| Counting::planned(&plan.groups, target)).sum();
        let mut into = args.common.format.open(output::Stream::Stdout);
        let plan = shown(&plan, &args.common.keep.redaction.begin())?;
        write_plan(&mut *into, &plan, counters, needs(&plan), args.common.format.format())?;
        return Ok(0);
    }
    let runtime = runtime()?;
    runtime.block_on(live((args, inherited), &plan, machine))
}

/// Options that mean nothing to a count, and what to do instead.
fn check(args: &Args) -> Result<(), Usage> {
    let samples = "a count takes no samples";
    let owners = "a count has no owners; run without --count reports by process or cgroup";
    let programs = "a count loads no BPF program";
    let wrong = [
        (args.period.is_some(), "--period", samples),
        (args.frequency.is_some(), "--frequency", samples),
        (args.stacks, "--stacks", samples),
        (args.no_sampling, "--no-sampling", samples),
        (args.by.is_some(), "--by", owners),
        (args.all_cgroups, "--all-cgroups", "name the cgroups to count with --cgroup"),
        (args.max_owners.is_some(), "--max-owners", owners),
        (args.no_descend, "--no-descend", "the kernel always counts the cgroups below, too"),
        (args.common.attach.is_some(), "--attach", programs),
        (args.common.btf.is_some(), "--btf", programs),
        (args.measure, "--measure", programs),
        (args.common.hdr_log.is_given(), "--hdr-log", "a count measures no latencies"),
        (args.bpf_log, "--bpf-log", programs),
    ];
    if let Some((_, flag, why)) = wrong.iter().find(|(given, ..)| *given) {
        return Err(Usage(format!("--count does not go with {flag}: {why}; leave out one of them")));
    }
    if let Some(file) = args.common.keep.file() {
        let file = file.display();
        return Err(Usage(format!(
            "--count records nothing, so there is nothing for -o {file}; `-o - >{file}` writes the counts there"
        )));
    }
    let of_tasks = !args.command.is_empty() || !args.pid.is_empty() || !args.tid.is_empty();
    if of_tasks && args.cpu.is_some() {
        let why = "--count counts a task wherever it runs, or everything on a CPU; leave out -C or the task";
        return Err(Usage(why.to_owned()));
    }
    if args.repeat.is_some_and(|runs| runs > 1) {
        check_repeat(args)?;
    }
    match args.common.fail_on.iter().find(|gate| **gate != Gate::Unsupported) {
        Some(_) => Err(Usage("--count knows one condition for --fail-on: unsupported".to_owned())),
        None => Ok(()),
    }
}

fn check_repeat(args: &Args) -> Result<(), Usage> {
    let why = if args.command.is_empty() {
        "--repeat runs a command several times: give one after `--`"
    } else if args.interval.is_some() {
        "--repeat reports the mean of whole runs: leave out --interval"
    } else if args.duration.is_some() {
        "--repeat runs the command to its end: leave out --duration"
    } else {
        return Ok(());
    };
    Err(Usage(why.to_owned()))
}

/// Rights that the plan takes, where `kernel.perf_event_paranoid` is what most hosts have.
const fn needs(plan: &CountPlan) -> &'static str {
    match plan.target {
        Target::System | Target::Cgroups(_) => "cap_perfmon",
        _ => "cap_perfmon to count in the kernel; none for user mode (:u)",
    }
}

async fn live(
    (args, inherited): (&Args, &Inherited),
    plan: &CountPlan,
    machine: &Machine,
) -> anyhow::Result<u8> {
    let redacting = args.common.keep.redaction.begin();
    let shown = &shown(plan, &redacting)?;
    let mut view = StatView::new(
        shown,
        args.common.format.format(),
        args.common.format.style(args.common.stream(&args.command)),
        args.common.format.open_for(args.common.stream(&args.command), args.common.if_unread(&args.command)),
    );
    let mut runs: Vec<Stat> = Vec::new();
    let mut broken_off = None;
    let mut earlier: Option<Tally> = None;
    let mut keep = |tally: Tally| -> anyhow::Result<()> {
        let tally = redacting.of(tally)?;
        let Some(ended) = tally.ended else {
            view.interval(&Stat::new(shown, &tally, earlier.as_ref()))?;
            earlier = Some(tally);
            return Ok(());
        };
        if plan.interval.is_some() {
            view.interval(&Stat::new(shown, &tally, earlier.as_ref()))?;
        }
        let stat = Stat::new(shown, &tally, None);
        if is_whole(plan, &ended) {
            runs.push(stat);
        } else {
            broken_off = Some((tally.run, stat));
        }
        Ok(())
    };
    let mut first = true;
    let mut ready = || {
        args.common.begin.announce(args.common.talks(&args.command) && std::mem::take(&mut first), "counts");
    };
    let ended = count(plan, machine, (&args.command, inherited), &mut ready, &mut keep).await?;
    if let Some((run, _)) = &broken_off {
        output::talk(&format!(
            "run {run} of {} {}: {} counted",
            plan.runs,
            how(&ended),
            whole_runs(runs.len())
        ));
    }
    // A single run is worth its counts however it ended.
    let stat = Stat::of_runs(&runs).or(broken_off.map(|(_, stat)| stat));
    if let Some(stat) = stat {
        view.whole(&stat, &ended)?;
        let absent = stat.rows.iter().find(|row| row.support == Support::NotHere);
        if let (Some(row), false) = (absent, args.common.fail_on.is_empty()) {
            return Err(super::failure::Quality(format!("{} is not available here", row.event)).into());
        }
    }
    Ok(exit_code(ended.stopped, ended.workload))
}

/// The plan as it may be shown: its target is what names somebody.
fn shown(plan: &CountPlan, redacting: &Redacting) -> serde_json::Result<CountPlan> {
    Ok(CountPlan { target: redacting.of(plan.target.clone())?, ..plan.clone() })
}

/// Is it one of the runs whose mean is reported? Of several, only those that succeeded.
fn is_whole(plan: &CountPlan, ended: &Ended) -> bool {
    plan.runs == 1 || ended.succeeded()
}

fn how(ended: &Ended) -> String {
    ended.workload.map_or_else(|| "was broken off".to_owned(), crate::view::workload_in_words)
}

fn whole_runs(count: usize) -> String {
    match count {
        0 => "what it did until then is".to_owned(),
        1 => "the one before it is".to_owned(),
        _ => format!("the {count} before it are"),
    }
}
