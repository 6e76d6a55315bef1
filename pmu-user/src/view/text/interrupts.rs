//! Interrupt handlers: the time that each had the CPUs, and the owners that lost this time.

use std::io::{self, Write};

use super::{
    Style, and_more, id_column, name,
    number::{cell, duration, percent},
    section,
    table::{Align, Table},
};
use crate::{
    metric::{
        OwnerReport, TasksReport,
        interrupt::{HandlerSum, by_handler},
    },
    table::metric,
};

/// Writes the section, if it was requested.
pub(super) fn write(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    let Some(by) = &report.interrupted_by else { return Ok(()) };
    section(into, "INTERRUPTS", "by handler, all CPUs together; time without handlers that interrupted it")?;
    handlers(into, style, report)?;
    let times = [("the idle task", by.idle_ns), ("tasks outside the target", by.others_ns)];
    let times = times.into_iter().filter(|(_, ns)| *ns > 0);
    let mut words: Vec<String> = times
        .map(|(whom, ns)| {
            format!("{} of {} interrupted {whom}", duration(ns as f64), duration(by.time_ns as f64))
        })
        .collect();
    if by.missed > 0 {
        words.push(format!("{} runs were lost", by.missed));
    }
    for line in words {
        writeln!(into, "  {line}")?;
    }
    owners(into, style, report)
}

fn handlers(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    use Align::{Left, Right};
    let all = by_handler(&report.handlers);
    let columns = [
        ("handler", Left),
        ("kind", Left),
        ("runs", Right),
        ("a second", Right),
        ("time", Right),
        ("of a CPU", Right),
        ("mean", Right),
        ("longest", Right),
        ("most on", Right),
    ];
    let mut table = Table::new(&columns).spare(["kind", "most on", "a second"]);
    let (shown, seconds) = (all.len().min(style.rows_max), report.length_ns as f64 / 1e9);
    for HandlerSum { handler, called, runs, most_on } in &all[..shown] {
        let (count, total_ns) = (runs.runs as f64, runs.total_ns as f64);
        table.row(vec![
            called.clone(),
            handler.kind().to_owned(),
            runs.runs.to_string(),
            if seconds > 0.0 { format!("{:.0}", count / seconds) } else { String::new() },
            duration(total_ns),
            if seconds > 0.0 { percent(total_ns / 1e9 / seconds) } else { String::new() },
            duration(total_ns / count.max(1.0)),
            duration(runs.longest_ns as f64),
            format!("CPU {}", most_on.0),
        ]);
    }
    table.write(into, style)?;
    and_more(into, all.len() - shown)
}

/// Writes the owners with interrupted tasks, those that lost most first.
fn owners(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    use Align::{Left, Right};
    let lost =
        |owner: &OwnerReport| owner.value(&metric::INTERRUPTS_TIME).map_or(0.0, |known| known.estimate);
    let mut owners: Vec<&OwnerReport> = report.rows().filter(|owner| lost(owner) > 0.0).collect();
    owners.sort_by(|a, b| lost(b).total_cmp(&lost(a)));
    let id = id_column(owners.iter().map(|owner| &owner.who));
    let columns = [
        ("interrupted", Left),
        (id, Right),
        ("cpu", Right),
        ("without", Right),
        ("hard", Right),
        ("softirqs", Right),
        ("of its cpu", Right),
    ];
    let mut table = Table::new(&columns);
    let shown = owners.len().min(style.rows_max);
    for owner in owners[..shown].iter().copied().chain([&report.total]) {
        let (name, id) = name(&owner.who);
        let cpu_ns = owner.value(&metric::CPU_TIME).map_or(0.0, |known| known.estimate);
        let of = |metric| cell(owner.value(metric), duration);
        table.row(vec![
            name,
            id,
            of(&metric::CPU_TIME),
            of(&metric::INTERRUPTS_WITHOUT),
            of(&metric::INTERRUPTS_HARD),
            of(&metric::INTERRUPTS_SOFT),
            if cpu_ns > 0.0 { percent(lost(owner) / cpu_ns) } else { String::new() },
        ]);
    }
    table.write(into, style)?;
    and_more(into, owners.len() - shown)
}
