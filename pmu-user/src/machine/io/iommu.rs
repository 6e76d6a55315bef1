//! What translates a device's addresses: its IOMMU, and whether it does.
//!
//! Read from `iommu` and `iommu_group/type` of the device (drivers/iommu/iommu-sysfs.c and iommu.c, 6.12).

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use super::attribute;
use crate::untrusted::{Untrusted, exact};

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
    #[must_use]
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

#[cfg(test)]
mod tests {
    use super::{Domain, Translation};
    use crate::machine::testing::Tree;

    const FOLDER: &str = "sys/bus/pci/devices/0000:16:00.0";

    fn read(iommu: &str, domain: Option<&str>) -> Option<Translation> {
        let tree = Tree::new(&[("sys/kernel/iommu_groups/21/reserved_regions", "")]);
        tree.link(&format!("{FOLDER}/iommu"), &format!("../../../../devices/virtual/iommu/{iommu}"));
        tree.link(&format!("{FOLDER}/iommu_group"), "../../../../kernel/iommu_groups/21");
        if let Some(domain) = domain {
            tree.write("sys/kernel/iommu_groups/21/type", domain);
        }
        Translation::read(&tree.root, FOLDER)
    }

    #[test]
    fn a_device_names_its_iommu_and_what_that_does() {
        for (text, domain) in [
            (Some("DMA-FQ\n"), Domain::Paging),
            (Some("DMA\n"), Domain::Paging),
            (Some("unmanaged\n"), Domain::Paging),
            (Some("identity\n"), Domain::Identity),
            (Some("blocked\n"), Domain::Blocked),
            (Some("auto\n"), Domain::Unknown),
            (None, Domain::Unknown),
        ] {
            let found = read("dmar3", text).unwrap();
            assert_eq!((found.iommu.as_bytes(), found.domain), (&b"dmar3"[..], domain), "{text:?}");
        }
        assert_eq!(Translation::read(&Tree::new(&[]).root, FOLDER), None);
    }

    #[test]
    fn an_iommu_has_a_pmu_of_its_number() {
        let pmu = |iommu: &str| read(iommu, None).unwrap().pmu();
        assert_eq!(pmu("dmar12"), Some(("dmar", "dmar12".to_owned())));
        assert_eq!(pmu("ivhd2"), Some(("amd_iommu", "amd_iommu_2".to_owned())));
        for other in ["smmu3.0x0000000005000000", "virtio0", "dmar", "dmar0x1"] {
            assert_eq!(pmu(other), None, "{other}");
        }
    }
}
