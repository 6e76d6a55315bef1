//! PCI devices, from `/sys/bus/pci/devices`: what each is, and the way from it to its root bus.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{
    ENTRIES_MAX, attribute,
    bdf::{Bdf, RootBus},
    class,
    iommu::Translation,
    link::{Link, Rate},
};
use crate::untrusted::Untrusted;

/// Where the kernel lists them, below the root.
pub(super) const FOLDER: &str = "sys/bus/pci/devices";

/// A PCI function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its address.
    pub bdf: Bdf,
    /// Class code: class, subclass, programming interface, a byte each.
    pub class: u32,
    /// Number of the vendor.
    pub vendor: u16,
    /// Number of the device, by its vendor.
    pub device: u16,
    /// Driver that is bound to it.
    pub driver: Option<Untrusted>,
    /// NUMA node, where the firmware says.
    pub node: Option<u32>,
    /// Group of devices that an IOMMU cannot tell apart.
    pub iommu_group: Option<u32>,
    /// What translates its addresses, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translation: Option<Translation>,
    /// The physical function, if this is a virtual one (SR-IOV).
    pub physical: Option<Bdf>,
    /// Its virtual functions.
    pub virtuals: Vec<Bdf>,
    /// Its own link.
    pub link: Link,
    /// Bus of the I/O stack that it is attached to.
    pub root: RootBus,
    /// Bridges on the way, the root port first. Behind a VMD, whose root ports are in a domain of their own, it begins with
    /// those.
    pub above: Vec<Bdf>,
}

impl Device {
    /// What it is, in a word or two.
    #[must_use]
    pub fn word(&self) -> &'static str {
        class::word(self.class, self.vendor, self.device)
    }

    /// Where its traffic enters the stack: its root port, or itself if it is attached to the root bus.
    #[must_use]
    pub fn port(&self) -> Bdf {
        self.above.first().copied().unwrap_or(self.bdf)
    }

    /// Is it part of the way and not an end of it?
    #[must_use]
    pub fn is_infrastructure(&self) -> bool {
        class::is_infrastructure(self.class, self.vendor, self.device)
    }

    /// Can devices stand behind it?
    #[must_use]
    pub const fn is_port(&self) -> bool {
        class::is_port(self.class)
    }

    fn read(root: &Path, bdf: Bdf) -> Option<Self> {
        let folder = format!("{FOLDER}/{bdf}");
        let text = |name: &str| attribute(root, &format!("{folder}/{name}"));
        let hexadecimal = |name: &str| {
            let text = text(name)?;
            u32::from_str_radix(text.strip_prefix("0x").unwrap_or(&text), 16).ok()
        };
        let link = |name: &str| fs::read_link(root.join(&folder).join(name)).ok();
        let last = |name: &str| link(name).and_then(|target| Some(Untrusted::from(target.file_name()?)));
        let rate = |kind: &str| {
            let (speed, width) = (text(&format!("{kind}_link_speed")), text(&format!("{kind}_link_width")));
            Rate::parse(speed.as_deref(), width.as_deref())
        };
        let (stack, above) = way(&fs::read_link(root.join(&folder)).ok()?, bdf);
        Some(Self {
            class: hexadecimal("class")?,
            vendor: u16::try_from(hexadecimal("vendor")?).ok()?,
            device: u16::try_from(hexadecimal("device")?).ok()?,
            driver: last("driver"),
            // -1: the firmware does not say.
            node: text("numa_node").and_then(|node| node.parse().ok()),
            iommu_group: link("iommu_group").and_then(|path| path.file_name()?.to_str()?.parse().ok()),
            translation: Translation::read(root, &folder),
            physical: link("physfn").and_then(|path| bdf_of(&path)),
            virtuals: (0..)
                .map_while(|number| link(&format!("virtfn{number}")))
                .take(ENTRIES_MAX)
                .filter_map(|path| bdf_of(&path))
                .collect(),
            link: Link { current: rate("current"), max: rate("max") },
            root: stack.unwrap_or(RootBus { domain: bdf.domain, bus: bdf.bus }),
            above,
            bdf,
        })
    }
}

/// The root bus and the bridges that a path below `/sys/devices` goes through to `bdf`.
///
/// `pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0/10000:01:00.0`: behind a VMD (64:00.5) a domain of its own begins,
/// whose root ports are those of the stack. The stack is that of the first root bus.
fn way(path: &Path, bdf: Bdf) -> (Option<RootBus>, Vec<Bdf>) {
    let (mut stack, mut above) = (None, Vec::new());
    for component in path.components().filter_map(|component| component.as_os_str().to_str()) {
        if let Some(bus) = component.strip_prefix("pci").and_then(RootBus::parse) {
            stack = stack.or(Some(bus));
            above.clear();
        } else if let Some(bridge) = Bdf::of_component(component) {
            above.push(bridge);
        }
    }
    if above.last() == Some(&bdf) {
        above.pop();
    }
    (stack, above)
}

/// The PCI function that a path below `/sys/devices` belongs to: the last in it.
pub(super) fn bdf_of(path: &Path) -> Option<Bdf> {
    path.components().rev().find_map(|component| Bdf::of_component(component.as_os_str().to_str()?))
}

/// All PCI functions below `root`, by address. Without PCI there are none; one that vanishes meanwhile is left out.
///
/// Not to be read often: newer kernels wake a device that sleeps to read its link.
pub(super) fn read(root: &Path) -> Vec<Device> {
    let names = super::names(&root.join(FOLDER)).into_iter();
    let mut devices: Vec<Device> = names
        .filter_map(|name| Bdf::of_component(name.to_str()?))
        .filter_map(|bdf| Device::read(root, bdf))
        .collect();
    devices.sort_by_key(|device| device.bdf);
    devices
}

/// A double word of a device's configuration space. Needs CAP_SYS_ADMIN beyond byte 64.
///
/// # Errors
///
/// The file cannot be opened, or ends before the word: that is how the kernel refuses.
pub(super) fn configuration(root: &Path, bdf: Bdf, offset: u64) -> io::Result<u32> {
    let file = File::open(root.join(FOLDER).join(bdf.to_string()).join("config"))?;
    let mut word = [0; 4];
    file.read_exact_at(&mut word, offset)?;
    Ok(u32::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Bdf, RootBus, bdf_of, read, way};
    use crate::machine::{io::link::Speed, testing::Tree};

    const PORT: &str = "../../../devices/pci0000:64/0000:64:02.0";

    fn device(tree: &Tree, path: &str, class: &str) {
        let name = path.rsplit('/').next().unwrap();
        let at = path.replace("../../../", "sys/");
        tree.write(&format!("{at}/class"), class);
        tree.write(&format!("{at}/vendor"), "0x8086\n");
        tree.write(&format!("{at}/device"), "0x1234\n");
        tree.link(&format!("sys/bus/pci/devices/{name}"), path);
    }

    fn bdf(text: &str) -> Bdf {
        text.parse().unwrap()
    }

    #[test]
    fn a_device_is_read_with_its_way_to_the_root_bus() {
        let tree = Tree::new(&[]);
        device(&tree, PORT, "0x060400\n");
        device(&tree, &format!("{PORT}/0000:65:00.0/0000:66:04.0/0000:67:00.0"), "0x010802\n");
        let at = "sys/devices/pci0000:64/0000:64:02.0/0000:65:00.0/0000:66:04.0/0000:67:00.0";
        tree.write(&format!("{at}/numa_node"), "1\n");
        tree.write(&format!("{at}/current_link_speed"), "8.0 GT/s PCIe\n");
        tree.write(&format!("{at}/current_link_width"), "4\n");
        tree.write(&format!("{at}/max_link_speed"), "Unknown\n");
        tree.write(&format!("{at}/max_link_width"), "255\n");
        tree.link(&format!("{at}/driver"), "../../../../../bus/pci/drivers/nvme");
        tree.link(&format!("{at}/iommu_group"), "../../../../kernel/iommu_groups/42");
        tree.link(&format!("{at}/virtfn0"), "../0000:67:00.1");
        tree.link(&format!("{at}/virtfn1"), "../0000:67:00.2");
        let devices = read(&tree.root);
        let [port, nvme] = &devices[..] else { panic!("{devices:?}") };
        assert_eq!((port.port(), port.is_port(), port.node), (port.bdf, true, None));
        assert_eq!(nvme.root, RootBus { domain: 0, bus: 0x64 });
        assert_eq!(nvme.above, ["0000:64:02.0", "0000:65:00.0", "0000:66:04.0"].map(bdf));
        assert_eq!((nvme.port(), nvme.word(), nvme.node), (port.bdf, "NVMe storage", Some(1)));
        assert_eq!(nvme.driver.as_ref().unwrap().as_bytes(), b"nvme");
        assert_eq!((nvme.iommu_group, nvme.virtuals.len(), nvme.virtuals[1]), (Some(42), 2, bdf("67:00.2")));
        assert_eq!((nvme.link.current.speed, nvme.link.current.width), (Some(Speed(8000)), Some(4)));
        assert_eq!((nvme.link.max.speed, nvme.link.max.width), (None, None));
    }

    #[test]
    fn what_is_behind_a_vmd_belongs_to_the_stack_of_the_vmd() {
        let path = "../../../devices/pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0/10000:01:00.0";
        let (stack, above) = way(Path::new(path), bdf("10000:01:00.0"));
        assert_eq!(stack.unwrap().to_string(), "0000:64");
        assert_eq!(above, [bdf("10000:00:02.0")], "the stack's root port, by the number it has there");
        assert_eq!(bdf_of(Path::new("../x/0000:00:05.0/virtio2/block/vda")), Some(bdf("00:05.0")));
        assert_eq!(bdf_of(Path::new("../devices/virtual/block/loop0")), None);
    }

    #[test]
    fn a_device_without_a_class_or_with_a_strange_name_is_left_out() {
        let tree = Tree::new(&[("sys/bus/pci/devices/0000:00:00.0/vendor", "0x8086")]);
        device(&tree, PORT, "many");
        device(&tree, "../../../devices/pci0000:00/fake", "0x020000");
        assert_eq!(read(&tree.root), []);
        assert_eq!(read(Path::new("/nonexistent")), []);
    }

    #[test]
    fn configuration_space_that_is_cut_off_is_an_error() {
        let tree = Tree::new(&[("sys/bus/pci/devices/0000:00:00.0/config", &"abcd".repeat(16))]);
        let word = |offset| super::configuration(&tree.root, bdf("00:00.0"), offset);
        assert_eq!(word(60).unwrap(), u32::from_le_bytes(*b"abcd"));
        assert!(word(62).is_err() && word(0x1a0).is_err());
    }
}
