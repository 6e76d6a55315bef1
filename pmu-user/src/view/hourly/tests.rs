//! Tests of tables, read back by the crate's reader, which shares nothing with how they are written.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use parquet::{
    file::reader::{FileReader as _, SerializedFileReader},
    record::Field,
};

use super::{GROUP_ROWS, HourlyTable};
use crate::{
    drain::Owner,
    machine::container::{Container, Identity, Pod, Runtime},
    metric::{
        Report, TasksReport,
        exposed::{
            self, Growth, Period,
            testing::{Did, INTERVAL_NS, World},
        },
        testing::{Random, machine, with_late_ticks},
    },
    plan::Target,
};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
/// Start of a full hour.
const NOON: u64 = 1_795_608_000 * SECOND;

type Cells = BTreeMap<String, Field>;

fn read(table: &mut HourlyTable) -> (Vec<Cells>, SerializedFileReader<Bytes>) {
    let mut bytes = Vec::new();
    table.write(&mut bytes).unwrap();
    let file = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
    let rows = file.get_row_iter(None).unwrap();
    let rows = rows.map(|row| row.unwrap().into_columns().into_iter().collect()).collect();
    (rows, file)
}

fn text(cells: &Cells, column: &str) -> Option<String> {
    match &cells[column] {
        Field::Str(text) => Some(text.clone()),
        Field::Null => None,
        field => unreachable!("{column}: {field}"),
    }
}

fn number(cells: &Cells, column: &str) -> Option<f64> {
    match &cells[column] {
        Field::Double(number) => Some(*number),
        Field::TimestampMicros(time) => Some(*time as f64),
        Field::Null => None,
        field => unreachable!("{column}: {field}"),
    }
}

/// Returns the entries of a map.
fn map(cells: &Cells, column: &str) -> Vec<(String, String)> {
    let Field::MapInternal(map) = &cells[column] else { unreachable!("{column}: {}", cells[column]) };
    let plain = |field: &Field| match field {
        Field::Str(text) => text.clone(),
        field => field.to_string(),
    };
    map.entries().iter().map(|(key, value)| (plain(key), plain(value))).collect()
}

fn sum(rows: &[Cells], metric: &str, column: &str) -> f64 {
    let of = rows.iter().filter(|row| text(row, "metric").as_deref() == Some(metric));
    of.filter_map(|row| number(row, column)).sum()
}

fn web() -> Owner {
    let container = Container {
        runtime: Some(Runtime::Containerd),
        id: "0123456789abcdef".into(),
        name: Some("nginx\x1b[2J".into()),
        image: Some("nginx:1.27".into()),
        ..Container::default()
    };
    let pod = Pod { name: Some("web-7f9c".into()), namespace: Some("shop".into()), uid: None };
    let identity = Identity { container: Some(container), pod: Some(pod), ..Identity::default() };
    Owner::Cgroup { id: 7, path: "/kubepods/x".into(), identity: Some(Box::new(identity)) }
}

#[test]
fn a_row_says_whose_it_is_and_when() {
    let mut world = World::new();
    let mut growth = Growth::new(&world.header(), 10, MINUTE);
    let did = Did { owner: web(), cpu_ns: 2 * SECOND, waits: (4, 50_000), ends: false };
    assert!(growth.add(&world.interval(&[did]), NOON + INTERVAL_NS).is_none());
    let mut table = HourlyTable::new(&world.header());
    table.add(&growth.end().unwrap());
    let (rows, file) = read(&mut table);
    let find = |metric: &str, is_other: bool| {
        let is = |row: &&Cells| {
            text(row, "metric").as_deref() == Some(metric)
                && (text(row, "target").as_deref() == Some("_other")) == is_other
        };
        rows.iter().find(is).unwrap()
    };
    let cpu = find("cpu_time_seconds", false);
    assert_eq!(number(cpu, "time"), Some(NOON as f64 / 1e3));
    assert_eq!((number(cpu, "seconds"), number(cpu, "value")), (Some(5.0), Some(2.0)));
    let texts = ["kind", "runtime", "container_id", "image", "namespace", "pod", "path", "job"]
        .map(|column| text(cpu, column));
    let expected =
        ["counter", "containerd", "0123456789abcdef", "nginx:1.27", "shop", "web-7f9c", "/kubepods/x"];
    let expected = expected.map(|text| Some(text.to_owned())).into_iter().chain([None]);
    assert_eq!(texts.to_vec(), expected.collect::<Vec<_>>());
    let container = text(cpu, "container").unwrap();
    assert!(container.starts_with("nginx") && !container.contains('\x1b'), "{container:?}");
    assert!(map(cpu, "buckets").is_empty() && map(cpu, "labels").is_empty());
    let waits = find("runqueue_latency_seconds", false);
    assert_eq!((number(waits, "value"), number(waits, "sum")), (Some(4.0), Some(200e-6)));
    assert_eq!(map(waits, "buckets"), [("53248".to_owned(), "4".to_owned())], "up to 49152 + 4096 ns");
    assert_eq!(number(find("runqueue_latency_seconds", true), "value"), Some(0.0));
    assert_eq!(number(cpu, "variance"), None);
    let build = find("build", false);
    assert_eq!(map(build, "labels")[0], ("version".to_owned(), world.header().version));
    let facts = file.metadata().file_metadata().key_value_metadata().unwrap();
    assert!(facts.iter().any(|fact| fact.key == "pmbpf.kernel"));
}

/// Returns the growth in periods of a synthetic host, on which cgroups come and go.
fn periods(minutes: u64) -> (Vec<Period>, World, (u64, u64)) {
    let mut random = Random(0x5eed_2000);
    let mut world = World::new();
    let mut growth = Growth::new(&world.header(), 60, MINUTE);
    let (mut alive, mut next) = (Vec::new(), 1);
    let (mut cpu_ns, mut waits) = (0, 0);
    let mut periods = Vec::new();
    for interval in 1..=minutes * 12 {
        while alive.len() < 60 || random.uniform() < 0.3 {
            alive.push(Owner::cgroup(next, format!("/c{next}").as_str().into()));
            next += 1;
        }
        let mut all = Vec::new();
        alive.retain(|owner: &Owner| {
            let (did_ns, times) = (random.between(0.0, 1e8) as u64, random.below(9) as u32);
            let ends = random.uniform() < 0.01;
            let each_ns = 1_000 << random.below(16);
            (cpu_ns, waits) = (cpu_ns + did_ns, waits + u64::from(times));
            all.push(Did { owner: owner.clone(), cpu_ns: did_ns, waits: (times, each_ns), ends });
            !ends
        });
        periods.extend(growth.add(&world.interval(&all), NOON + interval * INTERVAL_NS));
    }
    periods.extend(growth.end());
    (periods, world, (cpu_ns, waits))
}

#[test]
fn hours_have_what_happened_in_order() {
    let (periods, world, (cpu_ns, waits)) = periods(65);
    let hour = |period: &Period| (period.from_unix_ns - NOON) / (60 * MINUTE);
    let (mut cpu, mut waited, mut bucketed) = (0.0, 0.0, 0);
    for wanted in 0..2 {
        let mut table = HourlyTable::new(&world.header());
        periods.iter().filter(|period| hour(period) == wanted).for_each(|period| table.add(period));
        assert_eq!(table.from_unix_ns(), Some(NOON + wanted * 60 * MINUTE));
        let (rows, file) = read(&mut table);
        assert_eq!(rows.len(), table.rows());
        cpu += sum(&rows, "cpu_time_seconds", "value");
        waited += sum(&rows, "runqueue_latency_seconds", "value");
        let buckets =
            rows.iter().filter(|row| text(row, "metric").as_deref() == Some("runqueue_latency_seconds"));
        let counts =
            buckets.flat_map(|row| map(row, "buckets")).map(|(_, count)| count.parse::<u64>().unwrap());
        bucketed += counts.sum::<u64>();
        let keys: Vec<(Option<String>, Option<String>, i64)> = rows
            .iter()
            .filter(|row| text(row, "target").is_some())
            .map(|row| (text(row, "metric"), text(row, "target"), number(row, "time").unwrap() as i64))
            .collect();
        assert!(keys.is_sorted(), "by metric, target, time");
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "a row each");
        let build = rows.iter().filter(|row| text(row, "metric").as_deref() == Some("build"));
        assert_eq!(build.count(), 1, "what is told once");
        let groups = file.metadata().row_groups();
        assert_eq!(groups.len() > 1, wanted == 0, "{} rows", rows.len());
        for group in &groups[..groups.len() - 1] {
            assert!(group.num_rows() as usize >= GROUP_ROWS);
            let statistics = group.column(3).statistics().unwrap();
            assert!(statistics.min_bytes_opt().is_some() && statistics.max_bytes_opt().is_some());
        }
    }
    assert!((cpu - cpu_ns as f64 / 1e9).abs() < 1e-6, "{cpu} of {cpu_ns} ns");
    assert_eq!((waited, bucketed), (waits as f64, waits));
}

#[test]
fn an_estimate_has_its_variance() {
    let (header, ledger, interval) = with_late_ticks(Target::System, 2, 40);
    let tasks = TasksReport::new(&machine(), &header, &ledger, &interval, &[]);
    let header = header.into();
    let mut growth = Growth::new(&header, 10, MINUTE);
    let _ = growth.add(&Report { tasks: Some(tasks), ..Report::default() }, NOON);
    let period = growth.end().unwrap();
    let is_blind = |row: &&exposed::Row| period.family(row).name == "pmbpf_blind_time_seconds";
    let wanted = period.rows.iter().find(is_blind).unwrap().variance.unwrap();
    let mut table = HourlyTable::new(&header);
    table.add(&period);
    let (rows, _) = read(&mut table);
    assert!(wanted > 0.0 && sum(&rows, "blind_time_seconds", "variance").total_cmp(&wanted).is_eq());
}

#[test]
fn a_table_that_cannot_be_written_says_what_the_disk_said() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (periods, world, _) = periods(2);
    let mut table = HourlyTable::new(&world.header());
    periods.iter().for_each(|period| table.add(period));
    let error = table.write(Full).unwrap_err().to_string();
    assert!(error.contains("no storage space"), "{error}");
    assert_eq!(read(&mut table).0.len(), table.rows(), "it can be tried again");
}
