//! Counts as CSV: one row per interval, cgroup, event and PMU; then the times of the whole.

use std::io::{self, Write};

use super::{super::words, Rows, value_cells};
use crate::{
    metric::{
        stat::{Row, Stat},
        value::Value,
    },
    untrusted::Untrusted,
};

const COLUMNS: [&str; 20] = [
    "t_ns",
    "dt_ns",
    "cgroup",
    "event",
    "pmu",
    "unit",
    "value",
    "low",
    "high",
    "coverage",
    "how",
    "status",
    "reason",
    "enabled_ns",
    "running_ns",
    "runs",
    "metric",
    "metric_value",
    "metric_unit",
    "uncounted",
];

/// Header row.
pub(in crate::view) fn begin(into: &mut dyn Write) -> io::Result<()> {
    let mut rows = Rows::from_writer(into);
    rows.write_record(COLUMNS)?;
    rows.flush()
}

/// All rows of an interval or of the whole.
pub(in crate::view) fn rows(into: &mut dyn Write, stat: &Stat) -> io::Result<()> {
    let mut rows = Rows::from_writer(into);
    stat.rows.iter().try_for_each(|one| row(&mut rows, stat, one))?;
    let times =
        [("elapsed", Some(&stat.elapsed)), ("user", stat.user.as_ref()), ("system", stat.system.as_ref())];
    for (name, value) in times {
        value.map_or(Ok(()), |value| time(&mut rows, stat, name, value))?;
    }
    rows.flush()
}

fn place(stat: &Stat) -> [String; 2] {
    let length = stat.elapsed.known().map_or(0.0, |known| known.estimate);
    [stat.from.as_nanos().to_string(), length.to_string()]
}

fn row(rows: &mut Rows<'_>, stat: &Stat, row: &Row) -> io::Result<()> {
    let text = |text: &str| Untrusted::from(text).csv().into_owned();
    let mut record = Vec::from(place(stat));
    record.push(row.cgroup.as_ref().map_or_else(String::new, |cgroup| cgroup.csv().into_owned()));
    record.extend([text(&row.event), text(&row.pmu), text(row.unit.as_deref().unwrap_or_default())]);
    record.extend(value_cells(&row.value, words::row_status(row)));
    record.extend([row.enabled_ns, row.running_ns, u64::from(stat.runs)].map(|number| number.to_string()));
    let derived = row.derived.as_ref().and_then(|derived| Some((derived, derived.value.known()?)));
    record.extend(derived.map_or_else(Default::default, |(derived, known)| {
        [derived.name.to_owned(), known.estimate.to_string(), text(&derived.unit)]
    }));
    record.push(text(&row.uncounted.join("; ")));
    rows.write_record(record)?;
    Ok(())
}

fn time(rows: &mut Rows<'_>, stat: &Stat, name: &str, value: &Value) -> io::Result<()> {
    let mut record = Vec::from(place(stat));
    record.extend(["", name, "", "ns"].map(str::to_owned));
    record.extend(value_cells(value, words::status(value)));
    record.extend(["", "", &stat.runs.to_string(), "", "", "", ""].map(str::to_owned));
    rows.write_record(record)?;
    Ok(())
}
