//! Run as rows: the header, then the numbers and other rows of each source, then the summary.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use serde_json::json;

use super::{
    OF_OWNERS, OF_PROGRAMS, SCHEMA, end, end::hot_of_interval, finding::findings, header, interval, line,
    numbers, summary,
};
use crate::{
    drain::{Ending, Header},
    metric::{Report, number::Number},
    view::{io::json as of_io, stage::Stage, text::Style},
};

/// Writes a stage as JSON.
pub(in crate::view) fn write(into: &mut dyn Write, _: &Style, stage: Stage<'_>) -> io::Result<()> {
    match stage {
        Stage::Begin(run) => {
            line(into, &header(run))?;
            run.io.as_ref().map_or(Ok(()), |io| of_io::platform(into, &run.machine, io))
        }
        Stage::Interval(report, _) => {
            part(into, report)?;
            report.tasks.as_ref().map_or(Ok(()), |tasks| hot_of_interval(into, tasks))
        }
        Stage::Whole { header, report, ending, intervals } => {
            findings(into, &report.findings)?;
            if intervals == 0 {
                part(into, report)?;
            }
            whole(into, header, report, ending)
        }
    }
}

/// Writes the rows of an interval, or of a run without intervals.
fn part(into: &mut dyn Write, report: &Report) -> io::Result<()> {
    // Culprits have separate rows, of the whole run.
    let is_here = |number: &Number<'_>| number.details.culprit.is_none();
    report.by_source(|frame, found| numbers(into, OF_OWNERS, frame, found.filter(is_here)))?;
    if let Some(tasks) = &report.tasks {
        numbers(into, OF_PROGRAMS, (tasks.from_ns, tasks.length_ns), tasks.numbers_of_programs())?;
    }
    if let Some(io) = &report.io {
        numbers(into, OF_PROGRAMS, (io.from_ns, io.length_ns), io.numbers_of_programs())?;
    }
    report.tasks.as_ref().map_or(Ok(()), |report| interval(into, report))
}

/// Writes the rows that only the whole run has.
fn whole(into: &mut dyn Write, header: &Header, report: &Report, ending: &Ending) -> io::Result<()> {
    let tasks = header.tasks.as_ref().zip(report.tasks.as_ref());
    if let Some((_, report)) = tasks {
        end(into, report)?;
    }
    if let Some(report) = &report.io {
        of_io::end(into, report)?;
    }
    formulas(into, report)?;
    line(into, &summary(header, report, ending))
}

/// Writes the formulas of metrics from tables.
fn formulas(into: &mut dyn Write, report: &Report) -> io::Result<()> {
    let topdown = report.tasks.iter().flat_map(|tasks| tasks.topdown.iter().flatten());
    let of_tasks = topdown.flat_map(|topdown| {
        topdown.shapes.iter().map(|shape| (topdown.named(&shape.name), shape.unit, &shape.formula))
    });
    let of_io = report
        .io
        .iter()
        .flat_map(|io| &io.formulas)
        .map(|formula| (Cow::Borrowed(formula.metric.as_str()), formula.unit, &formula.text));
    of_tasks.chain(of_io).try_for_each(|(metric, unit, text)| {
        let row = json!({"schema": SCHEMA, "kind": "formula", "metric": metric, "unit": unit.name(), "formula": text});
        line(into, &row)
    })
}
