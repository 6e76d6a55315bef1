//! Screen layout: two lines of head, owners, a pane, a line of keys. Parts without room are left out, the
//! owners last.

use ratatui_core::{
    layout::Rect,
    style::{Color, Modifier, Style},
    terminal::Frame,
};

use super::{
    chart::Canvas,
    choice::Mode,
    detail,
    history::History,
    owners::{self, Place},
    panes,
    row::OwnerRow,
    snapshot::Snapshot,
    state::State,
};
use crate::view::text::{duration, percent};

/// Smallest screen that is drawn.
const SMALLEST: (u16, u16) = (40, 6);
/// Minimum rows of a screen with a pane.
const PANE_FROM: u16 = 14;
/// Minimum columns of a screen that has an owner's detail next to the pane.
const WIDE: u16 = 110;

const KEYS: [(&str, &str); 15] = [
    ("q  Ctrl-C", "end"),
    ("up down  j k", "select an owner; PgUp PgDn g G go further"),
    ("Return", "one owner in detail, and back"),
    ("s S", "sort by the next column, or the one before"),
    ("r", "reverse the order"),
    ("/", "show owners whose name contains this; Esc shows all"),
    ("1-5  Tab", "the pane: latency, Top-Down, I/O, blind time, findings"),
    ("space", "pause a run; play a recording"),
    ("left right", "the interval before, and after; [ ] go ten"),
    ("Home End", "the oldest interval, the newest"),
    ("Ctrl-L", "redraw the screen"),
    ("Ctrl-Z", "stop and restore the terminal; fg continues"),
    ("-", "a number that is not known"),
    ("~, dim", "uncertain: a wide interval, or half of it was not seen"),
    ("shaded", "the 95 % interval of what is charted"),
];

/// Draws what `state` shows of the history. Only visible rows are written.
pub fn draw(frame: &mut Frame<'_>, history: &History, state: &State) {
    let area = frame.area();
    let mut canvas = Canvas { buffer: frame.buffer_mut(), looks: state.looks };
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let text = format!("{} columns × {} rows at least", SMALLEST.0, SMALLEST.1);
        canvas.put((area.x, area.y), area.width, &text, Style::new());
        return;
    }
    let body = Rect { y: area.y + 2, height: area.height - 3, ..area };
    let number = state.number(history);
    let shown = number.and_then(|number| Some((number, history.at(number)?)));
    head(&mut canvas, area, history, shown);
    match shown {
        _ if state.has_help => help(&mut canvas, body),
        Some((number, snapshot)) => {
            quality(&mut canvas, Rect { y: area.y + 1, ..area }, (history, number, snapshot), state);
            body_of(&mut canvas, &Place { area: body, history, number, snapshot }, state);
        }
        None => {
            canvas.put(
                (body.x + 1, body.y),
                body.width,
                "counting; the first interval is not over yet",
                Style::new(),
            );
        }
    }
    keys(&mut canvas, Rect { y: area.bottom() - 1, height: 1, ..area }, state);
}

/// Draws what is measured, and the cost of measuring.
fn head(canvas: &mut Canvas<'_>, area: Rect, history: &History, shown: Option<(u64, &Snapshot)>) {
    let style = Style::new().add_modifier(Modifier::BOLD);
    let own = shown.map_or_else(String::new, |(number, snapshot)| {
        let share = history.own_share(number).map(|share| format!("own {} of a CPU", percent(share)));
        let switch =
            snapshot.own.and_then(|own| own.switch_ns).map(|ns| format!("{} a switch", duration(ns.into())));
        [share, switch].into_iter().flatten().collect::<Vec<_>>().join(", ")
    });
    let room = (area.width - 2).saturating_sub(own.chars().count() as u16 + 2);
    let title = owners::fitted_front(history.title(), usize::from(room));
    canvas.put((area.x + 1, area.y), room, &title, style);
    canvas.put_right((area.x + 1, area.y), area.width - 2, &own, Style::new());
}

/// Draws how far the numbers can be trusted, and the interval that is shown.
fn quality(
    canvas: &mut Canvas<'_>,
    area: Rect,
    (history, number, snapshot): (&History, u64, &Snapshot),
    state: &State,
) {
    let sight = &snapshot.sight;
    let numbers = history.numbers();
    let mut parts = Vec::new();
    if numbers.start > 0 {
        parts.push(format!("kept from {}", numbers.start + 1));
    }
    parts.push(format!("lost {}", snapshot.lost));
    if snapshot.total.is_some() {
        parts.insert(parts.len() - 1, format!("masked {}", owners::cell(sight.masked, percent).0));
    }
    if !snapshot.findings.is_empty() {
        parts.push(format!("findings {}", snapshot.findings.len()));
    }
    parts.extend(sight.switches.map(|share| format!("switches {}", percent(share.into()))));
    let suspicious = snapshot.lost > 0 || sight.switches.is_some_and(|share| share < 0.99);
    let style =
        if suspicious { canvas.tint(Color::Yellow).add_modifier(Modifier::BOLD) } else { Style::new() };
    let state_of = match (state.mode, state.follows(), state.is_playing()) {
        (Mode::Live, true, _) => "● live",
        (Mode::Live, false, _) => "‖ paused",
        (Mode::Recording, _, true) => "▶ playing",
        (Mode::Recording, ..) => "‖ recording",
    };
    let at = format!(
        "{state_of} {:.1} s + {}  {}/{}",
        snapshot.from_ns as f64 / 1e9,
        duration(snapshot.length_ns as f64),
        number + 1,
        numbers.end
    );
    let room = (area.width - 2).saturating_sub(at.chars().count() as u16 + 1);
    whole_parts(canvas, (area.x + 1, area.y), room, &parts, style);
    canvas.put_right((area.x + 1, area.y), area.width - 2, &at, Style::new());
}

/// Draws owners and a pane below them, or one owner in their place.
fn body_of(canvas: &mut Canvas<'_>, place: &Place<'_>, state: &State) {
    let rows: Vec<&OwnerRow> = state.ordered(place.snapshot);
    let whose = state.whose(place.snapshot, &rows);
    let area = place.area;
    let pane_height = if area.height + 3 < PANE_FROM { 0 } else { (area.height * 2 / 5).clamp(5, 14) };
    let above = Rect { height: area.height - pane_height, ..area };
    let part = |area: Rect| Place { area, ..*place };
    if state.has_detail {
        detail::draw(canvas, &part(above), whose);
    } else {
        owners::draw(canvas, &part(above), state, &rows);
    }
    if pane_height == 0 {
        return;
    }
    let pane = Rect { y: above.bottom(), height: pane_height, ..area };
    panes::tabs(canvas, pane, state);
    let inside = Rect { y: pane.y + 1, height: pane.height - 1, ..pane };
    let is_wide = area.width >= WIDE && !state.has_detail;
    let (left, right) = inside_parts(inside, is_wide);
    panes::draw(canvas, &part(left), state.pane, whose);
    if let Some(right) = right {
        detail::draw(canvas, &part(right), whose);
    }
}

const fn inside_parts(area: Rect, is_wide: bool) -> (Rect, Option<Rect>) {
    if !is_wide {
        return (area, None);
    }
    let half = area.width / 2;
    let left = Rect { width: half, ..area };
    (left, Some(Rect { x: area.x + half, width: area.width - half, ..area }))
}

fn keys(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    let style = Style::new().add_modifier(Modifier::DIM);
    if state.is_typing || !state.filter.is_empty() && !state.has_help {
        let cursor = if state.is_typing { "_" } else { "  (Esc shows all)" };
        let filter = crate::untrusted::Untrusted::from(state.filter.as_str());
        canvas.put(
            (area.x + 1, area.y),
            area.width - 1,
            &format!("/{}{cursor}", filter.terminal()),
            Style::new(),
        );
        return;
    }
    let space = match state.mode {
        Mode::Live => "pause",
        Mode::Recording => "play",
    };
    let sort = format!("s by {}", state.sort.name());
    let space = format!("space {space}");
    let parts = ["q quit", "? help", "⏎ detail", &sort, "/ filter", "1-5 pane", "←→ rewind", &space];
    whole_parts(canvas, (area.x + 1, area.y), area.width - 1, &parts.map(str::to_owned), style);
}

/// Draws parts next to each other, as many as there is room for.
fn whole_parts(canvas: &mut Canvas<'_>, at: (u16, u16), room: u16, parts: &[String], style: Style) {
    let mut x = at.0;
    for part in parts {
        let width = unicode_width::UnicodeWidthStr::width(part.as_str()) as u16;
        if x + width > at.0 + room {
            break;
        }
        x += canvas.put((x, at.1), width, part, style) + 2;
    }
}

fn help(canvas: &mut Canvas<'_>, area: Rect) {
    for (at, (key, does)) in KEYS.iter().enumerate().take(usize::from(area.height)) {
        let y = area.y + at as u16;
        canvas.put((area.x + 2, y), 16, key, Style::new().add_modifier(Modifier::BOLD));
        canvas.put((area.x + 18, y), area.width.saturating_sub(18), does, Style::new());
    }
}
