//! Rows of an interval of tasks in addition to its numbers. They hold bottlenecks, differences between runs
//! of a command, the use of the CPUs' time, interrupt handlers, and gaps.

use std::io::{self, Write};

use serde_json::json;

use super::{Number, SCHEMA, line, who::owner};
use crate::{
    drain::{Handler, Id},
    metric::{
        CpuBooks, GapReport, OwnerOrTarget, TasksReport,
        interrupt::HandlerReport,
        number::Attribution,
        topdown::{Runs, Shape, Spread, TopDown, Tree},
    },
    table::hint::hint,
};

/// Writes the rows of an interval.
pub(in crate::view) fn interval(into: &mut dyn Write, report: &TasksReport) -> io::Result<()> {
    topdown(into, report)?;
    let mut cpus = report.quality.books.iter().flat_map(|books| &books.cpus);
    cpus.try_for_each(|books| cpu_row(into, report, books))?;
    report.handlers.iter().try_for_each(|handler| handler_row(into, report, handler))?;
    report.blind.gaps.iter().chain(&report.blind.others_gaps).try_for_each(|gap| gap_row(into, gap))
}

/// Writes a row per owner that reports its bottleneck.
fn topdown(into: &mut dyn Write, report: &TasksReport) -> io::Result<()> {
    for topdown in report.topdown.iter().flatten() {
        for (who, tree) in &topdown.owners {
            bottleneck(into, report, topdown, (who, tree))?;
        }
        if let Some(runs) = &topdown.runs {
            several(into, report, topdown.pmu(), runs)?;
        }
    }
    Ok(())
}

/// Writes the runs of the command that the target's metrics are of, and how much they differ.
fn several(into: &mut dyn Write, report: &TasksReport, pmu: Option<&str>, runs: &Runs) -> io::Result<()> {
    let spread = |spread: &Spread| {
        let range = spread.range.as_ref().ok();
        json!({
            "what": spread.what, "unit": spread.unit.name(), "least": range.map(|(least, _)| Number(*least)),
            "most": range.map(|(_, most)| Number(*most)), "share": spread.share().map(Number),
            "reason": spread.range.as_ref().err(),
        })
    };
    let mut row = json!({
        "schema": SCHEMA, "kind": "runs", "t": report.from_ns, "dt": report.length_ns,
        "planned": runs.planned, "ended": runs.ended,
        "spread": runs.spreads.iter().map(spread).collect::<Vec<_>>(),
    });
    of_pmu(&mut row, pmu);
    line(into, &row)
}

fn bottleneck(
    into: &mut dyn Write,
    report: &TasksReport,
    topdown: &TopDown,
    (who, tree): (&OwnerOrTarget, &Tree),
) -> io::Result<()> {
    let shape = |index: &u32| topdown.shapes.iter().find(|shape| shape.index == *index);
    let path: Vec<&Shape> = tree.path.iter().filter_map(shape).collect();
    let last = path.last();
    let hint = last.and_then(|last| hint(&last.name));
    let path: Vec<&str> = path.iter().map(|shape| shape.name.as_str()).collect();
    let mut row = json!({
        "schema": SCHEMA, "kind": "bottleneck", "t": report.from_ns, "dt": report.length_ns,
        "owner": owner(who.into()), "model": topdown.model, "formulas": topdown.formulas, "source": topdown.source,
        "path": path, "says": hint.map(|hint| &hint.says), "try": hint.map(|hint| &hint.try_next),
        "locate": last.map(|last| &last.locate),
        "mismeasured": tree.faults, "notes": topdown.notes,
    });
    of_pmu(&mut row, topdown.pmu());
    line(into, &row)
}

/// Adds the core PMU of a row, where cores differ.
fn of_pmu(row: &mut serde_json::Value, pmu: Option<&str>) {
    if let Some(pmu) = pmu {
        row["pmu"] = pmu.into();
    }
}

/// Writes the use of a CPU's time.
fn cpu_row(into: &mut dyn Write, report: &TasksReport, books: &CpuBooks) -> io::Result<()> {
    let time = &books.time;
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "cpu", "t": report.from_ns, "dt": report.length_ns, "cpu": books.cpu.0,
            "capacity_ns": time.wall_ns, "owners_ns": time.owners_ns, "idle_ns": time.idle_ns,
            "scheduler_ns": time.between_ns, "pending_ns": time.pending_ns, "excluded_ns": time.excluded_ns,
            "uncovered_ns": time.uncovered_ns, "rest_ns": time.rest_ns()}),
    )
}

/// Writes the runs of an interrupt handler on a CPU.
fn handler_row(into: &mut dyn Write, report: &TasksReport, handler: &HandlerReport) -> io::Result<()> {
    let line_number = match handler.handler {
        Handler::Line(number) => Some(number),
        _ => None,
    };
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "interrupt", "t": report.from_ns, "dt": report.length_ns, "cpu": handler.cpu.0,
            "handler": handler.name.as_ref().map_or_else(|| handler.handler.name(), |name| name.terminal().into_owned()),
            "type": handler.handler.kind(), "irq": line_number, "runs": handler.runs.runs,
            "time_ns": handler.runs.total_ns, "longest_ns": handler.runs.longest_ns}),
    )
}

/// Writes a late timer that is long enough to be listed.
fn gap_row(into: &mut dyn Write, gap: &GapReport) -> io::Result<()> {
    let row = &gap.gap.row;
    let mut cells = json!({
            "schema": SCHEMA, "kind": "gap", "t": row.at_ns, "cpu": row.cpu.0, "late_ns": row.late_ns,
            "stolen_ns": row.stolen_ns, "class": gap.class.name(), "timers": gap.gap.timers,
            "tid": Id::of(row.tid).here(), "pid": Id::of(row.tgid).here(), "comm": row.comm,
            "owner": gap.owner.as_ref().map(|who| owner(Attribution::Owner(who))),
            "stack": gap.stack,
    });
    if let Some(handler) = &gap.handler {
        cells["handler"] = handler.as_str().into();
    }
    line(into, &cells)
}
