//! Text report: sections that can be read from the top, and left at any point.

pub(super) mod beside;
mod blind;
mod events;
mod findings;
mod fold;
mod hot;
mod interrupts;
mod latency;
mod limits;
pub(super) mod list;
pub(super) mod number;
mod off_cpu;
pub(super) mod report;
mod runs;
mod sections;
mod stacks;
pub(super) mod stat;
pub(super) mod table;
mod topdown;
mod trust;

use std::io::{self, Write};

pub use self::{
    fold::Folding,
    number::{duration, percent},
    sections::{Section, Sections},
    table::plain,
};
pub(super) use self::{
    latency::{CULPRITS_NAMED, OWN_OF_ROOT, culprits_in_words, is_root},
    number::{bytes, count, spread, three_digits},
};
use self::{
    number::cell,
    table::{Align, Table, cut},
};
use crate::{
    drain::{Id, Owner, TasksHeader},
    metric::{OwnerOrTarget, OwnerReport, TasksReport},
    table::metric,
};

/// Layout of the text.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Maximum number of rows of a table.
    pub rows_max: usize,
    /// Whether the number of rows was requested. If so, every table has that many.
    pub rows_asked_for: bool,
    /// Whether pictures are drawn with blocks, or in plain ASCII.
    pub blocks: bool,
    /// Columns that every line must fit, or `None` for any width.
    pub width: Option<usize>,
    /// Sections that are written.
    pub sections: Sections,
    /// Lines that a report should fit, or `None` for any length.
    pub screen: Option<usize>,
    /// Level of detail of each section.
    pub brevity: Brevity,
    /// Separator of the fields of perf's rows, where those are written.
    pub separator: char,
}

/// Lines of a report without further options.
pub const SCREEN: usize = 60;

/// Level of detail of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Brevity {
    /// Everything in each section.
    #[default]
    Full,
    /// Short tables without pictures, and one line for what is as it should be.
    Short,
    /// Only what a reader looks at first.
    Shortest,
}

impl Style {
    /// Default layout, where there is room.
    pub const DEFAULT: Self = Self {
        rows_max: 20,
        rows_asked_for: false,
        blocks: true,
        width: None,
        sections: Sections::ALL,
        screen: None,
        brevity: Brevity::Full,
        separator: ',',
    };
}

impl Default for Style {
    fn default() -> Self {
        Self::DEFAULT
    }
}

pub(super) const TITLE: anstyle::Style = anstyle::Style::new().bold();
pub(super) const COLUMNS: anstyle::Style = anstyle::Style::new().dimmed();
pub(super) const WARNING: anstyle::Style = anstyle::AnsiColor::Yellow.on_default();

pub(super) fn section(into: &mut dyn Write, title: &str, note: &str) -> io::Result<()> {
    writeln!(into, "\n{TITLE}{title}{TITLE:#}  {COLUMNS}{note}{COLUMNS:#}")
}

/// Returns the name and the id of a row.
pub(super) fn name(who: &OwnerOrTarget) -> (String, String) {
    match who {
        OwnerOrTarget::Target => ("all".to_owned(), String::new()),
        OwnerOrTarget::Owner(Owner::Other) => ("(owners beyond the limit)".to_owned(), String::new()),
        OwnerOrTarget::Owner(Owner::Process { pid, name, .. }) => {
            (cut(&name.terminal()), Id::of(*pid).to_string())
        }
        OwnerOrTarget::Owner(Owner::Ended { name, processes } | Owner::Program { name, processes }) => {
            (format!("{} × {processes}", cut(&name.terminal())), String::new())
        }
        OwnerOrTarget::Owner(Owner::Thread { tid, name, .. }) => {
            (cut(&name.terminal()), Id::of(*tid).to_string())
        }
        OwnerOrTarget::Owner(Owner::Comm { name } | Owner::Exe { name }) => {
            (cut(&name.terminal()), String::new())
        }
        OwnerOrTarget::Owner(cgroup @ Owner::Cgroup { .. }) => (cut(&cgroup.in_words()), String::new()),
    }
}

/// Returns an owner in a table of other things: its name, with its id if it has one.
pub(super) fn named(owner: &Owner) -> String {
    let (name, id) = name(&OwnerOrTarget::Owner(owner.clone()));
    if id.is_empty() { name } else { format!("{name} ({id})") }
}

/// Returns the title of the column of owners' ids.
pub(super) fn id_column<'a>(mut owners: impl Iterator<Item = &'a OwnerOrTarget>) -> &'static str {
    if owners.any(|who| matches!(who, OwnerOrTarget::Owner(Owner::Thread { .. }))) { "tid" } else { "pid" }
}

/// Writes one interval: its owners, one per line.
fn interval(into: &mut dyn Write, style: &Style, report: &TasksReport, first: bool) -> io::Result<()> {
    if first {
        writeln!(into, "{COLUMNS}each interval: owners by CPU time, and the hottest functions{COLUMNS:#}")?;
    }
    interval_title(into, report.from_ns, report.length_ns)?;
    owners(into, style, report)?;
    hot::interval(into, report)
}

/// Writes the start and the length of an interval.
pub(super) fn interval_title(into: &mut dyn Write, from_ns: u64, length_ns: u64) -> io::Result<()> {
    let (from, length) = (from_ns as f64 / 1e9, duration(length_ns as f64));
    writeln!(into, "\n{TITLE}{from:.3} s + {length}{TITLE:#}")
}

/// Writes a section on the tasks of the whole run.
fn of_tasks(
    into: &mut dyn Write,
    style: &Style,
    section: Section,
    (header, report): (&TasksHeader, &TasksReport),
) -> io::Result<()> {
    match section {
        Section::Owners => {
            self::section(into, "OWNERS", "by CPU time; wait: run-queue latency, 99th percentile")?;
            owners(into, style, report)
        }
        Section::Limits => limits::write(into, style, report),
        Section::Topdown => topdown::write(into, style, report),
        Section::Events => events::write(into, style, header, report),
        Section::Hot => hot::write(into, style, header, report),
        Section::Stacks => stacks::write(into, style, header, report),
        Section::Latency => latency::write(into, style, report),
        Section::OffCpu => off_cpu::write(into, style, report),
        Section::Interrupts => interrupts::write(into, style, report),
        Section::Blind => blind::write(into, style, report),
        Section::Findings
        | Section::Traffic
        | Section::Io
        | Section::Counts
        | Section::Quality
        | Section::Cost => Ok(()),
    }
}

/// Writes a line of a report's head.
pub(super) fn line(into: &mut dyn Write, label: &str, text: &str) -> io::Result<()> {
    writeln!(into, "{TITLE}{label:<9}{TITLE:#} {text}")
}

fn owners(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    use Align::{Left, Right};
    let owners: Vec<&OwnerReport> = report.rows().collect();
    let columns = [
        ("owner", Left),
        (id_column(owners.iter().map(|owner| &owner.who)), Right),
        ("cpu", Right),
        ("of a CPU", Right),
        ("switches", Right),
        ("invol.", Right),
        ("migr.", Right),
        ("faults", Right),
        ("major", Right),
        ("samples", Right),
        ("blind", Right),
        ("wait", Right),
    ];
    let mut table = Table::new(&columns).spare(["major", "faults", "migr.", "invol.", "switches", "samples"]);
    let shown = owners.len().min(style.rows_max);
    for owner in owners.iter().take(shown).copied().chain([&report.total]) {
        table.row(owner_row(owner, report.target_ns));
    }
    table.write(into, style)?;
    and_more(into, owners.len() - shown)
}

/// Writes the number of rows that are not shown, if any are not.
fn and_more(into: &mut dyn Write, more: usize) -> io::Result<()> {
    match more {
        0 => Ok(()),
        more => writeln!(into, "  {COLUMNS}… and {more} more; --top shows more, --json all{COLUMNS:#}"),
    }
}

fn owner_row(owner: &OwnerReport, target_ns: u64) -> Vec<String> {
    let (mut name, pid) = name(&owner.who);
    if owner.ended {
        name.push_str(" †");
    }
    let value = |wanted: &metric::Metric, show| cell(owner.value(wanted), show);
    let share = owner.value(&metric::CPU_TIME).map(|known| known.estimate / target_ns.max(1) as f64);
    let p99 = owner.waits.as_ref().ok().map(|waits| waits.quantile(0.99));
    vec![
        name,
        pid,
        value(&metric::CPU_TIME, duration),
        share.map_or("–".to_owned(), percent),
        value(&metric::CONTEXT_SWITCHES, count),
        value(&metric::INVOLUNTARY_SWITCHES, count),
        value(&metric::MIGRATIONS, count),
        value(&metric::MINOR_FAULTS, count),
        value(&metric::MAJOR_FAULTS, count),
        value(&metric::SAMPLES, count),
        value(&metric::BLIND_TIME, duration),
        cell(p99.as_ref(), duration),
    ]
}
