//! Hot functions over the whole target, below the modules that they are in.

use std::io::{self, Write};

use super::{
    Brevity, COLUMNS, Style, and_more, name,
    number::{aligned, percent, spread, spread_cell, three_digits},
    section,
    table::{Align, Table, cut},
};
use crate::{
    drain::{Line, Owner, TasksHeader},
    metric::{
        Frame, HotCode, HotFunction, HotInlined, OwnerOrTarget, RatioReport, TargetFunction, TasksReport,
    },
    plan::Plan,
    table::quantity::Quantity,
    untrusted::Untrusted,
    view::words,
};

/// Maximum number of rows of the table of modules, in a full and in a short report.
const MODULES_MAX: usize = 8;
const MODULES_SHORT: usize = 3;

/// Content of the column of an event other than the first.
enum Column {
    /// Ratio of this name.
    Ratio(String),
    /// Share of the event's samples.
    Share(usize),
}

pub(super) fn write(
    into: &mut dyn Write,
    style: &Style,
    header: &TasksHeader,
    report: &TasksReport,
) -> io::Result<()> {
    let Some(samples) = report.quality.samples.first() else { return Ok(()) };
    modules(into, style, report)?;
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
    let hot = &report.functions;
    if hot.is_empty() {
        return writeln!(into, "  no sample hit the target");
    }
    use Align::{Left, Right};
    let columns = columns(&header.plan);
    let shown = &hot[..hot.len().min(style.rows_max)];
    let shares: Vec<_> = shown.iter().map(|function| spread(&function.hot.share, percent)).collect();
    let (title, shares) = aligned("share", &shares);
    let mut titles = vec![(title.as_str(), Right)];
    titles.extend(columns.iter().map(|(title, _)| (title.as_str(), Right)));
    titles.extend([("mode", Left), ("function", Left), ("line", Left), ("module", Left), ("owner", Left)]);
    let of_events = columns.iter().rev().map(|(title, _)| title.as_str());
    let mut table = Table::new(&titles).spare(["module", "line", "mode"].into_iter().chain(of_events));
    for (function, share) in shown.iter().zip(shares) {
        table.row(hot_row(function, share, &columns));
        let inlined = function.hot.inlined.iter().filter(|part| part.share.estimate >= INLINED_MIN);
        for part in inlined.take(if style.brevity == Brevity::Full { INLINED_SHOWN } else { 0 }) {
            table.row(inlined_row(part, columns.len()));
        }
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

/// Maximum number of inlined functions shown below their function, and the minimum share of all samples to be
/// shown.
const INLINED_SHOWN: usize = 3;
const INLINED_MIN: f64 = 0.01;

/// Returns the row of an inlined function: the line in it, and the line that calls it.
fn inlined_row(part: &HotInlined, columns: usize) -> Vec<String> {
    let at = match (&part.line, &part.call) {
        (Some(line), Some(call)) => format!("{} (called at {})", source_line(line), source_line(call)),
        (Some(line), None) => source_line(line),
        (None, Some(call)) => format!("called at {}", source_line(call)),
        (None, None) => String::new(),
    };
    let mut row = vec![percent(part.share.estimate)];
    row.extend(vec![String::new(); columns + 1]);
    row.extend([format!("  {} (inlined)", cut(&part.name.terminal())), at, String::new(), String::new()]);
    row
}

/// Returns a source line without the folder of its file.
fn source_line(line: &Line) -> String {
    let file = line.file.terminal();
    format!("{}:{}", file.rsplit('/').next().unwrap_or(&file), line.line)
}

/// Maximum number of functions named in an interval.
const OF_INTERVAL: usize = 3;

/// Writes the modules that samples hit, if there are several, with the shares of user mode and of the kernel.
fn modules(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    use Align::{Left, Right};
    let modules = &report.modules;
    if modules.len() < 2 {
        return Ok(());
    }
    let of_mode = |kernel: bool| -> f64 {
        modules.iter().filter(|module| module.kernel == kernel).map(|module| module.share.estimate).sum()
    };
    let modes = format!("{} in user mode, {} in the kernel", percent(of_mode(false)), percent(of_mode(true)));
    section(into, "MODULES", &format!("share of the target's samples: {modes}"))?;
    let most = if style.brevity == Brevity::Full { MODULES_MAX } else { MODULES_SHORT };
    let shown = &modules[..modules.len().min(style.rows_max.min(most))];
    let shares: Vec<_> = shown.iter().map(|module| spread(&module.share, percent)).collect();
    let (title, shares) = aligned("share", &shares);
    let mut table = Table::new(&[(title.as_str(), Right), ("samples", Right), ("module", Left)]);
    for (module, share) in shown.iter().zip(shares) {
        table.row(vec![share, module.samples.to_string(), file(module.module.as_ref(), module.kernel)]);
    }
    table.write(into, style)?;
    and_more(into, modules.len() - shown.len())
}

/// Writes the hottest functions of an interval in a line. Functions with a single sample are left out,
/// because they may be chance.
pub(super) fn interval(into: &mut dyn Write, report: &TasksReport) -> io::Result<()> {
    let hot = HotCode::of(&report.functions);
    let shown = hot.iter().filter(|code| code.samples > 1).take(OF_INTERVAL);
    let shown: Vec<String> = shown
        .map(|code| {
            let TargetFunction { hot: HotFunction { frame, kernel, .. }, owners } = code.function;
            let what = match frame {
                Frame::Offset { .. } | Frame::Address(_) => {
                    format!("{} (no names)", module(frame, *kernel))
                }
                frame => self::frame(frame),
            };
            format!("{} {what} of {}", percent(code.share), self::owners(owners))
        })
        .collect();
    if shown.is_empty() { Ok(()) } else { writeln!(into, "  hot: {}", shown.join(", ")) }
}

/// Returns a column for every event after the first: instructions per cycle, an event per 1,000 instructions,
/// or its share.
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

/// Returns a ratio with its interval: `1.20 ±0.24`.
pub(super) fn ratio(ratio: &RatioReport) -> String {
    ratio.value.known().map_or("–".to_owned(), |known| spread_cell(known, three_digits))
}

fn hot_row(function: &TargetFunction, share: String, columns: &[(String, Column)]) -> Vec<String> {
    let TargetFunction { hot: function, owners: whose } = function;
    let line = function.lines.first().map(|hot| source_line(&hot.place.line));
    let mut row = vec![share];
    row.extend(columns.iter().map(|(_, column)| cell(function, column)));
    row.extend([
        if function.kernel { "kernel" } else { "user" }.to_owned(),
        frame(&function.frame),
        line.unwrap_or_default(),
        module(&function.frame, function.kernel),
        owners(whose),
    ]);
    row
}

/// Returns the owner with most of the samples, and the number of the others.
fn owners(whose: &[(Owner, u64)]) -> String {
    let Some((first, _)) = whose.first() else { return String::new() };
    let (name, id) = name(&OwnerOrTarget::Owner(first.clone()));
    let first = if id.is_empty() { name } else { format!("{name} {id}") };
    match whose.len() - 1 {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Returns the name of a function, or its location.
pub(super) fn frame(frame: &Frame) -> String {
    match frame {
        Frame::Function { name, inlined: true, .. } => format!("{} (inlined)", cut(&name.terminal())),
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
        Frame::Cut(cut) => cut.in_words(),
    }
}

fn module(frame: &Frame, kernel: bool) -> String {
    match frame {
        Frame::Function { module, .. } => file(module.as_ref(), kernel),
        Frame::Offset { module, .. } => file(Some(module), kernel),
        Frame::Address(_) | Frame::Rest | Frame::Cut(_) => file(None, kernel),
    }
}

/// Returns the name of a file, or of the kernel.
fn file(path: Option<&Untrusted>, kernel: bool) -> String {
    match path {
        Some(path) => {
            let path = path.terminal();
            cut(path.rsplit('/').next().unwrap_or(&path))
        }
        None if kernel => "[kernel]".to_owned(),
        None => "–".to_owned(),
    }
}
