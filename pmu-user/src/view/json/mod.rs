//! NDJSON, schema `pmbpf/1`: a header row, per interval metric, histogram and gap rows, then hot rows and a summary.
//!
//! Numbers are numbers; what is missing is `null` with a `reason`. Times are in ns: `t` since counting started, `dt`
//! the length. Names are UTF-8; bytes that are not become `\xff`-like text.

mod end;
mod interval;
pub(super) mod list;
pub(super) mod stat;
mod topdown;

use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

pub(super) use self::{
    end::{end, stopped, workload},
    interval::interval,
};
use super::words;
use crate::{
    drain::{Header, Id, Owner},
    metric::Who,
    plan::Sampling,
    table::{metric, quantity::Quantity},
    untrusted::Untrusted,
};

pub(super) const SCHEMA: &str = "pmbpf/1";

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

#[derive(Serialize)]
pub(super) struct OwnerCell<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a Untrusted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<u64>,
    name: Untrusted,
}

pub(super) fn owner(who: &Who) -> OwnerCell<'_> {
    let kind = words::kind(who);
    let plain = |name: &str| OwnerCell {
        kind,
        path: None,
        id: None,
        tid: None,
        pid: None,
        host_pid: None,
        processes: None,
        name: Untrusted::from(name),
    };
    match who {
        Who::Target => plain("total"),
        Who::Owner(Owner::Other) => plain("other"),
        Who::Owner(Owner::Process { pid, name, .. }) => {
            let id = Id::of(*pid);
            OwnerCell { pid: id.here(), host_pid: id.outside(), name: name.clone(), ..plain("") }
        }
        Who::Owner(Owner::Thread { tid, pid, name, .. }) => {
            let (thread, process) = (Id::of(*tid), Id::of(*pid));
            let host_pid = process.outside();
            OwnerCell { tid: thread.here(), pid: process.here(), host_pid, name: name.clone(), ..plain("") }
        }
        Who::Owner(Owner::Comm { name } | Owner::Exe { name }) => {
            OwnerCell { name: name.clone(), ..plain("") }
        }
        Who::Owner(Owner::Ended { name, processes }) => {
            OwnerCell { processes: Some(*processes), name: name.clone(), ..plain("") }
        }
        Who::Owner(Owner::Cgroup { id, path }) => {
            let last = path.as_bytes().rsplit(|&byte| byte == b'/').next().filter(|last| !last.is_empty());
            let name = last.map_or_else(|| Untrusted::from("/"), Untrusted::new);
            OwnerCell { path: Some(path), id: (*id != 0).then_some(*id), name, ..plain("") }
        }
    }
}

fn event(sampling: &Sampling) -> Json {
    json!({
        "event": sampling.event, "measures": sampling.quantity.map(Quantity::name), "period": sampling.period,
        "type": sampling.kind, "config": sampling.config, "modes": sampling.modes,
        "precise": sampling.precision.as_ref().map(|precision| precision.level),
        "skid": words::skid(sampling),
    })
}

/// Header row.
pub(super) fn begin(into: &mut dyn Write, header: &Header) -> io::Result<()> {
    let plan = &header.plan;
    let pmus: Vec<&Untrusted> = header.machine.pmus.iter().map(|pmu| &pmu.name).collect();
    let mut row = json!({
            "schema": SCHEMA, "kind": "header", "version": header.version,
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
                "name": metric.name, "unit": metric.unit.name(), "says": metric.says})).collect::<Vec<_>>(),
    });
    if plan.samples_events() {
        row["sampling_events"] = plan.sampling.iter().map(event).collect();
    }
    if let Some(profile) = &plan.profile {
        row["config"] = json!({"name": profile, "lost": plan.lost});
    }
    line(into, &row)
}
