//! NDJSON, schema `pmbpf/2`: a header row, rows of numbers (`metric`, `histogram`) and of what else an interval has, then what only
//! the whole has and a summary. Every command's rows of a kind have the same fields.
//!
//! Numbers are numbers; what is missing is `null` with a `reason`. Times are in ns: `t` since counting started, `dt`
//! the length. Names are UTF-8; bytes that are not become `\xff`-like text.

mod end;
mod interval;
pub(super) mod list;
mod number;
pub(super) mod report;
pub(super) mod stat;
mod who;

use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

pub(super) use self::who::SubjectCell;
use self::{
    end::{end, summary},
    interval::interval,
    number::numbers,
};
use super::words;
use crate::{
    drain::TasksHeader,
    plan::Sampling,
    table::{metric, quantity::Quantity},
    untrusted::Untrusted,
};

/// Version of the rows, in each of them.
pub const SCHEMA: &str = "pmbpf/2";

/// Room for most rows, so that one is written to memory without growing it.
const ROW_BYTES: usize = 512;

/// One row, in one piece: a serializer writes every word by itself.
pub(super) fn line(into: &mut dyn Write, row: &impl Serialize) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(ROW_BYTES);
    serde_json::to_writer(&mut bytes, row)?;
    bytes.push(b'\n');
    into.write_all(&bytes)
}

/// A finite number; whole ones without a fraction, as far as a double is exact.
fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}

#[derive(Serialize)]
pub(super) struct Number(#[serde(serialize_with = "number")] pub(super) f64);

fn event(sampling: &Sampling) -> Json {
    json!({
        "event": sampling.event, "measures": sampling.quantity.map(Quantity::name), "period": sampling.period,
        "type": sampling.kind, "config": sampling.config, "modes": sampling.modes,
        "precise": sampling.precision.as_ref().map(|precision| precision.level),
        "skid": words::skid(sampling),
    })
}

/// Header row of tasks.
fn header(header: &TasksHeader) -> Json {
    let plan = &header.plan;
    let pmus: Vec<&Untrusted> = header.machine.pmus.iter().map(|pmu| &pmu.name).collect();
    let mut row = json!({
            "schema": SCHEMA, "kind": "header", "command": "run", "version": header.version,
            "host": header.machine.host, "kernel": header.machine.kernel,
            "cpu": {"model": header.machine.cpu.model, "online": header.machine.cpu.online.len(),
                    "guest": header.machine.cpu.guest},
            "pmus": pmus, "cgroups": header.machine.cgroups.kind(),
            "started": words::started(header), "started_monotonic_ns": header.started_ns,
            "target": words::target(plan), "by": words::by(plan), "cpus": words::cpus(plan),
            "sampling": plan.sampling.first().map(|sampling| json!({
                "event": sampling.event, "period": sampling.period, "frequency": sampling.frequency,
                "stacks": plan.stacks})),
            "interval_ns": plan.interval.map(|interval| interval.as_nanos() as u64),
            "late_min_ns": plan.late_min_ns, "gap_min_ns": plan.gap_min_ns,
            "attach": header.attach, "attach_refused": header.attach_refused, "missing": header.missing,
            "metrics": metric::TASKS.iter().map(|metric| json!({
                "name": metric.name, "unit": metric.unit.name(), "family": metric.family.name(),
                "parent": metric.parent, "says": metric.says})).collect::<Vec<_>>(),
    });
    if plan.samples_events() {
        row["sampling_events"] = plan.sampling.iter().map(event).collect();
    }
    if let Some(profile) = &plan.profile {
        row["config"] = json!({"name": profile, "lost": plan.lost});
    }
    row
}
