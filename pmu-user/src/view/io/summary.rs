//! Summary of the I/O side of a host: sockets, memory, links, stacks, devices, and the counters that cover
//! them. What cannot be known is listed with the reason.

mod json;
mod text;

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use crate::{
    machine::{
        Machine,
        io::{
            Fact, Platform,
            bdf::{Bdf, RootBus},
            class::Mapping,
            link::Link,
            pci::Device,
            stack::{Port, Stack},
        },
    },
    untrusted::Untrusted,
    view::text::Style,
};

/// Host that is summarised, and its I/O side.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    /// Machine of the host.
    pub machine: &'a Machine,
    /// I/O side of the host.
    pub platform: &'a Platform,
}

/// Writes the sections of the text format.
///
/// # Errors
///
/// The stream cannot be written.
pub fn text(into: &mut dyn Write, style: &Style, summary: &Summary) -> io::Result<()> {
    text::write(into, style, summary)
}

/// Writes a `platform` row, a `device` row for each device, and a `note` for each thing that is not as it
/// should be.
///
/// # Errors
///
/// The stream cannot be written.
pub fn json(into: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    json::write(into, summary)
}

/// Writes only the `platform` row and the `device` rows.
pub(in crate::view) fn json_things(into: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    json::things(into, summary)
}

/// Device that moves data, with what belongs to it.
struct Row<'a> {
    device: &'a Device,
    names: Vec<&'a Untrusted>,
    model: Option<&'a Untrusted>,
    /// Link of the device, `None` on a root bus.
    link: Option<Link>,
    /// Link of the root port, if the device's traffic passes other links on the way there.
    shared: Option<Link>,
    stack: Option<&'a Stack>,
    port: &'a Port,
}

impl Row<'_> {
    fn socket(&self) -> Option<u32> {
        self.stack.and_then(|stack| stack.socket)
    }
}

impl Summary<'_> {
    /// Returns the devices by socket, stack and port.
    fn rows(&self) -> Vec<Row<'_>> {
        let platform = self.platform;
        let of_port = |port| {
            let row = move |bdf: &Bdf| {
                let device = platform.device(*bdf)?;
                let attached = !device.above.is_empty();
                Some(Row {
                    device,
                    names: platform.names_of(*bdf),
                    model: platform.model_of(*bdf),
                    link: platform.link_of(*bdf).filter(|_| attached),
                    shared: platform.shared_link_of(*bdf).filter(|_| device.above.len() > 1),
                    stack: platform.stack_of(device.root),
                    port,
                })
            };
            port.devices.iter().filter_map(row)
        };
        let mut rows: Vec<Row> = platform.ports.iter().flat_map(of_port).collect();
        // Devices of an unknown socket come last.
        rows.sort_by_key(|row| {
            (row.socket().unwrap_or(u32::MAX), row.port.bus, row.port.bdf, row.device.bdf)
        });
        rows
    }

    /// Returns sentences on what is not known, or not as it should be.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for row in self.rows() {
            if let Some(link) = row.link.filter(|link| link.is_trained_down() == Some(true)) {
                notes.push(format!(
                    "the link of {} is trained down: {} of {}",
                    row.device.bdf, link.current, link.max
                ));
            }
        }
        self.of_stacks(&mut notes);
        self.of_memory(&mut notes);
        if self.sockets() > 1 && self.links().is_none() {
            notes.push("links between sockets: the kernel has no counters of them".to_owned());
        }
        notes
    }

    /// Adds the notes on memory. Facts that are missing for the same reason share a note.
    fn of_memory(&self, notes: &mut Vec<String>) {
        let memory = &self.platform.memory;
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (what, why) in [
            ("memory channels", missing(&memory.channels)),
            ("memory modules", missing(&memory.modules)),
            ("the most that memory can carry", missing(&memory.bytes_per_second_max)),
        ] {
            let Some(why) = why else { continue };
            match reasons.iter_mut().find(|(known, _)| *known == why) {
                Some((_, whats)) => whats.push(what),
                None => reasons.push((why, vec![what])),
            }
        }
        notes.extend(reasons.iter().map(|(why, whats)| format!("{}: {why}", whats.join(", "))));
    }

    fn of_stacks(&self, notes: &mut Vec<String>) {
        let mut of_buses: BTreeMap<&str, Vec<RootBus>> = BTreeMap::new();
        let mut of_ports: BTreeMap<&str, Vec<Bdf>> = BTreeMap::new();
        for port in &self.platform.ports {
            match self.platform.stack_of(port.bus).map(|stack| &stack.unit) {
                Some(Mapping::Unknown(why)) => of_buses.entry(why).or_default().push(port.bus),
                _ => {
                    if let Mapping::Unknown(why) = &port.parts {
                        of_ports.entry(why).or_default().push(port.bdf);
                    }
                }
            }
        }
        for (why, mut buses) in of_buses {
            buses.dedup();
            notes.push(format!("counters of root bus {}: {why}", list(&buses)));
        }
        for (why, ports) in of_ports {
            notes.push(format!("part of {}: {why}", list(&ports)));
        }
    }

    fn sockets(&self) -> u32 {
        self.machine.topology.sockets.unwrap_or(1)
    }

    /// Returns the number of ports of each socket to other sockets.
    fn links(&self) -> Option<usize> {
        self.platform
            .uncore
            .iter()
            .find(|instances| instances.kind == "uncore_upi")
            .map(|instances| instances.pmus)
    }
}

fn missing<T>(fact: &Fact<T>) -> Option<&str> {
    match fact {
        Fact::Known(_) => None,
        Fact::Missing(why) => Some(why),
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
