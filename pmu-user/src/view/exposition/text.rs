//! Text: Prometheus' format 0.0.4 and OpenMetrics 1.0. They differ in the names of families, in units, and in
//! the end of the text.

use std::fmt::Write as _;

use super::{cumulative, sample_name};
use crate::{
    metric::exposed::{BOUNDS_NS, Family, Kind, Observed, Point, Series, Snapshot},
    untrusted::Untrusted,
};

/// Returns a snapshot as Prometheus' text.
pub(super) fn prometheus(snapshot: &Snapshot) -> Vec<u8> {
    let mut text = String::new();
    for (family, series) in snapshot.families() {
        let (name, kind) = (
            sample_name(family),
            match family.kind {
                Kind::Counter => "counter",
                // The format has no other kinds.
                Kind::Gauge | Kind::Info => "gauge",
                Kind::Histogram => "histogram",
            },
        );
        line(&mut text, format_args!("# HELP {name} {}", help(family, false)));
        line(&mut text, format_args!("# TYPE {name} {kind}"));
        series.iter().for_each(|series| samples(&mut text, family, series));
    }
    text.into_bytes()
}

/// Returns a snapshot as OpenMetrics.
///
/// A series that began after counting did reports its start as `_created`. For the others,
/// `process_start_time_seconds` reports it.
pub(super) fn open_metrics(snapshot: &Snapshot, started_unix_ns: u64) -> Vec<u8> {
    let mut text = String::new();
    for (family, series) in snapshot.families() {
        let (name, kind) = (
            &family.name,
            match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
                Kind::Info => "info",
            },
        );
        line(&mut text, format_args!("# TYPE {name} {kind}"));
        if let Some(unit) = family.unit {
            line(&mut text, format_args!("# UNIT {name} {unit}"));
        }
        line(&mut text, format_args!("# HELP {name} {}", help(family, true)));
        for series in &series {
            samples(&mut text, family, series);
            if series.since_ns > 0 && matches!(family.kind, Kind::Counter | Kind::Histogram) {
                let created_ns = started_unix_ns.saturating_add(series.since_ns);
                let created_s = (created_ns / 1_000_000) as f64 / 1e3;
                sample(&mut text, &format!("{name}_created"), series, None, created_s);
            }
        }
    }
    text.push_str("# EOF\n");
    text.into_bytes()
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(line);
    text.push('\n');
}

fn help(family: &Family, quotes: bool) -> String {
    let escaped = family.help.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { escaped.replace('"', "\\\"") } else { escaped }
}

fn samples(text: &mut String, family: &Family, series: &Series<'_>) {
    match &*series.point {
        Point::Number(value) => sample(text, &sample_name(family), series, None, *value),
        Point::Histogram(observed) => histogram(text, &family.name, series, observed),
    }
}

fn histogram(text: &mut String, name: &str, series: &Series<'_>, observed: &Observed) {
    let bucket = format!("{name}_bucket");
    for (bound, count) in BOUNDS_NS.iter().zip(cumulative(observed)) {
        sample(text, &bucket, series, Some(*bound as f64 / 1e9), count as f64);
    }
    let count = observed.buckets.count() as f64;
    sample(text, &bucket, series, Some(f64::INFINITY), count);
    sample(text, &format!("{name}_sum"), series, None, observed.sum_ns / 1e9);
    sample(text, &format!("{name}_count"), series, None, count);
}

fn sample(text: &mut String, name: &str, series: &Series<'_>, bound: Option<f64>, value: f64) {
    text.push_str(name);
    let mut before = '{';
    let mut label = |text: &mut String, label: &str, value: &str| {
        text.push(before);
        before = ',';
        text.push_str(label);
        text.push_str("=\"");
        escape(text, value);
        text.push('"');
    };
    if let Some(target) = series.target {
        label(text, "target", target);
    }
    for (name, value) in series.labels {
        label(text, name, value);
    }
    if let Some(bound) = bound {
        label(text, "le", &number(bound));
    }
    if before == ',' {
        text.push('}');
    }
    text.push(' ');
    text.push_str(&number(value));
    text.push('\n');
}

/// Appends the escaped value of a label, which others may have chosen.
fn escape(text: &mut String, value: &str) {
    for character in Untrusted::from(value).terminal().chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            _ => text.push(character),
        }
    }
}

fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() }
}
