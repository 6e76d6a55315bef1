//! Drains for tests, of a machine whose boxes are simulated.

use std::{path::Path, time::Duration};

use pmu_common::io::{block::BlockCount, net::NetCount};

use super::{
    BoxSlice, IoDrain, IoHeader, Named,
    block::{BlockRow, DeviceNumber, Operation, Whose},
    net::{Interface, NetOwner, NetRow},
    traffic::Traffic,
};
use crate::{
    drain::{Absent, Cost},
    machine::{Machine, cgroup::CgroupId, io::Platform, pmu::catalog::Catalog},
    plan::{
        io::{
            IoPlan,
            request::{IoRequest, Limits, Reporting},
        },
        request::{Descend, Inherit, Target},
    },
    untrusted::Untrusted,
};

/// Header of a run on two simulated dies, reported every 2 s.
pub(crate) fn header() -> IoHeader {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines/simulated-two-dies");
    let machine = Machine::read(&root).unwrap();
    let catalog = Catalog::read(&root).unwrap();
    let platform = Platform::read(&root, &catalog);
    let limits = Limits { name: "dram.bandwidth".to_owned(), low: 0.1, high: 1.0 / 3.0 };
    let request = IoRequest {
        target: Target::System,
        inherit: Inherit::Yes,
        descend: Descend::Yes,
        model: Some("sapphirerapids".to_owned()),
        report: Reporting { dram_max_gb_s: Some(204.8), limits: vec![limits], ..Reporting::default() },
        interval: Some(Duration::from_secs(2)),
        duration: None,
    };
    let plan = IoPlan::new(&request, &machine, &catalog, &platform, &root).unwrap();
    let boxes: usize = plan.kinds.iter().map(|kind| kind.boxes.len()).sum();
    assert!(boxes > 20, "the machine has boxes: {boxes}");
    let missing = vec![Absent { what: "packets".to_owned(), why: "not permitted".to_owned() }];
    let version = "0.1.0".to_owned();
    IoHeader { version, started_unix_ns: 1_795_249_958_844_007_395, machine, platform, plan, missing }
}

/// Drains of five ticks of 1 s: in each, every group of every box had a slice, and a cgroup read and sent.
pub(crate) fn drains(header: &IoHeader) -> Vec<IoDrain> {
    (0..=5).map(|tick| drain(header, tick)).collect()
}

fn drain(header: &IoHeader, tick: u64) -> IoDrain {
    let at_ns = tick * 1_000_000_000;
    let names = vec![Named { cgroup: 7, path: Untrusted::new(*b"/web\xff") }];
    IoDrain {
        at_ns,
        boxes: if tick == 0 { Vec::new() } else { slices(header, tick) },
        traffic: Some(traffic(tick)),
        names: if tick == 1 { names } else { Vec::new() },
        cost: Cost { cpu_ns: tick * 1_000, drains: tick, ..Cost::default() },
        losses: vec![("readings of boxes failed".to_owned(), tick / 2)],
        ..IoDrain::default()
    }
}

fn slices(header: &IoHeader, tick: u64) -> Vec<BoxSlice> {
    let mut slices = Vec::new();
    for (kind, of_kind) in (0..).zip(&header.plan.kinds) {
        let groups = of_kind.turns.groups.len() as u64;
        for (number, group) in (0..).zip(&of_kind.turns.groups) {
            for at in 0..of_kind.boxes.len() as u32 {
                let slice = tick * groups + number;
                let count = |event: u64| (slice + 1) * 1_000_003 * (event + 1) + u64::from(at);
                slices.push(BoxSlice {
                    kind,
                    at,
                    slice,
                    group: number as u32,
                    ended_ns: tick * 1_000_000_000 - 1,
                    counts: (0..group.events.len() as u64).map(count).collect(),
                    enabled_ns: 1_000_000_000 / groups,
                    running_ns: 999_999_999 / groups,
                });
            }
        }
    }
    slices
}

fn traffic(tick: u64) -> Traffic {
    let row = |whose, requests: u64| BlockRow {
        device: DeviceNumber { major: 259, minor: 0 },
        operation: Operation::Read,
        whose,
        name: Untrusted::default(),
        count: BlockCount {
            requests,
            bytes: requests * 4096,
            latency_ns: requests * 90_000,
            ..BlockCount::ZERO
        },
        latency: if requests == 0 { Vec::new() } else { vec![(210, requests as u32), (511, 1)] },
        queue: Vec::new(),
    };
    let packets = NetRow {
        interface: Interface { namespace: 1, index: 2, name: Untrusted::from("eth0") },
        owner: NetOwner::Cgroup(CgroupId(7)),
        count: NetCount {
            packets: [[tick, 0, 0], [2 * tick, 0, 1]],
            bytes: [[tick * 1500, 0, 0], [0, 7, 1]],
            ..NetCount::ZERO
        },
    };
    Traffic {
        at_ns: tick * 1_000_000_000 + 5,
        block: vec![row(Whose::Cgroup(CgroupId(7)), tick * 100), row(Whose::Kernel, tick)],
        in_flight: Vec::new(),
        net: vec![packets],
        losses: vec![("io_nested".to_owned(), tick)],
        missed: Vec::new(),
    }
}
