//! Summary as text.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use super::{Row, Summary};
use crate::{
    machine::io::{Fact, class::Mapping, dmi::Module},
    view::text::{
        COLUMNS, Style, TITLE, WARNING,
        number::{bytes, three_digits},
        section,
        table::{Align, Table, cut},
    },
};

pub(super) fn write(into: &mut dyn Write, style: &Style, summary: &Summary) -> io::Result<()> {
    platform(into, summary)?;
    devices(into, style, summary)?;
    let notes = summary.notes();
    if !notes.is_empty() {
        section(into, "Not known, or not as it should be", "what, and why")?;
    }
    notes.iter().try_for_each(|note| writeln!(into, "  {WARNING}{note}{WARNING:#}"))
}

fn platform(into: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    let (machine, memory) = (summary.machine, &summary.platform.memory);
    let model = machine.cpu.model.terminal();
    writeln!(
        into,
        "{TITLE}Platform{TITLE:#}  {COLUMNS}{model}, Linux {}{COLUMNS:#}",
        machine.kernel.terminal()
    )?;
    let mut line = |title: &str, text: String| {
        if text.is_empty() { Ok(()) } else { writeln!(into, "  {title:<9} {text}") }
    };
    line("sockets", sockets(summary))?;
    let node = |node: &crate::machine::io::memory::Node| {
        let size = node.bytes.map_or("unknown".to_owned(), bytes);
        let socket = node.socket.map_or("without CPUs".to_owned(), |socket| format!("socket {socket}"));
        format!("node {} ({socket}) {size}", node.id)
    };
    line("memory", memory.nodes.iter().map(node).collect::<Vec<_>>().join(", "))?;
    line("modules", memory.modules.known().map_or_else(String::new, |known| modules(known)))?;
    if let Fact::Known(channels) = &memory.channels {
        let of = channels.iter().map(|(socket, count)| format!("{count} in socket {socket}"));
        let most = memory.bytes_per_second_max.known();
        let most = most.map_or_else(String::new, |most| {
            format!("; together at most {} GB/s by specification", three_digits(most / 1e9))
        });
        line("channels", format!("{}{most}", of.collect::<Vec<_>>().join(", ")))?;
    }
    line("links", summary.links().map_or_else(String::new, |links| format!("{links} UPI ports a socket")))?;
    let instances = summary.platform.uncore.iter().map(|instances| {
        let kind = instances.kind.strip_prefix("uncore_").unwrap_or(&instances.kind);
        format!("{} {kind}", instances.instances)
    });
    line("uncore", instances.collect::<Vec<_>>().join(", "))
}

fn sockets(summary: &Summary) -> String {
    let topology = &summary.machine.topology;
    let Some(sockets) = topology.sockets else { return "unknown".to_owned() };
    let cores = topology.cores_per_socket.map_or_else(String::new, |cores| format!(", {cores} cores each"));
    let threads = match topology.threads_per_core {
        Some(1) => ", a thread a core".to_owned(),
        Some(threads) => format!(", {threads} threads a core"),
        None => String::new(),
    };
    format!("{sockets}{cores}{threads}")
}

/// Returns the modules of each kind together: `16 × 64.0 GiB DDR5 at 4800 MT/s`.
fn modules(modules: &[Module]) -> String {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for module in modules {
        let kind = module.kind.map_or_else(String::new, |kind| format!(" {}", kind.name()));
        let speed = module.configured_mts.or(module.best_mts);
        let speed = speed.map_or_else(String::new, |speed| format!(" at {speed} MT/s"));
        *kinds.entry(format!("{}{kind}{speed}", bytes(module.bytes))).or_default() += 1;
    }
    kinds.iter().map(|(kind, count)| format!("{count} × {kind}")).collect::<Vec<_>>().join(", ")
}

/// Writes a table for each socket.
fn devices(into: &mut dyn Write, style: &Style, summary: &Summary) -> io::Result<()> {
    let rows = summary.rows();
    if rows.is_empty() {
        return section(into, "Devices", "there is no PCI device that moves data");
    }
    let mut rest = &rows[..];
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|row| row.socket() == first.socket()).count();
        let (these, others) = rest.split_at(count);
        rest = others;
        let title = match first.socket() {
            Some(socket) => format!("Devices of socket {socket}"),
            None => "Devices of an unknown socket".to_owned(),
        };
        section(into, &title, "GB/s: what the link carries in each direction; shared: the root port's link")?;
        table(these).write(into, style)?;
    }
    Ok(())
}

fn table(rows: &[Row]) -> Table {
    let columns = [
        ("device", Align::Left),
        ("what", Align::Left),
        ("name", Align::Left),
        ("link", Align::Left),
        ("GB/s", Align::Right),
        ("shared", Align::Left),
        ("GB/s", Align::Right),
        ("counted by", Align::Words),
    ];
    let mut table = Table::new(&columns).spare(["shared", "what"]);
    let rate = |link: Option<crate::machine::io::link::Link>| {
        let text = link.map_or_else(String::new, |link| link.current.to_string());
        let most = link.and_then(|link| link.current.bytes_per_second());
        (text, most.map_or_else(String::new, |most| three_digits(most / 1e9)))
    };
    for row in rows {
        let names: Vec<String> = row.names.iter().map(|name| name.terminal().into_owned()).collect();
        let (link, most) = rate(row.link);
        let (shared, shared_most) = rate(row.shared);
        let what = row.device.word().to_owned();
        let what = if row.device.physical.is_some() { format!("{what}, virtual") } else { what };
        table.row(vec![
            row.device.bdf.to_string(),
            what,
            cut(&names.join(" ")),
            link,
            most,
            shared,
            shared_most,
            counted_by(row),
        ]);
    }
    table
}

/// Returns the counters of a row: `uncore_iio_0 cpu 0 (kernel), part 2 (table)`.
fn counted_by(row: &Row) -> String {
    let Some(Mapping::Known { value, source }) = row.stack.map(|stack| &stack.unit) else {
        return "unknown".to_owned();
    };
    let unit = format!("{} cpu {} ({source})", value.pmu, value.cpu.0);
    let parts = match &row.port.parts {
        Mapping::Known { value, source } => {
            let word = if value.len() == 1 { "part" } else { "parts" };
            format!("{word} {} ({source})", super::list(value))
        }
        Mapping::Unknown(_) => return unit,
    };
    format!("{unit}, {parts}")
}
