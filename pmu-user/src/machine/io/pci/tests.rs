//! PCI functions of artificial trees.

use std::path::Path;

use super::{Bdf, Domain, RootBus, Translation, bdf_of, read, way};
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

const FUNCTION: &str = "sys/bus/pci/devices/0000:16:00.0";

fn translation(iommu: &str, domain: Option<&str>) -> Option<Translation> {
    let tree = Tree::new(&[("sys/kernel/iommu_groups/21/reserved_regions", "")]);
    tree.link(&format!("{FUNCTION}/iommu"), &format!("../../../../devices/virtual/iommu/{iommu}"));
    tree.link(&format!("{FUNCTION}/iommu_group"), "../../../../kernel/iommu_groups/21");
    if let Some(domain) = domain {
        tree.write("sys/kernel/iommu_groups/21/type", domain);
    }
    Translation::read(&tree.root, FUNCTION)
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
        let found = translation("dmar3", text).unwrap();
        assert_eq!((found.iommu.as_bytes(), found.domain), (&b"dmar3"[..], domain), "{text:?}");
    }
    assert_eq!(Translation::read(&Tree::new(&[]).root, FUNCTION), None);
}

#[test]
fn an_iommu_has_a_pmu_of_its_number() {
    let pmu = |iommu: &str| translation(iommu, None).unwrap().pmu();
    assert_eq!(pmu("dmar12"), Some(("dmar", "dmar12".to_owned())));
    assert_eq!(pmu("ivhd2"), Some(("amd_iommu", "amd_iommu_2".to_owned())));
    for other in ["smmu3.0x0000000005000000", "virtio0", "dmar", "dmar0x1"] {
        assert_eq!(pmu(other), None, "{other}");
    }
}
