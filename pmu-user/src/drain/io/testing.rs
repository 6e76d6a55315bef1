//! Drains for tests, of a machine whose uncore PMUs are simulated.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use pmu_common::io::{block::BlockCount, net::NetCount};

use super::{
    IoDrain, IoHeader, Named, UncoreSlice,
    block::{BlockRow, DeviceNumber, Operation, Whose},
    net::{Interface, NetOwner, NetRow},
    traffic::{Retired, Traffic},
};
use crate::{
    drain::{Absent, Cost, Header},
    machine::{
        Machine,
        cgroup::CgroupId,
        cpu::Cpu,
        io::{
            Platform,
            bdf::{Bdf, RootBus},
            class::{Mapping, MappingSource},
            link::{self, Link, Speed},
            pci::Device,
            stack::{Port, Stack, Unit},
        },
        pmu::catalog::Catalog,
        testing::Tree,
    },
    plan::{
        io::{
            IoPlan,
            request::{IoRequest, Limits, Reporting},
        },
        multiplexing::PlannedEvent,
        request::{Descend, Inherit, Target},
    },
    table::io::testing::{DMAR, Family, Filter, card, dmar, server},
    untrusted::Untrusted,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines/simulated-two-dies")
}

/// Returns a host of two simulated dies.
pub(crate) fn machine() -> Machine {
    Machine::read(&root()).unwrap()
}

impl From<IoHeader> for Header {
    fn from(io: IoHeader) -> Self {
        let missing = vec![Absent { what: "packets".to_owned(), why: "not permitted".to_owned() }];
        let (version, started_unix_ns) = ("0.1.0".to_owned(), 1_795_249_958_844_007_395);
        let (io, machine) = (Some(io), machine());
        Self {
            version,
            started_unix_ns,
            machine,
            missing,
            tasks: None,
            io,
            counts: None,
            begins_midway: false,
        }
    }
}

/// Returns the header of a run on it, reported every 2 s.
pub(crate) fn header() -> IoHeader {
    let (root, machine) = (root(), machine());
    let catalog = Catalog::read(&root).unwrap();
    let platform = Platform::read(&root, &catalog);
    let request = request("sapphirerapids", Some(Duration::from_secs(2)));
    let plan = IoPlan::new(&request, &machine, &catalog, &platform, &root).unwrap();
    let instances: usize = plan.kinds.iter().map(|kind| kind.instances.len()).sum();
    assert!(instances > 20, "the machine has uncore PMUs: {instances}");
    IoHeader { platform, plan }
}

fn request(model: &str, interval: Option<Duration>) -> IoRequest {
    let limits = Limits { name: "dram.bandwidth".to_owned(), low: 0.1, high: 1.0 / 3.0 };
    IoRequest {
        target: Target::System,
        inherit: Inherit::Yes,
        descend: Descend::Yes,
        model: Some(model.to_owned()),
        report: Reporting { dram_max_gb_s: Some(204.8), limits: vec![limits], ..Reporting::default() },
        interval,
        duration: None,
        ..IoRequest::default()
    }
}

/// Makes one port known: part 1 of the first stack. The device is behind it, or is the port itself.
fn know_a_port(header: &mut IoHeader, device: Option<Bdf>) -> (Bdf, RootBus) {
    let (bdf, bus) = ("16:03.0".parse().unwrap(), RootBus { domain: 0, bus: 0x16 });
    let unit = Unit { pmu: "uncore_iio_0".to_owned(), cpu: Cpu(0) };
    let unit = Mapping::Known { value: unit, source: MappingSource::Kernel };
    header.platform.stacks = vec![Stack { bus, socket: Some(0), unit }];
    let parts = Mapping::Known { value: vec![1], source: MappingSource::Table };
    header.platform.ports = vec![Port { bdf, bus, parts, devices: vec![device.unwrap_or(bdf)] }];
    (bdf, bus)
}

/// Returns the header of a run on an Ice Lake with free-running uncore counters. A port is known in part 1 of
/// the first stack. None is known in the second stack, the parts of which are counted together.
pub(crate) fn always_running() -> IoHeader {
    let tree = server(Family::IceLake, &[("iio", 2), ("imc", 2), ("imc_free_running", 1)]);
    let (mut header, catalog) = (header(), Catalog::read(&tree.root).unwrap());
    know_a_port(&mut header, None);
    let request = request("icelakex", None);
    header.plan = IoPlan::new(&request, &machine(), &catalog, &header.platform, &tree.root).unwrap();
    header
}

/// Returns the header of a run on two simulated dies of a Sapphire Rapids. A card is behind a port and is
/// part 1 of the first stack. Its link has 16 GT/s and 4 lanes, 8 GB/s.
pub(crate) fn linked() -> IoHeader {
    let (root, mut header) = (root(), header());
    let catalog = Catalog::read(&root).unwrap();
    let card = "17:00.0".parse().unwrap();
    let (bdf, bus) = know_a_port(&mut header, Some(card));
    let rate = link::Rate { speed: Speed::parse("16.0 GT/s PCIe"), width: Some(4) };
    let device = |bdf, class, above| Device {
        bdf,
        class,
        vendor: 0x8086,
        device: 0x352a,
        driver: None,
        node: Some(0),
        iommu_group: None,
        translation: None,
        physical: None,
        virtuals: Vec::new(),
        link: Link { current: rate, max: rate },
        root: bus,
        above,
    };
    header.platform.devices = vec![device(bdf, 0x06_0400, Vec::new()), device(card, 0x02_0000, vec![bdf])];
    let request = request("sapphirerapids", None);
    header.plan = IoPlan::new(&request, &machine(), &catalog, &header.platform, &root).unwrap();
    header
}

/// Returns the header of a run in which one IOMMU counts for a single card, and another for two cards in
/// turns. No table covers the processor.
pub(crate) fn requesters() -> IoHeader {
    let tree = Tree::new(&[("sys/devices/system/cpu/online", "0-3\n")]);
    (0..2).for_each(|number| dmar(&tree, number, Filter::Requester, &DMAR));
    for (bdf, iommu) in [("0000:16:00.0", "dmar0"), ("0000:27:00.0", "dmar1"), ("0000:27:00.1", "dmar1")] {
        card(&tree, bdf, iommu, "DMA-FQ\n");
    }
    let (mut header, catalog) = (header(), Catalog::read(&tree.root).unwrap());
    header.platform = Platform::read(&tree.root, &catalog);
    let request = IoRequest::default();
    header.plan = IoPlan::new(&request, &machine(), &catalog, &header.platform, &tree.root).unwrap();
    header
}

/// Returns drains of `ticks` ticks of 1 s, in which groups take turns of 20 ms. The counts per second of an
/// event are those of the first word in `rates` that its name contains.
pub(crate) fn steady(header: &IoHeader, ticks: u64, rates: &[(&str, u64)]) -> Vec<IoDrain> {
    let rate = |event: &PlannedEvent| {
        let named = rates.iter().find(|(word, _)| event.name.contains(word));
        named.map_or(0, |(_, rate)| *rate)
    };
    let slices = |tick: u64, kind: u32| {
        let of_kind = &header.plan.kinds[kind as usize];
        let groups = &of_kind.turns.groups;
        let sites = 0..of_kind.instances.len() as u32;
        let slices =
            (tick * 50..tick * 50 + 50).flat_map(move |slice| sites.clone().map(move |at| (slice, at)));
        slices.map(move |(slice, at)| {
            let group = (slice % groups.len() as u64) as u32;
            let counts = groups[group as usize].events.iter().map(|event| rate(event) / 50).collect();
            let time_ns = 20_000_000;
            UncoreSlice {
                kind,
                at,
                slice,
                group,
                ended_ns: (slice + 1) * time_ns,
                counts,
                enabled_ns: time_ns,
                running_ns: time_ns,
            }
        })
    };
    let drain = |tick: u64| IoDrain {
        at_ns: (tick + 1) * 1_000_000_000,
        uncore: (0..header.plan.kinds.len() as u32).flat_map(|kind| slices(tick, kind)).collect(),
        ..IoDrain::default()
    };
    (0..ticks).map(drain).collect()
}

/// Returns drains of five ticks of 1 s. In each, every group of every uncore PMU had a slice, and a cgroup
/// read and sent.
pub(crate) fn drains(header: &IoHeader) -> Vec<IoDrain> {
    (0..=5).map(|tick| drain(header, tick)).collect()
}

fn drain(header: &IoHeader, tick: u64) -> IoDrain {
    let at_ns = tick * 1_000_000_000;
    let names = vec![Named { cgroup: 7, path: Untrusted::new(*b"/web\xff") }];
    IoDrain {
        at_ns,
        uncore: if tick == 0 { Vec::new() } else { slices(header, tick) },
        traffic: Some(traffic(tick)),
        names: if tick == 1 { names } else { Vec::new() },
        cost: Cost { cpu_ns: tick * 1_000, drains: tick, ..Cost::default() },
        losses: vec![("readings of uncore PMUs failed".to_owned(), tick / 2)],
        ..IoDrain::default()
    }
}

fn slices(header: &IoHeader, tick: u64) -> Vec<UncoreSlice> {
    let mut slices = Vec::new();
    for (kind, of_kind) in (0..).zip(&header.plan.kinds) {
        let groups = of_kind.turns.groups.len() as u64;
        for (number, group) in (0..).zip(&of_kind.turns.groups) {
            for at in 0..of_kind.instances.len() as u32 {
                let slice = tick * groups + number;
                let count = |event: u64| (slice + 1) * 1_000_003 * (event + 1) + u64::from(at);
                slices.push(UncoreSlice {
                    kind,
                    at,
                    slice,
                    group: number as u32,
                    ended_ns: (tick - 1) * 1_000_000_000 + (number + 1) * 1_000_000_000 / groups,
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
        retired: Retired::default(),
        losses: vec![("io_nested".to_owned(), tick)],
        missed: Vec::new(),
    }
}
