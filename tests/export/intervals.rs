//! Exports of numbers, with sums equal to those of the report.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{OFF_CPU, STACKS, events, export, name_of, protobuf::Message, reported, rows};

/// Recordings of tasks, of I/O and of counts.
const NUMBERS: [&str; 7] = ["masked", "events", "topdown", "io", "boxes", "counts", "culprits"];

/// Returns the values of a metric in the report's intervals, added up by owner's name.
fn metric(name: &str, metric: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for row in rows(name, "metric").iter().filter(|row| row["metric"] == metric) {
        let Some(value) = row["value"].as_f64() else { continue };
        *sums.entry(row["owner"]["name"].as_str().unwrap_or("host").to_owned()).or_default() += value;
    }
    sums
}

/// Tracks of a trace: their name, their owner's name, and their values with times.
type Tracks = Vec<(String, String, Vec<(u64, f64)>)>;

/// Returns the counter tracks of a trace, and the number of its slices.
fn trace(bytes: &[u8]) -> (Tracks, u64, u64) {
    let mut names = BTreeMap::new();
    let mut values: BTreeMap<u64, Vec<(u64, f64)>> = BTreeMap::new();
    let (mut begun, mut ended) = (0, 0);
    for packet in Message::read(bytes).messages(1) {
        for track in packet.messages(60) {
            let known = names.insert(track.number(1), (track.texts(2).remove(0), track.number(5)));
            assert!(known.is_none(), "a track is described once");
        }
        for event in packet.messages(11) {
            let track = event.number(11);
            assert!(names.contains_key(&track), "a track is described before it is used");
            match event.number(9) {
                1 => begun += 1,
                2 => ended += 1,
                4 => {
                    let value = f64::from_bits(event.number(44));
                    values.entry(track).or_default().push((packet.number(8), value));
                }
                kind => unreachable!("an event of kind {kind}"),
            }
        }
    }
    let named = |(track, values): (u64, Vec<(u64, f64)>)| {
        let (name, parent) = names[&track].clone();
        (name, names[&parent].0.clone(), values)
    };
    (values.into_iter().map(named).collect(), begun, ended)
}

#[test]
fn perfetto_has_a_track_for_each_owner_and_metric_and_a_slice_for_each_gap() {
    for name in ["masked", "events"] {
        let (tracks, begun, ended) = trace(&export(name, &["perfetto"]));
        let gaps = rows(name, "gap").len() as u64;
        assert_eq!((begun, ended), (gaps, gaps), "{name}");
        assert!(gaps > 0 || name != "masked", "this one has gaps");
        for wanted in ["cpu_time", "context_switches", "minor_faults"] {
            let mut sums: BTreeMap<String, f64> = BTreeMap::new();
            for (_, owner, values) in tracks.iter().filter(|(track, ..)| track == wanted) {
                assert!(values.is_sorted_by(|a, b| a.0 < b.0), "each interval has one value");
                // The last value is there twice: where its interval begins, and where it ends.
                let (end, intervals) = values.split_last().unwrap();
                assert_eq!(end.1.to_bits(), intervals.last().unwrap().1.to_bits());
                *sums.entry(name_of(owner)).or_default() +=
                    intervals.iter().map(|(_, value)| value).sum::<f64>();
            }
            assert_eq!(sums, metric(name, wanted), "{name} {wanted}");
        }
    }
}

#[test]
fn who_had_the_cpu_is_a_track_of_the_victim_and_the_culprit() {
    let name = "culprits";
    let mut wanted: BTreeMap<(String, String), f64> = BTreeMap::new();
    for row in rows(name, "culprit") {
        let whose = |who: &Value| match who["kind"].as_str().unwrap() {
            "cgroup" => who["path"].as_str().unwrap().to_owned(),
            _ => who["name"].as_str().unwrap().to_owned(),
        };
        let kind = row["culprit"]["kind"].as_str().unwrap();
        let culprit =
            if kind == "cgroup" { format!("cgroup {}", whose(&row["culprit"])) } else { kind.to_owned() };
        let track = format!("culprit {culprit} runqueue_latency.culprit");
        wanted.insert((whose(&row["owner"]), track), row["wait_ns"].as_f64().unwrap());
    }
    let (tracks, ..) = trace(&export(name, &["perfetto", "-I", "1h"]));
    let culprits = tracks.into_iter().filter(|(track, ..)| track.starts_with("culprit "));
    let found: BTreeMap<(String, String), f64> =
        culprits.map(|(track, owner, values)| ((owner, track), values[0].1)).collect();
    assert_eq!(found, wanted);
    assert!(wanted.len() >= 6, "each is victim and culprit: {wanted:?}");
}

#[test]
fn intervals_are_ticks_unless_told_otherwise() {
    let times = |arguments: &[&str]| {
        let (tracks, ..) = trace(&export("io", &[&["perfetto"], arguments].concat()));
        tracks.iter().map(|(.., values)| values.len()).max().unwrap()
    };
    let (ticks, long) = (times(&[]), times(&["-I", "1h"]));
    assert_eq!((ticks > long, long), (true, 2), "{ticks}");
}

#[test]
fn a_firefox_profile_has_the_samples_of_the_report_and_counters_of_the_target() {
    for name in STACKS {
        let profile: Value = serde_json::from_slice(&export(name, &["firefox"])).unwrap();
        let events = events(name);
        let threads = profile["threads"].as_array().unwrap();
        let mut sums = BTreeMap::new();
        for thread in &threads[1..] {
            let (owner, event) = thread["name"].as_str().unwrap().rsplit_once(" · ").unwrap();
            let event = events.iter().position(|name| name == event).unwrap();
            let weights = thread["samples"]["weight"].as_array().unwrap();
            // Off-CPU time weighs milliseconds.
            let is_time = thread["samples"]["weightType"] == "tracing-ms";
            assert_eq!(is_time, events[event] == OFF_CPU);
            let weight = |weight: &Value| match weight.as_u64() {
                Some(samples) if !is_time => samples,
                _ => (weight.as_f64().unwrap() * 1e6).round() as u64,
            };
            let samples: u64 = weights.iter().map(weight).sum();
            *sums.entry((event, name_of(owner))).or_default() += samples;
            columns_are_alike(thread);
        }
        assert_eq!(sums, reported(name), "{name}");
        columns_are_alike(&threads[0]);
        let gaps = threads[0]["markers"]["length"].as_u64().unwrap();
        assert_eq!(gaps, rows(name, "gap").len() as u64);
        let counters = profile["counters"].as_array().unwrap();
        let cpu_time = counters.iter().find(|counter| counter["name"] == "cpu_time").unwrap();
        let points = cpu_time["samples"]["count"].as_array().unwrap();
        let sum: f64 = points.iter().map(|point| point.as_f64().unwrap()).sum();
        assert_eq!(sum.to_bits(), metric(name, "cpu_time")["total"].to_bits());
    }
}

/// Asserts that the columns of each table have one length, and that references are valid.
fn columns_are_alike(thread: &Value) {
    let length = |table: &str| thread[table]["length"].as_u64().unwrap();
    for table in ["frameTable", "funcTable", "stackTable", "samples", "markers"] {
        let columns = thread[table].as_object().unwrap();
        for (name, column) in columns.iter().filter(|(_, column)| column.is_array()) {
            assert_eq!(column.as_array().unwrap().len() as u64, length(table), "{table}.{name}");
        }
    }
    let below = |table: &str, column: &str, end: u64| {
        let cells = thread[table][column].as_array().unwrap();
        assert!(cells.iter().filter_map(Value::as_u64).all(|cell| cell < end), "{table}.{column}");
    };
    below("frameTable", "func", length("funcTable"));
    below("stackTable", "frame", length("frameTable"));
    below("stackTable", "prefix", length("stackTable"));
    below("samples", "stack", length("stackTable"));
    let texts = thread["stringArray"].as_array().unwrap().len() as u64;
    below("funcTable", "name", texts);
    below("funcTable", "fileName", texts);
    below("markers", "name", texts);
}

#[test]
fn numbers_of_every_source_are_exported() {
    for name in NUMBERS {
        let (tracks, ..) = trace(&export(name, &["perfetto"]));
        let profile: Value = serde_json::from_slice(&export(name, &["firefox"])).unwrap();
        assert!(!tracks.is_empty() && !profile["counters"].as_array().unwrap().is_empty(), "{name}");
    }
}

/// Reads with the crate's reader of rows, which shares nothing with the writer.
#[cfg(feature = "parquet")]
#[test]
fn parquet_has_a_row_for_each_value_of_csv() {
    use std::process::Command;

    use bytes::Bytes;
    use parquet::{
        file::reader::{FileReader as _, SerializedFileReader},
        record::Field,
    };

    for name in NUMBERS {
        let file = SerializedFileReader::new(Bytes::from(export(name, &["parquet"]))).unwrap();
        let rows: Vec<BTreeMap<String, Field>> = file
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().into_columns().into_iter().collect())
            .collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmbpf"));
        let csv = command.arg("report").arg(crate::recording(name)).arg("--csv").output().unwrap().stdout;
        let mut csv = csv::Reader::from_reader(&csv[..]);
        let header = csv.headers().unwrap().clone();
        let at = |column: &str| header.iter().position(|name| name == column).unwrap();
        let wanted = csv.records().map(Result::unwrap).filter(|row| !row[at("metric")].ends_with(".bucket"));
        let mut compared = 0;
        for (row, wanted) in rows.iter().zip(wanted) {
            let text = |column: &str| match &row[column] {
                Field::Str(text) => text.clone(),
                Field::Long(number) => number.to_string(),
                Field::Double(number) => number.to_string(),
                Field::Null => String::new(),
                field => unreachable!("{column}: {field}"),
            };
            for (column, called) in [
                ("time_ns", "t_ns"),
                ("dt_ns", "dt_ns"),
                ("owner_kind", "owner_kind"),
                ("metric", "metric"),
                ("unit", "unit"),
                ("value", "value"),
                ("low", "low"),
                ("high", "high"),
                ("coverage", "coverage"),
                ("how", "how"),
                ("status", "status"),
            ] {
                let (is, expected) = (text(column), &wanted[at(called)]);
                // The host owns values without an owner.
                let host = column == "owner_kind" && is == "host" && expected.is_empty();
                assert!(host || is == *expected, "{name} {column}: {is}, not {expected}");
            }
            assert_eq!(matches!(row["value"], Field::Null), !text("reason").is_empty(), "{name}: {row:?}");
            compared += 1;
        }
        assert!(compared > 10 && compared == rows.len(), "{name}: {compared} rows");
    }
}
