//! A run for people: what each of its sources has to say, one after the other.

use std::io::{self, Write};

use super::{Style, beside, findings, head, interval as of_tasks, interval_title, sections, stat, trust};
use crate::{
    drain::{Ending, Header},
    metric::Report,
    view::{
        io as of_io,
        stage::{Part, Stage},
    },
};

/// Writes a stage as text.
pub(in crate::view) fn write(into: &mut dyn Write, style: &Style, stage: Stage<'_>) -> io::Result<()> {
    match stage {
        Stage::Begin(_) => Ok(()),
        Stage::Interval(report, before) => interval(into, style, report, before == 0),
        Stage::Whole { header, report, ending, .. } => whole(into, style, header, report, ending),
    }
}

fn interval(into: &mut dyn Write, style: &Style, report: &Report, is_first: bool) -> io::Result<()> {
    if let Some(counts) = &report.counts {
        stat::interval(into, style, counts, is_first)?;
    }
    if let Some(tasks) = &report.tasks {
        of_tasks(into, style, tasks, is_first)?;
    }
    let Some(of_io) = &report.io else { return Ok(()) };
    if report.tasks.is_none() {
        interval_title(into, of_io.from_ns, of_io.length_ns)?;
    }
    beside::write(into, style, report.tasks.as_ref(), of_io)?;
    of_io::text::tables(into, style, of_io, Part::Interval)
}

/// Who measured, what every source says, and how far that can be trusted.
fn whole(
    into: &mut dyn Write,
    style: &Style,
    header: &Header,
    report: &Report,
    ending: &Ending,
) -> io::Result<()> {
    let tasks = header.tasks.as_ref().zip(report.tasks.as_ref());
    let io = header.io.as_ref().zip(report.io.as_ref());
    match (tasks, io) {
        (Some((header, report)), _) => head(into, header, report, ending)?,
        (None, Some((header, report))) => of_io::text::head(into, header, report, ending)?,
        (None, None) => {}
    }
    if report.counts.is_none() {
        findings::write(into, &report.findings)?;
    }
    if let Some((_, of_io)) = io {
        beside::write(into, style, tasks.map(|(_, report)| report), of_io)?;
    }
    if let Some((header, report)) = tasks {
        sections(into, style, header, report)?;
    }
    if let Some((_, report)) = io {
        of_io::text::sections(into, style, report)?;
    }
    if let Some((_, report)) = tasks {
        trust::quality(into, &report.quality)?;
    }
    if let Some((_, report)) = io {
        of_io::text::trust(into, style, report)?;
    }
    if let Some(cost) = &report.cost {
        trust::losses(into, &report.losses)?;
        trust::cost(into, cost)?;
    }
    let counts = header.counts.as_ref().zip(report.counts.as_ref());
    counts.map_or(Ok(()), |(header, report)| stat::whole(into, style, &header.plan, report, ending))
}
