//! NDJSON, schema `pmbpf/1`, as for `run`: a header row, a row of kind `io` for every number, and a summary.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

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
            "target": plan.target.in_words(plan.inherit, plan.descend),
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
        number(Fields::new(&mut bytes), report, row)?;
        bytes.push(b'\n');
        into.write_all(&bytes)?;
    }
    Ok(())
}

/// A number; its fields are in the order in which a tree has them.
fn number(mut into: Fields<'_>, report: &IoReport, row: &Row) -> io::Result<()> {
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
    subject(into.object("subject"), &row.subject)?;
    into.value("t", &report.from_ns)?;
    into.value("told_apart", &told_apart)?;
    into.value("unit", &row.unit.name())?;
    into.value("value", &cell(|known| known.estimate))?;
    into.end();
    Ok(())
}

/// What a number is about. In the order in which a tree has its fields, too.
fn subject(mut into: Fields<'_>, of: &Subject) -> io::Result<()> {
    let kind = Some(kind(of));
    match of {
        Subject::Place(at) => {
            into.value("at", &place(*at))?;
            into.word("kind", kind);
        }
        Subject::Device(port, names) => {
            into.word("kind", kind);
            into.value("name", names)?;
            into.value("port", port)?;
        }
        Subject::Function(address, names) => {
            into.value("address", address)?;
            into.word("kind", kind);
            into.value("name", names)?;
        }
        Subject::Disk(name, operation) => {
            into.word("kind", kind);
            into.value("name", name)?;
            into.word("operation", Some(operation));
        }
        Subject::Interface(name, direction) => {
            into.word("direction", Some(direction));
            into.word("kind", kind);
            into.value("name", name)?;
        }
        Subject::Group(path) => {
            into.word("kind", kind);
            into.value("path", path)?;
        }
        Subject::Owner(whose, what) => {
            into.word("kind", kind);
            subject(into.object("of"), what)?;
            into.value("owner", &json!(owner(&Who::Owner(Owner::clone(whose)))))?;
        }
    }
    into.end();
    Ok(())
}

/// An object, field by field. There are hundreds of rows a second on large machines, and a serializer would look for what to
/// escape in every name and every word of ours.
struct Fields<'a> {
    into: &'a mut Vec<u8>,
    /// What stands before the next field.
    before: u8,
}

impl<'a> Fields<'a> {
    const fn new(into: &'a mut Vec<u8>) -> Self {
        Self { into, before: b'{' }
    }

    fn name(&mut self, name: &'static str) {
        self.into.push(std::mem::replace(&mut self.before, b','));
        self.into.push(b'"');
        self.into.extend_from_slice(name.as_bytes());
        self.into.extend_from_slice(b"\":");
    }

    fn value(&mut self, name: &'static str, value: &impl Serialize) -> io::Result<()> {
        self.name(name);
        Ok(serde_json::to_writer(&mut *self.into, value)?)
    }

    /// A word in which nothing has to be escaped.
    fn word(&mut self, name: &'static str, word: Option<&'static str>) {
        self.name(name);
        match word {
            Some(word) => {
                self.into.push(b'"');
                self.into.extend_from_slice(word.as_bytes());
                self.into.push(b'"');
            }
            None => self.into.extend_from_slice(b"null"),
        }
    }

    fn object(&mut self, name: &'static str) -> Fields<'_> {
        self.name(name);
        Fields::new(self.into)
    }

    /// There is at least one field.
    fn end(self) {
        self.into.push(b'}');
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
