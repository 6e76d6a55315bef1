//! Artificial hosts: a root port with a device below it, and processes.

use super::{Ownership, read, together};
use crate::machine::{io::Platform, pmu::catalog::Catalog, testing::Tree};

const PORT: &str = "sys/devices/pci0000:64/0000:64:02.0";

/// Returns a host with a device in IOMMU group 42, and one process.
fn host(class: &str) -> Tree {
    let tree = Tree::new(&[("sys/bus/event_source/devices/cpu/type", "4")]);
    for (path, class) in [(PORT.to_owned(), "0x060400"), (format!("{PORT}/0000:65:00.0"), class)] {
        tree.write(&format!("{path}/class"), class);
        tree.write(&format!("{path}/vendor"), "0x8086");
        tree.write(&format!("{path}/device"), "0x1234");
        tree.link(&format!("{path}/iommu_group"), "../../../kernel/iommu_groups/42");
        let bdf = path.rsplit('/').next().unwrap();
        tree.link(&format!("sys/bus/pci/devices/{bdf}"), &format!("../../../../{path}"));
    }
    for kind in ["net", "mnt"] {
        tree.link(&format!("proc/self/ns/{kind}"), &format!("{kind}:[1]"));
    }
    process(&tree, 7, "/web", "1");
    tree
}

fn process(tree: &Tree, pid: u32, cgroup: &str, namespace: &str) {
    let at = format!("proc/{pid}");
    tree.write(&format!("{at}/comm"), &format!("server-{pid}\n"));
    tree.write(&format!("{at}/stat"), &format!("{pid} (x) S{} {pid}00\n", " 0".repeat(18)));
    tree.write(&format!("{at}/cgroup"), &format!("0::{cgroup}\n"));
    tree.write(&format!("{at}/maps"), "00400000-00401000 r-xp 00000000 08:01 9    /usr/bin/server\n");
    tree.write(&format!("{at}/mountinfo"), "22 1 0:20 / /sys rw - sysfs sysfs rw\n");
    tree.write(&format!("{at}/net/dev"), "Inter-|\n face |bytes\n");
    tree.link(&format!("{at}/fd/0"), "/dev/null");
    tree.link(&format!("{at}/ns/net"), &format!("net:[{namespace}]"));
    tree.link(&format!("{at}/ns/mnt"), &format!("mnt:[{namespace}]"));
}

fn ownership(tree: &Tree) -> Ownership {
    let platform = Platform::read(&tree.root, &Catalog::read(&tree.root).unwrap());
    let mut found = read(&tree.root, &platform);
    assert_eq!(found.len(), 1);
    found.remove(0).1
}

fn why(ownership: &Ownership) -> &str {
    match ownership {
        Ownership::Shared { why, .. } | Ownership::Unknown(why) => why,
        _ => panic!("{ownership:?}"),
    }
}

#[test]
fn a_device_that_nobody_opened_is_nobodys() {
    assert_eq!(ownership(&host("0x020000")), Ownership::None);
}

#[test]
fn a_device_that_one_process_drives_is_its_own() {
    let tree = host("0x020000");
    tree.link("proc/7/fd/5", "/dev/vfio/42");
    let found = ownership(&tree);
    assert!(found.is_of(7) && !found.is_of(8), "{found:?}");
    assert_eq!(found.users()[0].born_ns, 700 * pmu_common::owner::START_TICK_NS);
    assert!(found.is_within(b"/web") && found.is_within(b"/") && !found.is_within(b"/we"));
}

#[test]
fn processes_of_a_cgroup_have_it_together() {
    let tree = host("0x020000");
    process(&tree, 8, "/web", "1");
    tree.link("proc/7/fd/5", "/dev/vfio/42");
    tree.link("proc/8/fd/5", "/dev/vfio/42");
    let found = ownership(&tree);
    assert!(matches!(&found, Ownership::Exclusive { pid: None, cgroup, .. } if cgroup.as_bytes() == b"/web"));
    process(&tree, 9, "/batch", "1");
    tree.link("proc/9/fd/5", "/dev/vfio/42");
    assert_eq!(why(&ownership(&tree)), "2 cgroups use it");
}

#[test]
fn mapped_memory_of_a_device_is_use_of_it() {
    let tree = host("0x020000");
    let path = "/sys/devices/pci0000:64/0000:64:02.0/0000:65:00.0/resource0";
    tree.write("proc/7/maps", &format!("7f00-7f01 rw-s 00000000 00:16 9   {path}\n"));
    assert!(ownership(&tree).is_of(7));
}

#[test]
fn a_graphics_card_is_known_by_its_minor_number() {
    let tree = host("0x030200");
    tree.write(
        "proc/driver/nvidia/gpus/0000:65:00.0/information",
        "Model: \t Some GPU\nDevice Minor: \t 3\n",
    );
    tree.link("proc/7/fd/5", "/dev/nvidia3");
    assert!(ownership(&tree).is_of(7));
}

#[test]
fn an_interface_of_the_host_is_everyones() {
    let tree = host("0x020000");
    tree.write(&format!("{PORT}/0000:65:00.0/net/eth0/ifindex"), "2");
    tree.link("sys/class/net/eth0", "../../devices/pci0000:64/0000:64:02.0/0000:65:00.0/net/eth0");
    assert_eq!(why(&ownership(&tree)), "interface eth0 is in the host's network namespace");
}

#[test]
fn an_interface_of_another_namespace_is_that_of_its_processes() {
    let tree = host("0x020000");
    process(&tree, 8, "/pod", "2");
    tree.write("proc/8/root/sys/class/net/eth0/ifindex", "2");
    tree.link("proc/8/root/sys/class/net/eth0/device", "../../../0000:65:00.0");
    assert_eq!(ownership(&tree), Ownership::None, "its /sys shows another namespace's interfaces");
    tree.write("proc/8/net/dev", "Inter-|\n face |bytes\n  eth0: 1 2 3\n");
    assert!(ownership(&tree).is_of(8));
}

#[test]
fn a_disk_of_one_mount_namespace_is_that_of_its_processes() {
    let tree = host("0x010802");
    tree.write(&format!("{PORT}/0000:65:00.0/nvme/nvme0/nvme0n1/dev"), "259:0");
    tree.link("sys/block/nvme0n1", "../devices/pci0000:64/0000:64:02.0/0000:65:00.0/nvme/nvme0/nvme0n1");
    process(&tree, 8, "/pod", "2");
    let mount = "40 22 259:0 / /data rw - ext4 /dev/nvme0n1 rw\n";
    tree.write("proc/8/mountinfo", mount);
    assert!(ownership(&tree).is_of(8));
    tree.write("proc/7/mountinfo", mount);
    assert_eq!(why(&ownership(&tree)), "it is mounted at /data on the host");
}

#[test]
fn a_process_that_vanishes_is_left_out() {
    let tree = host("0x020000");
    tree.write("proc/99/comm", "gone\n");
    assert_eq!(ownership(&tree), Ownership::None);
}

#[test]
fn a_hostile_mount_point_is_escaped() {
    let tree = host("0x010802");
    tree.write(&format!("{PORT}/0000:65:00.0/nvme/nvme0/nvme0n1/dev"), "259:0");
    tree.link("sys/block/nvme0n1", "../devices/pci0000:64/0000:64:02.0/0000:65:00.0/nvme/nvme0/nvme0n1");
    tree.write("proc/7/mountinfo", "40 22 259:0 / /\x1b[31m rw - ext4 x rw\n");
    assert!(!why(&ownership(&tree)).contains('\x1b'));
}

/// Returns a host with a partitioned disk. Its first process is on the host.
fn disk() -> Tree {
    let tree = host("0x010802");
    tree.write(&format!("{PORT}/0000:65:00.0/nvme/nvme0/nvme0n1/dev"), "259:0");
    tree.write(&format!("{PORT}/0000:65:00.0/nvme/nvme0/nvme0n1/nvme0n1p1/dev"), "259:1");
    tree.write(&format!("{PORT}/0000:65:00.0/nvme/nvme0/nvme0n1/nvme0n1p1/partition"), "1");
    tree.link("sys/block/nvme0n1", "../devices/pci0000:64/0000:64:02.0/0000:65:00.0/nvme/nvme0/nvme0n1");
    tree
}

#[test]
fn a_file_system_with_a_number_of_its_own_names_its_disk() {
    let tree = disk();
    tree.write("proc/7/mountinfo", "40 22 0:44 /root / rw shared:1 - btrfs /dev/nvme0n1p1 rw\n");
    assert_eq!(why(&ownership(&tree)), "it is mounted at / on the host");
}

#[test]
fn a_mapped_disk_is_known_by_its_name() {
    let tree = disk();
    tree.write("sys/block/dm-0/dev", "253:0");
    tree.write("sys/block/dm-0/dm/name", "vg-swap");
    tree.write("sys/block/dm-0/slaves/nvme0n1p1/x", "");
    tree.write("proc/swaps", "Filename Type Size Used Priority\n/dev/mapper/vg-swap partition 9 0 -2\n");
    assert_eq!(why(&ownership(&tree)), "the kernel swaps to /dev/mapper/vg-swap");
}

#[test]
fn devices_behind_one_port_are_whose_all_of_them_are() {
    let of = |pid: u32, cgroup: &str| {
        let tree = host("0x020000");
        process(&tree, pid, cgroup, "1");
        tree.link(&format!("proc/{pid}/fd/5"), "/dev/vfio/42");
        ownership(&tree)
    };
    let (web, other, batch) = (of(8, "/web"), of(9, "/web"), of(10, "/batch"));
    assert!(together([&web, &Ownership::None]).is_of(8));
    let both = together([&web, &other]);
    assert!(both.is_within(b"/web") && !both.is_of(8), "{both:?}");
    assert_eq!(why(&together([&web, &batch])), "2 cgroups use it");
    assert_eq!(why(&together([&web, &Ownership::Unknown("no".to_owned())])), "no");
    assert_eq!(together([]), Ownership::None);
}
