//! Detail of one owner.

use ratatui_core::{layout::Rect, style::Style};

use super::{
    chart::Canvas,
    lines::{BOLD, Lines, chart, with_interval},
    owners::{Place, cell, fitted},
    row::{Bounded, OwnerRow, RATES, Waits},
    state::name_of,
};
use crate::{
    metric::OwnerOrTarget,
    view::text::{bytes, count, duration, percent, three_digits},
};

/// Draws one owner: every number with its interval, and the course of its CPU time and its waits.
pub(super) fn draw(canvas: &mut Canvas<'_>, place: &Place<'_>, whose: &OwnerOrTarget) {
    let row = place.snapshot.row_of(whose);
    let width = usize::from(place.area.width);
    let series =
        |value: fn(&OwnerRow) -> Option<Bounded>| place.history.series(whose, place.number, width, value);
    let (cpu, waits) = (series(|row| row.cpu), series(|row| row.waits.as_ref().map(|waits| waits.p99)));
    let mut lines = Lines::new(canvas, place.area);
    let absent = if row.is_none() { ": not seen in this interval" } else { "" };
    lines.add(&format!("{}{absent}", fitted(&name_of(whose), width.saturating_sub(32))), BOLD);
    if let Some(row) = row {
        facts(&mut lines, row);
    }
    let rest = lines.rest();
    let half = rest.height / 2;
    for (name, series, show, area) in [
        ("CPU", &cpu, percent as fn(f64) -> String, Rect { height: half, ..rest }),
        ("wait p99", &waits, duration, Rect { y: rest.y + half, height: rest.height - half, ..rest }),
    ] {
        let mut part = Lines::new(lines.canvas, Rect { x: area.x - 1, width: area.width + 1, ..area });
        chart(&mut part, name, series, show);
    }
}

fn facts(lines: &mut Lines<'_, '_>, row: &OwnerRow) {
    let waits = |value: fn(&Waits) -> Bounded| row.waits.as_deref().map(value);
    lines.add(
        &format!(
            "CPU {}   IPC {}   blind {}",
            with_interval(row.cpu, percent),
            with_interval(row.ipc, three_digits),
            with_interval(row.blind, percent)
        ),
        Style::new(),
    );
    lines.add(
        &format!(
            "wait p50 {}   p99 {}   max {}",
            with_interval(waits(|waits| waits.p50), duration),
            with_interval(waits(|waits| waits.p99), duration),
            with_interval(waits(|waits| waits.max), duration)
        ),
        Style::new(),
    );
    if let Some(culprits) = row.culprits.in_words(&row.who) {
        lines.add(&format!("CPU used by {culprits}"), Style::new());
    }
    let rates: Vec<String> = RATES
        .iter()
        .zip(row.rates)
        .map(|((name, _), rate)| format!("{name} {}", cell(rate, count).0))
        .collect();
    lines.add(&format!("a second: {}", rates.join("  ")), Style::new());
    if row.block.is_some() || row.net.is_some() {
        let moved = |value| cell(value, |value| bytes(value as u64)).0;
        lines.add(&format!("block {}/s   net {}/s", moved(row.block), moved(row.net)), Style::new());
    }
}
