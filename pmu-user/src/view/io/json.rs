//! What `pmbpf io` has as JSON beside numbers: the header row, levels, checks and maps.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::{
    super::{
        json::{SCHEMA, line},
        words,
    },
    checks, levels,
};
use crate::{drain::io::IoHeader, metric::io::IoReport};

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
