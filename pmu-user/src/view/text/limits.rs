//! Accounting of the kernel: cgroups with a limit of CPU time, memory or I/O, and pressure.

use std::io::{self, Write};

use super::{
    Style, and_more, named,
    number::{bytes, cell, count, duration, percent, three_digits},
    section,
    table::{Align, Table},
};
use crate::{
    machine::throttling::CpuLimit,
    metric::{Limited, Pressure, TasksReport, value::Known},
    table::{
        metric::{self, Metric},
        unit::Unit,
    },
    view::io::text::subject_name,
};

/// Share in per cent below which pressure is not shown, because it would be 0.0 %.
const PRESSURE_LEAST: f64 = 0.05;
/// Kinds of pressure with a column.
const PRESSURES: [(&str, Metric); 6] = [
    ("cpu", metric::PRESSURE_CPU_SOME),
    ("memory", metric::PRESSURE_MEMORY_SOME),
    ("memory: all", metric::PRESSURE_MEMORY_FULL),
    ("I/O", metric::PRESSURE_IO_SOME),
    ("I/O: all", metric::PRESSURE_IO_FULL),
    ("irq: all", metric::PRESSURE_IRQ_FULL),
];

/// Writes the sections that have content.
pub(super) fn write(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    limits(into, style, report)?;
    memory(into, style, report)?;
    block(into, style, report)?;
    pressure(into, style, report)
}

fn limits(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    use Align::{Left, Right};
    let lost = |time: Option<&Known>| time.is_some_and(|time| time.estimate > 0.0);
    let held: Vec<_> = report.throttled.iter().filter(|limit| lost(limit.time.known())).collect();
    if held.is_empty() {
        return Ok(());
    }
    section(into, "CPU LIMITS", "cpu.max (cpu.cfs_quota_us), by cpu.stat: periods in which it was used up")?;
    let columns = [
        ("cgroup", Left),
        ("limit", Right),
        ("every", Right),
        ("periods", Right),
        ("throttled", Right),
        ("stood still", Right),
    ];
    let mut table = Table::new(&columns);
    let shown = held.len().min(style.rows_max);
    for limit in &held[..shown] {
        let share = cell(limit.share.known(), |share| percent(share / 100.0));
        let time = cell(limit.time.known(), duration);
        let of = |part: fn(&CpuLimit) -> u64| {
            limit.limit.as_ref().map_or_else(|| "-".to_owned(), |limit| duration(part(limit) as f64))
        };
        let (quota, every) = (of(|limit| limit.quota_ns), of(|limit| limit.period_ns));
        table.row(vec![named(&limit.owner), quota, every, limit.periods.to_string(), share, time]);
    }
    table.write(into, style)?;
    and_more(into, held.len() - shown)
}

/// Writes the cgroups with a limit of memory, or with a limit that made something fail.
fn memory(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    use Align::{Left, Right};
    let any = [
        metric::MEMORY_HIGH,
        metric::MEMORY_MAX,
        metric::MEMORY_OOM_KILLS,
        metric::MEMORY_MAX_EVENTS,
        metric::PIDS_MAX_EVENTS,
    ];
    let is_any = |limited: &&Limited| {
        any.iter().any(|metric| limited.value(metric).is_some_and(|known| known.estimate > 0.0))
    };
    let all: Vec<_> = report.limits.iter().filter(is_any).collect();
    if all.is_empty() {
        return Ok(());
    }
    section(
        into,
        "LIMITS",
        "of cgroups, as their files say: memory at the end, and how often a limit was reached",
    )?;
    let columns = [
        ("cgroup", Left),
        ("memory", Right),
        ("high", Right),
        ("max", Right),
        ("above high", Right),
        ("OOM kills", Right),
        ("tasks", Right),
        ("of", Right),
        ("forks failed", Right),
    ];
    let mut table = Table::new(&columns);
    let shown = all.len().min(style.rows_max);
    for limited in &all[..shown] {
        let of = |metric, show: fn(f64) -> String| cell(limited.value(metric), show);
        table.row(vec![
            named(&limited.owner),
            of(&metric::MEMORY_CURRENT, |value| bytes(value as u64)),
            of(&metric::MEMORY_HIGH, |value| bytes(value as u64)),
            of(&metric::MEMORY_MAX, |value| bytes(value as u64)),
            of(&metric::MEMORY_HIGH_EVENTS, count),
            of(&metric::MEMORY_OOM_KILLS, count),
            of(&metric::PIDS_CURRENT, count),
            of(&metric::PIDS_MAX, count),
            of(&metric::PIDS_MAX_EVENTS, count),
        ]);
    }
    table.write(into, style)?;
    and_more(into, all.len() - shown)
}

/// Writes the cgroups with a limit of their I/O.
fn block(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    use Align::{Left, Right};
    let all: Vec<_> =
        report.limits.iter().flat_map(|of| of.io.iter().map(move |limit| (&of.owner, limit))).collect();
    if all.is_empty() {
        return Ok(());
    }
    section(into, "I/O LIMITS", "of cgroups, as their files say: io.max, blkio.throttle.*")?;
    let mut table = Table::new(&[("cgroup", Left), ("disk", Left), ("limit", Left), ("most", Right)]);
    let shown = all.len().min(style.rows_max);
    for (owner, limit) in &all[..shown] {
        let show: fn(f64) -> String = match limit.metric.unit {
            Unit::MegabytesPerSecond => |most| format!("{} MB/s", three_digits(most)),
            _ => |most| format!("{}/s", count(most)),
        };
        let most = cell(limit.value.known(), show);
        table.row(vec![named(owner), subject_name(&limit.subject), limit.limit.in_words(), most]);
    }
    table.write(into, style)?;
    and_more(into, all.len() - shown)
}

fn pressure(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    use Align::{Left, Right};
    let is_known = |pressure: &&Pressure| {
        let mut shares = PRESSURES.iter().filter_map(|(_, metric)| pressure.share(metric));
        shares.any(|share| share.estimate >= PRESSURE_LEAST)
    };
    let all: Vec<_> = report.pressure.iter().filter(is_known).collect();
    if all.is_empty() {
        return Ok(());
    }
    let note =
        "PSI, as the kernel accounts it: share of the time in which some or all tasks were stalled on it";
    section(into, "PRESSURE", note)?;
    let titles = PRESSURES.iter().map(|(title, _)| (*title, Right));
    let mut table = Table::new(&[("of", Left)].into_iter().chain(titles).collect::<Vec<_>>());
    let shown = all.len().min(style.rows_max);
    for pressure in &all[..shown] {
        let whose = pressure.whose.as_ref().map_or_else(|| "host".to_owned(), named);
        let cells =
            PRESSURES.iter().map(|(_, metric)| cell(pressure.share(metric), |share| percent(share / 100.0)));
        table.row([whose].into_iter().chain(cells).collect());
    }
    table.write(into, style)?;
    and_more(into, all.len() - shown)
}
