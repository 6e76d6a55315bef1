//! Tests of plans on hosts with IOMMUs that count, made by hand.

use super::{Found, Requesters};
use crate::{
    machine::{io::Platform, pmu::catalog::Catalog, testing::Tree},
    plan::{TICK, Target, multiplexing::PlannedEvent},
    table::io::testing::{DMAR, Filter, card, dmar},
};

fn host(iommus: &[(u32, Filter)]) -> Tree {
    let tree = Tree::new(&[("sys/devices/system/cpu/online", "0-3\n")]);
    tree.pmu("cpu", &[("type", "4\n")]);
    iommus.iter().for_each(|&(number, filter)| dmar(&tree, number, filter, &DMAR));
    tree
}

fn chosen(tree: &Tree, named: &[&str], target: &Target) -> Found {
    let catalog = Catalog::read(&tree.root).unwrap();
    let platform = Platform::read(&tree.root, &catalog);
    let requesters = Requesters { catalog: &catalog, platform: &platform, root: &tree.root, tick: TICK };
    let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
    requesters.choose(&named, target).unwrap()
}

/// Returns the PMU's name and type, and the devices of its groups, by kind.
fn groups(found: &Found) -> Vec<(&str, u32, Vec<String>)> {
    let whose = |kind: &super::UncoreKind| {
        let names = kind.requesters.iter();
        names.map(|one| one.map_or_else(|| "clock".to_owned(), |bdf| bdf.to_string())).collect()
    };
    found.kinds.iter().map(|kind| (kind.name.as_str(), kind.instances[0].kind, whose(kind))).collect()
}

fn reasons(found: &Found) -> Vec<String> {
    found.missing.iter().map(|lost| format!("{}: {}", lost.row, lost.why)).collect()
}

fn words(event: &PlannedEvent) -> (&str, [u64; 4]) {
    (event.name.as_str(), event.words)
}

#[test]
fn each_device_is_counted_by_its_own_iommu_and_nobody_else_with_it() {
    let tree = host(&[(2, Filter::Requester), (10, Filter::Requester)]);
    card(&tree, "0000:16:00.0", "dmar10", "DMA-FQ\n");
    card(&tree, "0000:27:00.1", "dmar2", "unmanaged\n");
    let found = chosen(&tree, &[], &Target::System);
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        groups(&found),
        [
            ("dmar2", 102, list(&["clock"])),
            ("dmar2", 102, list(&["0000:27:00.1"])),
            ("dmar10", 110, list(&["clock"])),
            ("dmar10", 110, list(&["0000:16:00.0"])),
        ]
    );
    let events = |kind: usize| found.kinds[kind].turns.groups[0].events.iter().map(words).collect::<Vec<_>>();
    assert_eq!(events(0), [("iommu_clocks", [1, 0, 0, 0])], "a clock is no requester's");
    let (first, second) = (0x2701 << 16 | 1, 0x1600 << 16 | 1);
    assert_eq!(
        events(1),
        [
            ("iommu_mrds", [1 << 28 | 1, first, 0, 0]),
            ("iotlb_hit", [3 << 28 | 2, first, 0, 0]),
            ("iotlb_lookup", [3 << 28 | 1, first, 0, 0]),
            ("pw_occupancy", [4, first, 0, 0]),
        ]
    );
    assert!(events(3).iter().all(|(_, words)| words[1] == second));
    assert_eq!((found.kinds[3].instances[0].unit, found.kinds[3].instances.len()), (10, 1));
    assert_eq!(reasons(&found), Vec::<String>::new());
}

#[test]
fn the_kernel_says_where_the_filter_is() {
    let tree = host(&[(0, Filter::Requester)]);
    tree.pmu(
        "dmar0",
        &[("format/filter_requester_id", "config2:8-23"), ("format/filter_requester_id_en", "config:63")],
    );
    card(&tree, "0000:16:00.0", "dmar0", "DMA\n");
    let found = chosen(&tree, &[], &Target::System);
    let lookup = &found.kinds[1].turns.groups[0].events[2];
    assert_eq!(words(lookup), ("iotlb_lookup", [1 << 63 | 3 << 28 | 1, 0, 0x1600 << 8, 0]));
}

#[test]
fn an_iommu_of_amds_matches_all_bits_of_the_address() {
    let tree = host(&[]);
    let format = [("csource", "config:0-7"), ("devid", "config:8-23"), ("devid_mask", "config1:0-15")];
    tree.pmu("amd_iommu_3", &[("type", "50\n"), ("cpumask", "0\n")]);
    for (term, bits) in format {
        tree.pmu("amd_iommu_3", &[(&format!("format/{term}"), bits)]);
    }
    for event in ["mem_trans_total", "mem_iommu_tlb_pte_hit", "mem_iommu_tlb_pte_mis", "page_tbl_read_tot"] {
        tree.pmu("amd_iommu_3", &[(&format!("events/{event}"), "csource=0x1\n")]);
    }
    card(&tree, "0000:c1:00.0", "ivhd3", "DMA-FQ\n");
    let found = chosen(&tree, &[], &Target::System);
    assert_eq!(groups(&found), [("amd_iommu_3", 50, vec!["0000:c1:00.0".to_owned()])], "it shows no clock");
    let events: Vec<_> = found.kinds[0].turns.groups[0].events.iter().map(words).collect();
    let word = |source: u64| [0xc100 << 8 | source, 0xffff, 0, 0];
    assert_eq!(
        events,
        [
            ("mem_iommu_tlb_pte_hit", word(6)),
            ("mem_iommu_tlb_pte_mis", word(7)),
            ("mem_trans_total", word(5)),
            ("page_tbl_read_tot", word(0xc))
        ]
    );
    assert!(found.kinds[0].stops_to_be_read());
}

#[test]
fn a_device_that_cannot_be_told_apart_says_why() {
    let tree = host(&[(0, Filter::Other), (1, Filter::Requester)]);
    for (bdf, iommu, domain) in [
        ("0000:16:00.0", "dmar0", "DMA-FQ\n"),
        ("0000:16:00.1", "dmar0", "DMA-FQ\n"),
        ("0000:27:00.0", "dmar1", "identity\n"),
        ("0000:38:00.0", "dmar7", "DMA-FQ\n"),
        ("0000:49:00.0", "ivhd0", "DMA-FQ\n"),
        ("10000:01:00.0", "dmar1", "DMA-FQ\n"),
        ("0000:5a:00.0", "smmu3.0x5000000", "DMA-FQ\n"),
    ] {
        card(&tree, bdf, iommu, domain);
    }
    let found = chosen(&tree, &[], &Target::System);
    assert!(found.kinds.is_empty());
    assert_eq!(
        reasons(&found),
        [
            "vtd of 0000:16:00.0, 0000:16:00.1: counters of its IOMMU have no filter by requester, and others are behind it",
            "vtd of 10000:01:00.0: it is behind a VMD, whose requests carry the VMD's address",
            "vtd of 0000:5a:00.0: its IOMMU is of a kind that no table knows",
            "vtd of 0000:27:00.0: its IOMMU lets its addresses through as they are (its domain is `identity`)",
            "vtd of 0000:49:00.0: the kernel has no counters of its IOMMU (no amd_iommu PMU)",
            "vtd of 0000:38:00.0: the kernel has no counters of its IOMMU (no dmar PMU): that takes Sapphire Rapids or later, and Linux 6.3",
        ]
    );
}

#[test]
fn a_device_that_is_alone_behind_its_iommu_needs_no_filter() {
    let tree = host(&[(0, Filter::Other), (1, Filter::Requester)]);
    card(&tree, "0000:16:00.0", "dmar0", "DMA-FQ\n");
    card(&tree, "0000:27:00.0", "dmar1", "DMA-FQ\n");
    // No driver has this device, so it makes no requests.
    card(&tree, "0000:16:00.1", "dmar0", "DMA-FQ\n");
    std::fs::remove_file(tree.root.join("sys/devices/pci0000:16/0000:16:00.1/driver")).unwrap();
    let found = chosen(&tree, &[], &Target::System);
    let lookups = |kind: usize| words(&found.kinds[kind].turns.groups[0].events[2]);
    assert_eq!(lookups(1), ("iotlb_lookup", [3 << 28 | 1, 0, 0, 0]));
    assert_eq!(
        lookups(3),
        ("iotlb_lookup", [3 << 28 | 1, 0x2700 << 16 | 1, 0, 0]),
        "but it is used where it is"
    );
    assert_eq!(reasons(&found), Vec::<String>::new());
}

#[test]
fn a_host_without_iommus_has_nothing_to_say_unless_it_is_asked() {
    let tree = host(&[]);
    card(&tree, "0000:16:00.0", "dmar0", "DMA\n");
    std::fs::remove_file(tree.root.join("sys/devices/pci0000:16/0000:16:00.0/iommu")).unwrap();
    assert_eq!(reasons(&chosen(&tree, &[], &Target::System)), Vec::<String>::new());
    let named = chosen(&tree, &["16:00.0"], &Target::System);
    assert_eq!(reasons(&named), ["vtd of 0000:16:00.0: no IOMMU stands before it"]);
}

#[test]
fn an_iommu_counts_only_what_it_says_it_has() {
    let tree = host(&[]);
    dmar(&tree, 0, Filter::Requester, &["iotlb_lookup", "iotlb_hit", "pw_occupancy"]);
    dmar(&tree, 1, Filter::Requester, &["iommu_clocks"]);
    card(&tree, "0000:16:00.0", "dmar0", "DMA\n");
    card(&tree, "0000:27:00.0", "dmar1", "DMA\n");
    let found = chosen(&tree, &[], &Target::System);
    let names: Vec<&str> =
        found.kinds[0].turns.groups[0].events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!((found.kinds.len(), names), (1, vec!["iotlb_hit", "iotlb_lookup"]));
    assert_eq!(
        reasons(&found),
        [
            "vtd of 0000:27:00.0: its IOMMU counts no event of a device's metrics",
            "vtd.miss_penalty of devices: no iommu_clocks is counted by dmar0",
            "vtd.mem_access_per_miss of devices: no iommu_mrds is counted by dmar0",
        ]
    );
}

#[test]
fn few_devices_of_an_iommu_take_turns_and_named_ones_always_do() {
    let tree = host(&[(0, Filter::Requester), (1, Filter::Requester)]);
    let all: Vec<String> = (0..6).map(|function| format!("0000:16:00.{function}")).collect();
    all.iter().for_each(|bdf| card(&tree, bdf, "dmar0", "DMA\n"));
    // A virtual function comes after all others, and a device of another IOMMU waits for none of these.
    tree.link("sys/devices/pci0000:16/0000:16:00.1/physfn", "../0000:16:00.0");
    tree.write("sys/devices/pci0000:16/0000:16:00.5/net/eth0/ifindex", "2\n");
    tree.link("sys/class/net/eth0", "../../devices/pci0000:16/0000:16:00.5/net/eth0");
    card(&tree, "0000:97:00.0", "dmar1", "DMA\n");
    let found = chosen(&tree, &[], &Target::System);
    let expected: Vec<String> = [0, 2, 3, 5].into_iter().map(|number: usize| all[number].clone()).collect();
    assert_eq!(groups(&found)[1].2, expected, "one with an interface before all others");
    assert_eq!(groups(&found)[3], ("dmar1", 101, vec!["0000:97:00.0".to_owned()]));
    let why = "4 devices of an IOMMU take turns, 16 in all; --device names others";
    assert_eq!(reasons(&found), [format!("vtd of {}, {}: {why}", all[1], all[4])]);
    let named: Vec<&str> = all.iter().map(String::as_str).collect();
    let found = chosen(&tree, &named, &Target::System);
    assert_eq!((groups(&found)[1].2.clone(), found.kinds.len()), (all.clone(), 2));
}

#[test]
fn what_a_target_has_for_itself_is_counted_first() {
    let tree = host(&[(0, Filter::Requester)]);
    let all: Vec<String> = (0..6).map(|function| format!("0000:16:00.{function}")).collect();
    all.iter().for_each(|bdf| card(&tree, bdf, "dmar0", "DMA\n"));
    for (file, text) in [("comm", "vpp\n"), ("cgroup", "0::/net/vpp\n"), ("maps", ""), ("mountinfo", "")] {
        tree.write(&format!("proc/7/{file}"), text);
    }
    // The VFIO group of the last device.
    tree.link("proc/7/fd/5", &format!("/dev/vfio/{}", 0x1605));
    let found = chosen(&tree, &[], &Target::Processes(vec![7]));
    assert_eq!(groups(&found)[1].2, [&all[..3], &all[5..]].concat());
    let found = chosen(&tree, &[], &Target::Processes(vec![8]));
    assert_eq!(groups(&found)[1].2, all[..4]);
}

#[test]
fn a_bridge_and_an_interface_name_what_they_lead_to() {
    let tree = host(&[(0, Filter::Requester)]);
    card(&tree, "0000:16:00.0", "dmar0", "DMA\n");
    card(&tree, "0000:16:01.0", "dmar0", "DMA\n");
    let at = "devices/pci0000:16/0000:16:02.0";
    for (file, text) in [("class", "0x060400"), ("vendor", "0x8086"), ("device", "0x352a")] {
        tree.write(&format!("sys/{at}/{file}"), text);
    }
    tree.link("sys/bus/pci/devices/0000:16:02.0", &format!("../../../{at}"));
    for (file, text) in [("class", "0x010802"), ("vendor", "0x144d"), ("device", "0xa80a")] {
        tree.write(&format!("sys/{at}/0000:17:00.0/{file}"), text);
    }
    tree.link(&format!("sys/{at}/0000:17:00.0/iommu"), "../../../virtual/iommu/dmar0");
    tree.link("sys/bus/pci/devices/0000:17:00.0", &format!("../../../{at}/0000:17:00.0"));
    tree.write("sys/devices/pci0000:16/0000:16:01.0/net/eth0/ifindex", "2\n");
    tree.link("sys/class/net/eth0", "../../devices/pci0000:16/0000:16:01.0/net/eth0");
    let of = |name: &str| groups(&chosen(&tree, &[name], &Target::System))[1].2.clone();
    assert_eq!(of("16:02.0"), ["0000:17:00.0"], "all that is behind a bridge");
    assert_eq!(of("eth0"), ["0000:16:01.0"]);
}
