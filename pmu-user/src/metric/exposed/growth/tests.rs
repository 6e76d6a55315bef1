//! Intervals of a simulated host, and the periods that they add up to.

use std::{collections::BTreeMap, sync::Arc};

use super::{Growth, Period, Whose};
use crate::{
    drain::{Absent, Owner},
    machine::container::{Container, Identity, Runtime},
    metric::{
        OwnerOrTarget, Report, TasksReport,
        exposed::{
            Bounds, Kind, Point, Seen,
            testing::{Did, INTERVAL_NS, Lives, World, cgroup, did},
        },
        io::{IoReport, Label, Row, Scope, Subject},
        testing::{Random, machine, with_late_ticks},
        value::{Distribution, Value, Z},
    },
    model::histogram::{Bucket, Histogram},
    plan::Target,
    table::metric,
    untrusted::Untrusted,
};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
/// A full minute of the clock.
const NOON: u64 = 1_795_608_000 * SECOND;

/// Returns the numbers of a metric in a period, by target or labels: of histograms the number of values.
fn numbers(period: &Period, metric: &str) -> BTreeMap<String, f64> {
    let of = period.rows.iter().filter(|row| period.family(row).name == format!("pmbpf_{metric}"));
    let number = |point: &Point| match point {
        Point::Number(number) => *number,
        Point::Histogram(observed) => observed.buckets.count() as f64,
    };
    let whose = |whose: &Whose| match whose {
        Whose::Target(name, _) => name.to_string(),
        Whose::Host(labels) => labels.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" "),
    };
    let all: Vec<_> = of.map(|row| (whose(&row.whose), number(&row.point))).collect();
    let by: BTreeMap<String, f64> = all.iter().cloned().collect();
    assert_eq!(by.len(), all.len(), "{metric}: a row each");
    by
}

const CPU: &str = "cpu_time_seconds";
const WAITS: &str = "runqueue_latency_seconds";

#[test]
fn a_period_is_a_minute_of_the_clock_and_an_interval_is_of_where_its_middle_lies() {
    let mut world = World::new();
    let mut growth = Growth::new(&world.header(), 10, MINUTE);
    let mut periods = Vec::new();
    // Intervals of 5 s that end 2 s after a full minute, and so on.
    for interval in 0..30 {
        let report = world.interval(&[did(cgroup(1, "/web"), SECOND)]);
        periods.extend(growth.add(&report, NOON + 2 * SECOND + interval * INTERVAL_NS));
    }
    periods.extend(growth.end());
    let began: Vec<u64> =
        periods.iter().map(|period| (period.from_unix_ns + MINUTE - NOON) / MINUTE).collect();
    // The middle of the first lies before noon.
    assert_eq!(began, [0, 1, 2, 3]);
    let counted: Vec<u64> = periods.iter().map(|period| period.counted_ns / INTERVAL_NS).collect();
    assert_eq!(counted, [1, 12, 12, 5]);
    let cpu: Vec<f64> = periods.iter().map(|period| numbers(period, CPU)["path:/web"]).collect();
    assert_eq!(cpu, [1.0, 12.0, 12.0, 5.0]);
    assert!(growth.end().is_none(), "nothing is left");
}

#[test]
fn what_did_not_happen_has_no_row_but_what_is_measured_has_one() {
    let mut world = World::new();
    let mut growth = Growth::new(&world.header(), 10, MINUTE);
    let quiet = Did { waits: (0, 0), ..did(cgroup(1, "/quiet"), 0) };
    let _ = growth.add(&world.interval(&[quiet.clone(), did(cgroup(2, "/busy"), SECOND)]), NOON);
    let first = growth.end().unwrap();
    assert_eq!(numbers(&first, CPU), [("_other".to_owned(), 0.0), ("path:/busy".to_owned(), 1.0)].into());
    assert!(numbers(&first, "samples").is_empty(), "nothing samples");
    let _ = growth.add(&world.interval(&[quiet]), NOON + MINUTE);
    let second = growth.end().unwrap();
    assert_eq!(numbers(&second, WAITS), [("_other".to_owned(), 0.0)].into());
    assert_eq!(numbers(&second, "counted_time_seconds")[""], 5.0);
}

#[test]
fn the_busiest_have_rows_of_their_own_and_nobody_is_lost() {
    let mut world = World::new();
    let mut growth = Growth::new(&world.header(), 2, MINUTE);
    let all: Vec<Did> = (1..=5).map(|id| did(cgroup(id, &format!("/{id}")), id * SECOND)).collect();
    let _ = growth.add(&world.interval(&all), NOON);
    let period = growth.end().unwrap();
    let expected = [("_other", 6.0), ("path:/4", 4.0), ("path:/5", 5.0)];
    assert_eq!(numbers(&period, CPU), expected.map(|(name, value)| (name.to_owned(), value)).into());
    assert_eq!(numbers(&period, WAITS)["_other"], 9.0);
}

#[test]
fn an_estimate_has_its_variance_and_a_count_has_none() {
    let (header, ledger, interval) = with_late_ticks(Target::System, 2, 40);
    let tasks = TasksReport::new(&machine(), &header, &ledger, &interval, &[]);
    let row = tasks.owners.iter().find(|row| row.who.owner().is_some()).unwrap();
    let blind = *row.value(&metric::BLIND_TIME).unwrap();
    let mut growth = Growth::new(&header.into(), 10, MINUTE);
    let _ = growth.add(&Report { tasks: Some(tasks), ..Report::default() }, NOON);
    let period = growth.end().unwrap();
    let find = |name: &str| period.rows.iter().find(|row| period.family(row).name == name).unwrap();
    // A process is not a target.
    let found = find("pmbpf_blind_time_seconds");
    assert_eq!(found.whose, Whose::Target("_other".into(), Arc::default()));
    assert_eq!(found.point, Point::Number(blind.estimate * 1e-9));
    let error = (blind.high - blind.low) / (2.0 * Z) * 1e-9;
    assert!(error > 0.0 && (found.variance.unwrap() / error.powi(2) - 1.0).abs() < 1e-9);
    assert_eq!(find("pmbpf_cpu_time_seconds").variance, None);
    assert!(period.rows.iter().all(|row| !period.family(row).name.ends_with("_variance")));
}

#[test]
fn a_target_whose_name_becomes_known_goes_on_under_it() {
    let mut world = World::new();
    let mut growth = Growth::new(&world.header(), 10, MINUTE);
    let _ = growth.add(&world.interval(&[did(cgroup(1, "/libpod-1"), SECOND)]), NOON);
    let container = Container {
        runtime: Some(Runtime::Podman),
        id: "0123".into(),
        name: Some("web".into()),
        ..Container::default()
    };
    let identity = Some(Box::new(Identity { container: Some(container), ..Identity::default() }));
    let named = Owner::Cgroup { id: 1, path: "/libpod-1".into(), identity };
    let mut report = world.interval(&[did(cgroup(1, "/libpod-1"), SECOND)]);
    let owners = &mut report.tasks.as_mut().unwrap().owners;
    owners.iter_mut().for_each(|row| row.who = OwnerOrTarget::Owner(named.clone()));
    let _ = growth.add(&report, NOON + INTERVAL_NS / 4);
    let period = growth.end().unwrap();
    let found = numbers(&period, CPU);
    assert_eq!((found["path:/libpod-1"], found["podman:web"]), (1.0, 1.0));
    let info = |wanted: &str| {
        let mut all = period.rows.iter().filter_map(|row| match &row.whose {
            Whose::Target(name, info) if **name == *wanted => Some(Arc::clone(info)),
            _ => None,
        });
        all.next().unwrap()
    };
    assert!(info("podman:web").contains(&("container_name", "web".to_owned())));
}

#[test]
fn what_a_target_moved_is_in_its_rows_and_in_a_scrape() {
    let mut world = World::new();
    let mut report = world.interval(&[did(cgroup(1, "/web"), SECOND)]);
    let mut io = of_disk(10, 100_000, 20.0);
    let whole = Subject::Owner(cgroup(1, "/web"), Box::new(Subject::Scope(Scope::Platform)));
    let of_one = Subject::Owner(cgroup(1, "/web"), Box::new(io.rows[0].subject.clone()));
    for (subject, label) in [(&whole, Label::Measured), (&whole, Label::System), (&of_one, Label::Measured)] {
        io.rows.push(Row {
            subject: subject.clone(),
            metric: metric::BLOCK_READ_BW.name.to_owned(),
            unit: metric::BLOCK_READ_BW.unit,
            value: Value::exact(4096.0 / 1e6 / 5.0),
            distribution: None,
            label,
            note: None,
        });
    }
    report.io = Some(io);
    let mut growth = Growth::new(&world.header(), 10, MINUTE);
    let _ = growth.add(&report, NOON);
    assert_eq!(numbers(&growth.end().unwrap(), "block_read_bytes")["path:/web"], 4096.0);
    let mut exposed = world.exposed(Bounds { targets: 10, series: 10_000, linger_ns: 1 });
    exposed.add(&report, Seen::default());
    let snapshot = exposed.snapshot();
    let (_, series) =
        snapshot.families().find(|(family, _)| family.name == "pmbpf_block_read_bytes").unwrap();
    let web = series.iter().find(|series| series.target == Some("path:/web")).unwrap();
    assert_eq!(*web.point, Point::Number(4096.0));
}

/// Returns an I/O report of one disk with `requests` requests of `each_ns` ns, and its utilization.
fn of_disk(requests: u32, each_ns: u64, busy_percent: f64) -> IoReport {
    use pmu_common::histogram::BLOCK;
    let subject = Subject::Disk(Untrusted::from("nvme0n1"), "read");
    let bucket = BLOCK.bucket_of(each_ns) as u16;
    let distribution = Distribution {
        histogram: Histogram::between(BLOCK, &[], &[(bucket, requests)]),
        sum: u64::from(requests) * each_ns,
        max: Bucket { low: each_ns, high: each_ns },
        coverage: 1.0,
    };
    let row = |metric: metric::Metric, value, distribution: Option<Distribution>| Row {
        subject: subject.clone(),
        metric: metric.name.to_owned(),
        unit: metric.unit,
        value: Value::exact(value),
        distribution: distribution.map(Box::new),
        label: Label::System,
        note: None,
    };
    let mean = distribution.mean().estimate;
    IoReport {
        length_ns: INTERVAL_NS,
        traffic_ns: INTERVAL_NS,
        rows: vec![
            row(metric::BLOCK_LATENCY, mean, Some(distribution)),
            row(metric::BLOCK_UTILIZATION, busy_percent, None),
        ],
        ..IoReport::default()
    }
}

#[test]
fn devices_have_what_each_period_added_and_means_of_what_does_not_add_up() {
    let mut world = World::new();
    let mut header = world.header();
    header.missing.push(Absent { what: "dram".to_owned(), why: "no uncore PMU".to_owned() });
    let mut growth = Growth::new(&header, 10, MINUTE);
    let mut at_ns = NOON + INTERVAL_NS;
    let mut periods = Vec::new();
    for (requests, busy) in [(10, 20.0), (30, 40.0), (5, 90.0)] {
        let mut report = world.interval(&[did(cgroup(1, "/web"), SECOND)]);
        report.io = Some(of_disk(requests, 100_000, busy));
        periods.extend(growth.add(&report, at_ns));
        at_ns += if requests == 30 { MINUTE } else { INTERVAL_NS };
    }
    periods.extend(growth.end());
    let of = |metric: &str| -> Vec<f64> {
        periods.iter().map(|period| numbers(period, metric)["nvme0n1 read"]).collect()
    };
    assert_eq!(of("block_latency_seconds"), [40.0, 5.0]);
    let busy = of("block_utilization_ratio");
    assert!((busy[0] - 0.3).abs() < 1e-9 && (busy[1] - 0.9).abs() < 1e-9, "{busy:?}");
    for period in &periods {
        let missing = numbers(period, "missing");
        assert_eq!(missing.get("dram no uncore PMU"), Some(&1.0), "{missing:?}");
        assert!(
            period
                .rows
                .iter()
                .all(|row| period.family(row).kind != Kind::Info || row.point == Point::Number(1.0))
        );
    }
}

#[test]
fn sums_over_all_rows_are_what_happened_whoever_comes_and_goes() {
    for seed in 1..=4 {
        let mut lives = Lives::new(Random(0x5eed_1000 + seed));
        let mut world = World::new();
        let mut growth = Growth::new(&world.header(), 6, MINUTE);
        let mut at_ns = NOON;
        let (mut cpu_ns, mut waits, mut counted_ns) = (0, 0, 0);
        let mut periods = Vec::new();
        for _ in 0..400 {
            let all = lives.interval();
            cpu_ns += all.iter().map(|did| did.cpu_ns).sum::<u64>();
            waits += all.iter().map(|did| u64::from(did.waits.0)).sum::<u64>();
            counted_ns += INTERVAL_NS;
            periods.extend(growth.add(&world.interval(&all), at_ns));
            // The clock is set at times.
            at_ns += INTERVAL_NS + if lives.random.uniform() < 0.01 { 7 * MINUTE } else { 0 };
        }
        periods.extend(growth.end());
        let sum = |metric: &str| -> f64 {
            periods.iter().map(|period| numbers(period, metric).values().sum::<f64>()).sum()
        };
        assert!((sum(CPU) - cpu_ns as f64 / 1e9).abs() < 1e-6, "{} of {cpu_ns} ns", sum(CPU));
        assert_eq!(sum(WAITS), waits as f64);
        assert!((sum("counted_time_seconds") - counted_ns as f64 / 1e9).abs() < 1e-6);
        let most = periods.iter().map(|period| numbers(period, CPU).len()).max().unwrap();
        assert_eq!(most, 7, "six, and all others");
    }
}
