//! Hot functions.

use std::io::{self, Write};

use super::{
    COLUMNS, Style, name, named,
    number::{aligned, percent, spread, spread_cell, three_digits},
    section,
    table::{Align, Table, cut},
};
use crate::{
    drain::TasksHeader,
    metric::{Frame, HotFunction, OwnerOrTarget, RatioReport, TasksReport},
    plan::Plan,
    table::quantity::Quantity,
    view::words,
};

/// What a column shows of an event other than the first.
enum Column {
    /// The ratio of this name.
    Ratio(String),
    /// The share of the event's samples.
    Share(usize),
}

pub(super) fn write(
    into: &mut dyn Write,
    style: &Style,
    header: &TasksHeader,
    report: &TasksReport,
) -> io::Result<()> {
    let Some(samples) = report.quality.samples.first() else { return Ok(()) };
    let total = report.hot_samples;
    let idle = match report.quality.target {
        Some(_) => String::new(),
        None => format!("; {} idle", samples.idle),
    };
    section(
        into,
        "HOT FUNCTIONS",
        &match report.quality.samples.len() {
            1 => format!("share of the target's {total} samples, 95 % interval{idle}"),
            _ => {
                format!("share of the target's {total} samples of {}, 95 % intervals{idle}", samples.event)
            }
        },
    )?;
    let hot = report.folded.as_ref().map_or(&report.hot, |folded| &folded.hot);
    if hot.is_empty() {
        return writeln!(into, "  no sample hit the target");
    }
    use Align::{Left, Right};
    let columns = columns(&header.plan);
    let shown = &hot[..hot.len().min(style.rows_max)];
    let shares: Vec<_> = shown.iter().map(|function| spread(&function.share, percent)).collect();
    let (title, shares) = aligned("share", &shares);
    let mut titles = vec![(title.as_str(), Right)];
    titles.extend(columns.iter().map(|(title, _)| (title.as_str(), Right)));
    titles.extend([("mode", Left), ("function", Left), ("line", Left), ("module", Left), ("owner", Left)]);
    let of_events = columns.iter().rev().map(|(title, _)| title.as_str());
    let mut table = Table::new(&titles).spare(["module", "line", "mode"].into_iter().chain(of_events));
    for (function, share) in shown.iter().zip(shares) {
        table.row(hot_row(function, share, &columns));
    }
    table.write(into, style)?;
    let more = hot.len().saturating_sub(style.rows_max);
    if more > 0 {
        writeln!(into, "  {COLUMNS}… and {more} more{COLUMNS:#}")?;
    }
    for note in header.plan.sampling.iter().filter_map(words::skid) {
        writeln!(into, "  {COLUMNS}{note}{COLUMNS:#}")?;
    }
    Ok(())
}

/// Functions that an interval names.
const OF_INTERVAL: usize = 3;

/// The hottest functions of an interval, in a line; those that samples hit once may have been chance.
pub(super) fn interval(into: &mut dyn Write, report: &TasksReport) -> io::Result<()> {
    let hot = report.folded.as_ref().map_or(&report.hot, |folded| &folded.hot);
    let shown = hot.iter().filter(|function| function.samples > 1).take(OF_INTERVAL);
    let shown: Vec<String> = shown
        .map(|function| {
            let share = percent(function.share.estimate);
            format!("{share} {} of {}", frame(&function.frame), named(&function.owner))
        })
        .collect();
    if shown.is_empty() { Ok(()) } else { writeln!(into, "  hot: {}", shown.join(", ")) }
}

/// A column for every event after the first: instructions per cycle, an event per 1,000 instructions, or its share.
fn columns(plan: &Plan) -> Vec<(String, Column)> {
    let is = |wanted: Quantity| plan.sampling.iter().any(|event| event.quantity == Some(wanted));
    let column = |(index, event): (usize, &crate::plan::Sampling)| match event.quantity {
        Some(Quantity::Instructions) if is(Quantity::Cycles) => {
            ("IPC".to_owned(), Column::Ratio("ipc".to_owned()))
        }
        quantity if is(Quantity::Instructions) && quantity != Some(Quantity::Cycles) => {
            let ratio = format!("{} per 1,000 instructions", event.event);
            (format!("{}/k", event.event), Column::Ratio(ratio))
        }
        _ => (event.event.clone(), Column::Share(index)),
    };
    plan.sampling.iter().enumerate().skip(1).map(column).collect()
}

fn cell(function: &HotFunction, column: &Column) -> String {
    match column {
        Column::Share(event) => {
            function.events.get(*event).map_or("–".to_owned(), |event| percent(event.share.estimate))
        }
        Column::Ratio(name) => {
            function.ratios.iter().find(|ratio| ratio.name == *name).map_or("–".to_owned(), ratio)
        }
    }
}

/// A ratio with its interval: `1.20 ±0.24`.
pub(super) fn ratio(ratio: &RatioReport) -> String {
    ratio.value.known().map_or("–".to_owned(), |known| spread_cell(known, three_digits))
}

fn hot_row(function: &HotFunction, share: String, columns: &[(String, Column)]) -> Vec<String> {
    let (owner, pid) = name(&OwnerOrTarget::Owner(function.owner.clone()));
    let line = function.lines.first().map(|(line, _)| {
        let file = line.file.terminal();
        format!("{}:{}", file.rsplit('/').next().unwrap_or(&file), line.line)
    });
    let mut text = frame(&function.frame);
    if let Some(inlined) = function.inlined.last() {
        text = format!("{text} ({} inlined)", cut(&inlined.terminal()));
    }
    let mut row = vec![share];
    row.extend(columns.iter().map(|(_, column)| cell(function, column)));
    row.extend([
        if function.kernel { "kernel" } else { "user" }.to_owned(),
        text,
        line.unwrap_or_default(),
        module(&function.frame, function.kernel),
        if pid.is_empty() { owner } else { format!("{owner} {pid}") },
    ]);
    row
}

/// A function's name, or where it would be.
pub(super) fn frame(frame: &Frame) -> String {
    match frame {
        Frame::Function { name, .. } => cut(&name.terminal()),
        Frame::Offset { module, build_id, offset } => {
            let file = module.terminal();
            let file = file.rsplit('/').next().unwrap_or(&file).to_owned();
            let id =
                build_id.as_ref().map(|id| format!(" [{}]", id.get(..12).unwrap_or(id))).unwrap_or_default();
            format!("{}+{offset:#x}{id}", cut(&file))
        }
        Frame::Address(address) => format!("{address:#x}"),
        Frame::Rest => "(the rest)".to_owned(),
    }
}

fn module(frame: &Frame, kernel: bool) -> String {
    match frame {
        Frame::Function { module: Some(path), .. } | Frame::Offset { module: path, .. } => {
            let path = path.terminal();
            cut(path.rsplit('/').next().unwrap_or(&path))
        }
        _ if kernel => "[kernel]".to_owned(),
        _ => "–".to_owned(),
    }
}
