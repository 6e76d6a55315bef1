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
    untrusted::Untrusted,
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
    let mut bytes = Vec::new();
    for row in &report.rows {
        bytes.clear();
        number(&mut Fields(&mut bytes), report, row)?;
        bytes.extend_from_slice(b"}\n");
        into.write_all(&bytes)?;
    }
    Ok(())
}

/// A number; its fields are in the order in which a tree has them.
fn number(into: &mut Fields<'_>, report: &IoReport, row: &Row) -> io::Result<()> {
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
    into.value("coverage", &known.map(|known| known.coverage))?;
    into.value("dt", &report.length_ns)?;
    into.value("high", &cell(|known| known.high))?;
    into.word("how", known.map(|known| known.how.name()));
    into.word("kind", Some("io"));
    into.word("label", Some(row.label.name()));
    into.value("low", &cell(|known| known.low))?;
    into.value("metric", &row.metric)?;
    into.value("note", &row.note)?;
    into.value("reason", &reason)?;
    into.word("schema", Some(SCHEMA));
    into.value("share", &share)?;
    into.word("status", Some(words::status(&row.value)));
    into.value("subject", &subject(&row.subject))?;
    into.value("t", &report.from_ns)?;
    into.value("told_apart", &told_apart)?;
    into.value("unit", &row.unit)?;
    into.value("value", &cell(|known| known.estimate))
}

/// A row, field by field, as far as it is written. There are hundreds of rows a second on large machines, and a serializer would
/// look for what to escape in every name and every word of ours.
struct Fields<'a>(&'a mut Vec<u8>);

impl Fields<'_> {
    fn name(&mut self, name: &'static str) {
        self.0.extend_from_slice(if self.0.is_empty() { b"{\"" } else { b",\"" });
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    fn value(&mut self, name: &'static str, value: &impl Serialize) -> io::Result<()> {
        self.name(name);
        Ok(serde_json::to_writer(&mut *self.0, value)?)
    }

    /// A word in which nothing has to be escaped.
    fn word(&mut self, name: &'static str, word: Option<&'static str>) {
        self.name(name);
        match word {
            Some(word) => {
                self.0.push(b'"');
                self.0.extend_from_slice(word.as_bytes());
                self.0.push(b'"');
            }
            None => self.0.extend_from_slice(b"null"),
        }
    }
}

/// What a number is about. In the order in which a tree has its fields, too.
#[derive(Serialize)]
struct SubjectCell<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<&'static str>,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a Untrusted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<Box<Self>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a Untrusted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<&'a str>,
}

fn subject(subject: &Subject) -> SubjectCell<'_> {
    let plain = SubjectCell {
        address: None,
        at: None,
        direction: None,
        kind: kind(subject),
        name: None,
        of: None,
        operation: None,
        owner: None,
        path: None,
        port: None,
    };
    match subject {
        Subject::Place(at) => SubjectCell { at: Some(place(*at)), ..plain },
        Subject::Device(port, names) => SubjectCell { port: Some(port), name: Some(names), ..plain },
        Subject::Function(address, names) => {
            SubjectCell { address: Some(address), name: Some(names), ..plain }
        }
        Subject::Disk(name, operation) => {
            SubjectCell { name: Some(name), operation: Some(operation), ..plain }
        }
        Subject::Interface(name, direction) => {
            SubjectCell { name: Some(name), direction: Some(direction), ..plain }
        }
        Subject::Group(path) => SubjectCell { path: Some(path), ..plain },
        Subject::Owner(whose, of) => SubjectCell {
            owner: Some(json!(owner(&Who::Owner(Owner::clone(whose))))),
            of: Some(Box::new(self::subject(of))),
            ..plain
        },
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
