//! Rows at the end of a run: hot functions, modules and stacks, culprits, and the summary.

use std::{
    io::{self, Write},
    time::Duration,
};

use serde_json::{Map, Value as Json, json};

use super::{super::words, Number, SCHEMA, extend, line, who::owner};
use crate::{
    drain::{
        Cut, Ending, Header, Id, Line, Owner, Stopped, TasksHeader, Usage, Workload, unwinding::Unwinding,
    },
    machine::duration_ns,
    metric::{
        Blind, Books, CostReport, Followed, Frame, HotFunction, HotInlined, HotLine, HotModule, HotStack,
        RatioReport, Report, TargetFunction, TasksReport,
        culprit::{Culprit, Waited},
        number::Attribution,
        off_cpu_stack,
        repeat::Outlier,
        stat::Stat,
        value::Value,
    },
};

/// Writes hot functions, modules, stacks and culprits.
pub(in crate::view) fn end(into: &mut dyn Write, report: &TasksReport) -> io::Result<()> {
    report.hot.iter().try_for_each(|function| line(into, &hot_row(function)))?;
    report.functions.iter().try_for_each(|function| line(into, &function_row(function)))?;
    report.modules.iter().try_for_each(|module| line(into, &module_row(module)))?;
    report.stacks.iter().try_for_each(|stack| stack_row(into, stack))?;
    report.off_cpu_stacks.iter().try_for_each(|stack| off_cpu_stack_row(into, stack))?;
    report.waited.iter().try_for_each(|waited| culprit_rows(into, "culprit", waited))?;
    // Rows with programs as victims and as culprits.
    let by_program = report.folded.iter().flat_map(|folded| &folded.waited);
    by_program.into_iter().try_for_each(|waited| culprit_rows(into, "program_culprit", waited))
}

/// Maximum number of owners in the row of a function. Rows of kind `hot` have all.
const OWNERS_OF_FUNCTION: usize = 8;
/// Maximum number of functions in the rows of an interval.
const HOT_OF_INTERVAL: usize = 10;

/// Writes the hottest functions of an interval.
pub(super) fn hot_of_interval(into: &mut dyn Write, report: &TasksReport) -> io::Result<()> {
    report.hot.iter().take(HOT_OF_INTERVAL).try_for_each(|function| {
        let mut row = hot_row(function);
        extend(&mut row, Some(json!({"t": report.from_ns, "dt": report.length_ns})));
        line(into, &row)
    })
}

/// Writes the culprits that had the CPUs for which one owner waited.
fn culprit_rows(into: &mut dyn Write, kind: &str, waited: &Waited) -> io::Result<()> {
    waited.charges.iter().try_for_each(|charge| {
        let culprit = match &charge.culprit {
            Culprit::Owner(culprit) => json!(owner(Attribution::Owner(culprit))),
            nobody => json!({"kind": words::culprit(nobody), "name": words::culprit(nobody)}),
        };
        line(
            into,
            &json!({
                "schema": SCHEMA, "kind": kind, "owner": owner(Attribution::from(&waited.who)), "culprit": culprit,
                "wait_ns": charge.wait_ns, "share": charge.share, "of_ns": waited.wait_ns,
            }),
        )
    })
}

/// Returns the row of a function over the target: that of an owner, with the samples of each owner.
fn function_row(function: &TargetFunction) -> Json {
    let mut row = hot_row(&function.hot);
    let whose = |(whose, samples): &(Owner, u64)| json!({"owner": owner(Attribution::Owner(whose)), "samples": samples});
    if let Some(fields) = row.as_object_mut() {
        fields.remove("owner");
        fields.remove("pid");
    }
    row["kind"] = "function".into();
    row["owners"] = function.owners.iter().take(OWNERS_OF_FUNCTION).map(whose).collect();
    row["owners_in_all"] = function.owners.len().into();
    row
}

/// Returns the row of a file's samples.
fn module_row(module: &HotModule) -> Json {
    json!({
        "schema": SCHEMA, "kind": "module", "module": module.module, "build_id": module.build_id,
        "mode": if module.kernel { "kernel" } else { "user" }, "samples": module.samples,
        "share": module.share.estimate, "low": module.share.low, "high": module.share.high,
    })
}

fn hot_row(hot: &HotFunction) -> Json {
    let mut row = json!({
            "schema": SCHEMA, "kind": "hot", "owner": owner(Attribution::Owner(&hot.owner)), "pid": if hot.kernel { None } else { pid(&hot.owner) },
            "mode": if hot.kernel { "kernel" } else { "user" },
            "frame": frame(&hot.frame), "build_id": hot.build_id,
            "inlined": hot.hottest_inlined().iter().map(|part| &part.name).collect::<Vec<_>>(),
            "lines": hot.hottest_lines().iter().map(line_of).collect::<Vec<_>>(),
            "samples": hot.samples, "share": hot.share.estimate, "low": hot.share.low, "high": hot.share.high,
            "reason": hot.unnamed,
    });
    if !hot.inlined.is_empty() {
        row["parts"] = hot.hottest_inlined().iter().map(part_of).collect();
    }
    if !hot.events.is_empty() {
        row["events"] = hot
            .events
            .iter()
            .map(|event| {
                json!({"event": event.name, "samples": event.samples, "count": known(&event.count),
                       "share": event.share.estimate, "low": event.share.low, "high": event.share.high})
            })
            .collect();
        row["ratios"] = ratios(&hot.ratios);
    }
    row
}

/// Returns a line, and the function that is inlined there.
fn line_of(hot: &HotLine) -> Json {
    let mut line = json!({
        "file": hot.place.line.file, "line": hot.place.line.line, "samples": hot.samples.first().unwrap_or(&0),
    });
    if let Some(name) = &hot.place.inlined {
        line["function"] = json!(name);
        line["called_at"] = place(hot.place.call.as_ref());
    }
    line
}

/// Returns the part of a function's samples that hit a function inlined in it.
fn part_of(part: &HotInlined) -> Json {
    json!({
        "function": part.name, "samples": part.tally.samples, "share": part.share.estimate, "low": part.share.low,
        "high": part.share.high, "at": place(part.line.as_ref()), "called_at": place(part.call.as_ref()),
    })
}

/// Returns a source line, if it is known.
fn place(line: Option<&Line>) -> Json {
    line.map_or(Json::Null, |line| json!({"file": line.file, "line": line.line}))
}

fn stack_row(into: &mut dyn Write, stack: &HotStack) -> io::Result<()> {
    let mut row = json!({
        "schema": SCHEMA, "kind": "stack", "owner": owner(Attribution::Owner(&stack.owner)), "pid": pid(&stack.owner),
        "samples": stack.samples.first().unwrap_or(&0),
        "share": stack.share.estimate, "low": stack.share.low, "high": stack.share.high,
        "frames": stack.frames.iter().map(frame).collect::<Vec<_>>(),
    });
    if stack.samples.len() > 1 {
        row["samples_by_event"] = json!(stack.samples);
    }
    line(into, &row)
}

fn off_cpu_stack_row(into: &mut dyn Write, stack: &HotStack) -> io::Result<()> {
    let tally = stack.tallies.first().copied().unwrap_or_default();
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "off_cpu_stack", "owner": owner(Attribution::Owner(&stack.owner)),
            "pid": pid(&stack.owner), "waits": tally.samples, "time_ns": known(&Value::Known(off_cpu_stack::time(&tally))),
            "share": stack.share.estimate, "low": stack.share.low, "high": stack.share.high,
            "frames": stack.frames.iter().map(frame).collect::<Vec<_>>(),
        }),
    )
}

/// Returns the id of the owner's process, if the owner has one.
fn pid(owner: &Owner) -> Option<u32> {
    match owner {
        Owner::Process { pid, .. } | Owner::Thread { pid, .. } => Id::of(*pid).here(),
        _ => None,
    }
}

pub(in crate::view) fn frame(frame: &Frame) -> Json {
    match frame {
        Frame::Function { name, module, inlined: true, .. } => {
            json!({"function": name, "module": module, "inlined": true})
        }
        Frame::Function { name, module, .. } => json!({"function": name, "module": module}),
        Frame::Offset { module, build_id, offset } => {
            json!({"function": null, "module": module, "build_id": build_id, "offset": offset})
        }
        Frame::Address(address) => json!({"function": null, "module": null, "address": address}),
        Frame::Rest => json!({"function": null, "module": null, "rest": true}),
        Frame::Cut(Cut::Deep(frames)) => {
            json!({"function": null, "module": null, "cut": "deep", "frames": frames})
        }
        Frame::Cut(cut) => json!({"function": null, "module": null, "cut": cut.name()}),
    }
}

/// Returns the outcome of unwinding user stacks by DWARF.
fn unwinding(unwinding: &Unwinding) -> Json {
    let kept: Map<String, Json> =
        unwinding.kept.iter().map(|(why, samples)| (why.name().to_owned(), json!(samples))).collect();
    json!({"unwound": unwinding.unwound, "not_unwound": kept})
}

/// Returns the fields of the summary that only tasks have.
fn tasks(header: &TasksHeader, report: &TasksReport) -> Json {
    json!({
            "user_stacks": report.stack_ends.as_ref().map(|ends| json!({
                "samples": ends.samples, "end_early": ends.early, "share": ends.share.estimate,
                "low": ends.share.low, "high": ends.share.high, "cut": ends.deep,
                "unwinding": ends.unwinding.as_ref().map(unwinding)})),
            "quality": quality_cell(report, header),
            "blind": blind_cell(&report.blind),
    })
}

/// Returns the fields of the summary that only counts have.
fn counts(stat: &Stat) -> Json {
    let outlier = |outlier: &Outlier| {
        json!({"run": outlier.run, "what": outlier.what, "unit": outlier.unit, "value": Number(outlier.value),
               "median": Number(outlier.median), "score": outlier.score})
    };
    json!({"runs": stat.runs, "outliers": stat.outliers.iter().map(outlier).collect::<Vec<_>>()})
}

/// Returns the row that ends a run: the fields of all sources, then those of a single source.
pub(super) fn summary(header: &Header, report: &Report, ending: &Ending) -> Json {
    let mut row = json!({
            "schema": SCHEMA, "kind": "summary", "complete": ending.stopped != Stopped::Truncated,
            "stopped": stopped(ending.stopped), "duration_ns": duration(report), "losses": report.losses,
            "workload": ending.workload.map(|workload| command(workload, ending)), "missing": report.missing,
    });
    let tasks =
        header.tasks.as_ref().zip(report.tasks.as_ref()).map(|(header, report)| tasks(header, report));
    let cost = report.cost.as_ref().map(|cost| json!({"self": self_cell(cost)}));
    let span = report.span.map(|(from_ns, to_ns)| json!({"span": {"from_ns": from_ns, "to_ns": to_ns}}));
    let one = |followed: &Followed| json!({"owner": owner(Attribution::Owner(&followed.owner)), "t": followed.at_ns, "late_ns": followed.late_ns});
    let followed = (!report.followed.is_empty())
        .then(|| json!({"followed": report.followed.iter().map(one).collect::<Vec<_>>()}));
    for part in [span, tasks, cost, report.counts.as_ref().map(counts), followed] {
        extend(&mut row, part);
    }
    row
}

/// Returns the length of the run in ns.
fn duration(report: &Report) -> Json {
    match (&report.tasks, &report.io, &report.counts) {
        (Some(tasks), _, _) => json!(tasks.length_ns),
        (_, Some(io), _) => json!(io.length_ns),
        (_, _, counts) => {
            json!(
                counts.as_ref().and_then(|counts| counts.elapsed.known()).map(|known| Number(known.estimate))
            )
        }
    }
}

/// Returns the blind time of all CPUs that were counted, and that of the target unless only the target ran.
fn blind_cell(blind: &Blind) -> Json {
    let target = blind.target.as_ref().map(|masked| {
        json!({"masked": known(&masked.time), "share": masked.share(), "late_ticks": masked.late_ticks,
               "sure_ticks": masked.sure_ticks, "kernel_ticks": masked.kernel_ticks, "floor_ns": masked.floor_ns, "of_ns": masked.of_ns})
    });
    let floor = blind.floor.map(|floor| {
        json!({"user_ticks": floor.user_ticks, "late_ticks": floor.late_ticks, "share": floor.share()})
    });
    let machine = &blind.machine;
    let mut cell = json!({
        "of": "machine", "masked": known(&machine.time), "share": machine.share(), "of_ns": machine.of_ns,
        "sure_ticks": machine.sure_ticks, "kernel_ticks": machine.kernel_ticks, "floor_ns": machine.floor_ns, "floor": floor,
        "stolen": known(&blind.stolen),
        "late_ticks": {"masked": machine.late_ticks, "stolen": blind.stolen_ticks, "idle": blind.idle_ticks},
        "gaps_left_out": blind.gaps_left_out, "target": target,
    });
    if let Some((time, ticks)) = &blind.handled {
        (cell["handlers"], cell["late_ticks"]["handler"]) = (known(time), (*ticks).into());
    }
    cell
}

/// Returns ratios by name.
fn ratios(ratios: &[RatioReport]) -> Json {
    ratios.iter().map(|ratio| (ratio.name.clone(), known(&ratio.value))).collect::<Map<_, _>>().into()
}

pub(super) fn known(value: &Value) -> Json {
    match value {
        Value::Known(known) => json!({
            "value": Number(known.estimate), "low": Number(known.low), "high": Number(known.high),
            "coverage": known.coverage, "how": known.how.name()}),
        Value::Missing(why) => json!({"value": null, "reason": why}),
    }
}

fn quality_cell(report: &TasksReport, header: &TasksHeader) -> Json {
    let quality = &report.quality;
    let events = header.plan.samples_events();
    let target = quality.target.as_ref().map(|target| {
        let samples = target.samples.iter().map(|samples| {
            json!({"event": samples.event, "expected": samples.expected, "seen": samples.seen,
                   "coverage": samples.coverage})
        });
        json!({"samples": samples.collect::<Vec<_>>()})
    });
    let mut cell = json!({
        "of": "machine", "target": target, "switches": quality.switches, "switches_missing": quality.switches_missing,
        "switch_coverage": quality.switch_coverage,
        "samples": quality.samples.first().map(|samples| json!({
            "expected": samples.expected, "seen": samples.seen, "idle": samples.idle,
            "idle_missing": samples.idle_missing,
            "withheld": samples.withheld, "silences": samples.silences, "silent_ns": samples.silent_ns,
            "coverage": samples.coverage})),
        "uncovered": quality.uncovered.iter().map(|(cpu, ns)| json!({"cpu": cpu.0, "ns": ns})).collect::<Vec<_>>(),
        "ticks": {"seen": quality.ticks.seen, "period_ns": quality.ticks.period_ns,
                  "coverage": quality.ticks.coverage},
        "books": quality.books.as_ref().map(books_cell),
    });
    if let Some(by) = &report.interrupted_by {
        cell["interrupts"] = json!({"time_ns": by.time_ns, "of_idle_ns": by.idle_ns, "of_others_ns": by.others_ns,
                                    "missed": by.missed});
    }
    if events {
        cell["events"] = quality
            .samples
            .iter()
            .map(|event| {
                json!({"event": event.event, "expected": event.expected, "seen": event.seen, "idle": event.idle,
                       "coverage": event.coverage, "running": event.running})
            })
            .collect();
    }
    cell
}

fn books_cell(books: &Books) -> Json {
    let time = &books.time;
    json!({
        "capacity_ns": time.wall_ns, "owners_ns": time.owners_ns, "idle_ns": time.idle_ns,
        "scheduler_ns": time.between_ns, "pending_ns": time.pending_ns, "interrupts_ns": time.interrupts_ns,
        "stolen_ns": books.stolen_ns, "uncovered_ns": time.uncovered_ns, "rest_ns": time.rest_ns(),
        "closing_error": books.closing_error()})
}

fn self_cell(cost: &CostReport) -> Json {
    let programs = cost.programs.iter().map(|program| {
        json!({"name": program.name, "ns_per_run": known(&program.ns_per_run), "runs": known(&program.runs),
               "total_ns": known(&program.total_ns), "disturbed_ns": program.disturbed_ns})
    });
    json!({
        "programs": programs.collect::<Vec<_>>(), "programs_ns": known(&cost.programs_ns),
        "disturbed_ns": cost.disturbed_ns,
        "cpu_ns": cost.cpu_ns(), "startup_cpu_ns": cost.startup_cpu_ns, "counting_cpu_ns": cost.counting_cpu_ns,
        "capacity_ns": cost.capacity_ns,
        "rss_bytes": cost.process.resident_bytes, "rss_max_bytes": cost.process.resident_max_bytes,
        "map_bytes": cost.process.map_bytes, "startup_ns": cost.process.startup_ns,
        "drains": cost.process.drains, "drains_ns": cost.process.drains_ns,
        "drain_max_ns": cost.process.drain_max_ns,
    })
}

fn stopped(stopped: Stopped) -> Json {
    match stopped {
        Stopped::Duration => json!("duration"),
        Stopped::TargetGone => json!("target_gone"),
        Stopped::Signal(number) => json!(words::signal_name(number)),
        Stopped::Truncated => json!("truncated"),
    }
}

/// Returns how a command ended, and its times as time(1) reports them.
fn command(ended: Workload, ending: &Ending) -> Json {
    let mut row = workload(ended);
    let elapsed_ns = ending.has_ended().then(|| duration_ns(ending.duration));
    let used = |of: fn(&Usage) -> Duration| ending.usage.as_ref().map(|usage| duration_ns(of(usage)));
    let (user_ns, system_ns) = (used(|usage| usage.user), used(|usage| usage.system));
    extend(&mut row, Some(json!({"elapsed_ns": elapsed_ns, "user_ns": user_ns, "system_ns": system_ns})));
    row
}

fn workload(workload: Workload) -> Json {
    match workload {
        Workload::Exited(code) => json!({"exit": code, "signal": null}),
        Workload::Killed(number) => json!({"exit": null, "signal": words::signal_name(number)}),
        Workload::Running => json!({"exit": null, "signal": null}),
    }
}
