//! Mapping of PCI devices to the counters of their traffic: the root bus of a device belongs to an I/O stack,
//! whose uncore PMU counts by part.
//!
//! Each mapping has a source: the kernel (`die*` attributes of `uncore_iio_*`), a built-in table, or
//! correlated traffic ([`super::verify`]). Without a source, the stack is not known, with the reason.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, io, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    Bdf, RootBus,
    class::{Mapping, MappingSource},
    parts,
    pci::{self, Device},
    place::{self, Places},
    stack_tables::{BUS_NUMBERS, Die, Family, ICELAKE_D, PACKAGE, STACK_NUMBER},
};
use crate::machine::{
    cpu::{self, Cpu},
    pmu::catalog::{Catalog, Entry, PmuCpus},
};

/// An uncore PMU on one die: the place where its events are to be opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Unit {
    /// Name of the PMU: `uncore_iio_2`. Its IRP has the same number.
    pub pmu: String,
    /// CPU of its cpumask that stands for the die.
    pub cpu: Cpu,
}

/// An I/O stack: everything that is attached to one root bus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    /// Root bus of the stack.
    pub bus: RootBus,
    /// Socket of the stack, where it is known.
    pub socket: Option<u32>,
    /// Uncore PMU that counts the stack.
    pub unit: Mapping<Unit>,
}

/// Entry point of traffic into a stack: a root port, or a device on the root bus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Address of the port.
    pub bdf: Bdf,
    /// Root bus of its stack.
    pub bus: RootBus,
    /// Parts of the stack that count the port. All devices below it share them.
    pub parts: Mapping<Vec<u32>>,
    /// Devices below the port, or itself: devices that move data, by address.
    pub devices: Vec<Bdf>,
}

/// Sources of the mapping.
pub(super) struct Reader<'a> {
    pub(super) root: &'a Path,
    pub(super) catalog: &'a Catalog,
    pub(super) places: &'a Places,
    pub(super) devices: &'a [Device],
}

/// Root bus, its uncore PMU, and the die of that PMU, or the reason why these are unknown.
type Found = (RootBus, Result<(u32, place::Die), String>);

impl Reader<'_> {
    pub(super) fn read(&self) -> (Vec<Stack>, Vec<Port>) {
        let identity = cpu::identity(self.root);
        let family = Family::of(identity.as_deref());
        let die = self.config(PACKAGE.0, PACKAGE.1).find_map(|(_, word)| Die::of(word.ok()?));
        let found = self.instances(family, die);
        let of_devices = self.devices.iter().map(|device| device.root);
        let of_kernel = found.as_ref().map(|found| &found[..]).unwrap_or_default().iter();
        let buses: BTreeSet<RootBus> = of_devices.chain(of_kernel.map(|(bus, _)| *bus)).collect();
        let stacks: Vec<Stack> = buses.into_iter().map(|bus| self.stack(bus, &found)).collect();
        let ports = self.ports(family, die, &stacks);
        (stacks, ports)
    }

    fn stack(&self, bus: RootBus, found: &Result<Vec<Found>, String>) -> Stack {
        let source = if self.kernel_maps() { MappingSource::Kernel } else { MappingSource::Table };
        let near = self.devices.iter().filter(|device| device.root == bus).map(|device| device.node);
        let near = self.places.socket_of(near);
        let unit = match found {
            Err(why) => self.by_socket(near).ok_or_else(|| why.clone()),
            Ok(found) => match found.iter().find(|(known, _)| *known == bus) {
                None => Err("the map of stacks does not name this bus".to_owned()),
                Some((_, Err(why))) => Err(why.clone()),
                Some((_, Ok((number, die)))) => {
                    self.unit(&format!("uncore_iio_{number}"), *die).map(|unit| (unit, source))
                }
            },
        };
        let unit = match unit {
            Ok((value, source)) => Mapping::Known { value, source },
            Err(why) => Mapping::Unknown(why),
        };
        let of_unit = unit.value().and_then(|unit| self.places.die_of(unit.cpu));
        Stack { bus, socket: of_unit.map(|die| die.socket).or(near), unit }
    }

    fn ports(&self, family: Family, die: Option<Die>, stacks: &[Stack]) -> Vec<Port> {
        let ends = self.devices.iter().filter(|device| !device.is_infrastructure());
        let ports: BTreeSet<Bdf> = ends.clone().map(Device::port).collect();
        let counted = self.stacks().next().is_some();
        let port = |bdf: Bdf| {
            let devices: Vec<&Device> = ends.clone().filter(|device| device.port() == bdf).collect();
            let bus = devices.first()?.root;
            let unit = stacks.iter().find(|stack| stack.bus == bus).and_then(|stack| stack.unit.value());
            let number = unit.and_then(|unit| number(&unit.pmu));
            let parts = match self.devices.iter().find(|device| device.bdf == bdf) {
                Some(port) if counted || family.rule().is_none() => parts::of(family, die, port, number),
                Some(_) => Mapping::Unknown("the kernel has no counters that distinguish parts".to_owned()),
                None => Mapping::Unknown("its root port is hidden".to_owned()),
            };
            Some(Port { bdf, bus, parts, devices: devices.iter().map(|device| device.bdf).collect() })
        };
        ports.into_iter().filter_map(port).collect()
    }

    fn stacks(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.catalog.pmus.iter().filter_map(|pmu| Some((number(&pmu.name)?, pmu)))
    }

    fn kernel_maps(&self) -> bool {
        self.stacks().any(|(_, pmu)| !pmu.dies.is_empty())
    }

    /// Returns the uncore PMU of every bus for which there is a source.
    fn instances(&self, family: Family, die: Option<Die>) -> Result<Vec<Found>, String> {
        if self.stacks().next().is_none() {
            return Err(match family {
                Family::Zen => {
                    "AMD does not say which I/O module of the data fabric a root bus belongs to".to_owned()
                }
                _ => "the kernel has no counters of I/O stacks here (no uncore_iio PMU)".to_owned(),
            });
        }
        if self.kernel_maps() {
            return Ok(self.of_kernel(family));
        }
        match family {
            Family::IcelakeD => self.of_stack_numbers(),
            Family::SapphireRapids | Family::EmeraldRapids | Family::GraniteRapids => {
                self.of_bus_numbers(family, die)
            }
            _ => Err("neither the kernel nor a table identifies the stacks of this processor".to_owned()),
        }
    }

    fn of_kernel(&self, family: Family) -> Vec<Found> {
        let mut found = Vec::new();
        for (number, pmu) in self.stacks() {
            for (index, text) in &pmu.dies {
                let Some(bus) = RootBus::parse(text) else { continue };
                let first = RootBus { domain: 0, bus: 0 };
                if bus == first && family.chipset(None).is_some_and(|chipset| chipset != number) {
                    continue;
                }
                let die = self.places.die(*index);
                let die = die.ok_or_else(|| format!("no CPU of die {index} is online"));
                found.push((bus, die.map(|die| (number, die))));
            }
        }
        found
    }

    /// Reads a word of every Intel device with this number. Needs CAP_SYS_ADMIN.
    fn config(&self, device: u16, offset: u64) -> impl Iterator<Item = (&Device, Result<u32, String>)> {
        let wanted = move |known: &&Device| (known.vendor, known.device) == (super::class::INTEL, device);
        self.devices.iter().filter(wanted).map(move |device| (device, self.word(device.bdf, offset)))
    }

    fn word(&self, bdf: Bdf, offset: u64) -> Result<u32, String> {
        match pci::configuration(self.root, bdf, offset) {
            Ok(u32::MAX) => Err(format!("configuration space of {bdf} is switched off")),
            Ok(word) => Ok(word),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::PermissionDenied => {
                    format!("the map of stacks is in configuration space of {bdf}, which takes root to read")
                }
                _ => format!("cannot read configuration space of {bdf}: {error}"),
            }),
        }
    }

    fn of_bus_numbers(&self, family: Family, die: Option<Die>) -> Result<Vec<Found>, String> {
        let (mut found, mut following) = (Vec::new(), Vec::new());
        let (device, valid, words) = BUS_NUMBERS;
        for (package, valid) in self.config(device, valid) {
            let valid = valid?;
            let table = family.by_bus_number(die);
            let table = table.ok_or("the layout of this processor is unknown, and so are its stacks")?;
            let socket = self.places.socket_of(std::iter::once(package.node));
            let place = socket.and_then(|socket| self.places.die_of_socket(socket));
            for &(index, number) in table.iter().filter(|(index, _)| valid >> index & 1 == 1) {
                let word = self.word(package.bdf, words[index as usize / 4])?;
                let bus = word.to_le_bytes()[index as usize % 4];
                let place = place.ok_or_else(|| format!("the socket of {} is unknown", package.bdf));
                let place = place.map(|place| (number, place));
                let domain = package.bdf.domain;
                found.push((RootBus { domain, bus }, place.clone()));
                let after = bus..=bus.saturating_add(family.buses_after(index));
                let after = after.skip(1).map(|bus| RootBus { domain, bus });
                following.extend(after.map(|bus| (bus, place.clone())));
            }
        }
        if found.is_empty() {
            return Err(format!(
                "the device that knows this processor's buses (8086:{device:04x}) is hidden"
            ));
        }
        // A bus with an entry in the table belongs to that entry. A bus that does not exist belongs to no
        // stack.
        following.retain(|(bus, _)| self.devices.iter().any(|device| device.root == *bus));
        found.extend(following);
        Ok(found)
    }

    fn of_stack_numbers(&self) -> Result<Vec<Found>, String> {
        let mut found = Vec::new();
        for (device, word) in self.config(STACK_NUMBER.0, STACK_NUMBER.1) {
            let stack = word? >> 4 & 7;
            let Some((_, number)) = ICELAKE_D.iter().find(|(known, _)| *known == stack) else { continue };
            let die = self.places.die(0).ok_or_else(|| "no CPU of die 0 is online".to_owned());
            found.push((device.root, die.map(|die| (*number, die))));
        }
        if found.is_empty() {
            Err("the devices that number this processor's stacks are hidden".to_owned())
        } else {
            Ok(found)
        }
    }

    /// Returns the PMU of NVIDIA's Grace, which has one for all root ports of a socket, named after the
    /// socket.
    fn by_socket(&self, socket: Option<u32>) -> Option<(Unit, MappingSource)> {
        let name = format!("nvidia_pcie_pmu_{}", socket?);
        let PmuCpus::Uncore(cpus) = &self.catalog.pmus.iter().find(|pmu| pmu.name == name)?.place else {
            return None;
        };
        Some((Unit { pmu: name, cpu: *cpus.first()? }, MappingSource::Kernel))
    }

    fn unit(&self, name: &str, die: place::Die) -> Result<Unit, String> {
        let pmu = self.catalog.pmus.iter().find(|pmu| pmu.name == name);
        let pmu =
            pmu.ok_or_else(|| format!("it should be counted by {name}, which the kernel does not have"))?;
        let cpus = match &pmu.place {
            PmuCpus::Uncore(cpus) => &cpus[..],
            _ => &[],
        };
        let cpu = cpus.iter().copied().find(|cpu| self.places.die_of(*cpu) == Some(die));
        let cpu =
            cpu.ok_or_else(|| format!("the cpumask of {name} names no CPU of socket {}", die.socket))?;
        Ok(Unit { pmu: name.to_owned(), cpu })
    }
}

/// Returns the number of an I/O stack's PMU.
fn number(pmu: &str) -> Option<u32> {
    pmu.strip_prefix("uncore_iio_")?.parse().ok()
}
