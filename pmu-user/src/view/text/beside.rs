//! Table of owners with what they moved and, where both were measured, what their tasks did. Processes of one
//! program are combined.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use super::{
    Style, and_more, named,
    number::{cell, duration, percent, three_digits},
    section,
    table::{Align, Table},
};
use crate::{
    drain::Owner,
    metric::{
        OwnerOrTarget, OwnerReport, TasksReport,
        io::{IoReport, Row, Scope, Subject},
        value::Known,
    },
    table::{
        metric::{self, Metric, OF_OWNERS},
        unit::Unit,
    },
};

/// Returns whether a number belongs to the table.
pub(in crate::view) fn is_of_an_owner(row: &Row) -> bool {
    let Subject::Owner(_, of) = &row.subject else { return false };
    **of == Subject::Scope(Scope::Platform) && OF_OWNERS.iter().any(|metric| metric.name == row.metric)
}

/// Numbers of an owner.
#[derive(Default)]
struct Beside<'a> {
    tasks: Option<&'a OwnerReport>,
    moved: Vec<&'a Row>,
}

impl Beside<'_> {
    fn cpu_time(&self) -> f64 {
        self.tasks.and_then(|tasks| tasks.value(&metric::CPU_TIME)).map_or(0.0, |known| known.estimate)
    }

    fn bytes(&self) -> f64 {
        let rates = self.moved.iter().filter(|row| row.unit == Unit::MegabytesPerSecond);
        rates.filter_map(|row| row.value.known()).map(|known| known.estimate).sum()
    }
}

/// Writes the table, if any owner moved data. Owners are in the requested order. By default, they are sorted
/// by CPU time, then by the amount moved.
pub(in crate::view) fn write(
    into: &mut dyn Write,
    style: &Style,
    tasks: Option<&TasksReport>,
    io: &IoReport,
) -> io::Result<()> {
    let mut owners: BTreeMap<&Owner, Beside<'_>> = BTreeMap::new();
    for row in io.by_program().into_iter().filter(|row| is_of_an_owner(row)) {
        let Subject::Owner(owner, _) = &row.subject else { continue };
        owners.entry(owner).or_default().moved.push(row);
    }
    if owners.is_empty() {
        return Ok(());
    }
    for report in tasks.iter().flat_map(|tasks| tasks.by_program()) {
        if let OwnerOrTarget::Owner(owner) = &report.who {
            owners.entry(owner).or_default().tasks = Some(report);
        }
    }
    let mut owners: Vec<(&Owner, Beside<'_>)> = owners.into_iter().collect();
    let asked_for = |owner: &Owner| {
        let members = io.members.iter().filter(|(_, of)| *of == owner).map(|(process, _)| process);
        let values = members.chain([owner]).filter_map(|owner| io.order.get(owner).copied());
        values.fold(f64::NEG_INFINITY, f64::max)
    };
    owners.sort_by(|(one, first), (other, second)| {
        let by_order = asked_for(other).total_cmp(&asked_for(one));
        let by_time = second.cpu_time().total_cmp(&first.cpu_time());
        by_order.then(by_time).then(second.bytes().total_cmp(&first.bytes()))
    });
    let note = "at the lowest-level disks and interfaces; p99: latency, 99th percentile";
    section(into, if tasks.is_some() { "CPU AND I/O BY OWNER" } else { "I/O BY OWNER" }, note)?;
    let shown = owners.len().min(style.rows_max);
    table(&owners[..shown], tasks).write(into, style)?;
    and_more(into, owners.len() - shown)
}

fn table(owners: &[(&Owner, Beside<'_>)], tasks: Option<&TasksReport>) -> Table {
    use Align::{Left, Right};
    let of_tasks = [("cpu", Right), ("of a CPU", Right), ("wait p99", Right)];
    let of_io =
        ["read MB/s", "p99", "write MB/s", "p99", "recv MB/s", "send MB/s"].map(|title| (title, Right));
    let columns: Vec<_> = [("owner", Left)]
        .into_iter()
        .chain(of_tasks.into_iter().filter(|_| tasks.is_some()))
        .chain(of_io)
        .collect();
    let mut table = Table::new(&columns);
    for (owner, beside) in owners {
        let of_tasks = tasks.map(|tasks| cells_of_tasks(beside, tasks.target_ns));
        let of_io = OF_OWNERS.iter().map(|metric| cell_of_io(beside, metric));
        table.row([named(owner)].into_iter().chain(of_tasks.into_iter().flatten()).chain(of_io).collect());
    }
    table
}

fn cells_of_tasks(beside: &Beside<'_>, target_ns: u64) -> [String; 3] {
    let cpu_time = beside.tasks.and_then(|tasks| tasks.value(&metric::CPU_TIME));
    let wait = beside.tasks.and_then(|tasks| tasks.waits.as_ref().ok()).map(|waits| waits.quantile(0.99));
    let share = |known: &Known| percent(known.estimate / target_ns.max(1) as f64);
    [cell(cpu_time, duration), cpu_time.map_or("–".to_owned(), share), cell(wait.as_ref(), duration)]
}

fn cell_of_io(beside: &Beside<'_>, metric: &Metric) -> String {
    let row = beside.moved.iter().find(|row| row.metric == metric.name);
    match row.and_then(|row| row.distribution.as_deref()) {
        Some(found) => duration(found.quantile(0.99).estimate),
        None => cell(row.and_then(|row| row.value.known()), three_digits),
    }
}
