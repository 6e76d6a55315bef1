//! OTLP request that exports metrics (github.com/open-telemetry/opentelemetry-proto 1.10,
//! collector/metrics/v1). Sums are cumulative since counting began: the next request includes what a lost
//! request had. A server that translates names and units to Prometheus' gets the same names as from a scrape.

mod message;

use prost::Message as _;

use self::message::{
    Buckets, CUMULATIVE, ExponentialHistogram, ExponentialPoint, Gauge, Metric, NumberPoint, Request,
    ResourceMetrics, ScopeMetrics, Sum,
};
use super::native::{SCHEMA, ZERO_THRESHOLD_S, buckets};
use crate::{
    drain::Header,
    metric::exposed::{Family, Kind, Observed, Point, Series, Snapshot},
    view::otlp::{KeyValue, Resource, Scope},
};

/// Start and end of the exported time, in ns since 1970.
#[derive(Clone, Copy)]
struct Span {
    began_ns: u64,
    now_ns: u64,
}

/// Returns the request that exports a snapshot of the run that `header` describes, at `now_ns` since 1970.
pub fn encode(snapshot: &Snapshot, header: &Header, now_ns: u64) -> Vec<u8> {
    let span = Span { began_ns: header.started_unix_ns, now_ns };
    // What every exporter reports of its process has separate names in OTLP.
    let ours = snapshot.families().filter(|(family, _)| family.name.starts_with("pmbpf_"));
    let metrics = ours.map(|(family, series)| metric(family, &series, span)).collect();
    let host = header.machine.host.terminal().into_owned();
    let attributes = [
        ("service.name", "pmbpf".to_owned()),
        ("service.version", header.version.clone()),
        ("service.instance.id", host.clone()),
        ("host.name", host),
    ];
    let attributes = attributes.map(|(key, value)| KeyValue::text(key, &value)).into();
    let scope = Scope { name: "pmbpf".to_owned(), version: header.version.clone() };
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics }];
    let resource = Some(Resource { attributes });
    Request { resource_metrics: vec![ResourceMetrics { resource, scope_metrics }] }.encode_to_vec()
}

fn metric(family: &Family, series: &[Series<'_>], span: Span) -> Metric {
    let (name, unit) = name_and_unit(family);
    let mut metric = Metric { name, description: family.help.clone(), unit, ..Metric::default() };
    let numbers = || series.iter().filter_map(|series| number(series, family.kind, span)).collect();
    match family.kind {
        Kind::Counter => {
            metric.sum = Some(Sum { points: numbers(), temporality: CUMULATIVE, is_monotonic: true });
        }
        Kind::Gauge | Kind::Info => metric.gauge = Some(Gauge { points: numbers() }),
        Kind::Histogram => {
            let points = series.iter().filter_map(|series| histogram(series, span)).collect();
            metric.exponential = Some(ExponentialHistogram { points, temporality: CUMULATIVE });
        }
    }
    metric
}

/// Returns the name without its unit, and the unit as UCUM writes it.
fn name_and_unit(family: &Family) -> (String, String) {
    let unit = match family.unit {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some("bytes_per_second") => "By/s",
        Some("hertz") => "Hz",
        _ => "1",
    };
    let suffix = family.unit.map(|unit| format!("_{unit}"));
    let name = suffix.and_then(|suffix| family.name.strip_suffix(&suffix)).unwrap_or(&family.name);
    let info = if family.kind == Kind::Info { ".info" } else { "" };
    // A plain number of things has no unit, so that it is not called a ratio.
    let unit = if family.unit.is_none() { "" } else { unit };
    (format!("{}{info}", name.replacen('_', ".", 1)), unit.to_owned())
}

fn attributes(series: &Series<'_>) -> Vec<KeyValue> {
    let target = series.target.map(|target| KeyValue::text("target", target));
    target.into_iter().chain(series.labels.iter().map(|(key, value)| KeyValue::text(key, value))).collect()
}

fn number(series: &Series<'_>, kind: Kind, span: Span) -> Option<NumberPoint> {
    let Point::Number(value) = *series.point else { return None };
    let began_ns = span.began_ns.saturating_add(series.since_ns);
    Some(NumberPoint {
        attributes: attributes(series),
        start_ns: if kind == Kind::Counter { began_ns } else { 0 },
        time_ns: span.now_ns,
        value: Some(value),
    })
}

fn histogram(series: &Series<'_>, span: Span) -> Option<ExponentialPoint> {
    let Point::Histogram(observed) = &*series.point else { return None };
    let (zero_count, positive) = positive(observed);
    Some(ExponentialPoint {
        attributes: attributes(series),
        start_ns: span.began_ns.saturating_add(series.since_ns),
        time_ns: span.now_ns,
        count: observed.buckets.count(),
        sum: Some(observed.sum_ns / 1e9),
        scale: SCHEMA,
        zero_count,
        positive: Some(positive),
        zero_threshold: ZERO_THRESHOLD_S,
    })
}

/// Returns consecutive buckets. OTLP numbers buckets by their lower bounds.
fn positive(observed: &Observed) -> (u64, Buckets) {
    let (zeros, counts) = buckets(observed);
    let (Some((&first, _)), Some((&last, _))) = (counts.first_key_value(), counts.last_key_value()) else {
        return (zeros, Buckets::default());
    };
    let all = (first..=last).map(|index| counts.get(&index).copied().unwrap_or(0));
    (zeros, Buckets { offset: first - 1, counts: all.collect() })
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::{Request, encode};
    use crate::{
        drain::Owner,
        metric::exposed::{
            Bounds, Seen,
            testing::{Did, World},
        },
    };

    #[test]
    fn a_request_has_what_a_scrape_has() {
        let mut world = World::new();
        let mut exposed = world.exposed(Bounds { targets: 5, series: 10_000, linger_ns: 1 });
        let owner = Owner::cgroup(1, "/a\x1b\"".into());
        let did = Did { owner, cpu_ns: 1_500_000_000, waits: (4, 50_000), ends: false };
        exposed.add(&world.interval(&[did]), Seen::default());
        let header = world.header();
        let request = Request::decode(&*encode(&exposed.snapshot(), &header, 77)).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let of = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap();
        let cpu = of("pmbpf.cpu_time");
        assert_eq!(cpu.unit, "s");
        let sum = cpu.sum.as_ref().unwrap();
        assert!(sum.is_monotonic && sum.points.iter().all(|point| point.time_ns == 77));
        let text = |value: &super::KeyValue| value.value.clone().unwrap().text.unwrap();
        let web = sum.points.iter().find(|point| text(&point.attributes[0]) != "_other").unwrap();
        assert_eq!((web.value, text(&web.attributes[0]).as_str()), (Some(1.5), "path:/a\\x1b\""));
        let waits = of("pmbpf.runqueue_latency").exponential.as_ref().unwrap();
        let point = waits.points.iter().find(|point| point.count == 4).unwrap();
        let positive = point.positive.as_ref().unwrap();
        assert_eq!(positive.counts.iter().sum::<u64>(), 4);
        // 50 µs lie between 2^(offset / 8) and 2^((offset + buckets) / 8) s.
        let bound = |index: i32| (f64::from(index) / 8.0).exp2();
        assert!(
            bound(positive.offset) < 50e-6 && 50e-6 <= bound(positive.offset + positive.counts.len() as i32)
        );
        assert_eq!(
            of("pmbpf.target.info").gauge.as_ref().unwrap().points.len(),
            2,
            "its own and of all others"
        );
        assert!(metrics.iter().all(|metric| metric.name.starts_with("pmbpf.")));
    }
}
