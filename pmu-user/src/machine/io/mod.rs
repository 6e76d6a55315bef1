//! I/O side of a host, from sysfs and procfs: PCI devices and their links, their names in the kernel, the
//! counters of their traffic, their users, and the memory.
//!
//! The text comes from devices and drivers: every file and every list has a limit, and names are
//! [`Untrusted`]. What cannot be read is not known, with the reason. Nothing is written, and no privilege is
//! needed except where stated.

pub mod bdf;
pub mod class;
pub mod dmi;
pub mod function;
pub mod learn;
pub mod link;
pub mod memory;
pub mod owner;
mod parts;
pub mod pci;
mod place;
pub(crate) mod process;
pub mod resctrl;
pub mod stack;
mod stack_tables;
pub mod verify;

use std::{ffi::OsString, path::Path};

use serde::{Deserialize, Serialize};

pub use self::place::UncorePmus;
use self::{
    bdf::{Bdf, BdfError, RootBus},
    function::{Disk, Interface, Node},
    link::Link,
    memory::Memory,
    pci::Device,
    place::Places,
    stack::{Port, Stack},
};
use super::pmu::catalog::{Catalog, text};
use crate::untrusted::Untrusted;

/// Entries of one folder that are read, at most.
const ENTRIES_MAX: usize = 65_536;

/// A fact, or the reason why it is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact<T> {
    /// The fact is known.
    Known(T),
    /// The fact is not known, for this reason.
    Missing(String),
}

impl<T> Fact<T> {
    /// Returns the fact, if it is known.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(fact) => Some(fact),
            Self::Missing(_) => None,
        }
    }

    fn of(fact: Option<T>, why: impl FnOnce() -> String) -> Self {
        fact.map_or_else(|| Self::Missing(why()), Self::Known)
    }
}

/// I/O side of a host, as plain data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Platform {
    /// PCI functions, by address.
    pub devices: Vec<Device>,
    /// Entry points of traffic into the stacks, by address: root ports with the devices below them, and
    /// devices on root buses.
    pub ports: Vec<Port>,
    /// Root buses, and the counters of their stacks.
    pub stacks: Vec<Stack>,
    /// Disks, by name.
    pub disks: Vec<Disk>,
    /// Network interfaces, by name.
    pub interfaces: Vec<Interface>,
    /// Nodes of other classes.
    pub nodes: Vec<Node>,
    /// Memory and its channels.
    pub memory: Memory,
    /// Counting uncore PMUs, by kind.
    #[serde(rename = "boxes")]
    pub uncore: Vec<UncorePmus>,
}

impl Platform {
    /// Reads the host below `root`, whose PMUs are in `catalog`. Needs no privilege. Without CAP_SYS_ADMIN
    /// the stacks of some processors and the speed of the memory are not known, and give this reason.
    pub fn read(root: &Path, catalog: &Catalog) -> Self {
        let places = Places::read(root);
        let devices = pci::read(root);
        let stacks = stack::Reader { root, catalog, places: &places, devices: &devices };
        let (stacks, ports) = stacks.read();
        Self {
            stacks,
            ports,
            disks: function::disks(root),
            interfaces: function::interfaces(root),
            nodes: function::nodes(root),
            memory: Memory::read(root, catalog, &places),
            uncore: place::of(catalog),
            devices,
        }
    }

    /// Returns the function at this address.
    pub fn device(&self, bdf: Bdf) -> Option<&Device> {
        self.devices.binary_search_by_key(&bdf, |device| device.bdf).ok().map(|index| &self.devices[index])
    }

    /// Returns the function with the address in a text, with or without the domain.
    ///
    /// # Errors
    ///
    /// The text is not an address, or there is no such function. The message describes the format, or lists
    /// the nearest addresses.
    pub fn find(&self, text: &str) -> Result<Bdf, BdfError> {
        let known: Vec<Bdf> = self.devices.iter().map(|device| device.bdf).collect();
        Bdf::find(text, &known)
    }

    /// Returns the port where the traffic of this function enters its stack.
    pub fn port_of(&self, bdf: Bdf) -> Option<&Port> {
        let port = self.device(bdf)?.port();
        self.ports.iter().find(|known| known.bdf == port)
    }

    /// Returns the stack with this root bus.
    pub fn stack_of(&self, bus: RootBus) -> Option<&Stack> {
        self.stacks.iter().find(|stack| stack.bus == bus)
    }

    /// Returns the link of the device. A virtual function has no separate link, and returns that of its
    /// physical function.
    pub fn link_of(&self, bdf: Bdf) -> Option<Link> {
        let device = self.device(bdf)?;
        let link = device.physical.and_then(|physical| self.device(physical)).unwrap_or(device).link;
        Some(link)
    }

    /// Returns the link that the device shares with everything below the same root port. It is the slowest
    /// link of its traffic if there is nothing else below the port. Returns `None` if the device is attached
    /// to the root bus, where there is no link.
    pub fn shared_link_of(&self, bdf: Bdf) -> Option<Link> {
        let port = self.device(bdf)?.port();
        if port == bdf { None } else { self.device(port).map(|port| port.link) }
    }

    /// Returns the kernel's names of the functions of this device: disks, interfaces, nodes.
    pub fn names_of(&self, bdf: Bdf) -> Vec<&Untrusted> {
        let disks = self.disks.iter().filter(|disk| disk.devices.contains(&bdf)).map(|disk| &disk.name);
        let interfaces = self.interfaces.iter().filter(|one| one.device == Some(bdf)).map(|one| &one.name);
        let mut names: Vec<&Untrusted> = disks.chain(interfaces).collect();
        let nodes = self.nodes.iter().filter(|node| node.device == bdf && !node.class.is_handle());
        for node in nodes.map(|node| &node.name) {
            // `nvme0n1` implies `nvme0`.
            if !names.iter().any(|name| name.as_bytes().starts_with(node.as_bytes())) {
                names.push(node);
            }
        }
        names
    }

    /// Returns the model of the device, where a function of it reports one.
    pub fn model_of(&self, bdf: Bdf) -> Option<&Untrusted> {
        let of_disk =
            self.disks.iter().filter(|disk| disk.devices.contains(&bdf)).find_map(|disk| disk.model.as_ref());
        let of_node =
            || self.nodes.iter().filter(|node| node.device == bdf).find_map(|node| node.model.as_ref());
        of_disk.or_else(of_node)
    }

    /// Returns the devices that carry the data of the disk or partition `name`, through any stacked devices.
    pub fn carriers_of(&self, name: &[u8]) -> Vec<Bdf> {
        let (mut found, mut seen, mut next) = (Vec::new(), Vec::new(), vec![name]);
        while let Some(name) = next.pop() {
            let is_named = |disk: &&Disk| {
                disk.name.as_bytes() == name
                    || disk.partitions.iter().any(|(part, _)| part.as_bytes() == name)
            };
            let Some(disk) = self.disks.iter().find(is_named) else { continue };
            // The kernel permits no loop of links, but this text is untrusted.
            if seen.contains(&disk.number) {
                continue;
            }
            seen.push(disk.number);
            found.extend(&disk.devices);
            next.extend(disk.below.iter().map(Untrusted::as_bytes));
        }
        found.sort();
        found.dedup();
        found
    }
}

/// Reads a file below `root`, as [`text`] does. Returns `None` if it is empty, too.
fn attribute(root: &Path, path: &str) -> Option<String> {
    text(&root.join(path)).filter(|text| !text.is_empty())
}

/// Returns the names in a folder, in order. Returns none if it cannot be listed.
fn names(folder: &Path) -> Vec<OsString> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(ENTRIES_MAX).flatten();
    let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::Platform;
    use crate::machine::{pmu::catalog::Catalog, testing::Tree};

    /// A disk behind a switch, below a mapped one, and a network card with a virtual function.
    fn host() -> Platform {
        let nvme = "devices/pci0000:64/0000:64:02.0/0000:65:00.0/0000:66:00.0/0000:67:00.0";
        let port = "devices/pci0000:64/0000:64:03.0";
        let tree = Tree::new(&[
            ("sys/devices/virtual/block/dm-0/dev", "253:0\n"),
            ("sys/devices/virtual/block/dm-0/slaves/nvme0n1p1/x", ""),
            ("sys/devices/virtual/block/dm-0/slaves/dm-0/x", ""),
            (&format!("sys/{nvme}/nvme/nvme0/nvme0n1/dev"), "259:0\n"),
            (&format!("sys/{nvme}/nvme/nvme0/nvme0n1/nvme0n1p1/dev"), "259:1\n"),
            (&format!("sys/{nvme}/nvme/nvme0/nvme0n1/nvme0n1p1/partition"), "1\n"),
            (&format!("sys/{port}/0000:68:00.0/net/eth0/ifindex"), "2\n"),
            ("sys/bus/event_source/devices/cpu/type", "4\n"),
        ]);
        for (path, class, speed) in [
            ("devices/pci0000:64/0000:64:02.0", "0x060400", "16.0 GT/s PCIe"),
            ("devices/pci0000:64/0000:64:02.0/0000:65:00.0", "0x060400", "16.0 GT/s PCIe"),
            ("devices/pci0000:64/0000:64:02.0/0000:65:00.0/0000:66:00.0", "0x060400", "8.0 GT/s PCIe"),
            (nvme, "0x010802", "8.0 GT/s PCIe"),
            (port, "0x060400", "8.0 GT/s PCIe"),
            (&format!("{port}/0000:68:00.0"), "0x020000", "8.0 GT/s PCIe"),
            (&format!("{port}/0000:68:00.1"), "0x020000", "Unknown"),
        ] {
            tree.write(&format!("sys/{path}/class"), class);
            tree.write(&format!("sys/{path}/vendor"), "0x15b3");
            tree.write(&format!("sys/{path}/device"), "0x1017");
            tree.write(&format!("sys/{path}/current_link_speed"), speed);
            tree.write(&format!("sys/{path}/current_link_width"), "4");
            let bdf = path.rsplit('/').next().unwrap();
            tree.link(&format!("sys/bus/pci/devices/{bdf}"), &format!("../../../{path}"));
        }
        tree.link(&format!("sys/{port}/0000:68:00.1/physfn"), "../0000:68:00.0");
        tree.link("sys/block/dm-0", "../devices/virtual/block/dm-0");
        tree.link("sys/block/nvme0n1", &format!("../{nvme}/nvme/nvme0/nvme0n1"));
        tree.link("sys/class/nvme/nvme0", &format!("../../{nvme}/nvme/nvme0"));
        tree.link("sys/class/net/eth0", &format!("../../{port}/0000:68:00.0/net/eth0"));
        Platform::read(&tree.root, &Catalog::read(&tree.root).unwrap())
    }

    #[test]
    fn names_of_the_kernel_lead_to_devices_and_back() {
        let host = host();
        let nvme = host.find("67:00.0").unwrap();
        assert_eq!(host.carriers_of(b"dm-0"), [nvme], "through a partition, and a loop that cannot be");
        assert_eq!(host.carriers_of(b"nvme0n1p1"), [nvme]);
        assert_eq!(host.carriers_of(b"loop7"), []);
        let names: Vec<_> = host.names_of(nvme).iter().map(|name| name.terminal().into_owned()).collect();
        assert_eq!(names, ["nvme0n1"]);
        assert_eq!(host.names_of(host.find("68:00.0").unwrap())[0].as_bytes(), b"eth0");
    }

    #[test]
    fn a_link_behind_a_switch_is_not_the_shared_one() {
        let host = host();
        let nvme = host.find("67:00.0").unwrap();
        let speed = |link: Option<super::Link>| link.unwrap().current.to_string();
        assert_eq!(speed(host.link_of(nvme)), "8 GT/s x4");
        assert_eq!(speed(host.shared_link_of(nvme)), "16 GT/s x4");
        assert_eq!(host.shared_link_of(host.port_of(nvme).unwrap().bdf), None);
        assert_eq!(
            speed(host.link_of(host.find("68:00.1").unwrap())),
            "8 GT/s x4",
            "that of the physical function"
        );
    }

    #[test]
    fn what_stands_behind_a_port_is_one_group() {
        let host = host();
        let ends: Vec<Vec<String>> =
            host.ports.iter().map(|port| port.devices.iter().map(ToString::to_string).collect()).collect();
        assert_eq!(ends, [vec!["0000:67:00.0"], vec!["0000:68:00.0", "0000:68:00.1"]]);
    }

    #[test]
    fn a_platform_survives_a_recording() {
        let host = host();
        let text = serde_json::to_string(&host).unwrap();
        assert_eq!(serde_json::from_str::<Platform>(&text).unwrap(), host);
    }
}
