//! PCI devices, from `/sys/bus/pci/devices`: what each is, the way from it to its root bus, and the IOMMU that translates its addresses
//! (`iommu` and `iommu_group/type`: drivers/iommu/iommu-sysfs.c and iommu.c, 6.12).

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
    pub fn word(&self) -> &'static str {
        class::word(self.class, self.vendor, self.device)
    }

    /// Where its traffic enters the stack: its root port, or itself if it is attached to the root bus.
    pub fn port(&self) -> Bdf {
        self.above.first().copied().unwrap_or(self.bdf)
    }

    /// Is it part of the way and not an end of it?
    pub fn is_infrastructure(&self) -> bool {
        class::is_infrastructure(self.class, self.vendor, self.device)
    }

    /// Can devices stand behind it?
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

/// What stands between a device and memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Translation {
    /// The IOMMU, as `/sys/class/iommu` has it: `dmar3`, `ivhd0`.
    #[serde(with = "exact")]
    pub iommu: Untrusted,
    /// What it does with the device's addresses.
    pub domain: Domain,
}

/// What an IOMMU does with addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Domain {
    /// Looks them up in tables: `DMA`, `DMA-FQ`, or `unmanaged`, whose tables a driver such as VFIO keeps.
    Paging,
    /// Lets them through as they are.
    Identity,
    /// Refuses them: no driver has the device.
    Blocked,
    /// The kernel does not say.
    Unknown,
}

impl Translation {
    /// Of the device whose folder is `folder` below `root`; none where no IOMMU stands before it.
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

    /// Its PMU: the kind, and the PMU's name. None for kinds that are told apart by something else than a PCI address.
    ///
    /// Intel's is called as the IOMMU (`iommu->name`, drivers/iommu/intel/perfmon.c); AMD's are numbered in the order in which
    /// the IOMMUs are (`get_amd_iommu`, drivers/iommu/amd/init.c).
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
