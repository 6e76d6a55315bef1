//! Rows of an interval: metrics, histograms, gaps.

use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

use super::{
    super::words,
    Number, SCHEMA,
    end::{known, ratios},
    line, owner,
    topdown::topdown,
};
use crate::{
    drain::Id,
    metric::{
        GapReport, OwnerReport, Report, Who,
        value::{Distribution, How, Known, Value},
    },
    model::histogram::Histogram,
    table::metric::{self, Metric},
};

/// What a metric's row and a histogram's begin with.
#[derive(Serialize)]
struct Head<'a> {
    schema: &'static str,
    kind: &'static str,
    t: u64,
    dt: u64,
    owner: &'a RawValue,
    metric: &'static str,
    unit: &'static str,
}

fn head<'a>(kind: &'static str, report: &Report, owner: &'a RawValue, metric: &Metric) -> Head<'a> {
    Head {
        schema: SCHEMA,
        kind,
        t: report.from_ns,
        dt: report.length_ns,
        owner,
        metric: metric.name,
        unit: metric.unit.name(),
    }
}

#[derive(Serialize)]
struct MetricRow<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    value: Option<Number>,
    low: Option<Number>,
    high: Option<Number>,
    coverage: Option<f64>,
    how: Option<&'static str>,
    status: &'static str,
    reason: Option<&'a str>,
}

/// Metric, histogram and gap rows of an interval.
pub(in crate::view) fn interval(into: &mut dyn Write, report: &Report) -> io::Result<()> {
    for row in std::iter::once(&report.total).chain(&report.owners) {
        metrics(into, report, row)?;
    }
    topdown(into, report)?;
    report.blind.gaps.iter().chain(&report.blind.others_gaps).try_for_each(|gap| gap_row(into, gap))
}

fn metrics(into: &mut dyn Write, report: &Report, row: &OwnerReport) -> io::Result<()> {
    // The same in a dozen rows.
    let owner = to_raw_value(&owner(&row.who))?;
    for (metric, value) in &row.metrics {
        let known = value.known();
        let cell = |pick: fn(&Known) -> f64| known.map(|known| Number(pick(known)));
        line(
            into,
            &MetricRow {
                head: head("metric", report, &owner, metric),
                value: cell(|known| known.estimate),
                low: cell(|known| known.low),
                high: cell(|known| known.high),
                coverage: known.map(|known| known.coverage),
                how: known.map(|known| known.how.name()),
                status: words::status(value),
                reason: reason(value),
            },
        )?;
    }
    histogram(into, report, row, &owner)?;
    events(into, report, row, &owner)
}

/// What samples say about an owner: a row for each event, and one for the ratios.
fn events(into: &mut dyn Write, report: &Report, row: &OwnerReport, owner: &RawValue) -> io::Result<()> {
    for event in &row.events {
        line(
            into,
            &json!({
                "schema": SCHEMA, "kind": "event", "t": report.from_ns, "dt": report.length_ns, "owner": owner,
                "event": event.name, "samples": event.samples, "count": known(&event.count),
                "user": known(&event.user), "kernel": known(&event.kernel),
            }),
        )?;
    }
    if row.ratios.is_empty() {
        return Ok(());
    }
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "ratios", "t": report.from_ns, "dt": report.length_ns, "owner": owner,
            "ratios": ratios(&row.ratios),
        }),
    )
}

fn reason(value: &Value) -> Option<&str> {
    match value {
        Value::Known(_) => None,
        Value::Missing(why) => Some(why),
    }
}

/// A histogram as a row.
#[derive(Serialize)]
struct HistogramRow<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    count: Option<u64>,
    sum: Option<u64>,
    quantiles: Quantiles<'a>,
    buckets: Option<Buckets<'a>>,
    coverage: Option<f64>,
    how: Option<&'static str>,
    status: &'static str,
    reason: Option<&'a str>,
}

/// Percentiles by name, and the maximum.
struct Quantiles<'a>(Option<&'a Distribution>);

impl Serialize for Quantiles<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let quantiles = self.0.into_iter().flat_map(Distribution::quantiles);
        serializer.collect_map(quantiles.map(|(name, known)| (name, Bounds::from(&known))))
    }
}

#[derive(Serialize)]
struct Bounds {
    value: Number,
    low: Number,
    high: Number,
}

impl From<&Known> for Bounds {
    fn from(known: &Known) -> Self {
        Self { value: Number(known.estimate), low: Number(known.low), high: Number(known.high) }
    }
}

/// Bounds in ns and count of each bucket; the last has no upper bound.
struct Buckets<'a>(&'a Histogram);

impl Serialize for Buckets<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let upper = |high: u64| (high != u64::MAX).then_some(high);
        serializer.collect_seq(self.0.iter().map(|(bucket, count)| (bucket.low, upper(bucket.high), count)))
    }
}

fn histogram(into: &mut dyn Write, report: &Report, row: &OwnerReport, owner: &RawValue) -> io::Result<()> {
    let waits = row.waits.as_ref().ok();
    line(
        into,
        &HistogramRow {
            head: head("histogram", report, owner, &metric::RUNQUEUE_LATENCY),
            count: waits.map(Distribution::count),
            sum: waits.map(|waits| waits.sum),
            quantiles: Quantiles(waits),
            buckets: waits.map(|waits| Buckets(&waits.histogram)),
            coverage: waits.map(|waits| waits.coverage),
            how: waits.map(|_| How::Counted.name()),
            status: if waits.is_some() { "ok" } else { "missing" },
            reason: row.waits.as_ref().err().map(String::as_str),
        },
    )
}

fn gap_row(into: &mut dyn Write, gap: &GapReport) -> io::Result<()> {
    let row = &gap.gap.row;
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "gap", "t": row.at_ns, "cpu": row.cpu.0, "late_ns": row.late_ns,
            "stolen_ns": row.stolen_ns, "class": gap.class.name(), "timers": gap.gap.timers,
            "tid": Id::of(row.tid).here(), "pid": Id::of(row.tgid).here(), "comm": row.comm,
            "owner": gap.owner.as_ref().map(|who| json!(owner(&Who::Owner(who.clone())))),
            "stack": gap.stack,
        }),
    )
}
