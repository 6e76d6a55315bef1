//! Kernel names of the functions of devices: disks, network interfaces, and nodes of other classes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{attribute, bdf::Bdf, names, pci::bdf_of};
use crate::untrusted::{Untrusted, exact};

/// A whole disk, as block requests name it. Partitions are not listed: their requests name the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Name of the disk: `nvme0n1`.
    #[serde(with = "exact")]
    pub name: Untrusted,
    /// Major and minor number.
    pub number: (u32, u32),
    /// Devices that carry its data: several for an NVMe disk with several paths, none for a loop or RAM disk.
    pub devices: Vec<Bdf>,
    /// Disks and partitions below it (`slaves/`): device mapper, MD.
    pub below: Vec<Untrusted>,
    /// Model, as reported by the disk.
    pub model: Option<Untrusted>,
    /// Name in the device mapper: `/dev/mapper/NAME` is this disk.
    pub mapped: Option<Untrusted>,
    /// Names of its partitions, with their numbers.
    pub partitions: Vec<(Untrusted, (u32, u32))>,
}

/// A network interface of the network namespace in which `/sys` was mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Name of the interface: `eth0`.
    #[serde(with = "exact")]
    pub name: Untrusted,
    /// Index in its namespace.
    pub index: u32,
    /// Device of the interface. `None` for a loopback, bridge or tunnel.
    pub device: Option<Bdf>,
    /// Interfaces below it: members of a bond or bridge, the parent of a VLAN.
    pub below: Vec<Untrusted>,
}

/// A class of nodes that belong to PCI devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// NVMe controllers: `nvme0`.
    Nvme,
    /// InfiniBand and RDMA: `mlx5_0`.
    Rdma,
    /// Graphics: `card0`, `renderD128`.
    Drm,
    /// Compute accelerators: `accel0`.
    Accel,
    /// Work queues of DSA and IAX: `dsa0`.
    Dsa,
    /// Devices that a process drives directly: `uio0`.
    Uio,
    /// Devices that a process drives through VFIO: `vfio0`.
    Vfio,
    /// RDMA devices as processes open them: `uverbs0`.
    Uverbs,
}

impl Class {
    const ALL: [Self; 8] =
        [Self::Nvme, Self::Rdma, Self::Drm, Self::Accel, Self::Dsa, Self::Uio, Self::Vfio, Self::Uverbs];

    /// Returns whether the class is only a handle for processes to a device that has another name.
    pub const fn is_handle(self) -> bool {
        matches!(self, Self::Uio | Self::Vfio | Self::Uverbs)
    }

    const fn folder(self) -> &'static str {
        match self {
            Self::Nvme => "sys/class/nvme",
            Self::Rdma => "sys/class/infiniband",
            Self::Drm => "sys/class/drm",
            Self::Accel => "sys/class/accel",
            Self::Dsa => "sys/bus/dsa/devices",
            Self::Uio => "sys/class/uio",
            Self::Vfio => "sys/class/vfio-dev",
            Self::Uverbs => "sys/class/infiniband_verbs",
        }
    }
}

/// A node of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Class of the node.
    pub class: Class,
    /// Name of the node.
    #[serde(with = "exact")]
    pub name: Untrusted,
    /// Device of the node.
    pub device: Bdf,
    /// Model, as reported by an NVMe controller.
    pub model: Option<Untrusted>,
}

/// Returns the target of a link in sysfs, or of `device` in a folder that is not a link.
fn target(path: &Path) -> Option<PathBuf> {
    fs::read_link(path).or_else(|_| fs::read_link(path.join("device"))).ok()
}

fn number(root: &Path, path: &str) -> Option<(u32, u32)> {
    let text = attribute(root, &format!("{path}/dev"))?;
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns all disks below `root`, by name.
pub(super) fn disks(root: &Path) -> Vec<Disk> {
    let disk = |name: std::ffi::OsString| {
        let path = format!("sys/block/{}", name.to_str()?);
        let partition = |child: std::ffi::OsString| {
            let at = format!("{path}/{}", child.to_str()?);
            attribute(root, &format!("{at}/partition"))?;
            Some((Untrusted::from(child.as_os_str()), number(root, &at)?))
        };
        let folder = root.join(&path);
        Some(Disk {
            number: number(root, &path)?,
            devices: carriers(&folder),
            below: words(&folder.join("slaves"), |_| true),
            model: attribute(root, &format!("{path}/device/model")).map(Untrusted::from),
            mapped: attribute(root, &format!("{path}/dm/name")).map(Untrusted::from),
            partitions: names(&folder).into_iter().filter_map(partition).collect(),
            name: Untrusted::from(name.as_os_str()),
        })
    };
    names(&root.join("sys/block")).into_iter().filter_map(disk).collect()
}

/// Returns the devices that carry a disk's data. A disk with several paths is below its NVMe subsystem, next
/// to links to the controllers (drivers/nvme/host/multipath.c).
fn carriers(folder: &Path) -> Vec<Bdf> {
    let Some(path) = target(folder) else { return Vec::new() };
    if let Some(bdf) = bdf_of(&path) {
        return vec![bdf];
    }
    if !path.components().any(|component| component.as_os_str() == "nvme-subsystem") {
        return Vec::new();
    }
    let subsystem =
        folder.parent().map(|parent| parent.join(&path)).and_then(|path| Some(path.parent()?.to_owned()));
    let Some(subsystem) = subsystem else { return Vec::new() };
    let controllers = names(&subsystem).into_iter();
    let mut found: Vec<Bdf> = controllers
        .filter(|name| name.as_encoded_bytes().starts_with(b"nvme"))
        .filter_map(|name| bdf_of(&fs::read_link(subsystem.join(name)).ok()?))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Returns the names in a folder that `wanted` accepts.
fn words(folder: &Path, wanted: impl Fn(&[u8]) -> bool) -> Vec<Untrusted> {
    let names = names(folder).into_iter().filter(|name| wanted(name.as_encoded_bytes()));
    names.map(|name| Untrusted::from(name.as_os_str())).collect()
}

/// Returns all network interfaces below `root`, by name.
pub(super) fn interfaces(root: &Path) -> Vec<Interface> {
    interfaces_in(&root.join("sys/class/net"))
}

/// Returns the interfaces in a folder with the layout of `/sys/class/net`.
pub(super) fn interfaces_in(folder: &Path) -> Vec<Interface> {
    let interface = |name: std::ffi::OsString| {
        let at = folder.join(&name);
        let lower = words(&at, |name| name.starts_with(b"lower_"));
        Some(Interface {
            index: super::text(&at.join("ifindex"))?.parse().ok()?,
            device: target(&at).and_then(|path| bdf_of(&path)),
            below: lower.iter().map(|name| Untrusted::new(&name.as_bytes()["lower_".len()..])).collect(),
            name: Untrusted::from(name.as_os_str()),
        })
    };
    names(folder).into_iter().filter_map(interface).collect()
}

/// Returns the nodes of other classes below `root`, by class and name.
pub(super) fn nodes(root: &Path) -> Vec<Node> {
    let mut nodes = Vec::new();
    for class in Class::ALL {
        let folder = root.join(class.folder());
        let found = names(&folder).into_iter().filter_map(|name| {
            let at = folder.join(&name);
            Some(Node {
                class,
                device: bdf_of(&target(&at)?)?,
                model: (class == Class::Nvme)
                    .then(|| super::text(&at.join("model")))
                    .flatten()
                    .map(Untrusted::from),
                name: Untrusted::from(name.as_os_str()),
            })
        });
        // Connectors of a graphics card (`card0-DP-1`) are not devices.
        nodes.extend(found.filter(|node| class != Class::Drm || !node.name.as_bytes().contains(&b'-')));
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::{Class, disks, interfaces, nodes};
    use crate::machine::testing::Tree;

    const NVME: &str = "devices/pci0000:64/0000:64:02.0/0000:65:00.0/nvme/nvme0";

    #[test]
    fn a_disk_is_joined_with_its_device_and_what_it_is_made_of() {
        let tree = Tree::new(&[
            (&format!("sys/{NVME}/nvme0n1/dev"), "259:0\n"),
            (&format!("sys/{NVME}/nvme0n1/nvme0n1p1/dev"), "259:1\n"),
            (&format!("sys/{NVME}/nvme0n1/nvme0n1p1/partition"), "1\n"),
            (&format!("sys/{NVME}/model"), "Some NVMe drive                  \n"),
            ("sys/devices/virtual/block/dm-0/dev", "253:0\n"),
            ("sys/devices/virtual/block/loop0/dev", "7:0\n"),
        ]);
        tree.link("sys/block/nvme0n1", &format!("../{NVME}/nvme0n1"));
        tree.link(&format!("sys/{NVME}/nvme0n1/device"), "../../nvme0");
        tree.link("sys/class/nvme/nvme0", &format!("../../{NVME}"));
        tree.link("sys/block/dm-0", "../devices/virtual/block/dm-0");
        tree.link("sys/block/loop0", "../devices/virtual/block/loop0");
        tree.link("sys/devices/virtual/block/dm-0/slaves/nvme0n1p1", "../x");
        let disks = disks(&tree.root);
        let [mapped, image, nvme] = &disks[..] else { panic!("{disks:?}") };
        assert_eq!((nvme.number, &nvme.devices[..]), ((259, 0), &["65:00.0".parse().unwrap()][..]));
        assert_eq!((nvme.partitions[0].0.as_bytes(), nvme.partitions[0].1), (&b"nvme0n1p1"[..], (259, 1)));
        assert_eq!(nvme.model.as_ref().unwrap().as_bytes(), b"Some NVMe drive");
        assert_eq!((mapped.devices.len(), mapped.below[0].as_bytes()), (0, &b"nvme0n1p1"[..]));
        assert!(image.devices.is_empty() && image.below.is_empty());
        let nodes = nodes(&tree.root);
        assert_eq!((nodes.len(), nodes[0].class, nodes[0].name.as_bytes()), (1, Class::Nvme, &b"nvme0"[..]));
    }

    #[test]
    fn a_disk_with_several_ways_has_several_devices() {
        let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0";
        let tree = Tree::new(&[(&format!("{subsystem}/nvme0n1/dev"), "259:0\n")]);
        tree.link("sys/block/nvme0n1", "../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1");
        for (name, bdf) in [("nvme1", "0000:66:00.0"), ("nvme0", "0000:65:00.0")] {
            tree.link(&format!("{subsystem}/{name}"), &format!("../../../pci0000:64/{bdf}/nvme/{name}"));
        }
        let devices: Vec<String> = disks(&tree.root)[0].devices.iter().map(ToString::to_string).collect();
        assert_eq!(devices, ["0000:65:00.0", "0000:66:00.0"]);
    }

    #[test]
    fn an_interface_without_a_device_has_none() {
        let tree = Tree::new(&[
            ("sys/devices/virtual/net/bond0/ifindex", "7\n"),
            ("sys/devices/pci0000:00/0000:00:05.0/virtio2/net/eth0/ifindex", "2\n"),
        ]);
        tree.link("sys/class/net/bond0", "../../devices/virtual/net/bond0");
        tree.link("sys/devices/virtual/net/bond0/lower_eth0", "../../../x");
        tree.link("sys/class/net/eth0", "../../devices/pci0000:00/0000:00:05.0/virtio2/net/eth0");
        tree.write("sys/class/net/bonding_masters", "bond0\n");
        let found = interfaces(&tree.root);
        assert_eq!((found[0].device, found[0].below[0].as_bytes()), (None, &b"eth0"[..]));
        assert_eq!((found[1].index, found[1].device), (2, Some("00:05.0".parse().unwrap())));
        assert_eq!(found.len(), 2, "a file is no interface");
    }
}
