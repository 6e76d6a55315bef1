//! Top-Down tree of the target, and a line of its first level for every owner.

use std::io::{self, Write};

use super::{
    COLUMNS, Style, TITLE, WARNING, id_column, name,
    number::{aligned, count, percent, spread},
    runs, section,
    table::{Align, Table},
};
use crate::{
    machine::cpu::format_list,
    metric::{
        OwnerOrTarget, TasksReport,
        topdown::{Shape, TopDown, Tree},
    },
    table::{hint::hint, unit::Unit},
};

/// Writes the section, if there are metrics.
pub(super) fn write(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    report.topdown.iter().flatten().try_for_each(|topdown| of_cores(into, style, report, topdown))
}

/// Writes the section of cores of one kind.
fn of_cores(into: &mut dyn Write, style: &Style, report: &TasksReport, topdown: &TopDown) -> io::Result<()> {
    let Some((_, everyone)) = topdown.owners.first() else { return Ok(()) };
    let (model, formulas) = (&topdown.model, &topdown.formulas);
    let on = topdown.core_type.as_ref().map(|cores| {
        let time = time_share(everyone).map_or(String::new(), |share| format!(", {share} of the time"));
        format!("on {} (cpu {}{time}): ", cores.pmu, format_list(&cores.cpus))
    });
    section(
        into,
        "TOP-DOWN",
        &format!(
            "{}{model}, formulas {formulas}; 95 % interval, share of the time it rests on; < over its threshold",
            on.unwrap_or_default()
        ),
    )?;
    let known = |shape: &Shape| everyone.nodes[shape.index as usize].value.known();
    let missing = topdown.shapes.iter().filter(|&shape| known(shape).is_none()).count();
    nodes(topdown, everyone).write(into, style)?;
    if missing > 0 {
        writeln!(into, "  {COLUMNS}{missing} metrics have no value; --json says why{COLUMNS:#}")?;
    }
    path(into, topdown, everyone)?;
    for line in topdown.notes.iter().chain(&everyone.faults) {
        writeln!(into, "  {WARNING}{line}{WARNING:#}")?;
    }
    if let Some(runs) = &topdown.runs {
        runs::write(into, style, runs)?;
    }
    owners(into, style, topdown, &report.trees(topdown).collect::<Vec<_>>())
}

/// Returns a row for each metric that has a value. A metric over its threshold stands out.
fn nodes(topdown: &TopDown, tree: &Tree) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[("", Left), ("", Right), ("", Right), ("", Left)]);
    let known = |shape: &Shape| {
        let node = &tree.nodes[shape.index as usize];
        node.value.known().map(|known| (known, node.flagged == Some(true)))
    };
    let shapes = || topdown.shapes.iter().filter_map(|shape| Some((shape, known(shape)?)));
    let values: Vec<_> =
        shapes().map(|(shape, (known, _))| spread(known, |value| number(value, shape.unit))).collect();
    for ((shape, (known, is_flagged)), value) in shapes().zip(aligned("", &values).1) {
        let name = format!("{}{}", "  ".repeat(shape.depth as usize), shape.name);
        let (looks, mark) = if is_flagged { (TITLE, "<") } else { Default::default() };
        table.row_in(looks, vec![name, value, percent(known.coverage), mark.to_owned()]);
    }
    table
}

fn number(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Percent => percent(value / 100.0),
        _ if value.abs() >= 1e5 => count(value),
        Unit::UNKNOWN => format!("{value:.3}"),
        unit => format!("{value:.3} {}", unit.name()),
    }
}

/// Writes the path from the root to the bottleneck, with its meaning and what to try.
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

/// Returns the share of an owner's time that it had on these cores.
fn time_share(tree: &Tree) -> Option<String> {
    Some(percent(tree.time_share.as_ref()?.known()?.estimate / 100.0))
}

/// Writes a line per owner: the first level, the metrics next to it, and the owner's bottleneck.
fn owners(
    into: &mut dyn Write,
    style: &Style,
    topdown: &TopDown,
    trees: &[&(OwnerOrTarget, Tree)],
) -> io::Result<()> {
    let roots: Vec<&Shape> = topdown
        .shapes
        .iter()
        .filter(|shape| shape.parent.is_none() && shape.unit == Unit::Percent && shape.level == 1)
        .collect();
    if trees.len() < 2 || roots.is_empty() {
        return Ok(());
    }
    let differ = topdown.core_type.is_some();
    let time = differ.then_some(("time", Align::Right));
    let columns = [
        Some(("owner", Align::Left)),
        Some((id_column(trees.iter().map(|(who, _)| who)), Align::Right)),
        time,
        Some(("IPC", Align::Right)),
        Some(("bottleneck", Align::Left)),
        Some(("first level", Align::Words)),
    ];
    let mut table = Table::new(&columns.into_iter().flatten().collect::<Vec<_>>());
    let ipc = topdown.ipc();
    for (who, tree) in trees.iter().skip(1).take(style.rows_max) {
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
        let time = differ.then(|| time_share(tree).unwrap_or_else(|| "–".to_owned()));
        let mut row = vec![owner, pid];
        row.extend(time);
        row.extend([ipc, bottleneck.unwrap_or_else(|| "–".to_owned()), level]);
        table.row(row);
    }
    table.write(into, style)
}
