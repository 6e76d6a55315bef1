//! Protocol Buffers: each family is preceded by its length. Histograms have native buckets, and classic ones
//! for servers that accept no others.

use prost::Message as _;

use super::{
    cumulative,
    message::{
        Bucket, COUNTER, Counter, GAUGE, Gauge, HISTOGRAM, Histogram, LabelPair, Metric, MetricFamily,
        Timestamp,
    },
    native::{Native, SCHEMA, ZERO_THRESHOLD_S},
    sample_name,
};
use crate::{
    metric::exposed::{BOUNDS_NS, Family, Kind, Observed, Point, Series, Snapshot},
    untrusted::Untrusted,
};

pub(super) fn encode(snapshot: &Snapshot, started_unix_ns: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (family, series) in snapshot.families() {
        let message = MetricFamily {
            name: Some(sample_name(family)),
            help: Some(family.help.clone()),
            kind: Some(match family.kind {
                Kind::Counter => COUNTER,
                Kind::Gauge | Kind::Info => GAUGE,
                Kind::Histogram => HISTOGRAM,
            }),
            metric: series.iter().map(|series| metric(family, series, started_unix_ns)).collect(),
            unit: family.unit.map(str::to_owned),
        };
        // A vector always has room.
        let _ = message.encode_length_delimited(&mut bytes);
    }
    bytes
}

fn metric(family: &Family, series: &Series<'_>, started_unix_ns: u64) -> Metric {
    let pair = |name: &str, value: &str| LabelPair {
        name: Some(name.to_owned()),
        value: Some(Untrusted::from(value).terminal().into_owned()),
    };
    let target = series.target.map(|target| pair("target", target));
    let labels = series.labels.iter().map(|(name, value)| pair(name, value));
    let created = Some(timestamp(started_unix_ns.saturating_add(series.since_ns)));
    let mut metric = Metric { label: target.into_iter().chain(labels).collect(), ..Metric::default() };
    match &*series.point {
        Point::Histogram(observed) => metric.histogram = Some(histogram(observed, created)),
        Point::Number(value) if family.kind == Kind::Counter => {
            metric.counter = Some(Counter { value: Some(*value), created });
        }
        Point::Number(value) => metric.gauge = Some(Gauge { value: Some(*value) }),
    }
    metric
}

fn timestamp(unix_ns: u64) -> Timestamp {
    const SECOND_NS: u64 = 1_000_000_000;
    let seconds = i64::try_from(unix_ns / SECOND_NS).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: (unix_ns % SECOND_NS) as i32 }
}

fn histogram(observed: &Observed, created: Option<Timestamp>) -> Histogram {
    let bucket = |(&bound, count): (&u64, u64)| Bucket {
        cumulative_count: Some(count),
        upper_bound: Some(bound as f64 / 1e9),
    };
    let native = Native::of(observed);
    Histogram {
        sample_count: Some(observed.buckets.count()),
        sample_sum: Some(observed.sum_ns / 1e9),
        bucket: BOUNDS_NS.iter().zip(cumulative(observed)).map(bucket).collect(),
        schema: Some(SCHEMA),
        zero_threshold: Some(ZERO_THRESHOLD_S),
        zero_count: Some(native.zeros),
        positive_span: native.spans,
        positive_delta: native.deltas,
        created,
    }
}
