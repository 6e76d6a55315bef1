//! A run as rows: numbers, then what else each of its sources has, in rows that are one for all sources.

use std::io::{self, Write};

use serde_json::Value as Json;

use super::{end, header, interval, line, numbers, stat, summary};
use crate::{
    drain::{Ending, Header},
    metric::Report,
    view::{io::json as of_io, stage::Stage, text::Style},
};

/// Writes a stage as JSON.
pub(in crate::view) fn write(into: &mut dyn Write, _: &Style, stage: Stage<'_>) -> io::Result<()> {
    match stage {
        Stage::Begin(run) => {
            let tasks = run.tasks.as_ref().map(header);
            let io = run.io.as_ref().map(of_io::header);
            let counts = run.counts.as_ref().map(stat::header);
            line(into, &all([tasks, io, counts]))
        }
        Stage::Interval(report, _) => part(into, report),
        Stage::Whole { header, report, ending, intervals } => {
            if intervals == 0 {
                part(into, report)?;
            }
            whole(into, header, report, ending)
        }
    }
}

/// What an interval has, or a run without any.
fn part(into: &mut dyn Write, report: &Report) -> io::Result<()> {
    report.by_source(|frame, found| numbers(into, frame, found))?;
    report.tasks.as_ref().map_or(Ok(()), |report| interval(into, report))
}

/// What only the whole has.
fn whole(into: &mut dyn Write, header: &Header, report: &Report, ending: &Ending) -> io::Result<()> {
    let tasks = header.tasks.as_ref().zip(report.tasks.as_ref());
    if let Some((_, report)) = tasks {
        end(into, report)?;
    }
    if let Some(report) = &report.io {
        of_io::end(into, report)?;
    }
    line(into, &summary(header, report, ending))
}

/// One row of what all sources say.
fn all(sources: [Option<Json>; 3]) -> Json {
    sources.into_iter().reduce(both).flatten().unwrap_or_default()
}

/// One row of what two sources say: what is missing of both, and of anything else what the first says.
fn both(first: Option<Json>, second: Option<Json>) -> Option<Json> {
    let (mut row, second) = match (first, second) {
        (Some(row), Some(Json::Object(second))) => (row, second),
        (first, second) => return first.or(second),
    };
    for (name, more) in second {
        match (&mut row[&name], more) {
            (Json::Array(list), Json::Array(more)) if name == "missing" => list.extend(more),
            (there @ Json::Null, more) => *there = more,
            _ => {}
        }
    }
    Some(row)
}
