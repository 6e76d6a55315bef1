//! JSON of `pmbpf io` in addition to numbers: the header row, levels, checks and maps.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::{
    super::json::{SCHEMA, line},
    checks, levels,
    summary::{Summary, json_things},
};
use crate::{drain::io::IoHeader, machine::Machine, metric::io::IoReport, plan::io::UncoreKind};

/// Returns the fields of the header row that only I/O has.
pub(in crate::view) fn header(header: &IoHeader) -> Json {
    let plan = &header.plan;
    let instances = |kind: &UncoreKind| {
        json!({"kind": kind.name, "instances": kind.instances.len(), "groups": kind.turns.groups.len(),
               "slice_ns": kind.turns.slice.as_nanos() as u64})
    };
    json!({"table": plan.table, "uncore": plan.kinds.iter().map(instances).collect::<Vec<_>>()})
}

/// Writes the rows of the host's I/O side.
pub(in crate::view) fn platform(
    into: &mut dyn Write,
    machine: &Machine,
    header: &IoHeader,
) -> io::Result<()> {
    json_things(into, &Summary { machine, platform: &header.platform })
}

/// Writes levels, checks and maps.
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
