//! Made machines with IOMMUs that count for single devices.

use super::io_plan;
use pmbpf::{
    machine::io::bdf::Bdf,
    plan::{
        io::{IoPlan, UncoreKind},
        multiplexing::EventGroup,
    },
};

/// Device with `config` and `config1` of its first event.
type Counted = (String, u64, u64);

/// Returns the IOMMU PMUs that count for single devices: PMU, its type, and the devices.
fn requesters(plan: &IoPlan) -> Vec<(&str, u32, Vec<Counted>)> {
    let kinds = plan.kinds.iter().filter(|kind| kind.requesters.iter().any(Option::is_some));
    let device = |(requester, group): (&Option<_>, &EventGroup)| {
        let [config, config1, ..] = group.events[0].words;
        (Option::map(*requester, |bdf: Bdf| bdf.to_string()).unwrap(), config, config1)
    };
    let devices = |kind: &UncoreKind| kind.requesters.iter().zip(&kind.turns.groups).map(device).collect();
    kinds.map(|kind| (kind.name.as_str(), kind.instances[0].kind, devices(kind))).collect()
}

#[test]
fn io_counts_devices_alone_where_their_iommus_can() {
    let plan = io_plan("made-sapphire-rapids-two-sockets");
    let memory_reads = 1 << 28 | 1;
    let device = |bdf: &str, id: u64| (format!("0000:{bdf}"), memory_reads, id << 16 | 1);
    assert_eq!(
        requesters(&plan),
        [
            ("dmar0", 90, vec![device("16:00.0", 0x1600)]),
            ("dmar1", 91, vec![device("29:00.0", 0x2900), device("2a:00.0", 0x2a00)]),
            ("dmar2", 92, vec![device("38:00.0", 0x3800)]),
            (
                "dmar3",
                93,
                vec![device("6a:01.0", 0x6a08), device("6a:02.0", 0x6a10), device("6b:00.0", 0x6b00)]
            ),
            ("dmar5", 95, vec![device("d8:00.0", 0xd800), device("f2:00.0", 0xf200)]),
        ]
    );
    let clocks = plan.kinds.iter().filter(|kind| kind.requesters == [None]);
    let clocks: Vec<(&str, [u64; 4])> =
        clocks.map(|kind| (kind.name.as_str(), kind.turns.groups[0].events[0].words)).collect();
    let expected = ["dmar0", "dmar1", "dmar2", "dmar5"].map(|name| (name, [1, 0, 0, 0]));
    assert_eq!(clocks, expected, "what adds up no walks needs no clock");
    let why = |row: &str| plan.missing.iter().find(|lost| lost.row == row).map(|lost| lost.why.as_str());
    assert_eq!(
        why("vtd of 0000:00:14.0, 0000:02:00.0"),
        Some("counters of its IOMMU have no filter by requester, and others are behind it")
    );
    assert!(why("vtd of 0000:98:00.0").unwrap().contains("`identity`"));
    assert_eq!(why("vtd.miss_penalty of devices"), Some("no pw_occupancy is counted by dmar3"));
}

#[test]
fn io_counts_devices_alone_behind_the_iommus_of_a_zen_4() {
    let plan = io_plan("made-zen4");
    let page_table_hits = 6;
    let device = |bdf: &str, id: u64| (format!("0000:{bdf}"), id << 8 | page_table_hits, 0xffff);
    assert_eq!(
        requesters(&plan),
        [
            ("amd_iommu_0", 40, vec![device("01:00.0", 0x100)]),
            ("amd_iommu_1", 41, vec![device("41:00.0", 0x4100)]),
            ("amd_iommu_2", 42, vec![device("83:00.0", 0x8300), device("84:00.0", 0x8400)]),
            ("amd_iommu_3", 43, vec![device("c1:00.0", 0xc100), device("c2:00.4", 0xc204)]),
        ]
    );
    // Each IOMMU's total is still counted too, without a filter.
    let all = plan.kinds.iter().find(|kind| kind.name == "amd_iommu").unwrap();
    assert!(all.instances.len() == 4 && all.turns.groups[0].events.iter().all(|event| event.words[1] == 0));
    assert!(
        plan.kinds.iter().filter(|kind| kind.name.starts_with("amd_iommu")).all(UncoreKind::stops_to_be_read)
    );
}
