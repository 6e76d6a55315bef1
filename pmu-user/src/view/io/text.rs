//! Text report of I/O: a table for each family of metrics and each kind of subject, with subjects in rows and
//! metrics in columns.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

use super::{
    super::{
        Part,
        text::{
            Brevity, COLUMNS, Style, beside, named, percent, section,
            table::{Align, Table, cut},
        },
        words,
    },
    checks, levels, number,
};
use crate::{
    metric::io::{IoReport, Label, Row, Scope, Subject},
    table::{
        metric::{self, Family, Metric},
        unit::Unit,
    },
};

/// Writes the I/O sections of the whole run.
pub(in crate::view) fn sections(into: &mut dyn Write, style: &Style, report: &IoReport) -> io::Result<()> {
    tables(into, style, report, Part::Whole)?;
    levels::text(into, style, report)
}

/// Writes the numbers, by family and kind of subject.
pub(in crate::view) fn tables(
    into: &mut dyn Write,
    style: &Style,
    report: &IoReport,
    part: Part,
) -> io::Result<()> {
    let rows = report.by_program();
    let apart = rows.into_iter().filter(|row| !beside::is_of_an_owner(row) && !is_nothing(row));
    let all: Vec<Row> = apart.flat_map(Row::parts).collect();
    for family in Family::IO {
        let of_family = |row: &&Row| Family::of(&row.metric) == Some(family);
        let mut by_kind: BTreeMap<(u8, &str), Vec<&Row>> = BTreeMap::new();
        for row in all.iter().filter(of_family) {
            by_kind.entry((rank(&row.subject), words::subject(&row.subject))).or_default().push(row);
        }
        for ((rank, kind), rows) in by_kind {
            if is_left_out(style, family, rank, &rows) {
                continue;
            }
            if part == Part::Whole || rows.iter().any(|row| row.value.known().is_some()) {
                one(into, style, family, kind, &rows)?;
            }
        }
    }
    Ok(())
}

/// Returns whether a report of one screen leaves the table out. A table without a number is left out. The
/// shortest report also leaves out what the table of owners has.
fn is_left_out(style: &Style, family: Family, rank: u8, rows: &[&Row]) -> bool {
    let of_owners = rank == OWNERS && Family::TRAFFIC.contains(&family);
    let is_empty = || rows.iter().all(|row| row.value.known().is_none());
    match style.brevity {
        Brevity::Full => false,
        Brevity::Short => is_empty(),
        Brevity::Shortest => of_owners || is_empty(),
    }
}

/// Metrics that are shown only if they are not zero.
const IF_ANY: [Metric; 6] = [
    metric::NET_ERRORS,
    metric::NET_DROPS,
    metric::NET_DROP_SHARE,
    metric::NET_RETRANSMITTED,
    metric::NET_RETRANSMITTED_SHARE,
    metric::NET_LISTEN_DROPS,
];

/// Returns whether the row is a zero of a metric that is shown only if it is not zero.
fn is_nothing(row: &Row) -> bool {
    let is_zero = row.value.known().is_some_and(|known| known.high == 0.0);
    is_zero && IF_ANY.iter().any(|metric| metric.name == row.metric)
}

/// Returns the title of a family's tables.
const fn title(family: Family) -> &'static str {
    match family {
        Family::Pcie => "PCIe",
        Family::Link => "PCIe LINKS",
        Family::Ddio => "LAST-LEVEL CACHE AND I/O",
        Family::Conflicts => "CONFLICTS OF CPU AND I/O",
        Family::Iommu => "IOMMU",
        Family::Memory => "MEMORY",
        Family::Llc => "LAST-LEVEL CACHE",
        Family::FreeRunning => "COUNTERS THAT ALWAYS RUN",
        Family::Upi => "LINKS BETWEEN SOCKETS",
        Family::Block => "BLOCK DEVICES",
        Family::BlockLatency => "LATENCY AT BLOCK DEVICES",
        Family::BlockQueue => "LATENCY IN THEIR QUEUES",
        Family::Network => "NETWORK",
        other => other.name(),
    }
}

/// Returns the rank of a subject. Small things come first, because they say most.
const fn rank(subject: &Subject) -> u8 {
    match subject {
        Subject::Device(..) | Subject::Function(..) => 0,
        Subject::Scope(Scope::Part(..)) => 1,
        Subject::Scope(Scope::Stack(..) | Scope::Channel(..) | Scope::Link(..)) => 2,
        Subject::Scope(Scope::Socket(_)) => 3,
        Subject::Scope(Scope::Platform) => 4,
        Subject::Disk(..) | Subject::Interface(..) => 5,
        Subject::Group(_) => 6,
        Subject::Owner(..) => OWNERS,
    }
}

/// Rank of owners as subjects.
const OWNERS: u8 = 7;

/// Writes a table of rows of one family and kind, and the reasons for missing numbers. Writes only the
/// reasons if all numbers are missing.
fn one(into: &mut dyn Write, style: &Style, family: Family, kind: &str, rows: &[&Row]) -> io::Result<()> {
    let mut metrics: Vec<(&str, Unit)> = Vec::new();
    for row in rows.iter().filter(|row| row.value.known().is_some()) {
        let column = (row.metric.as_str(), row.unit);
        if !metrics.contains(&column) {
            metrics.push(column);
        }
    }
    let reasons: BTreeSet<&str> = rows.iter().filter_map(|row| row.value.reason()).collect();
    // Metrics that the whole host lacks are listed once, at the end.
    let everywhere = rows.iter().all(|row| row.subject == Subject::Scope(Scope::Platform));
    if metrics.is_empty() && everywhere {
        return Ok(());
    }
    let note = match family {
        Family::BlockLatency | Family::BlockQueue => "; percentiles to 6.25 %",
        _ => "",
    };
    section(into, title(family), &format!("by {kind}{note}"))?;
    if metrics.is_empty() {
        return why(into, &reasons);
    }
    let mut by_subject: Vec<(&Subject, Vec<&Row>)> = Vec::new();
    for row in rows {
        match by_subject.iter_mut().find(|(subject, _)| *subject == &row.subject) {
            Some((_, rows)) => rows.push(row),
            None => by_subject.push((&row.subject, vec![row])),
        }
    }
    let shown = &by_subject[..by_subject.len().min(style.rows_max)];
    let columns = columns(&metrics, shown);
    let titles = columns.iter().map(|column| (column.title.as_str(), column.align));
    let mut table = Table::new(&[(kind, Align::Left)].into_iter().chain(titles).collect::<Vec<_>>());
    for (at, (subject, _)) in shown.iter().enumerate() {
        let cells = columns.iter().map(|column| column.cells[at].clone());
        table.row([subject_name(subject)].into_iter().chain(cells).collect());
    }
    table.write(into, style)?;
    if by_subject.len() > style.rows_max {
        writeln!(into, "  {COLUMNS}{} more; --top shows them{COLUMNS:#}", by_subject.len() - style.rows_max)?;
    }
    let notes: BTreeSet<&str> = rows.iter().filter_map(|row| row.note.as_deref()).collect();
    notes.iter().take(style.rows_max).try_for_each(|note| writeln!(into, "  {COLUMNS}{note}{COLUMNS:#}"))?;
    why(into, &reasons)
}

/// Column behind the subjects, with a cell for each of them.
struct Column {
    title: String,
    align: Align,
    cells: Vec<String>,
}

/// Returns a column per metric, each followed by its apportioned shares, because directions have separate
/// shares. Neighbours with the same shares have one column of them.
fn columns(metrics: &[(&str, Unit)], subjects: &[(&Subject, Vec<&Row>)]) -> Vec<Column> {
    let cells = |metric: &str, cell: &dyn Fn(&Row) -> Option<String>, none: &str| -> Vec<String> {
        let row = |rows: &[&Row]| rows.iter().find(|row| row.metric == metric).and_then(|row| cell(row));
        subjects.iter().map(|(_, rows)| row(rows).unwrap_or_else(|| none.to_owned())).collect()
    };
    let shares = |&(metric, _): &(&str, Unit)| cells(metric, &|row| share(&row.label), "");
    let mut columns = Vec::new();
    for (at, column) in metrics.iter().enumerate() {
        let (metric, unit) = *column;
        let numbers = cells(metric, &|row| row.value.known().map(|known| number(known, unit)), "–");
        columns.push(Column { title: title_of(metric, unit), align: Align::Right, cells: numbers });
        let of_it = shares(column);
        let again = metrics.get(at + 1).is_some_and(|next| shares(next) == of_it);
        if !again && of_it.iter().any(|share| !share.is_empty()) {
            columns.push(Column { title: "share (attributed)".to_owned(), align: Align::Left, cells: of_it });
        }
    }
    columns
}

/// Writes the reasons for missing numbers, as far as there is room.
fn why(into: &mut dyn Write, reasons: &BTreeSet<&str>) -> io::Result<()> {
    const REASONS_MAX: usize = 3;
    let shown = reasons.iter().take(REASONS_MAX);
    shown.into_iter().try_for_each(|why| writeln!(into, "  {COLUMNS}–: {why}{COLUMNS:#}"))?;
    match reasons.len().saturating_sub(REASONS_MAX) {
        0 => Ok(()),
        more => writeln!(into, "  {COLUMNS}–: {more} more reasons; --json has all{COLUMNS:#}"),
    }
}

/// Returns the title of a column: `inbound_read_bw MB/s`. The family is in the table's title, and times
/// include their unit.
fn title_of(metric: &str, unit: Unit) -> String {
    let name = metric.strip_prefix(Family::of(metric).map_or("", Family::name)).unwrap_or(metric);
    let name = name.strip_prefix('.').unwrap_or(name);
    match unit {
        Unit::Ratio | Unit::Ns | Unit::UNKNOWN => name.to_owned(),
        unit => format!("{name} {}", unit.name()),
    }
}

pub(in crate::view) fn subject_name(subject: &Subject) -> String {
    match subject {
        Subject::Scope(Scope::Platform) => "all".to_owned(),
        Subject::Scope(at) => words::place(*at),
        Subject::Device(address, names) | Subject::Function(address, names) => {
            format!("{address} {}", cut(&names.terminal()))
        }
        Subject::Disk(name, "all") => cut(&name.terminal()),
        Subject::Disk(name, part) | Subject::Interface(name, part) => {
            format!("{} {part}", cut(&name.terminal()))
        }
        Subject::Group(path) => cut(&path.terminal()),
        Subject::Owner(owner, of) => format!("{}: {}", named(owner), subject_name(of)),
    }
}

fn share(label: &Label) -> Option<String> {
    match label {
        Label::Apportioned { share, coverage } => {
            Some(format!("{} ({})", percent(*share), percent(*coverage)))
        }
        Label::Measured | Label::System => None,
    }
}

/// Writes how complete the numbers of I/O are.
pub(in crate::view) fn trust(into: &mut dyn Write, style: &Style, report: &IoReport) -> io::Result<()> {
    section(into, "TRUST", "95 % intervals where counters took turns")?;
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Label, Row, Style, Subject, one, title_of};
    use crate::{
        drain::Owner,
        metric::{io::Scope, value::Value},
        table::{metric::Family, unit::Unit},
        untrusted::Untrusted,
    };

    /// Returns a number of an owner, apportioned by this share.
    fn apportioned(metric: &str, share: f64) -> Row {
        let owner = Owner::cgroup(7, Untrusted::from("/web"));
        Row {
            subject: Subject::Owner(owner, Box::new(Subject::Scope(Scope::Platform))),
            metric: format!("pcie.{metric}"),
            unit: Unit::MegabytesPerSecond,
            value: Value::exact(1000.0 * share),
            distribution: None,
            label: Label::Apportioned { share, coverage: 0.9 },
            note: None,
        }
    }

    #[test]
    fn each_direction_has_its_own_share() {
        let lines = |rows: &[Row]| -> [Vec<String>; 2] {
            let mut bytes = Vec::new();
            let style = Style { blocks: false, ..Style::default() };
            one(&mut bytes, &style, Family::Pcie, "owner", &rows.iter().collect::<Vec<_>>()).unwrap();
            let text = anstream::adapter::strip_str(std::str::from_utf8(&bytes).unwrap()).to_string();
            let table = text.lines().filter(|line| line.contains("bw MB/s") || line.contains("web"));
            let columns = table.map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()));
            let columns: Vec<Vec<String>> = columns.map(|cells| cells.map(str::to_owned).collect()).collect();
            columns.try_into().unwrap()
        };
        let (write, read) = (apportioned("inbound_write_bw", 0.25), apportioned("inbound_read_bw", 0.75));
        let [titles, cells] = lines(&[write.clone(), read]);
        let share = "share (attributed)";
        assert_eq!(titles[1..], ["inbound_write_bw MB/s", share, "inbound_read_bw MB/s", share]);
        assert_eq!(cells[1..], ["250", "25.0 % (90.0 %)", "750", "75.0 % (90.0 %)"]);
        let [titles, cells] = lines(&[write, apportioned("outbound_write_bw", 0.25)]);
        assert_eq!(titles[1..], ["inbound_write_bw MB/s", "outbound_write_bw MB/s", share]);
        assert_eq!(cells[1..], ["250", "250", "25.0 % (90.0 %)"]);
    }

    #[test]
    fn a_column_leaves_out_what_the_tables_title_says() {
        assert_eq!(title_of("block.latency.p99.9", Unit::Ns), "p99.9");
        assert_eq!(
            title_of("pcie.outbound_read_bw.by_cpu", Unit::MegabytesPerSecond),
            "outbound_read_bw.by_cpu MB/s"
        );
    }
}
