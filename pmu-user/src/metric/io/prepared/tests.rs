//! Maps of ports, as inferred from traffic: a disk reads, and counters follow it.

use pmu_common::io::block::BlockCount;

use crate::{
    drain::io::{
        IoDrain, IoHeader,
        block::{BlockRow, DeviceNumber, Operation, Whose},
        testing::{always_running, steady},
        traffic::Traffic,
    },
    machine::io::{
        bdf::{Bdf, RootBus},
        class::Mapping,
        function::Disk,
        stack::{Port, Stack},
    },
    metric::{io::IoReport, testing::io_report},
    untrusted::Untrusted,
};

/// Part of an event's name, the uncore PMU on which it follows the disk, and the bytes per count.
type Follower = (&'static str, u32, u64);

/// Part 3 of the second stack.
const INLET: Follower = ("bw_in_port3", 1, 32);
const TICKS: u64 = 30;

/// Returns a host with a disk behind the port that the tables contain.
fn mapped() -> IoHeader {
    let mut header = always_running();
    header.platform.disks = vec![disk(header.platform.ports[0].bdf)];
    header
}

/// Returns a host with a disk behind an unmapped port.
fn unmapped() -> IoHeader {
    let mut header = always_running();
    let (bdf, bus) = ("30:02.0".parse().unwrap(), RootBus { domain: 0, bus: 0x30 });
    let nobody = || "nobody says".to_owned();
    header.platform.stacks.push(Stack { bus, socket: Some(0), unit: Mapping::Unknown(nobody()) });
    let parts = Mapping::Unknown(nobody());
    header.platform.ports.push(Port { bdf, bus, parts, devices: vec![bdf] });
    header.platform.disks = vec![disk(bdf)];
    header
}

fn disk(behind: Bdf) -> Disk {
    Disk {
        name: Untrusted::from("nvme0n1"),
        number: (259, 0),
        devices: vec![behind],
        below: Vec::new(),
        model: None,
        mapped: None,
        partitions: Vec::new(),
    }
}

/// Returns drains of ticks of 1 s in which the disk reads a few hundred MB, a different number in each.
fn reading(header: &IoHeader, ticks: u64, followers: &[Follower]) -> Vec<IoDrain> {
    let (mut drains, mut sum) = (Vec::new(), 0);
    for tick in 0..=ticks {
        let bytes = (tick.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) * 512;
        sum += bytes;
        let mut drain = steady(header, 1, &[]).remove(0);
        drain.at_ns = (tick + 1) * 1_000_000_000;
        for slice in &mut drain.uncore {
            slice.slice += tick * 50;
            let group = &header.plan.kinds[slice.kind as usize].turns.groups[slice.group as usize];
            for (count, event) in slice.counts.iter_mut().zip(&group.events) {
                let of = |follower: &&Follower| event.name.contains(follower.0) && slice.at == follower.1;
                *count = followers.iter().find(of).map_or(0, |(.., unit)| bytes / unit / 50);
            }
        }
        drain.traffic = Some(traffic(drain.at_ns, sum));
        drains.push(drain);
    }
    drains
}

fn traffic(at_ns: u64, bytes: u64) -> Traffic {
    Traffic { at_ns, block: vec![row(Operation::Read, bytes)], ..Traffic::default() }
}

fn row(operation: Operation, bytes: u64) -> BlockRow {
    BlockRow {
        device: DeviceNumber { major: 259, minor: 0 },
        operation,
        whose: Whose::Kernel,
        name: Untrusted::default(),
        count: BlockCount { requests: bytes / 512, bytes, ..BlockCount::ZERO },
        latency: Vec::new(),
        queue: Vec::new(),
    }
}

/// Returns devices, map and traffic of each port, from the report of the whole run.
fn maps(header: &IoHeader, drains: &[IoDrain]) -> Vec<[String; 3]> {
    let IoReport { maps, .. } = io_report(header, drains.iter().cloned());
    maps.into_iter().map(|map| [map.names.terminal().into_owned(), map.map, map.traffic]).collect()
}

/// Returns map and traffic of the disk's port.
fn map_of(header: &IoHeader, drains: &[IoDrain]) -> String {
    let maps = maps(header, drains);
    let [_, map, traffic] = maps.iter().find(|[names, ..]| names.contains("nvme0n1")).unwrap();
    format!("{map}; traffic {traffic}")
}

#[test]
fn a_port_that_nobody_mapped_is_where_counters_of_every_part_follow_it() {
    let header = unmapped();
    let drains = reading(&header, TICKS, &[INLET]);
    let map = "uncore_iio_1 on cpu 0 (inferred (r=1.00)), part 3 (inferred (r=1.00))";
    let traffic = "says uncore_iio_1 on cpu 0, part 3 (r=1.00)";
    assert_eq!(map_of(&header, &drains), format!("{map}; traffic {traffic}"));
    let idle = "uncore_iio_0 on cpu 0 (kernel), part 1 (table)";
    assert_eq!(maps(&header, &drains)[0][1], idle, "what was known stays as it was known");
}

#[test]
fn what_goes_to_the_disk_is_not_what_comes_in() {
    let header = unmapped();
    let mut drains = reading(&header, TICKS, &[INLET]);
    for (tick, drain) in (0..).zip(&mut drains) {
        // Written bytes are more, and in another rhythm.
        let written = tick * 2_000_000_000 + tick % 3 * 900_000_000;
        drain.traffic.as_mut().unwrap().block.push(row(Operation::Write, written));
    }
    assert!(map_of(&header, &drains).starts_with("uncore_iio_1 on cpu 0 (inferred (r=1.00)), part 3"));
}

#[test]
fn units_of_counters_do_not_matter() {
    for unit in [1, 4, 64] {
        let header = unmapped();
        let drains = reading(&header, TICKS, &[("bw_in_port3", 1, unit)]);
        assert!(map_of(&header, &drains).starts_with("uncore_iio_1 on cpu 0 (inferred"), "{unit}");
    }
}

#[test]
fn traffic_that_two_parts_follow_alike_says_nothing_and_why() {
    let header = unmapped();
    let drains = reading(&header, TICKS, &[INLET, ("bw_in_port5", 0, 32)]);
    let expected = "unknown: nobody says; traffic says nothing, by what came from its devices: several parts move data in step \
                    with it";
    assert_eq!(map_of(&header, &drains), expected);
}

#[test]
fn a_short_run_says_how_long_a_run_must_be() {
    let header = unmapped();
    let drains = reading(&header, 19, &[INLET]);
    assert!(map_of(&header, &drains).ends_with("19 intervals are too few to compare, 20 are enough"));
    let drains = reading(&header, 20, &[INLET]);
    assert!(map_of(&header, &drains).contains("inferred"));
}

#[test]
fn without_such_counters_only_parts_with_known_devices_are_compared() {
    let mut header = unmapped();
    header.plan.kinds.retain(|kind| kind.unit_bytes.is_empty());
    let drains = reading(&header, TICKS, &[INLET]);
    let expected = "unknown: nobody says; traffic says nothing: no part moves data in step with it";
    assert_eq!(map_of(&header, &drains), expected);
}

#[test]
fn a_mapped_port_is_spoken_of_by_both_directions_unless_they_are_silent() {
    let header = mapped();
    let elsewhere = ("bw_in_port2", 0, 32);
    let both = reading(&header, TICKS, &[elsewhere, ("OF_CPU.MEM_WRITE.PART1", 0, 4)]);
    let map = "uncore_iio_0 on cpu 0 (kernel), part 1 (table)";
    assert_eq!(map_of(&header, &both), format!("{map}; traffic agrees (r=1.00)"));
    let inbound = reading(&header, TICKS, &[elsewhere]);
    let says = "says uncore_iio_0 on cpu 0, part 2 (r=1.00), so the table is wrong here";
    assert_eq!(map_of(&header, &inbound), format!("{map}; traffic {says}"));
    let neither = reading(&header, TICKS, &[]);
    let says = "says nothing: no part moves data in step with it";
    assert_eq!(map_of(&header, &neither), format!("{map}; traffic {says}"));
}
