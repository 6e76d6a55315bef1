//! What `pmbpf io` has as JSON beside numbers: the header row, levels, checks, maps, and a summary.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde_json::{Value as Json, json};

use super::{
    super::{
        json::{SCHEMA, line, stopped, workload},
        words,
    },
    checks, levels,
};
use crate::{
    drain::{Ending, Stopped, io::IoHeader},
    metric::io::IoReport,
};

/// Header row of I/O.
pub(in crate::view) fn header(header: &IoHeader) -> Json {
    let (machine, plan) = (&header.machine, &header.plan);
    let boxes = |kind: &crate::plan::io::UncoreKind| {
        json!({"kind": kind.name, "boxes": kind.boxes.len(), "groups": kind.turns.groups.len(),
               "slice_ns": kind.turns.slice.as_nanos() as u64})
    };
    json!({
            "schema": SCHEMA, "kind": "header", "command": "io", "version": header.version,
            "host": machine.host, "kernel": machine.kernel,
            "cpu": {"model": machine.cpu.model, "online": machine.cpu.online.len(), "guest": machine.cpu.guest},
            "started": words::started_at(header.started_unix_ns),
            "target": plan.target.in_words(plan.inherit, plan.descend),
            "interval_ns": plan.interval.map(|interval| interval.as_nanos() as u64),
            "table": plan.table, "boxes": plan.kinds.iter().map(boxes).collect::<Vec<_>>(),
            "missing": header.missing,
    })
}

/// Levels, checks and maps.
pub(in crate::view) fn end(into: &mut dyn Write, report: &IoReport) -> io::Result<()> {
    levels::json(into, report)?;
    checks::json(into, report)?;
    for map in &report.maps {
        let port = map.port.to_string();
        line(
            into,
            &json!({"schema": SCHEMA, "kind": "map", "t": report.from_ns, "dt": report.length_ns,
                    "subject": {"kind": "device", "name": map.names, "port": port}, "map": map.map,
                    "traffic": map.traffic}),
        )?;
    }
    Ok(())
}

/// The row that ends a run of I/O.
pub(in crate::view) fn summary(report: &IoReport, ending: &Ending) -> Json {
    let losses: BTreeMap<&str, u64> =
        report.losses.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    let cost = &report.cost;
    json!({
            "schema": SCHEMA, "kind": "summary", "complete": ending.stopped != Stopped::Truncated,
            "stopped": stopped(ending.stopped), "duration_ns": report.length_ns, "losses": losses,
            "self": {"programs_ns": {"value": report.programs_ns}, "cpu_ns": cost.cpu_ns,
                     "rss_bytes": cost.resident_bytes, "rss_max_bytes": cost.resident_max_bytes,
                     "map_bytes": cost.map_bytes, "startup_ns": cost.startup_ns, "drains": cost.drains,
                     "drains_ns": cost.drains_ns, "drain_max_ns": cost.drain_max_ns},
            "workload": ending.workload.map(workload), "missing": report.missing,
    })
}
