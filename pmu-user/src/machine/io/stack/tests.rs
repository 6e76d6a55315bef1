//! Artificial hosts: two sockets with one CPU each, and a root port with a network card on every root bus.

use std::fs;

use super::{Mapping, MappingSource};
use crate::machine::{io::Platform, pmu::catalog::Catalog, testing::Tree};

/// Returns a host with this processor, whose root buses are on these NUMA nodes.
fn host(cpuinfo: &str, buses: &[(&str, u32)]) -> Tree {
    let tree = Tree::new(&[
        ("proc/cpuinfo", cpuinfo),
        ("sys/devices/system/cpu/online", "0-1\n"),
        ("sys/bus/event_source/devices/cpu/type", "4\n"),
    ]);
    for number in 0..2 {
        let at = format!("sys/devices/system/cpu/cpu{number}/topology");
        tree.write(&format!("{at}/physical_package_id"), &format!("{number}\n"));
        tree.write(&format!("sys/devices/system/node/node{number}/cpulist"), &format!("{number}\n"));
    }
    for (bus, node) in buses {
        let at = format!("sys/devices/pci{bus}/{bus}:02.0");
        let behind = format!("{}:00.0", next(bus));
        device(&tree, &at, "0x060400", "0x347a", *node);
        device(&tree, &format!("{at}/{behind}"), "0x020000", "0x1593", *node);
    }
    tree
}

fn next(bus: &str) -> String {
    let (domain, bus) = bus.split_once(':').unwrap();
    format!("{domain}:{:02x}", u8::from_str_radix(bus, 16).unwrap() + 1)
}

fn device(tree: &Tree, path: &str, class: &str, device: &str, node: u32) {
    tree.write(&format!("{path}/class"), class);
    tree.write(&format!("{path}/vendor"), "0x8086");
    tree.write(&format!("{path}/device"), device);
    tree.write(&format!("{path}/numa_node"), &node.to_string());
    let bdf = path.rsplit('/').next().unwrap();
    tree.link(&format!("sys/bus/pci/devices/{bdf}"), &format!("../../../../{path}"));
}

fn intel(model: u32) -> String {
    format!("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {model}\nstepping\t: 6\n")
}

fn instances(tree: &Tree, numbers: &[u32]) {
    for number in numbers {
        tree.pmu(&format!("uncore_iio_{number}"), &[("type", "9"), ("cpumask", "0-1\n")]);
    }
}

fn platform(tree: &Tree) -> Platform {
    Platform::read(&tree.root, &Catalog::read(&tree.root).unwrap())
}

/// Returns the stacks as `bus: uncore PMU on a CPU, source`, or the reason why they are unknown.
fn stacks(tree: &Tree) -> Vec<String> {
    let stack = |stack: &super::Stack| match &stack.unit {
        Mapping::Known { value, source } => {
            format!("{} {} on {}, {source}", stack.bus, value.pmu, value.cpu.0)
        }
        Mapping::Unknown(why) => format!("{} {why}", stack.bus),
    };
    platform(tree).stacks.iter().map(stack).collect()
}

fn parts(tree: &Tree) -> Vec<Option<Vec<u32>>> {
    platform(tree).ports.iter().map(|port| port.parts.value().cloned()).collect()
}

#[test]
fn the_kernels_map_names_box_and_die() {
    let tree = host(&intel(106), &[("0000:00", 0), ("0000:16", 0), ("0000:97", 1)]);
    instances(&tree, &[0, 1, 5]);
    for (name, first, second) in
        [(0, "0000:16", "0000:97"), (1, "0000:00", "0000:b0"), (5, "0000:00", "0000:80")]
    {
        tree.pmu(&format!("uncore_iio_{name}"), &[("die0", first), ("die1", second)]);
    }
    assert_eq!(
        stacks(&tree),
        [
            "0000:00 uncore_iio_5 on 0, kernel",
            "0000:16 uncore_iio_0 on 0, kernel",
            "0000:80 uncore_iio_5 on 1, kernel",
            "0000:97 uncore_iio_0 on 1, kernel",
            "0000:b0 uncore_iio_1 on 1, kernel",
        ],
        "bus 0 is that of box 5 only"
    );
    assert_eq!(parts(&tree), [Some(vec![0]), Some(vec![0]), Some(vec![0])]);
}

#[test]
fn a_bus_that_the_kernel_does_not_name_is_not_known() {
    let tree = host(&intel(106), &[("0000:16", 0), ("0000:30", 1)]);
    instances(&tree, &[0]);
    tree.pmu("uncore_iio_0", &[("die0", "0000:16"), ("die7", "0000:44")]);
    let platform = platform(&tree);
    let stack = platform.stacks.iter().find(|stack| stack.bus.bus == 0x30).unwrap();
    assert_eq!(
        (&stack.unit, stack.socket),
        (&Mapping::Unknown("the map of stacks does not name this bus".into()), Some(1))
    );
    let stack = platform.stacks.iter().find(|stack| stack.bus.bus == 0x44).unwrap();
    assert_eq!(stack.unit, Mapping::Unknown("no CPU of die 7 is online".into()));
}

/// Writes a configuration space with these double words.
fn configuration(tree: &Tree, bdf: &str, words: &[(usize, u32)]) {
    let mut bytes = vec![0; 4096];
    for (at, word) in words {
        bytes[*at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    let path = tree.root.join("sys/bus/pci/devices").join(bdf).join("config");
    fs::write(path, bytes).unwrap();
}

/// Returns two sockets whose buses 0, 1 and 8 are the first, the second and an accelerator's.
fn sapphire_rapids(numbers: &[u32]) -> Tree {
    let tree = host(&intel(143), &[("0000:00", 0), ("0000:15", 0), ("0000:80", 1), ("0000:97", 1)]);
    device(&tree, "sys/devices/pci0000:7e/0000:7e:03.0", "0x088000", "0x09a6", 0);
    device(&tree, "sys/devices/pci0000:fe/0000:fe:03.0", "0x088000", "0x09a6", 1);
    device(&tree, "sys/devices/pci0000:7f/0000:7f:1e.3", "0x088000", "0x325b", 0);
    instances(&tree, numbers);
    tree
}

#[test]
fn the_table_names_the_box_where_the_kernel_does_not() {
    let tree = sapphire_rapids(&[0, 1, 2]);
    configuration(&tree, "0000:7e:03.0", &[(0x1a0, 0b1_0000_0011), (0x190, 0x0000_1500), (0x1c0, 0)]);
    configuration(&tree, "0000:fe:03.0", &[(0x1a0, 0b0_0000_0011), (0x190, 0x0000_9780)]);
    configuration(&tree, "0000:7f:1e.3", &[(0x94, 0xc0)]);
    let stacks = stacks(&tree);
    for expected in [
        "0000:00 uncore_iio_1 on 0, table",
        "0000:15 uncore_iio_2 on 0, table",
        "0000:80 uncore_iio_1 on 1, table",
        "0000:97 uncore_iio_2 on 1, table",
        "0000:7e the map of stacks does not name this bus",
    ] {
        assert!(stacks.iter().any(|stack| stack == expected), "{expected}: {stacks:#?}");
    }
    assert_eq!(parts(&tree), [Some(vec![7]), Some(vec![1]), Some(vec![7]), Some(vec![1])]);
}

#[test]
fn a_box_that_the_kernel_lacks_is_said_to_be_lacking() {
    let tree = sapphire_rapids(&[0, 1]);
    configuration(&tree, "0000:7e:03.0", &[(0x1a0, 0b11), (0x190, 0x0000_1500)]);
    configuration(&tree, "0000:fe:03.0", &[(0x1a0, 0b11), (0x190, 0x0000_9780)]);
    configuration(&tree, "0000:7f:1e.3", &[(0x94, 0xc0)]);
    let stacks = stacks(&tree);
    assert!(
        stacks
            .contains(&"0000:15 it should be counted by uncore_iio_2, which the kernel does not have".into())
    );
}

#[test]
fn without_root_the_table_cannot_be_used() {
    let tree = sapphire_rapids(&[0, 1]);
    for bdf in ["0000:7e:03.0", "0000:7f:1e.3"] {
        let path = tree.root.join("sys/bus/pci/devices").join(bdf).join("config");
        fs::write(path, [0; 64]).unwrap();
    }
    let expected =
        "0000:15 the map of stacks is in configuration space of 0000:7e:03.0, which takes root to read";
    assert!(stacks(&tree).contains(&expected.to_owned()), "{:?}", stacks(&tree));
    assert_eq!(parts(&tree)[1], Some(vec![1]), "the part needs no root");
    assert_eq!(platform(&tree).stacks[1].socket, Some(0), "nor does the socket");
}

#[test]
fn configuration_space_that_is_switched_off_is_no_map() {
    let tree = sapphire_rapids(&[0, 1]);
    configuration(&tree, "0000:7e:03.0", &[(0x1a0, u32::MAX)]);
    let expected = "0000:15 configuration space of 0000:7e:03.0 is switched off";
    assert!(stacks(&tree).contains(&expected.to_owned()), "{:?}", stacks(&tree));
}

#[test]
fn ice_lake_d_numbers_its_stacks_itself() {
    let tree = host(&intel(108), &[("0000:16", 0)]);
    device(&tree, "sys/devices/pci0000:16/0000:16:00.1", "0x088000", "0x09a2", 0);
    instances(&tree, &[5]);
    configuration(&tree, "0000:16:00.1", &[(0x3f4, 1 << 4)]);
    assert_eq!(stacks(&tree), ["0000:16 uncore_iio_5 on 0, table"]);
}

#[test]
fn accelerators_are_on_the_buses_after_that_of_their_stack() {
    let tree = host(&intel(173), &[("0000:15", 0), ("0000:6e", 0)]);
    device(&tree, "sys/devices/pci0000:6a/0000:6a:01.0", "0x088000", "0x0b25", 0);
    device(&tree, "sys/devices/pci0000:7e/0000:7e:03.0", "0x088000", "0x09a6", 0);
    device(&tree, "sys/devices/pci0000:6b/0000:6b:00.0", "0x0b4000", "0x4944", 0);
    instances(&tree, &[0, 1, 2]);
    configuration(&tree, "0000:7e:03.0", &[(0x1a0, 0b111_0000_0010), (0x190, 0x1500), (0x198, 0x006c_6b6a)]);
    let stacks = stacks(&tree);
    for expected in [
        "0000:15 uncore_iio_2 on 0, table",
        "0000:6a uncore_iio_1 on 0, table",
        "0000:6b uncore_iio_1 on 0, table",
    ] {
        assert!(stacks.iter().any(|stack| stack == expected), "{expected}: {stacks:#?}");
    }
    assert!(stacks.contains(&"0000:6e the map of stacks does not name this bus".to_owned()), "{stacks:#?}");
    assert_eq!(parts(&tree)[1..3], [Some(vec![0]), Some(vec![4])], "{stacks:#?}");
}

#[test]
fn amd_says_nothing_about_its_io_modules() {
    let amd = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nstepping\t: 1\n";
    let tree = host(amd, &[("0000:c0", 1)]);
    tree.pmu("amd_df", &[("type", "9"), ("cpumask", "0-1")]);
    assert!(stacks(&tree)[0].contains("I/O module of the data fabric"), "{:?}", stacks(&tree));
    assert_eq!(parts(&tree), [None]);
}

#[test]
fn grace_has_a_counter_for_all_ports_of_a_socket() {
    let tree = host("CPU implementer\t: 0x41\n", &[("0009:00", 1)]);
    tree.pmu("nvidia_pcie_pmu_1", &[("type", "9"), ("cpumask", "1")]);
    assert_eq!(stacks(&tree), ["0009:00 nvidia_pcie_pmu_1 on 1, kernel"]);
}

#[test]
fn a_guest_has_no_counters_of_stacks() {
    let tree = host(&intel(106), &[("0000:00", 0)]);
    assert_eq!(stacks(&tree), ["0000:00 the kernel has no counters of I/O stacks here (no uncore_iio PMU)"]);
    assert_eq!(parts(&tree), [None], "whatever processor it is shown");
}

#[test]
fn what_was_inferred_says_how_well() {
    assert_eq!(MappingSource::Inferred { r: 0.984 }.to_string(), "inferred (r=0.98)");
}
