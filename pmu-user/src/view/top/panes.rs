//! Panes below the owners: latency, Top-Down, I/O, blind time and findings.

use ratatui_core::{
    layout::Rect,
    style::{Color, Modifier, Style},
};

use super::{
    chart::Canvas,
    choice::Pane,
    lines::{BOLD, DIM, Lines, chart, with_interval},
    owners::{Place, cell, fitted, letter},
    row::{BUCKETS, Bounded, UncoreRow, Waits},
    state::{State, name_of},
};
use crate::{
    metric::OwnerOrTarget,
    table::unit::Unit,
    view::{
        finding::{says, threshold},
        io::text::subject_name,
        text::{bytes, count, duration, named, percent, three_digits},
    },
};

/// Draws a pane about `whose` into the place's area.
pub(super) fn draw(canvas: &mut Canvas<'_>, place: &Place<'_>, pane: Pane, whose: &OwnerOrTarget) {
    match pane {
        Pane::Latency => latency(canvas, place, whose),
        Pane::TopDown => topdown(canvas, place, whose),
        Pane::Io => io(canvas, place),
        Pane::Blind => blind(canvas, place),
        Pane::Findings => findings(canvas, place),
    }
}

/// Draws the names of all panes, the one that is shown brighter.
pub(super) fn tabs(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    canvas.buffer.set_style(Rect { height: 1, ..area }, Style::new().add_modifier(Modifier::UNDERLINED));
    let mut x = area.x + 1;
    for (at, (pane, name)) in Pane::ALL.into_iter().enumerate() {
        let style = if pane == state.pane { BOLD.add_modifier(Modifier::REVERSED) } else { Style::new() };
        let room = area.right().saturating_sub(x);
        x += canvas.put((x, area.y), room, &format!("{} {name}", at + 1), style) + 2;
    }
}

fn latency(canvas: &mut Canvas<'_>, place: &Place<'_>, whose: &OwnerOrTarget) {
    let row = place.snapshot.row_of(whose);
    let waits = row.and_then(|row| row.waits.as_deref());
    let series = place.history.series(whose, place.number, usize::from(place.area.width), |row| {
        row.waits.as_ref().map(|waits| waits.p99)
    });
    let mut lines = Lines::new(canvas, place.area);
    let name = fitted(&name_of(whose), usize::from(place.area.width / 2));
    let Some(waits) = waits else {
        lines.add(&format!("run-queue latency of {name}: - (no task had to get a CPU)"), Style::new());
        return chart(&mut lines, "p99", &series, duration);
    };
    lines.add(&format!("run-queue latency of {name}"), BOLD);
    let quantiles = [("p50", waits.p50), ("p99", waits.p99), ("max", waits.max)];
    let words = quantiles.map(|(name, value)| format!("{name} {}", with_interval(Some(value), duration)));
    lines.add(&words.join("   "), Style::new());
    if let Some(culprits) = row.and_then(|row| row.culprits.in_words(whose)) {
        lines.add(&format!("CPU used by {culprits}"), Style::new());
    }
    buckets(&mut lines, waits);
    chart(&mut lines, "p99", &series, duration);
}

/// Draws the number of waits by their length, one character per power of two.
fn buckets(lines: &mut Lines<'_, '_>, waits: &Waits) {
    let count = |number: u32| {
        let number = number as f32;
        (number > 0.0).then_some(Bounded { estimate: number, low: number, high: number, coverage: 1.0 })
    };
    let last = waits.buckets.iter().rposition(|count| *count > 0).unwrap_or(0);
    let series: Vec<_> = waits.buckets[..=last].iter().map(|&number| count(number)).collect();
    let rest = lines.rest();
    if rest.height < 2 || rest.width < BUCKETS as u16 + 24 {
        return;
    }
    let width = series.len() as u16;
    lines.canvas.put((rest.x, rest.y), rest.width, "1us", DIM);
    let style = lines.canvas.tint(Color::Cyan);
    lines.canvas.sparkline((rest.x + 4, rest.y), width, &series, style);
    let end = duration(1000.0 * 2_f64.powi(last as i32 + 1));
    lines.canvas.put(
        (rest.x + 5 + width, rest.y),
        rest.width,
        &format!("{end}  waits by length, x2 each"),
        DIM,
    );
    lines.y += 1;
}

fn topdown(canvas: &mut Canvas<'_>, place: &Place<'_>, whose: &OwnerOrTarget) {
    let mut lines = Lines::new(canvas, place.area);
    if let Some(why) = &place.snapshot.no_topdown {
        return lines.add(&format!("no Top-Down: {why}"), Style::new());
    }
    let row = place.snapshot.row_of(whose).filter(|row| !row.nodes.is_empty());
    let name = fitted(&name_of(whose), usize::from(place.area.width / 2));
    let Some(row) = row else {
        return lines.add(&format!("no Top-Down of {name} in this interval"), Style::new());
    };
    let on = place.snapshot.pmu.as_ref().map_or(String::new(), |pmu| format!("on {pmu}   "));
    lines.add(&format!("{name}   {on}IPC {}", with_interval(row.ipc, three_digits)), BOLD);
    let (wide, bar) = (place.area.width >= 60, place.area.width.saturating_sub(54).min(40));
    for (shape, node) in place.snapshot.shapes().zip(&row.nodes) {
        let mark = if node.is_flagged { "▲" } else { " " };
        let label = format!("{mark} {}{}", "  ".repeat(shape.depth as usize), shape.name);
        let style = if node.is_flagged { BOLD } else { Style::new() };
        let y = lines.y;
        lines.add(&label, style);
        if y == lines.y {
            break;
        }
        let text = with_interval(node.value, |value| percent(value / 100.0));
        let x = place.area.x + 28;
        lines.canvas.put((x, y), 24.min(place.area.right().saturating_sub(x)), &text, style);
        if let (true, Some(value)) = (wide, node.value) {
            let colour = lines.canvas.tint(letter(shape).1);
            lines.canvas.bar((x + 25, y), bar, value.estimate / 100.0, colour);
        }
    }
}

fn io(canvas: &mut Canvas<'_>, place: &Place<'_>) {
    let mut lines = Lines::new(canvas, place.area);
    let snapshot = place.snapshot;
    if !snapshot.has_io {
        return lines.add("I/O is not measured: `--io` measures it", Style::new());
    }
    let names = if place.area.width < 64 { 15 } else { 24 };
    if !snapshot.devices.is_empty() {
        let titles = format!("{}{:>14}{:>12}{:>12}", padded("device", names), "bytes/s", "requests/s", "p99");
        lines.add(&titles, DIM);
    }
    for device in &snapshot.devices {
        let [bandwidth, rate, p99] = [
            cell(device.bandwidth, |value| bytes(value as u64)).0,
            cell(device.rate, count).0,
            cell(device.p99, duration).0,
        ];
        let name = fitted(&subject_name(&device.subject), names - 1);
        lines.add(&format!("{}{bandwidth:>14}{rate:>12}{p99:>12}", padded(&name, names)), Style::new());
    }
    for UncoreRow { subject, metric, unit, value } in &snapshot.uncore.known {
        let show = |number: f64| match *unit {
            Unit::Ns => duration(number),
            Unit::Percent => percent(number / 100.0),
            unit => format!("{} {}", three_digits(number), unit.name()),
        };
        let name = padded(&fitted(&subject_name(subject), 23), 24);
        lines.add(&format!("{name}{metric:<28} {}", with_interval(Some(*value), show)), Style::new());
    }
    if let Some(why) = &snapshot.uncore.why {
        let text = format!("{} numbers of uncore PMUs are missing: {why}", snapshot.uncore.missing);
        let width = usize::from(place.area.width.saturating_sub(1)).max(1);
        wrapped(&text, width).iter().for_each(|part| lines.add(part, DIM));
    }
    if snapshot.devices.is_empty() && snapshot.uncore.known.is_empty() {
        lines.add("no device moved anything", Style::new());
    }
}

/// Returns a text filled up to `width` columns. The formatter counts characters, but a terminal counts
/// columns.
fn padded(text: &str, width: usize) -> String {
    let taken = unicode_width::UnicodeWidthStr::width(text);
    format!("{text}{}", " ".repeat(width.saturating_sub(taken)))
}

fn blind(canvas: &mut Canvas<'_>, place: &Place<'_>) {
    let sight = &place.snapshot.sight;
    let mut lines = Lines::new(canvas, place.area);
    if place.snapshot.total.is_none() {
        return lines.add("blind time is measured where tasks are counted", Style::new());
    }
    let why = sight.why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    let watched = sight.watched.map_or_else(|| "-".to_owned(), |share| percent(share.into()));
    lines.add(
        &format!(
            "interrupts masked {}{why} of the CPU time; ticks watched {watched} of it",
            with_interval(sight.masked, percent)
        ),
        BOLD,
    );
    let width = usize::from(place.area.width);
    let series = place.history.back(place.number, width, |snapshot| snapshot.sight.masked);
    let rest = lines.rest();
    if rest.height > 1 {
        let style = lines.canvas.tint(Color::Cyan);
        lines.canvas.sparkline((rest.x, rest.y), rest.width, &series, style);
        lines.y += 1;
    }
    for gap in &sight.gaps {
        let whose = gap.owner.as_ref().map_or_else(|| "-".to_owned(), named);
        let code = gap.code.as_ref().map_or_else(|| "-".into(), |code| code.terminal());
        let length = duration(gap.length_ns as f64);
        lines.add(
            &format!("gap {length:>9}  cpu {:<4} {:<18} {whose}  until {code}", gap.cpu, gap.class),
            Style::new(),
        );
    }
    if sight.more_gaps > 0 {
        lines.add(&format!("{} more gaps are not shown", sight.more_gaps), DIM);
    }
}

fn findings(canvas: &mut Canvas<'_>, place: &Place<'_>) {
    let mut lines = Lines::new(canvas, place.area);
    if place.snapshot.findings.is_empty() {
        return lines.add("nothing stands out in this interval", Style::new());
    }
    let width = usize::from(place.area.width.saturating_sub(3)).max(1);
    for finding in &place.snapshot.findings {
        for (at, part) in wrapped(&says(finding), width).into_iter().enumerate() {
            let begin = if at == 0 { "! " } else { "  " };
            lines.add(&format!("{begin}{part}"), if at == 0 { BOLD } else { Style::new() });
        }
        for symptom in &finding.symptoms {
            lines.add(&format!("  with it: {}", says(symptom)), Style::new());
        }
        lines.add(&format!("  {}", threshold(finding)), DIM);
        if let Some(next) = finding.next.first() {
            lines.add(&format!("  try: {next}"), Style::new());
        }
    }
}

/// Returns text in lines of at most `width` columns. A wider word is cut where it is drawn.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    use unicode_width::UnicodeWidthStr as _;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
