//! Blind time, and the longest gaps with the code where interrupts came back on.

use std::io::{self, Write};

use super::{
    Brevity, COLUMNS, Style,
    number::{duration, percent, sentence},
    section,
    table::{Align, Table, cut},
};
use crate::{
    drain::Id,
    metric::{Blind, GapReport, Masked, TasksReport},
};

/// Maximum number of stack entries shown for a gap.
const FRAMES: usize = 5;

pub(super) fn write(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    let blind: &Blind = &report.blind;
    let note = format!("ticks more than {} late; 95 % interval", duration(blind.late_min_ns as f64));
    section(into, "BLIND TIME", &note)?;
    let is_short = style.brevity != Brevity::Full;
    match &blind.target {
        Some(target) if is_short => writeln!(into, "  masked    {}", masked(target, "of its CPU time"))?,
        Some(target) => {
            writeln!(into, "  masked    {}", masked(target, "of its CPU time"))?;
            let machine = masked(&blind.machine, "of the CPUs' time");
            writeln!(into, "  machine   masked {machine}")?;
        }
        None => writeln!(into, "  masked    {}", masked(&blind.machine, "of the CPUs' time"))?,
    }
    if is_short {
        return gaps_in_short(into, blind);
    }
    let stolen = if blind.target.is_some() { "machine   stolen" } else { "stolen   " };
    writeln!(
        into,
        "  {stolen} {} from {} late ticks; {} more came late to an idle CPU",
        sentence(&blind.stolen, duration),
        blind.stolen_ticks,
        blind.idle_ticks
    )?;
    if let Some((time, ticks)) = &blind.handled {
        let handlers = if blind.target.is_some() { "machine   handlers" } else { "handlers " };
        writeln!(into, "  {handlers} {} from {ticks} late ticks", sentence(time, duration))?;
    }
    floor(into, blind)?;
    gaps(into, style, blind)
}

/// Writes the late ticks that are not counted as masked, and those counted that may have another cause.
fn floor(into: &mut dyn Write, blind: &Blind) -> io::Result<()> {
    let who = if blind.guest { "other handlers or the hypervisor" } else { "other handlers" };
    let masked = blind.masked();
    let Some(floor) = &blind.floor else {
        return writeln!(into, "  floor     not known: no tick hit user code");
    };
    let in_kernel = masked.floor_ns.map_or_else(String::new, |of_floor_ns| {
        format!("; {} in the kernel is theirs, and not in masked", duration(of_floor_ns))
    });
    writeln!(
        into,
        "  floor     {} of {} ticks in user code were late ({}), by {who}{in_kernel}",
        floor.late_ticks,
        floor.user_ticks,
        percent(floor.share())
    )?;
    if blind.guest && masked.late_ticks > 0 {
        writeln!(
            into,
            "            {} of {} late ticks in the kernel came right where it unmasks; the others may be the hypervisor's",
            masked.sure_ticks, masked.late_ticks
        )?;
    }
    Ok(())
}

/// Returns the masked time, the number of its late ticks, and its share `of` a time. Returns the reason if
/// the time is not known.
fn masked(masked: &Masked, of: &str) -> String {
    let time = sentence(&masked.time, duration);
    let share = masked
        .share()
        .map(|share| format!(" from {} late ticks: {} {of}", masked.late_ticks, percent(share)));
    time + &share.unwrap_or_default()
}

/// Writes the number of the target's gaps, and the longest one.
fn gaps_in_short(into: &mut dyn Write, blind: &Blind) -> io::Result<()> {
    let Some(longest) = blind.gaps.first() else { return Ok(()) };
    let cells = row(longest);
    let [late, at, cpu, class, ran, stack] = cells.as_slice() else { return Ok(()) };
    writeln!(
        into,
        "  gaps      {} of {} or more; the longest {late} at {at} on CPU {cpu}, {class}: {ran}, {stack}",
        blind.gaps.len(),
        duration(blind.gap_min_ns as f64)
    )
}

/// Writes the target's gaps, and the number of other gaps.
fn gaps(into: &mut dyn Write, style: &Style, blind: &Blind) -> io::Result<()> {
    let (least, shown) = (duration(blind.gap_min_ns as f64), style.rows_max.min(10));
    let whose = if blind.target.is_some() { " while the target ran" } else { "" };
    if blind.gaps.is_empty() {
        writeln!(into, "  no gap of {least} or more{whose}")?;
    } else {
        writeln!(
            into,
            "  {COLUMNS}{} gaps of {least} or more{whose}; the longest{COLUMNS:#}",
            blind.gaps.len()
        )?;
        use Align::{Left, Right, Words};
        let columns = [
            ("late", Right),
            ("at", Right),
            ("cpu", Right),
            ("class", Left),
            ("ran", Left),
            ("interrupts came back on in", Words),
        ];
        let mut table = Table::new(&columns);
        blind.gaps.iter().take(shown).for_each(|gap| table.row(row(gap)));
        table.write(into, style)?;
        match blind.gaps.len().saturating_sub(shown) {
            0 => {}
            more => writeln!(into, "  {more} more gaps are not shown; --json lists them")?,
        }
    }
    if let Some(longest) = blind.others_gaps.first() {
        writeln!(
            into,
            "  machine   {} gaps while others ran, the longest {}; --json lists them",
            blind.others_gaps.len(),
            duration(longest.gap.row.late_ns as f64)
        )?;
    }
    match blind.gaps_left_out {
        0 => Ok(()),
        left_out => writeln!(
            into,
            "  machine   {left_out} late timers that are in no gap here: only the longest are kept"
        ),
    }
}

fn row(gap: &GapReport) -> Vec<String> {
    let row = &gap.gap.row;
    let frames: Vec<String> = gap.stack.iter().take(FRAMES).map(|frame| cut(&frame.terminal())).collect();
    let stack = if frames.is_empty() { "user code".to_owned() } else { frames.join(" < ") };
    vec![
        duration(row.late_ns as f64),
        format!("{:.3} s", row.at_ns as f64 / 1e9),
        row.cpu.0.to_string(),
        gap.handler.as_deref().map_or_else(|| gap.class.name().to_owned(), cut),
        format!("{} {}", cut(&row.comm.terminal()), Id::of(row.tgid)),
        stack,
    ]
}
