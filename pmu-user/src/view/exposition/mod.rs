//! Series in the formats that metrics servers scrape (prometheus.io/docs/instrumenting/exposition_formats,
//! and OpenMetrics 1.0): text, and Protocol Buffers, the only one with native histograms.

mod accept;
mod message;
mod native;
pub mod otlp;
mod protobuf;
#[cfg(test)]
mod tests;
mod text;

use crate::{
    metric::exposed::{BOUNDS_NS, Family, Kind, Observed, Snapshot},
    named::named,
};

named! {
    /// A format of expositions.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Exposition {
        Protobuf = "protobuf", "Protocol Buffers, each message after its length: `io.prometheus.client.MetricFamily`.";
        OpenMetrics = "openmetrics", "OpenMetrics 1.0.";
        Text = "text", "Prometheus' text, version 0.0.4.";
    }
}

impl Exposition {
    /// Returns the format that an `Accept` header of HTTP requests. Returns text without a header or without
    /// a match.
    pub fn accepted(accept: Option<&str>) -> Self {
        accept.and_then(accept::best).unwrap_or(Self::Text)
    }

    /// Returns the `Content-Type` of the format.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Encodes a snapshot of a run in which counting began at `started_unix_ns`, in ns since 1970.
    pub fn encode(self, snapshot: &Snapshot, started_unix_ns: u64) -> Vec<u8> {
        match self {
            Self::Protobuf => protobuf::encode(snapshot, started_unix_ns),
            Self::OpenMetrics => text::open_metrics(snapshot, started_unix_ns),
            Self::Text => text::prometheus(snapshot),
        }
    }
}

/// Returns the name of a family's samples, except for histograms.
fn sample_name(family: &Family) -> String {
    let suffix = match family.kind {
        Kind::Counter => "_total",
        Kind::Info => "_info",
        Kind::Gauge | Kind::Histogram => "",
    };
    format!("{}{suffix}", family.name)
}

/// Returns, for each of [`BOUNDS_NS`], the number of values up to it.
fn cumulative(observed: &Observed) -> [u64; BOUNDS_NS.len()] {
    let mut counts = [0; BOUNDS_NS.len()];
    for (bucket, count) in observed.buckets.iter() {
        // The bounds are edges of buckets.
        let first = BOUNDS_NS.partition_point(|&bound| bound <= bucket.low);
        counts.iter_mut().skip(first).for_each(|sum: &mut u64| *sum = sum.saturating_add(count));
    }
    counts
}
