//! Synthetic drains of IOMMUs that count for devices.

use std::collections::BTreeMap;

use super::Requesters;
use crate::{
    drain::{
        Owner,
        io::{
            IoDrain, IoHeader, Named,
            testing::{requesters, steady},
        },
    },
    machine::io::{
        bdf::Bdf,
        owner::{Ownership, User},
    },
    metric::{
        io::{IoMetrics, Label, Names, Row, Subject, UncoreCounts, scopes::places},
        value::How,
    },
    model::{
        FollowedPaths,
        io::{IoInterval, names::CgroupPaths},
    },
    plan::io::request::Grouping,
    table::io::load,
    untrusted::Untrusted,
};

const RATES: [(&str, u64); 5] = [
    ("iotlb_lookup", 1_000_000),
    ("iotlb_hit", 900_000),
    ("iommu_mrds", 250_000),
    ("pw_occupancy", 50_000_000),
    ("iommu_clocks", 1_000_000_000),
];

/// Returns a drain of 1 s in which every second device of an IOMMU has three times the counts.
fn drain(header: &IoHeader) -> IoDrain {
    let mut drain = steady(header, 1, &RATES).remove(0);
    for slice in drain.uncore.iter_mut().filter(|slice| slice.group == 1) {
        slice.counts.iter_mut().for_each(|count| *count *= 3);
    }
    drain
}

fn rows(header: &IoHeader, drain: IoDrain, owned: &[(Bdf, Ownership)]) -> Vec<Row> {
    let interval = IoInterval::of(drain.uncore, 0, drain.at_ns);
    let requesters = Requesters::new(&header.plan).unwrap();
    let disks = BTreeMap::new();
    let cgroups = CgroupPaths::from_iter([Named { cgroup: 9, path: Untrusted::from("/vm") }]);
    let names = Names {
        platform: &header.platform,
        disks: &disks,
        cgroups: &cgroups,
        followed: &FollowedPaths::default(),
        within: None,
    };
    requesters.rows(&UncoreCounts::new(&header.plan, &interval), names, owned)
}

fn of<'a>(rows: &'a [Row], address: &str, metric: &str) -> &'a Row {
    let is = |row: &&Row| matches!(&row.subject, Subject::Function(at, _) if at == address);
    rows.iter().filter(is).find(|row| row.metric == metric).unwrap()
}

#[test]
fn a_device_alone_behind_its_iommu_is_counted_all_the_time() {
    let header = requesters();
    let rows = rows(&header, drain(&header), &[]);
    for (metric, unit, expected) in [
        ("vtd.translation_rate", "MT/s", 1.0),
        ("vtd.iotlb_miss", "%", 10.0),
        ("vtd.iotlb_hit", "%", 90.0),
        ("vtd.miss_penalty", "ns", 500.0),
        ("vtd.mem_access_per_miss", "1", 2.5),
    ] {
        let row = of(&rows, "0000:16:00.0", metric);
        let known = row.value.known().unwrap();
        assert!((known.estimate - expected).abs() < 1e-9, "{metric}: {known:?}");
        assert_eq!((known.how, known.low, known.high), (How::Counted, known.estimate, known.estimate));
        assert_eq!((row.unit.name(), row.label), (unit, Label::Measured));
        assert!(row.note.as_ref().unwrap().contains("one requester alone"));
    }
    assert_eq!(rows.len(), 15, "three devices, five metrics");
}

#[test]
fn devices_that_take_turns_keep_their_numbers_apart() {
    let header = requesters();
    let rows = rows(&header, drain(&header), &[]);
    for (address, rate, misses) in [("0000:27:00.0", 1.0, 10.0), ("0000:27:00.1", 3.0, 10.0)] {
        let known = of(&rows, address, "vtd.translation_rate").value.known().unwrap();
        assert!((known.estimate - rate).abs() < 1e-6, "{address}: {known:?}");
        assert_eq!(known.how, How::Scaled, "half of the time the other had the counters");
        assert!((known.coverage - 0.5).abs() < 0.01, "{known:?}");
        let known = of(&rows, address, "vtd.iotlb_miss").value.known().unwrap();
        assert!((known.estimate - misses).abs() < 1e-6, "{address}: {known:?}");
    }
}

#[test]
fn what_counts_for_one_device_is_nothing_of_everybodys() {
    let mut header = requesters();
    // A table that has events of these names would charge them to all devices.
    let metrics = IoMetrics::new(load("zen4").unwrap(), &header.plan);
    header.plan.report.by = vec![Grouping::Package, Grouping::Event];
    assert_eq!(places(&header.plan).len(), 1, "the platform alone");
    let drain = drain(&header);
    let interval = IoInterval::of(drain.uncore, 0, drain.at_ns);
    let rows = metrics.rows(&UncoreCounts::new(&header.plan, &interval), crate::metric::io::Scope::Platform);
    assert!(rows.iter().all(|row| row.value.known().is_none()), "{rows:?}");
    assert!(rows.iter().all(|row| !row.metric.starts_with("event.")), "{rows:?}");
}

#[test]
fn events_are_those_of_the_devices_own_group() {
    let mut header = requesters();
    header.plan.report.by = vec![Grouping::Event];
    let rows = rows(&header, drain(&header), &[]);
    let count = |address: &str| {
        of(&rows, address, "event.iotlb_lookup").value.known().unwrap().estimate.round() as u64
    };
    assert_eq!(
        ["0000:16:00.0", "0000:27:00.0", "0000:27:00.1"].map(count),
        [1_000_000, 1_000_000, 3_000_000]
    );
    assert!(!rows.iter().any(|row| row.metric == "event.iommu_clocks"), "a clock is nobody's");
}

#[test]
fn counters_that_never_ran_say_so_for_their_device_only() {
    let header = requesters();
    let mut drain = drain(&header);
    let kind = header.plan.kinds.iter().position(|kind| kind.name == "dmar0" && kind.requesters[0].is_some());
    let all = drain.uncore.iter_mut().filter(|slice| slice.kind == kind.unwrap() as u32);
    all.for_each(|slice| (slice.running_ns, slice.counts) = (0, vec![0; slice.counts.len()]));
    let rows = rows(&header, drain, &[]);
    assert!(of(&rows, "0000:16:00.0", "vtd.translation_rate").value.known().is_none());
    assert!(of(&rows, "0000:27:00.0", "vtd.translation_rate").value.known().is_some());
}

#[test]
fn the_translations_of_a_device_are_those_of_its_only_owner() {
    let header = requesters();
    let cgroup = Untrusted::from("/vm");
    let name = Untrusted::from("qemu");
    let user = User { pid: 7, born_ns: 5, name, cgroup: cgroup.clone(), through: cgroup.clone() };
    let exclusive = Ownership::Exclusive { pid: Some(7), cgroup: cgroup.clone(), users: vec![user] };
    let owned = [("16:00.0".parse().unwrap(), exclusive), ("27:00.0".parse().unwrap(), Ownership::None)];
    let rows = rows(&header, drain(&header), &owned);
    let owners: Vec<&Row> = rows.iter().filter(|row| matches!(row.subject, Subject::Owner(..))).collect();
    let [row] = &owners[..] else { panic!("{owners:?}") };
    let function = of(&rows, "0000:16:00.0", "vtd.translation_rate");
    let owner = Owner::cgroup(9, cgroup);
    assert!(matches!(&row.subject, Subject::Owner(known, _) if known.in_words() == "/vm"));
    assert_eq!(row.subject, Subject::Owner(owner, Box::new(function.subject.clone())));
    assert_eq!((row.metric.as_str(), &row.value), ("vtd.translation_rate", &function.value));
}

#[test]
fn a_recording_may_name_devices_that_it_has_no_groups_for() {
    let mut header = requesters();
    let drain = drain(&header);
    for kind in &mut header.plan.kinds {
        kind.requesters.extend([None, Some("99:00.0".parse().unwrap())]);
        kind.sums.push(vec![vec!["iotlb_lookup".to_owned()]]);
    }
    header.plan.kinds[0].turns.pmu = "unknown".to_owned();
    let rows = rows(&header, drain, &[]);
    assert!(of(&rows, "0000:99:00.0", "vtd.translation_rate").value.known().is_none());
}
