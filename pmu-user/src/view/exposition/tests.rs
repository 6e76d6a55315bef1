//! Tests of snapshots of a synthetic host in every format, and of the format that a client prefers.

use pmu_common::histogram::{BLOCK, Layout, RUNQUEUE};
use prost::Message as _;

use super::{
    Exposition,
    message::{HISTOGRAM, MetricFamily},
    native::Native,
};
use crate::{
    drain::Owner,
    metric::{
        exposed::{
            Bounds, Observed, Seen, Snapshot,
            testing::{Did, World},
        },
        testing::Random,
    },
    model::histogram::Histogram,
};

const BOUNDS: Bounds = Bounds { targets: 10, series: 10_000, linger_ns: 1 };

fn snapshot(path: &str) -> Snapshot {
    let mut world = World::new();
    let mut exposed = world.exposed(BOUNDS);
    let owner = Owner::cgroup(1, path.into());
    let did = Did { owner, cpu_ns: 1_500_000_000, waits: (4, 50_000), ends: false };
    exposed.add(&world.interval(&[did]), Seen::default());
    exposed.snapshot()
}

fn text(format: Exposition, snapshot: &Snapshot) -> String {
    String::from_utf8(format.encode(snapshot, 0)).unwrap()
}

#[test]
fn text_has_every_series_in_base_units() {
    let text = text(Exposition::Text, &snapshot("/web"));
    for line in [
        "# TYPE pmbpf_cpu_time_seconds_total counter",
        "pmbpf_cpu_time_seconds_total{target=\"path:/web\"} 1.5",
        "pmbpf_cpu_time_seconds_total{target=\"_other\"} 0",
        "# TYPE pmbpf_target_info gauge",
        "pmbpf_target_info{target=\"path:/web\",path=\"/web\"} 1",
        "# TYPE pmbpf_runqueue_latency_seconds histogram",
        "pmbpf_runqueue_latency_seconds_bucket{target=\"path:/web\",le=\"0.000016384\"} 0",
        "pmbpf_runqueue_latency_seconds_bucket{target=\"path:/web\",le=\"0.000065536\"} 4",
        "pmbpf_runqueue_latency_seconds_bucket{target=\"path:/web\",le=\"+Inf\"} 4",
        "pmbpf_runqueue_latency_seconds_sum{target=\"path:/web\"} 0.0002",
        "pmbpf_runqueue_latency_seconds_count{target=\"path:/web\"} 4",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.ends_with('\n') && !text.contains("# EOF"));
}

#[test]
fn open_metrics_names_families_without_their_suffix_and_says_where_it_ends() {
    let text = text(Exposition::OpenMetrics, &snapshot("/web"));
    for line in [
        "# TYPE pmbpf_cpu_time_seconds counter",
        "# UNIT pmbpf_cpu_time_seconds seconds",
        "pmbpf_cpu_time_seconds_total{target=\"path:/web\"} 1.5",
        "# TYPE pmbpf_target info",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.ends_with("\n# EOF\n"));
}

#[test]
fn open_metrics_says_when_a_series_began_that_did_so_later() {
    let mut world = World::new();
    let mut exposed = world.exposed(BOUNDS);
    let did = |id: u64, path: &str| {
        let owner = Owner::cgroup(id, path.into());
        Did { owner, cpu_ns: 1_500_000_000, waits: (4, 50_000), ends: false }
    };
    exposed.add(&world.interval(&[did(1, "/web")]), Seen::default());
    let first = exposed.snapshot();
    exposed.add(&world.interval(&[did(1, "/web"), did(2, "/later")]), Seen::snapshot(first.sequence));
    let text =
        String::from_utf8(Exposition::OpenMetrics.encode(&exposed.snapshot(), 77_000_000_000)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let at = |line: &str| {
        lines.iter().position(|found| *found == line).unwrap_or_else(|| panic!("{line}\n{text}"))
    };
    // The second interval ends 10 s after counting began. A creation line follows its sample.
    let later = at("pmbpf_cpu_time_seconds_total{target=\"path:/later\"} 0");
    assert_eq!(lines[later + 1], "pmbpf_cpu_time_seconds_created{target=\"path:/later\"} 87");
    let count = at("pmbpf_runqueue_latency_seconds_count{target=\"path:/later\"} 0");
    assert_eq!(lines[count + 1], "pmbpf_runqueue_latency_seconds_created{target=\"path:/later\"} 87");
    let of_others = |line: &&&str| line.contains("_created{") && !line.contains("path:/later");
    assert_eq!(lines.iter().find(of_others), None);
}

#[test]
fn a_hostile_name_stays_in_its_label() {
    let hostile = "/a\"} 1\npmbpf_evil 2\\\u{202e}\x1b[2J{}";
    for format in [Exposition::Text, Exposition::OpenMetrics] {
        let text = text(format, &snapshot(hostile));
        assert!(!text.lines().any(|line| line.starts_with("pmbpf_evil")), "{text}");
        assert!(!text.contains(['\u{202e}', '\x1b']), "{text}");
        assert!(text.contains(r#"{target="path:/a\"} 1\\x0apmbpf_evil 2\\\\u{202e}\\x1b[2J{}"}"#), "{text}");
    }
}

/// Decodes messages, each preceded by its length.
fn families(mut bytes: &[u8]) -> Vec<MetricFamily> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(MetricFamily::decode_length_delimited(&mut bytes).unwrap());
    }
    all
}

#[test]
fn protocol_buffers_say_what_text_says_and_have_native_buckets() {
    let snapshot = snapshot("/web");
    let families = families(&Exposition::Protobuf.encode(&snapshot, 7_000_000_001));
    let text = text(Exposition::Text, &snapshot);
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    assert_eq!(families.iter().map(MetricFamily::name).collect::<Vec<_>>(), types.collect::<Vec<_>>());
    for family in &families {
        for metric in &family.metric {
            let labels = metric
                .label
                .iter()
                .map(|pair| format!("{}=\"{}\"", pair.name(), pair.value()))
                .collect::<Vec<_>>();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let value = metric.counter.map(|counter| counter.value());
            if let Some(value) = value.or(metric.gauge.map(|gauge| gauge.value())) {
                let line = format!("{}{labels} {value}", family.name());
                assert!(text.lines().any(|found| found == line), "{line}\n{text}");
            }
        }
    }
    let waits = families.iter().find(|family| family.kind == Some(HISTOGRAM)).unwrap();
    let web = waits.metric.iter().find(|metric| metric.label[0].value() == "path:/web").unwrap();
    let histogram = web.histogram.as_ref().unwrap();
    assert_eq!((histogram.sample_count(), histogram.schema()), (4, 3));
    assert!(histogram.zero_threshold() > 0.0 && !histogram.positive_span.is_empty());
    let created = histogram.created.unwrap();
    assert_eq!(
        (created.seconds, created.nanos),
        (7, 1),
        "what was there when counting began has been counted since then"
    );
}

fn native_counts(native: &Native) -> Vec<(i32, i64)> {
    let (mut counts, mut index, mut count, mut deltas) = (Vec::new(), 0, 0, native.deltas.iter());
    for span in &native.spans {
        index += span.offset.unwrap();
        for _ in 0..span.length.unwrap() {
            count += deltas.next().unwrap();
            counts.push((index, count));
            index += 1;
        }
    }
    assert!(deltas.next().is_none());
    counts
}

fn observed(layout: Layout, values: &[u64]) -> Observed {
    let mut counts = std::collections::BTreeMap::new();
    for &value in values {
        *counts.entry(layout.bucket_of(value) as u16).or_insert(0_u32) += 1;
    }
    let buckets = Histogram::between(layout, &[], &counts.into_iter().collect::<Vec<_>>());
    Observed { buckets, sum_ns: 0.0 }
}

#[test]
fn native_buckets_hold_all_values_and_quantiles_where_they_were() {
    for (layout, seed) in [(RUNQUEUE, 1), (BLOCK, 2), (RUNQUEUE, 3)] {
        let mut random = Random(0xabcd_0000 + seed);
        let mut values: Vec<u64> = (0..5000).map(|_| random.magnitude(200.0, 5e9) as u64).collect();
        values.push(0);
        values.sort_unstable();
        let observed = observed(layout, &values);
        let native = Native::of(&observed);
        assert_eq!(native.zeros, 1);
        let counts = native_counts(&native);
        let all: i64 = counts.iter().map(|(_, count)| count).sum();
        assert_eq!(all, 5000);
        assert!(counts.iter().all(|&(_, count)| count >= 0));
        for quantile in [0.01, 0.25, 0.5, 0.9, 0.99, 0.999] {
            let rank = (quantile * 5001.0_f64).ceil() as i64;
            let mut sum = 1;
            let found = counts.iter().find(|(_, count)| {
                sum += count;
                sum >= rank
            });
            let (index, _) = found.unwrap();
            let upper_ns = (f64::from(*index) / 8.0).exp2() * 1e9;
            let bucket = observed.buckets.quantile(quantile).unwrap();
            // A native bucket is 9 % wide, and one of pmbpf's 6 or 12 %.
            let (low, high) = (bucket.low as f64, bucket.high as f64);
            assert!(
                upper_ns > low * 0.99 && upper_ns / 1.0906 < high * 1.01,
                "{quantile}: {upper_ns} in {low}..{high}"
            );
        }
    }
}

#[test]
fn edges_at_powers_of_two_stay_where_they_are() {
    let native = Native::of(&observed(RUNQUEUE, &[1 << 20, (1 << 20) - 1]));
    let indices: Vec<i32> = native_counts(&native).iter().map(|(index, _)| *index).collect();
    let edge = ((1_u64 << 20) as f64 * 1e-9).log2() * 8.0;
    assert!(
        f64::from(indices[0]) <= edge.ceil() && f64::from(*indices.last().unwrap()) >= edge.floor(),
        "{indices:?}"
    );
}

#[test]
fn the_format_is_what_is_wanted_most() {
    let accepted = |accept: &str| Exposition::accepted(Some(accept));
    // Headers of Prometheus 3.5 with and without native histograms, of VictoriaMetrics, curl and a browser.
    let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                  application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                  application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
                  text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
    assert_eq!(accepted(native), Exposition::Protobuf);
    assert_eq!(accepted(&native[native.find("application/openmetrics").unwrap()..]), Exposition::OpenMetrics);
    assert_eq!(accepted("text/plain;version=0.0.4;q=1,*/*;q=0.1"), Exposition::Text);
    assert_eq!(accepted("*/*"), Exposition::Text);
    assert_eq!(accepted("text/html,application/xhtml+xml,*/*;q=0.8"), Exposition::Text);
    assert_eq!(accepted("application/openmetrics-text; version=\"1.0.0\""), Exposition::OpenMetrics);
    assert_eq!(accepted("application/openmetrics-text;version=2.0.0,text/plain;q=0.1"), Exposition::Text);
    assert_eq!(accepted("application/openmetrics-text;q=0"), Exposition::Text);
    assert_eq!(accepted("application/vnd.google.protobuf;proto=x.Y;encoding=delimited"), Exposition::Text);
    assert_eq!(accepted(";;,q=,\u{fffd};q=x"), Exposition::Text);
    assert_eq!(Exposition::accepted(None), Exposition::Text);
}
