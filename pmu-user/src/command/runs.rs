//! `pmbpf run --runs`: runs the command once per counter group, and reports all its runs as one.

use std::{io, path::Path, sync::Arc, time::Instant};

use super::{
    failure::Usage,
    gate,
    live::{Live, exit_code},
    output::{self, Stream},
    pipeline::{self, Pipeline},
    run::Args,
    sources::Sources,
};
use crate::{
    drain::{Drain, Ending, Header},
    machine::{Machine, pmu::catalog::Catalog},
    metric::{Report, finding::findings, topdown::OneRun},
    perf::self_test,
    plan::{Plan, PlanError, metrics::MetricsError},
    session::{self, Signals, run_one_of_several},
    view::{View, workload_in_words},
};

/// Refuses options that do not go with several runs, and names the alternative.
pub(super) fn check(args: &Args) -> Result<(), Usage> {
    let why = if args.target.command.is_empty() {
        "--runs runs a command once for each group of counters: give one after `--`".to_owned()
    } else if args.common.duration.is_some() {
        "--runs runs the command to its end: leave out --duration".to_owned()
    } else if let Some(file) = args.common.keep.file() {
        format!("a recording holds one run, and --runs makes several: leave out -o {}", file.display())
    } else if args.programs.hdr_log.is_given() {
        "a log holds the latencies of one run, and --runs makes several: leave out --hdr-log".to_owned()
    } else {
        return Ok(());
    };
    Err(Usage(why))
}

/// Finished run of the command.
struct Done {
    header: Header,
    report: Report,
    run: Vec<OneRun>,
    ending: Ending,
}

/// Runs the command as often as planned, or until a run fails; returns the exit code of the last one.
pub(super) async fn live(
    mut live: Live<'_>,
    plan: &Plan,
    planned: u32,
    machine: &Machine,
) -> anyhow::Result<u8> {
    if let Some(why) = self_test::dead(&Catalog::read(Path::new("/"))?) {
        return Err(PlanError::Metrics(MetricsError::NoPmu(why)).into());
    }
    let mut signals = Signals::new()?;
    let mut first: Option<Done> = None;
    let mut runs: Vec<Vec<OneRun>> = Vec::new();
    let mut code = 0;
    for run in 0..planned {
        if live.common.talks(live.command) && output::is_watched() {
            output::talk(&format!("run {} of {planned}", run + 1));
        }
        let mut done = one(live, plan.of_run(run), machine.clone(), &mut signals).await?;
        live.launched = Instant::now();
        code = exit_code(done.ending.stopped, done.ending.workload);
        if !done.ending.succeeded() {
            complain(&done.ending, run, planned);
            break;
        }
        if done.run.is_empty() {
            anyhow::bail!("run {} measured no metrics", run + 1);
        }
        runs.push(std::mem::take(&mut done.run));
        match &mut first {
            None => first = Some(done),
            Some(first) => add_losses(&mut first.report, &done.report),
        }
    }
    signals.let_the_second_kill(Arc::default());
    if let Some(first) = first {
        write(live, plan, planned, first, &runs)?;
    }
    Ok(code)
}

/// Runs the command once, with the counters of `plan`.
async fn one(live: Live<'_>, plan: Plan, machine: Machine, signals: &mut Signals) -> anyhow::Result<Done> {
    let common = live.common;
    let (mut session, command) =
        live.begin(Sources { machine, tasks: Some(plan), io: None, counts: None })?;
    common.begin.tell();
    let command = command.ok_or_else(|| anyhow::anyhow!("there is no command to run"))?;
    let redacting = common.keep.redaction.begin();
    let header = redacting.of(session.header())?;
    // A single run writes nothing: there is one report of all of them.
    let nowhere = Box::new(io::sink());
    let output = common.output();
    let looks = (output.report_format(), output.style(Stream::Stdout));
    let mut pipeline = Pipeline::new(&header, live.folder, looks, nowhere)?;
    let mut keep =
        |drain: Drain| -> anyhow::Result<session::Next> { Ok(pipeline.drain(redacting.of(drain)?)?) };
    let outcome = run_one_of_several(&mut session, Some(command), signals, &mut keep).await?;
    keep(outcome.last)?;
    if let Some(names) = session.name(|_| ()) {
        pipeline.name(&redacting.of(names)?);
    }
    let (report, run) = pipeline.conclude();
    drop(pipeline);
    Ok(Done { header, report, run, ending: outcome.ending })
}

/// Writes the report of the first run, with the tree of all runs.
fn write(live: Live<'_>, plan: &Plan, planned: u32, first: Done, runs: &[Vec<OneRun>]) -> anyhow::Result<()> {
    let Done { header, mut report, ending, .. } = first;
    let prepared = pipeline::prepare(plan, &header.machine.topology, live.folder)?;
    let topdown = report.tasks.as_mut().map(|tasks| &mut tasks.topdown);
    if let Some(Ok(topdown)) = topdown {
        for (at, (one, metrics)) in topdown.iter_mut().zip(&plan.metrics).enumerate() {
            let runs: Vec<OneRun> = runs.iter().filter_map(|run| run.get(at)).cloned().collect();
            prepared.get(at).into_iter().for_each(|prepared| one.combine(prepared, metrics, planned, &runs));
        }
    }
    report.findings = findings(&header, &report);
    let common = live.common;
    let (output, stream) = (common.output(), common.stream(live.command));
    let (into, style) = (output.open(stream), output.style(stream));
    View::new(&header, output.report_format(), style, into).whole(&report, &ending)?;
    if common.talks(live.command) {
        pipeline::closing_line(&report);
    }
    Ok(gate::check(&common.fail_on, &report)?)
}

/// Adds the losses of a run to those of the report: they are missing from the tree of all runs.
fn add_losses(report: &mut Report, other: &Report) {
    report.lose(&other.losses);
}

/// Reports which run failed, and which runs the report covers.
fn complain(ending: &Ending, run: u32, planned: u32) {
    let how = ending.workload.map_or_else(|| "was broken off".to_owned(), workload_in_words);
    let rest = match run {
        0 => "there is nothing to report".to_owned(),
        1 => "the report is of the run before it".to_owned(),
        _ => format!("the report is of the {run} runs before it"),
    };
    output::talk(&format!("run {} of {planned} {how}: {rest}", run + 1));
}
