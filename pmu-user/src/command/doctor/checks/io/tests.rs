//! Tests with synthetic servers, and a captured guest.

use std::path::Path;

use super::{Check, Status, bios, counters, monitoring};
use crate::{
    bpf::LoadError,
    machine::{
        Machine,
        cpu::Processor,
        io::resctrl::testing::host,
        privilege::Privileges,
        testing::{Tree, processor},
    },
    table::io::testing::{Family, server},
};

/// Returns the checks of files below `root`, on a machine of which only I/O matters.
fn checks(root: &Path) -> Vec<Check> {
    let machine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines/guest-no-pmu");
    counters(&Machine::read(&machine).unwrap(), &Privileges::read(Path::new("/")), root).unwrap()
}

fn check<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks.iter().find(|check| check.name == name).unwrap()
}

/// An Ice Lake server with a network card behind a port of a bus that the kernel maps, and of one that it
/// does not.
fn ice_lake() -> Tree {
    let tree = server(Family::IceLake, &[("iio", 2)]);
    tree.write("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\nstepping\t: 6\n");
    tree.write("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n");
    tree.pmu("uncore_iio_0", &[("die0", "0000:16")]);
    for (bus, behind) in [("0000:16", "0000:17"), ("0000:30", "0000:31")] {
        let port = format!("sys/devices/pci{bus}/{bus}:02.0");
        let card = format!("{port}/{behind}:00.0");
        for (path, class) in [(&port, "0x060400"), (&card, "0x020000")] {
            for (file, text) in [("class", class), ("vendor", "0x8086"), ("device", "0x347a")] {
                tree.write(&format!("{path}/{file}"), text);
            }
            let bdf = path.rsplit('/').next().unwrap();
            tree.link(&format!("sys/bus/pci/devices/{bdf}"), &format!("../../../../{path}"));
        }
    }
    tree
}

#[test]
fn a_server_is_told_what_of_its_uncore_pmus_and_ports_is_known() {
    let checks = checks(&ice_lake().root);
    let found = |name| (check(&checks, name).status, check(&checks, name).found.as_str());
    assert_eq!(found("uncore PMUs"), (Status::Ok, "2 iio, 2 iio_free_running"));
    assert_eq!(found("io table"), (Status::Limited, "icelakex: metrics of iio"));
    let absent = check(&checks, "io table").disables.as_deref().unwrap();
    assert!(absent.contains("cha, ") && !absent.contains("iio"), "{absent}");
    assert_eq!(found("free-running counters"), (Status::Ok, "9 on each of 2 iio_free_running"));
    let ports = "0000:16:02.0 (stack by kernel, part by table); \
                 0000:30:02.0 not known: the map of stacks does not name this bus";
    assert_eq!(found("root ports"), (Status::Limited, ports));
    assert!(check(&checks, "root ports").fix.is_some());
}

#[test]
fn a_guest_is_told_that_only_its_host_has_uncore_pmus() {
    let checks = checks(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines/guest-no-pmu"));
    let instances = check(&checks, "uncore PMUs");
    assert_eq!(instances.status, Status::Missing);
    assert!(instances.fix.as_deref().is_some_and(|fix| fix.contains("on the host")), "{instances:?}");
    for check in checks {
        assert!(check.status == Status::Ok || check.disables.is_some(), "{check:?}");
    }
}

#[test]
fn resctrl_says_itself_what_would_help() {
    assert_eq!(monitoring(&host().root, &processor()).status, Status::Ok);
    let tree = Tree::new(&[("proc/filesystems", "nodev\tresctrl\n")]);
    let counts = Processor { counts_by_group: true, ..processor() };
    let not_mounted = monitoring(&tree.root, &counts);
    assert_eq!((not_mounted.status, not_mounted.found.as_str()), (Status::Missing, "resctrl is not mounted"));
    assert!(not_mounted.fix.is_some_and(|fix| fix.contains("mount -t resctrl")));
    assert_eq!(
        monitoring(&tree.root, &processor()).fix,
        None,
        "nothing helps a processor that does not count"
    );
}

#[test]
fn a_kernel_that_refuses_bios_is_told_which_disks_lack_rows() {
    let privileges = Privileges::read(Path::new("/"));
    assert_eq!(bios(Ok(()), "load and attach", &privileges).status, Status::Ok);
    let error = std::io::Error::from_raw_os_error(libc::EINVAL);
    let refused = bios(Err(&LoadError::Attach { name: "bio_queue", error }), "", &privileges);
    assert_eq!(refused.status, Status::Limited);
    assert!(refused.found.contains("`bio_queue`"), "{refused:?}");
    assert!(refused.disables.is_some_and(|disables| disables.contains("zram")));
}
