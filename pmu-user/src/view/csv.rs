//! CSV (RFC 4180): one header row, one row per interval, owner and metric. Run-queue latency is one row a percentile.

pub(super) mod list;
pub(super) mod stat;

use std::io::{self, Write};

use super::words;
use crate::{
    drain::{Id, Owner},
    metric::{OwnerReport, Report, Who, topdown::Spread, value::Value},
    table::metric,
    untrusted::Untrusted,
};

const COLUMNS: [&str; 14] = [
    "t_ns",
    "dt_ns",
    "owner_kind",
    "owner",
    "pid",
    "metric",
    "unit",
    "value",
    "low",
    "high",
    "coverage",
    "how",
    "status",
    "reason",
];

type Rows<'a> = csv::Writer<&'a mut dyn Write>;

/// Header row.
pub(super) fn begin(into: &mut dyn Write) -> io::Result<()> {
    let mut rows = Rows::from_writer(into);
    rows.write_record(COLUMNS)?;
    rows.flush()
}

/// All rows of an interval.
pub(super) fn interval(into: &mut dyn Write, report: &Report) -> io::Result<()> {
    let mut rows = Rows::from_writer(into);
    std::iter::once(&report.total)
        .chain(&report.owners)
        .try_for_each(|owner| metrics(&mut rows, report, owner))?;
    for (who, tree) in report.topdown.iter().flat_map(|topdown| &topdown.owners) {
        for shape in report.topdown.iter().flat_map(|topdown| topdown.shapes.iter()) {
            let value = &tree.nodes[shape.index as usize].value;
            row(&mut rows, report, who, &shape.name, words::unit_of_core(shape.unit), value)?;
        }
    }
    for spread in report.topdown.iter().flat_map(|topdown| &topdown.runs).flat_map(|runs| &runs.spreads) {
        several(&mut rows, report, spread)?;
    }
    rows.flush()
}

/// How much runs of a command differ: the least and the most of something that all of them counted.
fn several(rows: &mut Rows<'_>, report: &Report, spread: &Spread) -> io::Result<()> {
    let (least, most) = match &spread.range {
        Ok((least, most)) => (Value::exact(*least), Value::exact(*most)),
        Err(why) => (Value::Missing(why.clone()), Value::Missing(why.clone())),
    };
    for (end, value) in [("least", least), ("most", most)] {
        let name = format!("runs.{}.{end}", spread.what);
        row(rows, report, &Who::Target, &name, spread.unit.name(), &value)?;
    }
    Ok(())
}

fn metrics(rows: &mut Rows<'_>, report: &Report, owner: &OwnerReport) -> io::Result<()> {
    for (metric, value) in &owner.metrics {
        row(rows, report, &owner.who, metric.name, metric.unit.name(), value)?;
    }
    for event in &owner.events {
        row(rows, report, &owner.who, &format!("event.{}", event.name), "counts", &event.count)?;
    }
    for ratio in &owner.ratios {
        row(rows, report, &owner.who, &format!("ratio.{}", ratio.name), "ratio", &ratio.value)?;
    }
    let latency = metric::RUNQUEUE_LATENCY;
    let name = |part: &str| format!("{}.{part}", latency.name);
    match &owner.waits {
        Err(why) => {
            row(rows, report, &owner.who, latency.name, latency.unit.name(), &Value::Missing(why.clone()))
        }
        Ok(waits) => {
            let count = Value::counted(waits.count(), waits.coverage);
            row(rows, report, &owner.who, &name("count"), "runs", &count)?;
            for (part, known) in waits.quantiles() {
                row(rows, report, &owner.who, &name(part), latency.unit.name(), &Value::Known(known))?;
            }
            Ok(())
        }
    }
}

fn row(
    rows: &mut Rows<'_>,
    report: &Report,
    who: &Who,
    metric: &str,
    unit: &str,
    value: &Value,
) -> io::Result<()> {
    let (name, pid) = match who {
        Who::Target => ("total".to_owned(), String::new()),
        Who::Owner(Owner::Other) => ("other".to_owned(), String::new()),
        Who::Owner(Owner::Process { pid: id, name, .. } | Owner::Thread { tid: id, name, .. }) => {
            match Id::of(*id) {
                Id::Here(pid) => (name.csv().into_owned(), pid.to_string()),
                // The column holds ids of one namespace.
                outside @ Id::Outside(_) => (format!("{} ({outside})", name.csv()), String::new()),
            }
        }
        Who::Owner(Owner::Ended { name, .. } | Owner::Comm { name } | Owner::Exe { name }) => {
            (name.csv().into_owned(), String::new())
        }
        Who::Owner(Owner::Cgroup { path, .. }) => (path.csv().into_owned(), String::new()),
    };
    let (t, dt) = (report.from_ns.to_string(), report.length_ns.to_string());
    let mut record = vec![t, dt, words::kind(who).to_owned(), name, pid, metric.to_owned(), unit.to_owned()];
    record.extend(value_cells(value, words::status(value)));
    rows.write_record(record)?;
    Ok(())
}

/// Cells of a number: value, low, high, coverage, how, status, reason. Reasons may hold names that others chose.
pub(super) fn value_cells(value: &Value, status: &str) -> Vec<String> {
    match value {
        Value::Known(known) => {
            let numbers =
                [known.estimate, known.low, known.high, known.coverage].map(|number| number.to_string());
            let words = [known.how.name().to_owned(), status.to_owned(), String::new()];
            numbers.into_iter().chain(words).collect()
        }
        Value::Missing(why) => {
            let reason = Untrusted::from(why.as_str()).csv().into_owned();
            std::iter::repeat_n(String::new(), 5).chain([status.to_owned(), reason]).collect()
        }
    }
}
