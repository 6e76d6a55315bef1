//! The report for people: a table for each family of metrics and each kind of subject, subjects down, metrics across.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

use super::{
    super::{
        Part,
        text::{
            COLUMNS, Style, TITLE, WARNING, duration, head_machine, line, name as owner_name, percent,
            section,
            table::{Align, Table, cut},
            three_digits,
        },
        words,
    },
    checks, kind, levels, place,
};
use crate::{
    drain::{Ending, Stopped, io::IoHeader},
    metric::{
        Who,
        io::{IoReport, Label, Place, Row, Subject},
        value::{How, Known, Value},
    },
};

/// Families of metrics, which their names begin with, with the titles of their tables, in order.
const FAMILIES: [(&str, &str); 12] = [
    ("pcie", "PCIe"),
    ("link", "PCIe LINKS"),
    ("ddio", "LAST-LEVEL CACHE AND I/O"),
    ("io", "CONFLICTS OF CPU AND I/O"),
    ("vtd", "IOMMU"),
    ("dram", "MEMORY"),
    ("llc", "LAST-LEVEL CACHE"),
    ("free", "COUNTERS THAT ALWAYS RUN"),
    ("upi", "LINKS BETWEEN SOCKETS"),
    ("block", "BLOCK DEVICES"),
    ("block.latency", "LATENCY AT BLOCK DEVICES"),
    ("block.queue", "LATENCY IN THEIR QUEUES"),
];
/// The family of what is left.
const NETWORK: (&str, &str) = ("net", "NETWORK");

/// Intervals narrower than this share of the estimate are not worth a column's width.
const NARROW: f64 = 0.005;

/// One interval.
pub(super) fn interval(into: &mut dyn Write, style: &Style, report: &IoReport) -> io::Result<()> {
    let (from, length) = (report.from_ns as f64 / 1e9, duration(report.length_ns as f64));
    writeln!(into, "\n{TITLE}{from:.3} s + {length}{TITLE:#}")?;
    tables(into, style, report, Part::Interval)
}

/// The whole run.
pub(super) fn whole(
    into: &mut dyn Write,
    style: &Style,
    header: &IoHeader,
    report: &IoReport,
    ending: &Ending,
) -> io::Result<()> {
    let plan = &header.plan;
    head_machine(into, &header.version, &header.machine)?;
    let target = words::whom_in_words(&plan.target, plan.inherit, plan.descend);
    line(into, "target", &target)?;
    let started = words::started_at(header.started_unix_ns);
    line(into, "counted", &format!("{} from {started}", duration(report.length_ns as f64)))?;
    if let Some(workload) = ending.workload {
        line(into, "command", &words::workload(workload))?;
    }
    if ending.stopped == Stopped::Truncated {
        writeln!(into, "{WARNING}incomplete: the recording breaks off{WARNING:#}")?;
    }
    tables(into, style, report, Part::Whole)?;
    levels::text(into, style, report)?;
    trust(into, style, report)
}

fn tables(into: &mut dyn Write, style: &Style, report: &IoReport, part: Part) -> io::Result<()> {
    for (family, title) in FAMILIES.iter().chain([&NETWORK]) {
        let of_family = |row: &&Row| family_of(&row.metric) == *family;
        let mut by_kind: BTreeMap<(u8, &str), Vec<&Row>> = BTreeMap::new();
        for row in report.rows.iter().filter(of_family) {
            by_kind.entry((rank(&row.subject), kind(&row.subject))).or_default().push(row);
        }
        for ((_, kind), rows) in by_kind {
            if part == Part::Whole || rows.iter().any(|row| row.value.known().is_some()) {
                one(into, style, title, kind, &rows)?;
            }
        }
    }
    Ok(())
}

/// The longest family that a name begins with.
fn family_of(metric: &str) -> &str {
    let end = metric.find('.').unwrap_or(metric.len());
    let second = metric.get(end + 1..).unwrap_or_default();
    match second.find('.').map(|dot| &metric[..end + 1 + dot]) {
        Some(longer) if FAMILIES.iter().any(|(family, _)| *family == longer) => longer,
        _ => &metric[..end],
    }
}

/// Small things first: they say most.
const fn rank(subject: &Subject) -> u8 {
    match subject {
        Subject::Device(..) | Subject::Function(..) => 0,
        Subject::Place(Place::Part(..)) => 1,
        Subject::Place(Place::Stack(..) | Place::Channel(..) | Place::Link(..)) => 2,
        Subject::Place(Place::Socket(_)) => 3,
        Subject::Place(Place::Platform) => 4,
        Subject::Disk(..) | Subject::Interface(..) => 5,
        Subject::Group(_) => 6,
        Subject::Owner(..) => 7,
    }
}

/// A table of rows of one family and kind, and why numbers of it are missing; only that, if all of them are.
fn one(into: &mut dyn Write, style: &Style, title: &str, kind: &str, rows: &[&Row]) -> io::Result<()> {
    let mut metrics: Vec<(&str, &str)> = Vec::new();
    for row in rows.iter().filter(|row| row.value.known().is_some()) {
        let column = (row.metric.as_str(), row.unit.as_str());
        if !metrics.contains(&column) {
            metrics.push(column);
        }
    }
    let reasons: BTreeSet<&str> = rows.iter().filter_map(|row| reason(&row.value)).collect();
    // What the whole host lacks stands at the end, once.
    let everywhere = rows.iter().all(|row| row.subject == Subject::Place(Place::Platform));
    if metrics.is_empty() && everywhere {
        return Ok(());
    }
    let note = if title.starts_with("LATENCY") { "; percentiles to 6.25 %" } else { "" };
    section(into, title, &format!("by {kind}{note}"))?;
    if metrics.is_empty() {
        return why(into, &reasons);
    }
    let titles: Vec<String> = metrics.iter().map(|(metric, unit)| title_of(metric, unit)).collect();
    let mut columns = vec![(kind, Align::Left)];
    columns.extend(titles.iter().map(|title| (title.as_str(), Align::Right)));
    let apportioned = rows.iter().any(|row| matches!(row.label, Label::Apportioned { .. }));
    if apportioned {
        columns.push(("share (told apart)", Align::Left));
    }
    let mut by_subject: Vec<(&Subject, Vec<&Row>)> = Vec::new();
    for row in rows {
        match by_subject.iter_mut().find(|(subject, _)| *subject == &row.subject) {
            Some((_, rows)) => rows.push(row),
            None => by_subject.push((&row.subject, vec![row])),
        }
    }
    let mut table = Table::new(&columns);
    for (subject, rows) in by_subject.iter().take(style.rows_max) {
        let cell = |metric: &(&str, &str)| {
            let row = rows.iter().find(|row| row.metric == metric.0)?;
            row.value.known().map(|known| number(known, metric.1))
        };
        let mut cells = vec![subject_name(subject)];
        cells.extend(metrics.iter().map(|metric| cell(metric).unwrap_or_else(|| "–".to_owned())));
        if apportioned {
            cells.push(
                rows.iter().map(|row| share(&row.label)).find(|text| !text.is_empty()).unwrap_or_default(),
            );
        }
        table.row(cells);
    }
    table.write(into, COLUMNS)?;
    if by_subject.len() > style.rows_max {
        writeln!(into, "  {COLUMNS}{} more; --top shows them{COLUMNS:#}", by_subject.len() - style.rows_max)?;
    }
    let notes: BTreeSet<&str> = rows.iter().filter_map(|row| row.note.as_deref()).collect();
    notes.iter().take(style.rows_max).try_for_each(|note| writeln!(into, "  {COLUMNS}{note}{COLUMNS:#}"))?;
    why(into, &reasons)
}

/// Why numbers are missing, as far as there is room for it.
fn why(into: &mut dyn Write, reasons: &BTreeSet<&str>) -> io::Result<()> {
    const REASONS_MAX: usize = 3;
    let shown = reasons.iter().take(REASONS_MAX);
    shown.into_iter().try_for_each(|why| writeln!(into, "  {COLUMNS}–: {why}{COLUMNS:#}"))?;
    match reasons.len().saturating_sub(REASONS_MAX) {
        0 => Ok(()),
        more => writeln!(into, "  {COLUMNS}–: {more} more reasons; --json has all{COLUMNS:#}"),
    }
}

fn reason(value: &Value) -> Option<&str> {
    match value {
        Value::Known(_) => None,
        Value::Missing(why) => Some(why),
    }
}

/// `inbound_read_bw MB/s`: the family stands in the table's title, and times say their unit.
fn title_of(metric: &str, unit: &str) -> String {
    let name = metric.get(family_of(metric).len() + 1..).unwrap_or(metric);
    if matches!(unit, "1" | "ns" | "") { name.to_owned() } else { format!("{name} {unit}") }
}

fn subject_name(subject: &Subject) -> String {
    match subject {
        Subject::Place(Place::Platform) => "all".to_owned(),
        Subject::Place(at) => place(*at),
        Subject::Device(address, names) | Subject::Function(address, names) => {
            format!("{address} {}", cut(&names.terminal()))
        }
        Subject::Disk(name, part) | Subject::Interface(name, part) => {
            format!("{} {part}", cut(&name.terminal()))
        }
        Subject::Group(path) => cut(&path.terminal()),
        Subject::Owner(owner, of) => {
            let (name, pid) = owner_name(&Who::Owner(owner.clone()));
            let pid = if pid.is_empty() { pid } else { format!(" ({pid})") };
            format!("{name}{pid}: {}", subject_name(of))
        }
    }
}

pub(super) fn number(known: &Known, unit: &str) -> String {
    let estimate = if unit == "ns" { duration(known.estimate) } else { three_digits(known.estimate) };
    // Every time is known to its bucket at least, which the table's title says.
    if unit == "ns" && known.how == How::Counted {
        return estimate;
    }
    let reach = (known.high - known.low) / 2.0;
    if known.estimate == 0.0 || reach <= NARROW * known.estimate.abs() {
        return estimate;
    }
    format!("{estimate} ±{}", percent(reach / known.estimate.abs()))
}

fn share(label: &Label) -> String {
    match label {
        Label::Apportioned { share, coverage } => format!("{} ({})", percent(*share), percent(*coverage)),
        Label::Measured | Label::System => String::new(),
    }
}

/// A list of metrics, by family if it is long: `vtd (7), pcie (5)`. JSON names each.
fn shortened(what: &str) -> String {
    const NAMES_MAX: usize = 4;
    let names: Vec<&str> = what.split(", ").collect();
    if names.len() <= NAMES_MAX || names.iter().any(|name| !name.contains('.')) {
        return what.to_owned();
    }
    let mut families: Vec<(&str, usize)> = Vec::new();
    for name in names {
        let family = name.split('.').next().unwrap_or(name);
        match families.iter_mut().find(|(known, _)| *known == family) {
            Some((_, count)) => *count += 1,
            None => families.push((family, 1)),
        }
    }
    let words: Vec<String> = families.iter().map(|(family, count)| format!("{family} ({count})")).collect();
    words.join(", ")
}

/// How complete it is, and what it cost.
fn trust(into: &mut dyn Write, style: &Style, report: &IoReport) -> io::Result<()> {
    section(into, "TRUST", "95 % intervals where counters took turns")?;
    for (reason, count) in &report.losses {
        writeln!(into, "  {WARNING}lost: {reason}: {count}{WARNING:#}")?;
    }
    checks::text(into, style, report)?;
    for map in &report.maps {
        writeln!(
            into,
            "  map of {} {}: {}; traffic {}",
            map.port,
            cut(&map.names.terminal()),
            map.map,
            map.traffic
        )?;
    }
    for absent in &report.missing {
        writeln!(into, "  not measured: {}: {}", shortened(&absent.what), absent.why)?;
    }
    let wall_ns = report.length_ns.max(1) as f64;
    writeln!(
        into,
        "  cost: {} CPU time of pmbpf ({} of a CPU, start included), {} in the kernel's programs",
        duration(report.cost.cpu_ns as f64),
        percent(report.cost.cpu_ns as f64 / wall_ns),
        duration(report.programs_ns as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::{family_of, shortened, title_of};

    #[test]
    fn a_metric_stands_in_its_familys_table() {
        assert_eq!(family_of("pcie.inbound_read_bw"), "pcie");
        assert_eq!(family_of("block.latency.p99"), "block.latency");
        assert_eq!(family_of("block.bandwidth"), "block");
        assert_eq!(title_of("block.latency.p99.9", "ns"), "p99.9");
        assert_eq!(title_of("pcie.outbound_read_bw.by_cpu", "MB/s"), "outbound_read_bw.by_cpu MB/s");
    }

    #[test]
    fn a_long_list_of_metrics_is_told_by_family() {
        assert_eq!(shortened("vtd.a, pcie.b, vtd.c, pcie.d, vtd.e"), "vtd (3), pcie (2)");
        assert_eq!(shortened("vtd.a, pcie.b"), "vtd.a, pcie.b");
        assert_eq!(shortened("a, b, c, d, packets"), "a, b, c, d, packets");
    }
}
