//! What a run reports, whatever its sources are: what each of them has to say, one after the other.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::{Part, Stage, io as of_io, json as rows, text};
use crate::{
    drain::{Ending, Header},
    metric::Report,
};

/// Writes a stage for people.
pub(super) fn text(into: &mut dyn Write, style: &text::Style, stage: Stage<'_>) -> io::Result<()> {
    match stage {
        Stage::Begin(_) => Ok(()),
        Stage::Interval(report, before) => interval(into, style, report, before == 0),
        Stage::Whole(header, report, ending) => whole(into, style, header, report, ending),
    }
}

/// Writes what a stage has beside numbers as JSON.
pub(super) fn json(into: &mut dyn Write, stage: Stage<'_>) -> io::Result<()> {
    match stage {
        Stage::Begin(header) => {
            let tasks = header.tasks.as_ref().map(rows::header);
            let io = header.io.as_ref().map(of_io::json::header);
            let counts = header.counts.as_ref().map(rows::stat::header);
            rows::line(into, &all([tasks, io, counts]))
        }
        Stage::Interval(report, _) => {
            report.tasks.as_ref().map_or(Ok(()), |report| rows::interval(into, report))
        }
        Stage::Whole(header, report, ending) => {
            let tasks = header.tasks.as_ref().zip(report.tasks.as_ref());
            if let Some((_, report)) = tasks {
                rows::end(into, report)?;
            }
            if let Some(report) = &report.io {
                of_io::json::end(into, report)?;
            }
            let tasks = tasks.map(|(header, report)| rows::summary(header, report, ending));
            let io = report.io.as_ref().map(|report| of_io::json::summary(report, ending));
            let counts = header.counts.as_ref().zip(report.counts.as_ref());
            let counts = counts.map(|(header, report)| rows::stat::summary(header, report, ending));
            rows::line(into, &all([tasks, io, counts]))
        }
    }
}

fn interval(into: &mut dyn Write, style: &text::Style, report: &Report, is_first: bool) -> io::Result<()> {
    if let Some(counts) = &report.counts {
        text::stat::interval(into, style, counts, is_first)?;
    }
    if let Some(tasks) = &report.tasks {
        text::interval(into, style, tasks, is_first)?;
    }
    let Some(of_io) = &report.io else { return Ok(()) };
    if report.tasks.is_none() {
        text::interval_title(into, of_io.from_ns, of_io.length_ns)?;
    }
    text::beside::write(into, style, report.tasks.as_ref(), of_io)?;
    of_io::text::tables(into, style, of_io, Part::Interval)
}

/// Who measured, what every source says, and how far that can be trusted.
fn whole(
    into: &mut dyn Write,
    style: &text::Style,
    header: &Header,
    report: &Report,
    ending: &Ending,
) -> io::Result<()> {
    let tasks = header.tasks.as_ref().zip(report.tasks.as_ref());
    let io = header.io.as_ref().zip(report.io.as_ref());
    match (tasks, io) {
        (Some((header, report)), _) => text::head(into, header, report, ending)?,
        (None, Some((header, report))) => of_io::text::head(into, header, report, ending)?,
        (None, None) => {}
    }
    if let Some((_, of_io)) = io {
        text::beside::write(into, style, tasks.map(|(_, report)| report), of_io)?;
    }
    if let Some((header, report)) = tasks {
        text::sections(into, style, header, report)?;
    }
    if let Some((_, report)) = io {
        of_io::text::sections(into, style, report)?;
    }
    if let Some((_, report)) = tasks {
        text::trust(into, report)?;
    }
    if let Some((_, report)) = io {
        of_io::text::trust(into, style, report)?;
    }
    let counts = header.counts.as_ref().zip(report.counts.as_ref());
    counts.map_or(Ok(()), |(header, report)| text::stat::whole(into, style, &header.plan, report, ending))
}

/// One row of what all sources say.
fn all(sources: [Option<Json>; 3]) -> Json {
    sources.into_iter().reduce(both).flatten().unwrap_or_default()
}

/// One row of what two sources say: lists and losses of both, what the programs of both cost, and of anything else what the first
/// says.
fn both(first: Option<Json>, second: Option<Json>) -> Option<Json> {
    let (mut row, second) = match (first, second) {
        (Some(row), Some(Json::Object(second))) => (row, second),
        (first, second) => return first.or(second),
    };
    for (name, more) in second {
        match (&mut row[&name], more) {
            (Json::Array(list), Json::Array(more)) if name == "missing" => list.extend(more),
            (Json::Object(of), Json::Object(more)) if name == "losses" => of.extend(more),
            (Json::Object(cost), more) if name == "self" => add_cost(cost, &more),
            (there @ Json::Null, more) => *there = more,
            _ => {}
        }
    }
    Some(row)
}

/// Adds what the kernel's programs of another source cost, and their memory. This process is the same.
fn add_cost(cost: &mut serde_json::Map<String, Json>, more: &Json) {
    let sum = |first: &Json, more: &Json| match (first.as_u64(), more.as_u64()) {
        (Some(first), Some(more)) => json!(first.saturating_add(more)),
        _ => json!(first.as_f64().unwrap_or_default() + more.as_f64().unwrap_or_default()),
    };
    if let Some(bytes) = cost.get_mut("map_bytes") {
        *bytes = sum(bytes, &more["map_bytes"]);
    }
    let Some(Json::Object(programs)) = cost.get_mut("programs_ns") else { return };
    for end in ["value", "low", "high"] {
        if let Some(known) = programs.get_mut(end).filter(|known| known.is_number()) {
            *known = sum(known, &more["programs_ns"]["value"]);
        }
    }
}
