//! Time off the CPU: the time that an owner's tasks waited, and what they waited for.

use std::io::{self, Write};

use super::{
    Style, and_more, id_column, name,
    number::{cell, duration},
    section,
    table::{Align, Table},
};
use crate::{
    metric::{OwnerReport, TasksReport},
    table::metric::{self, Metric},
};

/// Columns with their metrics.
const KINDS: [(&str, Metric); 7] = [
    ("off cpu", metric::OFF_CPU_TIME),
    ("run queue", metric::OFF_CPU_RUN_QUEUE),
    ("throttled", metric::OFF_CPU_THROTTLED),
    ("i/o", metric::OFF_CPU_IO),
    ("lock", metric::OFF_CPU_LOCK),
    ("uninterr.", metric::OFF_CPU_UNINTERRUPTIBLE),
    ("sleep", metric::OFF_CPU_SLEEP),
];

/// Writes the section, if it was requested.
pub(super) fn write(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    use Align::{Left, Right};
    if report.total.value(&metric::OFF_CPU_TIME).is_none() {
        return Ok(());
    }
    section(into, "OFF CPU", "what tasks waited for, all tasks of an owner together; by time without sleep")?;
    let mut owners: Vec<&OwnerReport> = report.rows().filter(|owner| time(owner) > 0.0).collect();
    owners.sort_by(|a, b| awake(b).total_cmp(&awake(a)).then(time(b).total_cmp(&time(a))));
    let mut columns = vec![("owner", Left), (id_column(owners.iter().map(|owner| &owner.who)), Right)];
    columns.extend(KINDS.map(|(title, _)| (title, Right)));
    let mut table = Table::new(&columns).spare(["uninterr.", "throttled", "off cpu"]);
    let shown = owners.len().min(style.rows_max);
    for owner in owners[..shown].iter().copied().chain([&report.total]) {
        let (name, id) = name(&owner.who);
        let times = KINDS.iter().map(|(_, metric)| cell(owner.value(metric), duration));
        table.row([name, id].into_iter().chain(times).collect());
    }
    table.write(into, style)?;
    and_more(into, owners.len() - shown)
}

fn time(owner: &OwnerReport) -> f64 {
    owner.value(&metric::OFF_CPU_TIME).map_or(0.0, |known| known.estimate)
}

/// Returns the time off the CPU without sleep. Most tasks of a host sleep most of the time.
fn awake(owner: &OwnerReport) -> f64 {
    time(owner) - owner.value(&metric::OFF_CPU_SLEEP).map_or(0.0, |known| known.estimate)
}
