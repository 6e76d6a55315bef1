//! PCI devices, from `/sys/bus/pci/devices`: the kind of each, its path to the root bus, and the IOMMU that
//! translates its addresses (`iommu` and `iommu_group/type`: drivers/iommu/iommu-sysfs.c and iommu.c, 6.12).

#[cfg(test)]
mod tests;

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
    link::{Link, Rate},
};
use crate::untrusted::{Untrusted, exact};

/// Folder in which the kernel lists the devices, below the root.
pub(super) const FOLDER: &str = "sys/bus/pci/devices";

/// A PCI function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Address of the function.
    pub bdf: Bdf,
    /// Class code: class, subclass, programming interface, a byte each.
    pub class: u32,
    /// Number of the vendor.
    pub vendor: u16,
    /// Number of the device, assigned by its vendor.
    pub device: u16,
    /// Driver that is bound to the function.
    pub driver: Option<Untrusted>,
    /// NUMA node, where the firmware reports it.
    pub node: Option<u32>,
    /// Group of devices that an IOMMU cannot distinguish.
    pub iommu_group: Option<u32>,
    /// Translation of the device's addresses, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translation: Option<Translation>,
    /// Physical function, if this is a virtual one (SR-IOV).
    pub physical: Option<Bdf>,
    /// Virtual functions of a physical one.
    pub virtuals: Vec<Bdf>,
    /// Link of the device itself.
    pub link: Link,
    /// Bus of the I/O stack to which the device is attached.
    pub root: RootBus,
    /// Bridges above the device, the root port first. Behind a VMD, whose root ports are in a separate
    /// domain, the list begins with those root ports.
    pub above: Vec<Bdf>,
}

impl Device {
    /// Returns the kind of device, in a word or two.
    pub fn word(&self) -> &'static str {
        class::word(self.class, self.vendor, self.device)
    }

    /// Returns the port where its traffic enters the stack: its root port, or itself if it is attached to the
    /// root bus.
    pub fn port(&self) -> Bdf {
        self.above.first().copied().unwrap_or(self.bdf)
    }

    /// Returns whether the device is a part of the path, and not an endpoint.
    pub fn is_infrastructure(&self) -> bool {
        class::is_infrastructure(self.class, self.vendor, self.device)
    }

    /// Returns whether other devices can be attached below it.
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
            // -1: the firmware does not report a node.
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

/// Returns the root bus and the bridges in a path below `/sys/devices` to `bdf`.
///
/// `pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0/10000:01:00.0`: behind a VMD (64:00.5) a separate
/// domain begins. Its root ports are those of the stack. The stack is that of the first root bus.
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

/// Returns the PCI function that a path below `/sys/devices` belongs to: the last in it.
pub(super) fn bdf_of(path: &Path) -> Option<Bdf> {
    path.components().rev().find_map(|component| Bdf::of_component(component.as_os_str().to_str()?))
}

/// Returns all PCI functions below `root`, by address. Without PCI there are none. A function that vanishes
/// during the read is left out.
///
/// The devices must not be read often: newer kernels wake a sleeping device to read its link.
pub(super) fn read(root: &Path) -> Vec<Device> {
    let names = super::names(&root.join(FOLDER)).into_iter();
    let mut devices: Vec<Device> = names
        .filter_map(|name| Bdf::of_component(name.to_str()?))
        .filter_map(|bdf| Device::read(root, bdf))
        .collect();
    devices.sort_by_key(|device| device.bdf);
    devices
}

/// Reads a double word of a device's configuration space. Needs CAP_SYS_ADMIN beyond byte 64.
///
/// # Errors
///
/// The file cannot be opened, or ends before the word, which is how the kernel refuses.
pub(super) fn configuration(root: &Path, bdf: Bdf, offset: u64) -> io::Result<u32> {
    let file = File::open(root.join(FOLDER).join(bdf.to_string()).join("config"))?;
    let mut word = [0; 4];
    file.read_exact_at(&mut word, offset)?;
    Ok(u32::from_le_bytes(word))
}

/// Translation between a device and memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Translation {
    /// IOMMU, as named in `/sys/class/iommu`: `dmar3`, `ivhd0`.
    #[serde(with = "exact")]
    pub iommu: Untrusted,
    /// Handling of the device's addresses.
    pub domain: Domain,
}

/// Handling of addresses by an IOMMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Domain {
    /// The IOMMU translates them by tables: `DMA`, `DMA-FQ`, or `unmanaged`, for which a driver such as VFIO
    /// keeps the tables.
    Paging,
    /// The IOMMU passes them unchanged.
    Identity,
    /// The IOMMU refuses them: no driver has the device.
    Blocked,
    /// The kernel does not report it.
    Unknown,
}

impl Translation {
    /// Reads the translation of the device at `folder` below `root`. Returns `None` without an IOMMU.
    pub(super) fn read(root: &Path, folder: &str) -> Option<Self> {
        let target = fs::read_link(root.join(folder).join("iommu")).ok()?;
        let domain = match attribute(root, &format!("{folder}/iommu_group/type")).as_deref() {
            Some("DMA" | "DMA-FQ" | "unmanaged") => Domain::Paging,
            Some("identity") => Domain::Identity,
            Some("blocked") => Domain::Blocked,
            _ => Domain::Unknown,
        };
        Some(Self { iommu: Untrusted::from(target.file_name()?), domain })
    }

    /// Returns the kind and the name of the IOMMU's PMU. Returns `None` for kinds that are not identified by
    /// a PCI address.
    ///
    /// Intel's PMU has the name of the IOMMU (`iommu->name`, drivers/iommu/intel/perfmon.c). AMD's are
    /// numbered in the order of the IOMMUs (`get_amd_iommu`, drivers/iommu/amd/init.c).
    pub fn pmu(&self) -> Option<(&'static str, String)> {
        let name = std::str::from_utf8(self.iommu.as_bytes()).ok()?;
        let number = |prefix: &str| name.strip_prefix(prefix)?.parse::<u32>().ok();
        match (number("dmar"), number("ivhd")) {
            (Some(number), _) => Some(("dmar", format!("dmar{number}"))),
            (None, Some(number)) => Some(("amd_iommu", format!("amd_iommu_{number}"))),
            (None, None) => None,
        }
    }
}
