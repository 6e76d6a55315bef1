//! Summary as JSON, one object per row. An unknown value is `null`, with a `reason`.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::{Row, Summary};
use crate::{
    machine::io::{Fact, class::Mapping, dmi::MemoryKind, link::Link},
    view::json::{SCHEMA, line},
};

pub(super) fn write(into: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    things(into, summary)?;
    let note = |note: &String| json!({"schema": SCHEMA, "kind": "note", "text": note});
    summary.notes().iter().try_for_each(|text| line(into, &note(text)))
}

/// Writes a `platform` row, and a `device` row for each device.
pub(super) fn things(into: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    line(into, &platform(summary))?;
    summary.rows().iter().try_for_each(|row| line(into, &device(row)))
}

fn platform(summary: &Summary) -> Json {
    let (machine, memory) = (summary.machine, &summary.platform.memory);
    let topology = &machine.topology;
    let node = |node: &crate::machine::io::memory::Node| json!({"node": node.id, "socket": node.socket, "bytes": node.bytes});
    let module = |module: &crate::machine::io::dmi::Module| {
        json!({
            "bytes": module.bytes,
            "type": module.kind.map(MemoryKind::name),
            "mt_per_s": module.configured_mts.or(module.best_mts),
        })
    };
    let instances =
        summary.platform.uncore.iter().map(|instances| (instances.kind.clone(), json!(instances.instances)));
    json!({
        "schema": SCHEMA,
        "kind": "platform",
        "processor": machine.cpu.model,
        "kernel": machine.kernel,
        "sockets": topology.sockets,
        "cores_per_socket": topology.cores_per_socket,
        "threads_per_core": topology.threads_per_core,
        "nodes": memory.nodes.iter().map(node).collect::<Vec<_>>(),
        "modules": fact(&memory.modules, |modules| modules.iter().map(module).collect()),
        "channels_of_sockets": fact(&memory.channels, |channels| json!(channels)),
        "memory_bytes_per_s_max": fact(&memory.bytes_per_second_max, |most| json!(most)),
        "upi_ports_per_socket": summary.links(),
        "uncore": instances.collect::<serde_json::Map<_, _>>(),
    })
}

fn fact<T>(fact: &Fact<T>, value: impl Fn(&T) -> Json) -> Json {
    match fact {
        Fact::Known(known) => json!({"value": value(known)}),
        Fact::Missing(why) => json!({"value": null, "reason": why}),
    }
}

fn device(row: &Row) -> Json {
    let device = row.device;
    json!({
        "schema": SCHEMA,
        "kind": "device",
        "device": device.bdf,
        "what": device.word(),
        "class": format!("{:06x}", device.class),
        "vendor": format!("{:04x}", device.vendor),
        "id": format!("{:04x}", device.device),
        "names": row.names,
        "model": row.model,
        "driver": device.driver,
        "node": device.node,
        "iommu": device.translation.as_ref().map(|translation| &translation.iommu),
        "iommu_domain": device.translation.as_ref().map(|translation| translation.domain),
        "iommu_group": device.iommu_group,
        "physical": device.physical,
        "socket": row.socket(),
        "root_bus": device.root,
        "port": row.port.bdf,
        "link": row.link.map(|link| self::link(&link)),
        "shared_link": row.shared.map(|link| self::link(&link)),
        "stack": stack(row),
        "parts": mapping(&row.port.parts, |parts| json!(parts)),
    })
}

fn stack(row: &Row) -> Json {
    row.stack
        .map_or(Json::Null, |stack| mapping(&stack.unit, |unit| json!({"pmu": unit.pmu, "cpu": unit.cpu})))
}

fn mapping<T>(mapping: &Mapping<T>, value: impl Fn(&T) -> Json) -> Json {
    match mapping {
        Mapping::Known { value: known, source } => json!({"value": value(known), "map": source.to_string()}),
        Mapping::Unknown(why) => json!({"value": null, "map": "unknown", "reason": why}),
    }
}

/// Returns each rate with what it carries in one direction, and the raw figure of both directions as in
/// handbooks.
fn link(link: &Link) -> Json {
    let rate = |rate: &crate::machine::io::link::Rate| {
        json!({
            "gt_per_s": rate.speed.map(|speed| f64::from(speed.0) / 1e3),
            "width": rate.width,
            "bytes_per_s_each_way": rate.bytes_per_second(),
            "bytes_per_s_raw": rate.raw_bytes_per_second(),
        })
    };
    json!({"current": rate(&link.current), "max": rate(&link.max)})
}
