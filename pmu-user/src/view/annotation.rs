//! `pmbpf report --annotate`: functions by source line and instruction, in every format.

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use super::{
    Format, json,
    text::{
        COLUMNS, Style, TITLE,
        number::spread_cell,
        percent, section,
        table::{Align, Table, cut},
    },
    words,
};
use crate::{
    drain::Line,
    metric::{
        Placed,
        annotate::{Annotated, AnnotatedLine, EventShare, Instruction},
    },
    plan::Sampling,
    untrusted::Untrusted,
};

/// Minimum share of a function's samples at which an instruction is hot and shown with its neighbours.
const HOT: f64 = 0.01;
/// Number of instructions shown before and after a hot one.
const NEIGHBOURS: usize = 3;

/// Functions, and the data needed to show them.
pub struct Annotation<'a> {
    /// The functions, most samples first.
    pub functions: &'a [Annotated],
    /// The events that sampled, in their order.
    pub events: &'a [Sampling],
    /// Text of a source line, if it is available.
    pub source: &'a dyn Fn(&Line) -> Option<Untrusted>,
}

/// Writes the functions in `format`.
///
/// # Errors
///
/// The stream cannot be written.
pub fn write(
    into: &mut dyn Write,
    format: Format,
    style: &Style,
    annotation: &Annotation<'_>,
) -> io::Result<()> {
    match format {
        Format::Text => annotation.functions.iter().try_for_each(|one| text(into, style, annotation, one)),
        Format::Json => annotation.functions.iter().try_for_each(|one| {
            rows(annotation, one).into_iter().try_for_each(|row| json::line(into, &Json::Object(row)))
        }),
        Format::Csv => csv(into, annotation),
    }?;
    into.flush()
}

fn text(
    into: &mut dyn Write,
    style: &Style,
    annotation: &Annotation<'_>,
    function: &Annotated,
) -> io::Result<()> {
    let module = function.module.as_ref().map(|module| format!(" in {}", cut(&module.terminal())));
    let module =
        module.unwrap_or_else(|| if function.kernel { " in the kernel".to_owned() } else { String::new() });
    writeln!(into, "{TITLE}{}{TITLE:#}{module}", function.name.terminal())?;
    for (event, share) in annotation.events.iter().zip(&function.events) {
        let of_all = spread_cell(&share.share, percent);
        writeln!(
            into,
            "  {} samples of {}: {of_all} of those that hit the target",
            share.samples, event.event
        )?;
    }
    section(into, "LINES", "share of the function's samples, 95 % interval; a column an event")?;
    if function.lines.is_empty() {
        writeln!(into, "  no line is known: its file had no DWARF when names were looked up")?;
    } else {
        lines(annotation, function, style).write(into, style)?;
        more(into, function.lines.len().saturating_sub(style.rows_max))?;
    }
    section(into, "INSTRUCTIONS", "by offset in the file; share of the function's samples")?;
    instructions(annotation, function, style).write(into, style)?;
    if let Some(why) = &function.no_code {
        writeln!(into, "  {COLUMNS}only what samples hit: {why}{COLUMNS:#}")?;
    }
    for note in annotation.events.iter().filter_map(words::skid) {
        writeln!(into, "  {COLUMNS}{note}{COLUMNS:#}")?;
    }
    writeln!(into)
}

fn more(into: &mut dyn Write, more: usize) -> io::Result<()> {
    if more == 0 {
        Ok(())
    } else {
        writeln!(into, "  {COLUMNS}… and {more} more; --top shows more{COLUMNS:#}")
    }
}

/// Returns a table with a column for each event, followed by `others`.
fn table(annotation: &Annotation<'_>, others: &[(&str, Align)]) -> Table {
    let events = annotation.events.iter().map(|event| (event.event.as_str(), Align::Right));
    Table::new(&events.chain(others.iter().copied()).collect::<Vec<_>>())
}

/// Returns shares as cells, empty where no sample hit.
fn cells(annotation: &Annotation<'_>, events: &[EventShare]) -> Vec<String> {
    let cell = |event: usize| match events.get(event) {
        Some(share) if share.samples > 0 => spread_cell(&share.share, percent),
        _ => String::new(),
    };
    (0..annotation.events.len()).map(cell).collect()
}

fn place(line: &Line) -> String {
    let file = line.file.terminal();
    format!("{}:{}", cut(file.rsplit('/').next().unwrap_or(&file)), line.line)
}

/// Returns the inlined function that a line is part of, and the line that calls it.
fn inlined(at: &Placed) -> String {
    let name = at.inlined.as_ref().map(|name| cut(&name.terminal()));
    match (name, &at.call) {
        (Some(name), Some(call)) => format!("{name}, called at {}", place(call)),
        (Some(name), None) => name,
        (None, _) => String::new(),
    }
}

fn lines(annotation: &Annotation<'_>, function: &Annotated, style: &Style) -> Table {
    let is_inlined = function.lines.iter().any(|one| one.place.inlined.is_some());
    let columns = [("line", Align::Left), ("inlined", Align::Left), ("source", Align::Left)];
    let columns = columns.into_iter().filter(|(title, _)| is_inlined || *title != "inlined");
    let mut table = table(annotation, &columns.collect::<Vec<_>>());
    for AnnotatedLine { place: at, events } in function.lines.iter().take(style.rows_max) {
        let trimmed = |text: Untrusted| cut(&Untrusted::new(text.as_bytes().trim_ascii()).terminal());
        let source = (annotation.source)(&at.line).map(trimmed).unwrap_or_default();
        let mut row = cells(annotation, events);
        row.push(place(&at.line));
        row.extend(is_inlined.then(|| inlined(at)));
        row.push(source);
        table.row(row);
    }
    table
}

fn instructions(annotation: &Annotation<'_>, function: &Annotated, style: &Style) -> Table {
    let columns = [("offset", Align::Right), ("instruction", Align::Left), ("line", Align::Left)];
    let mut table = table(annotation, &columns).spare(["line"]);
    let mut last = None;
    for (at, one) in shown(function, style.rows_max.saturating_mul(5)) {
        if last.is_some_and(|last| at > last + 1) {
            let mut gap = vec![String::new(); annotation.events.len()];
            gap.extend(["…".to_owned(), String::new(), String::new()]);
            table.row(gap);
        }
        last = Some(at);
        let mut row = cells(annotation, &one.events);
        row.extend([
            format!("{:#x}", one.offset),
            one.text.as_ref().map(|text| cut(&text.terminal())).unwrap_or_default(),
            one.place.as_ref().map(|at| place(&at.line)).unwrap_or_default(),
        ]);
        table.row(row);
    }
    table
}

/// Returns the instructions that are shown: hot ones with their neighbours. If there are too many, the first
/// ones are kept.
fn shown(function: &Annotated, most: usize) -> impl Iterator<Item = (usize, &Instruction)> {
    let all = &function.instructions;
    let is_hot = |one: &Instruction| one.events.iter().any(|event| event.share.estimate >= HOT);
    let near = move |at: usize| {
        let around = at.saturating_sub(NEIGHBOURS)..(at + NEIGHBOURS + 1).min(all.len());
        all[around].iter().any(is_hot)
    };
    all.iter().enumerate().filter(move |(at, _)| near(*at)).take(most)
}

/// Returns a row for the function, for each of its lines, and for each instruction that a sample hit or that
/// is known.
fn rows(annotation: &Annotation<'_>, function: &Annotated) -> Vec<Map<String, Json>> {
    let row = |place: &str, events: &[EventShare], at: Option<&Placed>| {
        let line = at.map(|at| &at.line);
        let events = annotation.events.iter().zip(events).map(|(event, share)| {
            json!({"event": event.event, "samples": share.samples, "share": share.share.estimate,
                   "low": share.share.low, "high": share.share.high})
        });
        let row = json!({
            "schema": json::SCHEMA, "kind": "annotation", "place": place, "function": function.name,
            "module": function.module, "build_id": function.build_id,
            "mode": if function.kernel { "kernel" } else { "user" },
            "file": line.map(|line| &line.file), "line": line.map(|line| line.line),
            "source": line.and_then(annotation.source), "offset": null, "instruction": null,
            "events": events.collect::<Vec<_>>(), "reason": null,
            "inlined": at.and_then(|at| at.inlined.as_ref()),
            "called_at": at.and_then(|at| at.call.as_ref()).map(|line| json!({"file": line.file, "line": line.line})),
        });
        match row {
            Json::Object(row) => row,
            _ => Map::new(),
        }
    };
    let mut first = row("function", &function.events, None);
    first.insert("reason".to_owned(), json!(function.no_code));
    let lines = function.lines.iter().map(|one| row("line", &one.events, Some(&one.place)));
    let instructions = function.instructions.iter().map(|one| {
        let mut row = row("instruction", &one.events, one.place.as_ref());
        row.insert("offset".to_owned(), json!(one.offset));
        row.insert("instruction".to_owned(), json!(one.text));
        row
    });
    std::iter::once(first).chain(lines).chain(instructions).collect()
}

/// Columns of a CSV row before those of its event.
const PLACE: [&str; 10] =
    ["place", "function", "module", "build_id", "mode", "file", "line", "offset", "instruction", "inlined"];
const EVENT: [&str; 5] = ["event", "samples", "share", "low", "high"];

/// Writes a CSV row for each event of each row of JSON.
fn csv(into: &mut dyn Write, annotation: &Annotation<'_>) -> io::Result<()> {
    let mut out = csv::Writer::from_writer(into);
    out.write_record(PLACE.iter().chain(&EVENT))?;
    for row in annotation.functions.iter().flat_map(|function| rows(annotation, function)) {
        let place: Vec<String> = PLACE.iter().map(|name| cell(row.get(*name))).collect();
        for event in row.get("events").and_then(Json::as_array).into_iter().flatten() {
            let event = EVENT.iter().map(|name| cell(event.get(name)));
            out.write_record(place.iter().cloned().chain(event))?;
        }
    }
    out.flush()
}

fn cell(value: Option<&Json>) -> String {
    match value {
        None | Some(Json::Null) => String::new(),
        Some(Json::String(text)) => Untrusted::from(text.as_str()).csv().into_owned(),
        Some(value) => value.to_string(),
    }
}
