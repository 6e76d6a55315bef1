//! What samples stand for, by event, and ratios of it.

use std::io::{self, Write};

use super::{
    COLUMNS, hot,
    number::{count, percent},
    section,
    table::{Align, Table},
};
use crate::{
    drain::TasksHeader,
    metric::{EventReport, Quality, TasksReport, value::Value},
    plan::Sampling,
};

/// Events of the whole target; nothing where only a clock samples.
pub(super) fn write(into: &mut dyn Write, header: &TasksHeader, report: &TasksReport) -> io::Result<()> {
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
    let mut table = Table::new(&[
        ("event", Left),
        ("every", Right),
        ("samples", Right),
        ("of expected", Right),
        ("on", Right),
        ("count", Right),
        ("from", Right),
        ("to", Right),
        ("user", Right),
        ("kernel", Right),
    ]);
    let rows = events.iter().zip(&header.plan.sampling).enumerate();
    rows.for_each(|(index, (event, sampling))| table.row(row(event, sampling, &report.quality, index)));
    table.write(into, COLUMNS)?;
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

fn row(event: &EventReport, sampling: &Sampling, quality: &Quality, index: usize) -> Vec<String> {
    let known = |value: &Value, pick: fn(&crate::metric::value::Known) -> f64| {
        value.known().map_or("–".to_owned(), |known| count(pick(known)))
    };
    // Those of the row's samples, which are the target's.
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
        known(&event.count, |known| known.estimate),
        known(&event.count, |known| known.low),
        known(&event.count, |known| known.high),
        known(&event.user, |known| known.estimate),
        known(&event.kernel, |known| known.estimate),
    ]
}
