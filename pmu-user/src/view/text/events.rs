//! Counts that samples stand for, by event, and their ratios.

use std::io::{self, Write};

use super::{
    COLUMNS, Style, hot,
    number::{aligned, cell, count, percent, spread},
    section,
    table::{Align, Table},
};
use crate::{
    drain::TasksHeader,
    metric::{EventReport, Quality, TasksReport, value::Value},
    plan::Sampling,
};

/// Writes the events of the whole target, or nothing if only a clock samples.
pub(super) fn write(
    into: &mut dyn Write,
    style: &Style,
    header: &TasksHeader,
    report: &TasksReport,
) -> io::Result<()> {
    let events = &report.total.events;
    if events.is_empty() {
        return Ok(());
    }
    section(
        into,
        "EVENTS",
        "samples times period times weight, 95 % interval; on: share of the time with a counter",
    )?;
    use Align::{Left, Right};
    let dash = || ("–".to_owned(), String::new());
    let counts: Vec<_> = events
        .iter()
        .map(|event| event.count.known().map_or_else(dash, |known| spread(known, count)))
        .collect();
    let (title, counts) = aligned("count", &counts);
    let columns = [
        ("event", Left),
        ("every", Right),
        ("samples", Right),
        ("of expected", Right),
        ("on", Right),
        (title.as_str(), Right),
        ("user", Right),
        ("kernel", Right),
    ];
    let mut table = Table::new(&columns).spare(["every", "on", "of expected"]);
    let rows = events.iter().zip(&header.plan.sampling).zip(counts).enumerate();
    rows.for_each(|(index, ((event, sampling), count))| {
        table.row(row((event, count), sampling, &report.quality, index));
    });
    table.write(into, style)?;
    for event in events {
        if let Value::Missing(why) = &event.count {
            writeln!(into, "  {COLUMNS}{}: {why}{COLUMNS:#}", event.name)?;
        }
    }
    for ratio in &report.total.ratios {
        match &ratio.value {
            Value::Known(_) => writeln!(into, "  {:<40} {}", ratio.name, hot::ratio(ratio))?,
            Value::Missing(why) => writeln!(into, "  {:<40} not known: {why}", ratio.name)?,
        }
    }
    Ok(())
}

fn row(
    (event, counted): (&EventReport, String),
    sampling: &Sampling,
    quality: &Quality,
    index: usize,
) -> Vec<String> {
    // Counts of the row's samples, which are the target's.
    let (seen, expected) = match &quality.target {
        Some(target) => (target.samples[index].seen, target.samples[index].expected),
        None => (quality.samples[index].seen, quality.samples[index].expected),
    };
    let share = |expected: u64| percent(seen as f64 / expected as f64);
    vec![
        event.name.clone(),
        sampling.period.to_string(),
        event.samples.to_string(),
        expected.filter(|&expected| expected > 0).map_or("–".to_owned(), share),
        percent(quality.samples[index].running),
        counted,
        cell(event.user.known(), count),
        cell(event.kernel.known(), count),
    ]
}
