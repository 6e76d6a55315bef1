//! Run as text: the sections of each of its sources, one after the other.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr as _;

use super::{
    Brevity, COLUMNS, Section, Style, TITLE, WARNING, beside, duration, findings,
    interval as interval_of_tasks, interval_title, line, of_tasks, runs, sections::ordered, stat, trust,
};
use crate::{
    drain::{Ending, Header, Stopped, TasksHeader},
    metric::{Report, TasksReport},
    view::{
        io::text as io_text,
        stage::{Part, Stage},
        words,
    },
};

/// Writes a stage as text.
pub(in crate::view) fn write(into: &mut dyn Write, style: &Style, stage: Stage<'_>) -> io::Result<()> {
    match stage {
        Stage::Begin(_) => Ok(()),
        Stage::Interval(report, before) => interval(into, style, report, before == 0),
        Stage::Whole { header, report, ending, .. } => whole(into, style, header, report, ending),
    }
}

fn interval(into: &mut dyn Write, style: &Style, report: &Report, is_first: bool) -> io::Result<()> {
    if let Some(counts) = &report.counts {
        stat::interval(into, style, counts, is_first)?;
    }
    if let Some(tasks) = &report.tasks {
        interval_of_tasks(into, style, tasks, is_first)?;
    }
    let Some(of_io) = &report.io else { return Ok(()) };
    if report.tasks.is_none() {
        interval_title(into, of_io.from_ns, of_io.length_ns)?;
    }
    beside::write(into, style, report.tasks.as_ref(), of_io)?;
    io_text::tables(into, style, of_io, Part::Interval)
}

/// Writes the whole run, in as much detail as fits the lines.
fn whole(
    into: &mut dyn Write,
    style: &Style,
    header: &Header,
    report: &Report,
    ending: &Ending,
) -> io::Result<()> {
    // For devices and counters alone, nothing indicates which of them matter.
    let Some(lines_max) = style.screen.filter(|_| report.tasks.is_some()) else {
        return sections(into, style, header, report, ending);
    };
    let mut text = Vec::new();
    for brevity in [Brevity::Full, Brevity::Short, Brevity::Shortest] {
        text.clear();
        sections(&mut text, &Style { brevity, ..*style }, header, report, ending)?;
        if lines(&text, style.width) <= lines_max {
            break;
        }
    }
    into.write_all(&text)
}

/// Returns the number of lines of a text once folded.
fn lines(text: &[u8], width: Option<usize>) -> usize {
    // The text is valid UTF-8: names in it are escaped.
    let Ok(text) = std::str::from_utf8(text) else { return 0 };
    let plain = anstream::adapter::strip_str(text).to_string();
    plain.lines().map(|line| width.map_or(1, |width| line.width().div_ceil(width).max(1))).sum()
}

/// Writes the head, the sections of every source, and how far they can be trusted.
fn sections(
    into: &mut dyn Write,
    style: &Style,
    header: &Header,
    report: &Report,
    ending: &Ending,
) -> io::Result<()> {
    let tasks = header.tasks.as_ref().zip(report.tasks.as_ref());
    let of_io = report.io.as_ref();
    if report.counts.is_none() {
        head(into, header, report, ending)?;
    }
    if let Some(span) = report.span {
        line(into, "span", &words::span(span))?;
    }
    if report.counts.is_none() && style.sections.has(Section::Findings) {
        findings::write(into, style, &report.findings)?;
    }
    for (section, style) in ordered(style, &report.findings) {
        if let Some(tasks) = tasks {
            of_tasks(into, &style, section, tasks)?;
        }
        match (section, of_io) {
            (Section::Traffic, Some(io)) => beside::write(into, &style, report.tasks.as_ref(), io)?,
            (Section::Io, Some(io)) => io_text::sections(into, &style, io)?,
            _ => {}
        }
    }
    end(into, style, report)?;
    let counts = header.counts.as_ref().zip(report.counts.as_ref());
    match counts.filter(|_| style.sections.has(Section::Counts)) {
        Some((header, report)) => stat::whole(into, style, &header.plan, report, ending),
        None => Ok(()),
    }?;
    left_out(into, style)
}

/// Writes what a report of one screen leaves out, and the options that show it.
fn left_out(into: &mut dyn Write, style: &Style) -> io::Result<()> {
    if style.brevity == Brevity::Full {
        return Ok(());
    }
    let rows = Style::DEFAULT.rows_max;
    writeln!(
        into,
        "\n{COLUMNS}shortened: `--top {rows}` shows {rows} rows a table, the latency histogram, and all of BLIND TIME, QUALITY and OWN COST; `--sections NAME` all of a section{COLUMNS:#}"
    )
}

/// Writes how far the numbers can be trusted, and their cost.
fn end(into: &mut dyn Write, style: &Style, report: &Report) -> io::Result<()> {
    if style.sections.has(Section::Quality) {
        if let Some(report) = &report.tasks {
            trust::quality(into, style, &report.quality)?;
        }
        if let Some(report) = &report.io {
            io_text::trust(into, style, report)?;
        }
        if report.cost.is_some() {
            trust::followed(into, &report.followed)?;
            trust::missing(into, style, &report.missing)?;
            trust::losses(into, &report.losses)?;
        }
    }
    let cost = report.cost.as_ref().filter(|_| style.sections.has(Section::Cost));
    cost.map_or(Ok(()), |cost| trust::cost(into, style, cost))
}

/// Writes the first lines: what was measured, where, when, and how it ended.
fn head(into: &mut dyn Write, header: &Header, report: &Report, ending: &Ending) -> io::Result<()> {
    let Header { version, machine, tasks, io, .. } = header;
    let guest = if machine.cpu.guest { ", virtual machine" } else { "" };
    writeln!(into, "{TITLE}pmbpf {version}{TITLE:#}")?;
    let cpus = machine.cpu.online.len();
    line(into, "host", &format!("{}, Linux {}", machine.host.terminal(), machine.kernel.terminal()))?;
    line(into, "cpu", &format!("{}, {cpus} CPUs{guest}", machine.cpu.model.terminal()))?;
    let target = match (tasks, io) {
        (Some(TasksHeader { plan, .. }), _) => {
            format!("{}, by {}, on cpu {}", words::target(plan), words::by(plan), words::cpus(plan))
        }
        (None, io) => io.as_ref().map(|io| io.plan.target_in_words()).unwrap_or_default(),
    };
    line(into, "target", &target)?;
    let of_io = || report.io.as_ref().map(|io| io.length_ns);
    let length_ns = report.tasks.as_ref().map(|tasks| tasks.length_ns).or_else(of_io).unwrap_or(0);
    let started = words::started_at(header.started_unix_ns);
    line(into, "counted", &format!("{} from {started}", duration(length_ns as f64)))?;
    if let Some((header, report)) = tasks.as_ref().zip(report.tasks.as_ref()) {
        head_tasks(into, header, report)?;
    }
    if let Some(command) = words::command(ending) {
        line(into, "command", &command)?;
    }
    if ending.stopped == Stopped::Truncated {
        writeln!(into, "{WARNING}incomplete: the recording breaks off{WARNING:#}")?;
    }
    let lost = tasks.iter().flat_map(|tasks| &tasks.plan.lost);
    lost.into_iter()
        .try_for_each(|lost| writeln!(into, "{WARNING}lost here: {}: {}{WARNING:#}", lost.row, lost.why))
}

/// Writes the lines that only tasks have: how they were sampled and counted.
fn head_tasks(into: &mut dyn Write, header: &TasksHeader, report: &TasksReport) -> io::Result<()> {
    match header.plan.sampling.as_slice() {
        [] => line(into, "samples", "off")?,
        events => events.iter().try_for_each(|event| line(into, "samples", &words::sampling(event)))?,
    }
    if let Some(profile) = &header.plan.profile {
        line(into, "config", profile)?;
    }
    let runs = report.topdown.iter().flatten().find_map(|topdown| topdown.runs.as_ref());
    runs.map_or(Ok(()), |of| line(into, "runs", &runs::line(of)))
}
