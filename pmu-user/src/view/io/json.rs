//! NDJSON, schema `pmbpf/1`, as for `run`: a header row, a row of kind `io` for every number, and a summary.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::{
    super::{
        json::{Number, SCHEMA, line, owner, stopped, workload},
        words,
    },
    checks, kind, levels, place,
};
use crate::{
    drain::{Ending, Owner, Stopped, io::IoHeader},
    metric::{
        Who,
        io::{IoReport, Label, Row, Subject},
        value::{Known, Value},
    },
};

/// Header row.
pub(super) fn begin(into: &mut dyn Write, header: &IoHeader) -> io::Result<()> {
    let (machine, plan) = (&header.machine, &header.plan);
    let boxes = |kind: &crate::plan::io::BoxKind| {
        json!({"kind": kind.name, "boxes": kind.boxes.len(), "groups": kind.turns.groups.len(),
               "slice_ns": kind.turns.slice.as_nanos() as u64})
    };
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "header", "command": "io", "version": header.version,
            "host": machine.host, "kernel": machine.kernel,
            "cpu": {"model": machine.cpu.model, "online": machine.cpu.online.len(), "guest": machine.cpu.guest},
            "started": words::started_at(header.started_unix_ns),
            "target": words::whom_in_words(&plan.target, plan.inherit, plan.descend),
            "interval_ns": plan.interval.map(|interval| interval.as_nanos() as u64),
            "table": plan.table, "boxes": plan.kinds.iter().map(boxes).collect::<Vec<_>>(),
            "missing": header.missing,
        }),
    )
}

/// All rows of an interval.
pub(super) fn interval(into: &mut dyn Write, report: &IoReport) -> io::Result<()> {
    report.rows.iter().try_for_each(|row| line(into, &number(report, row)))
}

/// A number. Written hundreds of times a second on large machines, so it is not made into a tree first; its fields are in
/// the order in which a tree has them.
#[derive(Serialize)]
struct Cell<'a> {
    coverage: Option<f64>,
    dt: u64,
    high: Option<Number>,
    how: Option<&'static str>,
    kind: &'static str,
    label: &'static str,
    low: Option<Number>,
    metric: &'a str,
    note: Option<&'a str>,
    reason: Option<&'a str>,
    schema: &'static str,
    share: Option<f64>,
    status: &'static str,
    subject: Json,
    t: u64,
    told_apart: Option<f64>,
    unit: &'a str,
    value: Option<Number>,
}

fn number<'a>(report: &IoReport, row: &'a Row) -> Cell<'a> {
    let known = row.value.known();
    let cell = |pick: fn(&Known) -> f64| known.map(|known| Number(pick(known)));
    let reason = match &row.value {
        Value::Known(_) => None,
        Value::Missing(why) => Some(why.as_str()),
    };
    let (share, told_apart) = match row.label {
        Label::Apportioned { share, coverage } => (Some(share), Some(coverage)),
        Label::Measured | Label::System => (None, None),
    };
    Cell {
        coverage: known.map(|known| known.coverage),
        dt: report.length_ns,
        high: cell(|known| known.high),
        how: known.map(|known| known.how.name()),
        kind: "io",
        label: row.label.name(),
        low: cell(|known| known.low),
        metric: &row.metric,
        note: row.note.as_deref(),
        reason,
        schema: SCHEMA,
        share,
        status: words::status(&row.value),
        subject: subject(&row.subject),
        t: report.from_ns,
        told_apart,
        unit: &row.unit,
        value: cell(|known| known.estimate),
    }
}

fn subject(subject: &Subject) -> Json {
    let kind = kind(subject);
    match subject {
        Subject::Place(at) => json!({"kind": kind, "at": place(*at)}),
        Subject::Device(port, names) => json!({"kind": kind, "port": port, "name": names}),
        Subject::Function(address, names) => json!({"kind": kind, "address": address, "name": names}),
        Subject::Disk(name, operation) => json!({"kind": kind, "name": name, "operation": operation}),
        Subject::Interface(name, direction) => json!({"kind": kind, "name": name, "direction": direction}),
        Subject::Group(path) => json!({"kind": kind, "path": path}),
        Subject::Owner(whose, of) => json!({
            "kind": kind, "owner": owner(&Who::Owner(Owner::clone(whose))), "of": self::subject(of)}),
    }
}

/// The last rows.
pub(super) fn end(into: &mut dyn Write, report: &IoReport, ending: &Ending) -> io::Result<()> {
    levels::json(into, report)?;
    checks::json(into, report)?;
    for map in &report.maps {
        let port = map.port.to_string();
        line(
            into,
            &json!({"schema": SCHEMA, "kind": "map", "port": port, "name": map.names, "map": map.map,
                    "traffic": map.traffic}),
        )?;
    }
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "summary", "t": report.from_ns, "dt": report.length_ns,
            "complete": ending.stopped != Stopped::Truncated, "stopped": stopped(ending.stopped), "workload": ending.workload.map(workload),
            "missing": report.missing, "losses": report.losses,
            "cost": {"cpu_ns": report.cost.cpu_ns, "resident_max_bytes": report.cost.resident_max_bytes,
                     "startup_ns": report.cost.startup_ns, "drains": report.cost.drains,
                     "programs_ns": report.programs_ns},
        }),
    )
}
