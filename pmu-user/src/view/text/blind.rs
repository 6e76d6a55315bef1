//! Blind time, and the longest gaps with where interrupts came back on.

use std::io::{self, Write};

use super::{
    COLUMNS, Style,
    number::{duration, percent, sentence},
    section,
    table::{Align, Table, cut},
};
use crate::metric::{Blind, GapReport, Report};

/// Stack entries that a gap shows.
const FRAMES: usize = 5;

pub(super) fn write(into: &mut dyn Write, style: &Style, report: &Report) -> io::Result<()> {
    let blind: &Blind = &report.blind;
    let note = format!("ticks more than {} late; 95 % interval", duration(blind.late_min_ns as f64));
    section(into, "BLIND TIME", &note)?;
    let [masked, stolen, idle] = blind.late_ticks;
    let share = blind.masked.known().map(|known| {
        let capacity = report.length_ns as f64 * report.quality.ticks.coverage;
        format!(", {} of the time watched", percent(known.estimate / capacity.max(1.0)))
    });
    writeln!(
        into,
        "  masked    {} from {masked} late ticks{}",
        sentence(&blind.masked, duration),
        share.unwrap_or_default()
    )?;
    writeln!(
        into,
        "  stolen    {} from {stolen} late ticks; {idle} more came late to an idle CPU",
        sentence(&blind.stolen, duration)
    )?;
    if blind.gaps.is_empty() {
        return writeln!(into, "  no gap of {} or more", duration(blind.gap_min_ns as f64));
    }
    let shown = style.rows_max.min(10);
    writeln!(
        into,
        "  {COLUMNS}{} gaps of {} or more; the longest{COLUMNS:#}",
        blind.gaps.len(),
        duration(blind.gap_min_ns as f64)
    )?;
    use Align::{Left, Right};
    let columns = [
        ("late", Right),
        ("at", Right),
        ("cpu", Right),
        ("class", Left),
        ("ran", Left),
        ("interrupts came back on in", Left),
    ];
    let mut table = Table::new(&columns);
    blind.gaps.iter().take(shown).for_each(|gap| table.row(row(gap)));
    table.write(into, COLUMNS)
}

fn row(gap: &GapReport) -> Vec<String> {
    let row = &gap.gap.row;
    let frames: Vec<String> = gap.stack.iter().take(FRAMES).map(|frame| cut(&frame.terminal())).collect();
    let stack = if frames.is_empty() { "user code".to_owned() } else { frames.join(" < ") };
    vec![
        duration(row.late_ns as f64),
        format!("{:.3} s", row.at_ns as f64 / 1e9),
        row.cpu.0.to_string(),
        gap.class.name().to_owned(),
        format!("{} {}", cut(&row.comm.terminal()), row.tgid),
        stack,
    ]
}
