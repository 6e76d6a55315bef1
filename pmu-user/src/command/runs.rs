//! `pmbpf run --runs`: the command once for each group of counters, and one report of all its runs.

use std::{io, path::Path, time::Instant};

use super::{
    failure::Usage,
    gate, output,
    pipeline::{self, Pipeline},
    run::{Args, begin, exit_code},
};
use crate::{
    drain::{Drain, Ending, Header},
    machine::{Machine, pmu::catalog::Catalog},
    metric::{Report, topdown::OneRun},
    perf::self_test,
    plan::{Plan, PlanError, metrics::MetricsError},
    session::{self, Signals, launch::Inherited, run_one_of_several},
    view::{RunView, workload_in_words},
};

/// What several runs cannot be combined with, and what to do instead.
pub(super) fn check(args: &Args) -> Result<(), Usage> {
    let why = if args.command.is_empty() {
        "--runs runs a command once for each group of counters: give one after `--`".to_owned()
    } else if args.duration.is_some() {
        "--runs runs the command to its end: leave out --duration".to_owned()
    } else if let Some(file) = args.keep.file() {
        format!("a recording holds one run, and --runs makes several: leave out -o {}", file.display())
    } else if args.hdr_log.is_given() {
        "a log holds the latencies of one run, and --runs makes several: leave out --hdr-log".to_owned()
    } else {
        return Ok(());
    };
    Err(Usage(why))
}

/// A run that is over.
struct Done {
    header: Header,
    report: Report,
    run: Option<OneRun>,
    ending: Ending,
}

/// Runs the command as often as planned, or until a run fails; the exit code is the last one's.
pub(super) async fn live(
    (args, inherited): (&Args, &Inherited),
    plan: &Plan,
    planned: u32,
    machine: &Machine,
    mut launched: Instant,
) -> anyhow::Result<u8> {
    if let Some(why) = self_test::dead(&Catalog::read(Path::new("/"))?) {
        return Err(PlanError::Metrics(MetricsError::NoPmu(why)).into());
    }
    let mut signals = Signals::new()?;
    let mut first: Option<Done> = None;
    let mut runs: Vec<OneRun> = Vec::new();
    let mut code = 0;
    for run in 0..planned {
        if args.talks() && output::is_watched() {
            output::talk(&format!("run {} of {planned}", run + 1));
        }
        let mut done =
            one((args, inherited), plan.of_run(run), machine.clone(), launched, &mut signals).await?;
        launched = Instant::now();
        code = exit_code(done.ending.stopped, done.ending.workload);
        if !done.ending.succeeded() {
            complain(&done.ending, run, planned);
            break;
        }
        runs.push(done.run.take().ok_or_else(|| anyhow::anyhow!("run {} measured no metrics", run + 1))?);
        match &mut first {
            None => first = Some(done),
            Some(first) => add_losses(&mut first.report, &done.report),
        }
    }
    signals.let_the_second_kill();
    if let Some(first) = first {
        write(args, plan, planned, first, &runs)?;
    }
    Ok(code)
}

/// One run of the command, with the counters of `plan`.
async fn one(
    (args, inherited): (&Args, &Inherited),
    plan: Plan,
    machine: Machine,
    launched: Instant,
    signals: &mut Signals,
) -> anyhow::Result<Done> {
    let (mut session, command) = begin((args, inherited), plan, machine, launched)?;
    args.begin.tell();
    let command = command.ok_or_else(|| anyhow::anyhow!("there is no command to run"))?;
    let redacting = args.keep.redaction.begin();
    let header = redacting.of(session.header.clone())?;
    let prepared =
        pipeline::prepare(&header.plan, &header.machine.topology, args.metrics.perfmon_dir.as_deref())?;
    // What a single run says is not written: there is one report of all of them.
    let nowhere = Box::new(io::sink());
    let mut pipeline = Pipeline::new(&header, prepared, args.format.format(), args.format.style(), nowhere);
    let mut keep =
        |drain: Drain| -> anyhow::Result<session::Next> { Ok(pipeline.drain(&redacting.of(drain)?)?) };
    let outcome = run_one_of_several(&mut session, command, signals, &mut keep).await?;
    keep(outcome.last)?;
    pipeline.name(&redacting.of(session.name())?);
    let (report, run) = pipeline.conclude();
    drop(pipeline);
    Ok(Done { header, report, run, ending: outcome.ending })
}

/// The report of the first run, with the tree of all.
fn write(args: &Args, plan: &Plan, planned: u32, first: Done, runs: &[OneRun]) -> anyhow::Result<()> {
    let Done { header, mut report, ending, .. } = first;
    let prepared = pipeline::prepare(plan, &header.machine.topology, args.metrics.perfmon_dir.as_deref())?;
    if let (Ok(topdown), Some(prepared), Some(metrics)) = (&mut report.topdown, &prepared, &plan.metrics) {
        topdown.combine(prepared, metrics, planned, runs);
    }
    let into = args.format.open(args.stream());
    RunView::new(&header, args.format.format(), args.format.style(), into).whole(&report, &ending)?;
    if args.talks() {
        pipeline::closing_line(&report);
    }
    Ok(gate::check(&args.fail_on, &header, &report)?)
}

/// What any of the runs lost is lost to the tree of all.
fn add_losses(report: &mut Report, other: &Report) {
    for (reason, count) in &other.quality.losses {
        *report.quality.losses.entry(reason.clone()).or_default() += count;
    }
}

/// Says which run did not end well, and what becomes of the report.
fn complain(ending: &Ending, run: u32, planned: u32) {
    let how = ending.workload.map_or_else(|| "was broken off".to_owned(), workload_in_words);
    let rest = match run {
        0 => "there is nothing to report".to_owned(),
        1 => "the report is of the run before it".to_owned(),
        _ => format!("the report is of the {run} runs before it"),
    };
    output::talk(&format!("run {} of {planned} {how}: {rest}", run + 1));
}
