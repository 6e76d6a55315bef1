//! The Top-Down tree of the target, and a line of its first level for every owner.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr as _;

use super::{
    COLUMNS, Style, TITLE, WARNING, id_column, name,
    number::{count, percent},
    runs, section,
    table::{Align, Table},
};
use crate::{
    metric::{
        TasksReport,
        topdown::{Shape, TopDown, Tree},
        value::{How, Known, Value},
    },
    table::{hint::hint, unit::Unit},
};

/// Columns of the longest name in the deepest level.
const NAME_WIDTH: usize = 40;

/// The section, if there are metrics.
pub(super) fn write(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    let Ok(topdown) = &report.topdown else { return Ok(()) };
    let Some((_, everyone)) = topdown.owners.first() else { return Ok(()) };
    section(
        into,
        "TOP-DOWN",
        &format!(
            "{}, formulas {}; 95 % interval, share of the time it rests on; < over its threshold",
            topdown.model, topdown.formulas
        ),
    )?;
    let mut missing = 0;
    for shape in topdown.shapes.iter() {
        match &everyone.nodes[shape.index as usize].value {
            Value::Known(known) => node(into, shape, everyone, known)?,
            Value::Missing(_) => missing += 1,
        }
    }
    if missing > 0 {
        writeln!(into, "  {COLUMNS}{missing} metrics have no value; --json says why{COLUMNS:#}")?;
    }
    path(into, topdown, everyone)?;
    for line in topdown.notes.iter().chain(&everyone.faults) {
        writeln!(into, "  {WARNING}{line}{WARNING:#}")?;
    }
    if let Some(runs) = &topdown.runs {
        runs::write(into, runs)?;
    }
    owners(into, style, topdown)
}

fn node(into: &mut dyn Write, shape: &Shape, tree: &Tree, known: &Known) -> io::Result<()> {
    let flagged = tree.nodes[shape.index as usize].flagged == Some(true);
    let indented = format!("{}{}", "  ".repeat(shape.depth as usize), shape.name);
    let padding = " ".repeat(NAME_WIDTH.saturating_sub(indented.width()));
    let shown = number(known.estimate, shape.unit);
    let interval = match known.how {
        How::Counted if known.low == known.high => String::new(),
        _ => format!("[{} – {}]", number(known.low, shape.unit), number(known.high, shape.unit)),
    };
    let mark = if flagged { " <" } else { "" };
    let (on, off) = if flagged { (format!("{TITLE}"), format!("{TITLE:#}")) } else { Default::default() };
    let coverage = percent(known.coverage);
    writeln!(into, "  {on}{indented}{padding} {shown:>10}{off}  {interval:<24} {coverage:>8}{mark}")
}

fn number(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Percent => percent(value / 100.0),
        _ if value.abs() >= 1e5 => count(value),
        Unit::UNKNOWN => format!("{value:.3}"),
        unit => format!("{value:.3} {}", unit.name()),
    }
}

/// From the root to where most is lost, with what it means and what to try.
fn path(into: &mut dyn Write, topdown: &TopDown, tree: &Tree) -> io::Result<()> {
    let shape = |index: &u32| topdown.shapes.iter().find(|shape| shape.index == *index);
    let shapes: Vec<&Shape> = tree.path.iter().filter_map(shape).collect();
    let Some(Shape { name: last, locate, .. }) = shapes.last() else { return Ok(()) };
    let names: Vec<&str> = shapes.iter().map(|shape| shape.name.as_str()).collect();
    writeln!(into, "  {TITLE}path to bottleneck{TITLE:#}  {}", names.join(" → "))?;
    if let Some(hint) = hint(last) {
        writeln!(into, "  {last}: {}", hint.says)?;
        hint.try_next.iter().try_for_each(|step| writeln!(into, "    try: {step}"))?;
    }
    if !locate.is_empty() {
        writeln!(into, "    its code: samples of {} (--event), or --config tma", locate.join(" or "))?;
    }
    Ok(())
}

/// A line an owner: the first level, what stands beside it, and its own bottleneck.
fn owners(into: &mut dyn Write, style: &Style, topdown: &TopDown) -> io::Result<()> {
    let roots: Vec<&Shape> = topdown
        .shapes
        .iter()
        .filter(|shape| shape.parent.is_none() && shape.unit == Unit::Percent && shape.level == 1)
        .collect();
    if topdown.owners.len() < 2 || roots.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[
        ("owner", Align::Left),
        (id_column(topdown.owners.iter().map(|(who, _)| who)), Align::Right),
        ("first level", Align::Left),
        ("IPC", Align::Right),
        ("bottleneck", Align::Left),
    ]);
    let ipc = topdown.shapes.iter().find(|shape| shape.name == "Info_Thread_IPC");
    for (who, tree) in topdown.owners.iter().skip(1).take(style.rows_max) {
        let (owner, pid) = name(who);
        let known = |shape: &Shape| tree.nodes[shape.index as usize].value.known();
        let level = roots.iter().map(|shape| match known(shape) {
            Some(known) => format!("{} {:.0} %", shape.name, known.estimate),
            None => format!("{} –", shape.name),
        });
        let level = level.collect::<Vec<_>>().join(", ");
        let ipc = ipc.and_then(known).map_or("–".to_owned(), |known| format!("{:.2}", known.estimate));
        let bottleneck = tree.path.last().and_then(|index| {
            topdown.shapes.iter().find(|shape| shape.index == *index).map(|shape| shape.name.clone())
        });
        table.row(vec![owner, pid, level, ipc, bottleneck.unwrap_or_else(|| "–".to_owned())]);
    }
    table.write(into, COLUMNS)
}
