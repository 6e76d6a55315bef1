//! Table of owners, one per row. Only visible rows are written.

use ratatui_core::{
    layout::Rect,
    style::{Color, Modifier, Style},
};

use super::{
    chart::Canvas,
    choice::Sort,
    history::History,
    row::{Bounded, OwnerRow},
    snapshot::Snapshot,
    state::{State, name_of},
};
use crate::{
    metric::topdown::Shape,
    view::text::{bytes, count, duration, percent, three_digits},
};

/// Minimum columns of a name.
const NAME_MIN: u16 = 16;

/// Column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Number(Sort),
    /// CPU time over the last intervals.
    Spark,
    /// The first level of the Top-Down tree.
    TopDown,
}

impl Column {
    const fn width(self) -> u16 {
        match self {
            Self::Spark => 10,
            Self::TopDown => 14,
            Self::Number(Sort::Ipc) => 6,
            Self::Number(_) => 9,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Number(Sort::Cpu) => "CPU",
            Self::Number(Sort::Wait) => "WAIT p99",
            Self::Number(Sort::Ipc) => "IPC",
            Self::Number(Sort::Block) => "BLOCK/s",
            Self::Number(Sort::Net) => "NET/s",
            Self::Number(Sort::Switches) => "SWITCH/s",
            Self::Number(Sort::Name) => "",
            Self::Spark => "",
            Self::TopDown => "TOP-DOWN",
        }
    }
}

/// Returns the columns that this interval fills and that fit the width, in their order.
fn columns(snapshot: &Snapshot, width: u16) -> Vec<Column> {
    let has_topdown = snapshot.shapes().next().is_some();
    let has_tasks = snapshot.total.is_some();
    // Columns with the more important ones first, each with its place.
    let wanted = [
        (has_tasks, 0, Column::Number(Sort::Cpu)),
        (has_tasks, 2, Column::Number(Sort::Wait)),
        (has_topdown, 3, Column::Number(Sort::Ipc)),
        (has_topdown, 4, Column::TopDown),
        (snapshot.has_io, 5, Column::Number(Sort::Block)),
        (snapshot.has_io, 6, Column::Number(Sort::Net)),
        (has_tasks, 1, Column::Spark),
        (has_tasks, 7, Column::Number(Sort::Switches)),
    ];
    let mut room = width.saturating_sub(NAME_MIN + 1);
    let mut taken = Vec::new();
    for (_, place, column) in wanted.into_iter().filter(|(is_there, ..)| *is_there) {
        if let Some(left) = room.checked_sub(column.width() + 1) {
            room = left;
            taken.push((place, column));
        }
    }
    taken.sort_by_key(|(place, _)| *place);
    taken.into_iter().map(|(_, column)| column).collect()
}

/// Area of the table, and its interval.
pub(super) struct Place<'a> {
    pub(super) area: Rect,
    pub(super) history: &'a History,
    pub(super) number: u64,
    pub(super) snapshot: &'a Snapshot,
}

/// Draws the titles, the target's row and as many owners as there is room for, the selected one among them.
pub(super) fn draw(canvas: &mut Canvas<'_>, place: &Place<'_>, state: &State, rows: &[&OwnerRow]) {
    let Place { area, snapshot, .. } = *place;
    let columns = columns(snapshot, area.width);
    let taken: u16 = columns.iter().map(|column| column.width() + 1).sum();
    let name_width = area.width.saturating_sub(taken + 1);
    titles(canvas, place, state, (&columns, name_width));
    let mut y = area.top() + 1;
    let whose = state.whose(snapshot, rows);
    let marked = |canvas: &mut Canvas<'_>, y, style: Style| {
        let style = style.add_modifier(Modifier::REVERSED);
        canvas.buffer.set_style(Rect { x: area.x, y, width: area.width, height: 1 }, style);
        style
    };
    if let Some(total) = &snapshot.total {
        let mut style = Style::new().add_modifier(Modifier::BOLD);
        if total.who == *whose {
            style = marked(canvas, y, style);
        }
        line(canvas, place, (&columns, name_width), (y, total, style));
        y += 1;
    }
    let room = usize::from(area.bottom().saturating_sub(y));
    let selected = rows.iter().position(|row| row.who == *whose);
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(room));
    for (at, row) in rows.iter().enumerate().skip(first).take(room) {
        let mut style = Style::new();
        if Some(at) == selected {
            style = marked(canvas, y, style);
        }
        line(canvas, place, (&columns, name_width), (y, row, style));
        y += 1;
    }
    if rows.is_empty() && y < area.bottom() {
        let words = if state.filter.is_empty() { "nothing ran" } else { "no owner's name contains this" };
        canvas.put((area.x + 1, y), area.width, words, Style::new().add_modifier(Modifier::DIM));
    }
}

fn titles(canvas: &mut Canvas<'_>, place: &Place<'_>, state: &State, (columns, name): (&[Column], u16)) {
    let (area, style) = (place.area, Style::new().add_modifier(Modifier::UNDERLINED));
    canvas.buffer.set_style(Rect { height: 1, ..area }, style);
    let mark = |sort: Sort| match (state.sort == sort, state.is_reversed) {
        (false, _) => "",
        (true, false) => "▼",
        (true, true) => "▲",
    };
    let owner = format!("OWNER{}", mark(Sort::Name));
    canvas.put((area.x + 1, area.y), name, &owner, style);
    let mut x = area.x + 1 + name;
    for &column in columns {
        let text = match column {
            Column::Number(sort) => format!("{}{}", column.title(), mark(sort)),
            _ => column.title().to_owned(),
        };
        if column == Column::TopDown {
            canvas.put((x + 1, area.y), column.width(), &text, style);
        } else {
            canvas.put_right((x + 1, area.y), column.width(), &text, style);
        }
        x += column.width() + 1;
    }
}

fn line(
    canvas: &mut Canvas<'_>,
    place: &Place<'_>,
    (columns, name): (&[Column], u16),
    (y, row, style): (u16, &OwnerRow, Style),
) {
    let mut x = place.area.x + 1;
    let ended = if row.has_ended { " †" } else { "" };
    let shown = fitted(&name_of(&row.who), usize::from(name.saturating_sub(ended.len() as u16)));
    canvas.put((x, y), name, &format!("{shown}{ended}"), style);
    x += name;
    for &column in columns {
        let width = column.width();
        match column {
            Column::Number(sort) => {
                let (text, is_sure) = cell(sort.value(row), |value| in_words(sort, value));
                let looks = if is_sure { style } else { style.add_modifier(Modifier::DIM) };
                canvas.put_right((x + 1, y), width, &text, looks);
            }
            Column::Spark => {
                let history = place.history;
                let series = history.series(&row.who, place.number, usize::from(width), |row| row.cpu);
                let looks = style.patch(canvas.tint(Color::Cyan));
                canvas.sparkline((x + 1, y), width, &series, looks);
            }
            Column::TopDown => slots(canvas, (x + 1, y), (place.snapshot, row), style),
        }
        x += width + 1;
    }
}

fn in_words(sort: Sort, value: f64) -> String {
    match sort {
        Sort::Cpu => percent(value),
        Sort::Wait => duration(value),
        Sort::Ipc => three_digits(value),
        Sort::Block | Sort::Net => bytes(value as u64),
        Sort::Switches | Sort::Name => count(value),
    }
}

/// Returns a number in a narrow cell, and whether it is reliable. A missing number is `-`, and `~` precedes
/// one with a wide interval.
pub(super) fn cell(value: Option<Bounded>, show: impl Fn(f64) -> String) -> (String, bool) {
    let Some(value) = value else { return ("-".to_owned(), true) };
    let text = show(f64::from(value.estimate)).replace(' ', "");
    if value.is_sure() || value.estimate == 0.0 && value.high == 0.0 {
        (text, true)
    } else {
        (format!("~{text}"), false)
    }
}

/// Draws the slots of the first level, with a letter for each part. The larger the part, the more letters it
/// has.
fn slots(canvas: &mut Canvas<'_>, at: (u16, u16), (snapshot, row): (&Snapshot, &OwnerRow), style: Style) {
    let width = Column::TopDown.width();
    let roots = snapshot.shapes().zip(&row.nodes).filter(|(shape, _)| shape.depth == 0);
    let (mut x, mut is_known) = (at.0, false);
    for (shape, node) in roots {
        let Some(value) = node.value else { continue };
        is_known = true;
        let columns = (value.estimate / 100.0 * f32::from(width)).round().max(0.0) as u16;
        let room = (at.0 + width).saturating_sub(x).min(columns);
        let (letter, colour) = letter(shape);
        let mut looks = style.patch(canvas.tint(colour));
        if node.is_flagged {
            looks = looks.add_modifier(Modifier::BOLD);
        }
        if !value.is_sure() {
            looks = looks.add_modifier(Modifier::DIM);
        }
        x += canvas.put((x, at.1), room, &letter.repeat(usize::from(room)), looks);
    }
    if !is_known {
        canvas.put(at, width, "-", style);
    }
}

/// Returns a letter and a colour that distinguish the nodes of the first level.
pub(super) fn letter(shape: &Shape) -> (&'static str, Color) {
    let name = shape.name.to_ascii_lowercase();
    [
        ("front", "F", Color::Magenta),
        ("bad", "S", Color::Red),
        ("back", "B", Color::Yellow),
        ("retir", "R", Color::Green),
    ]
    .into_iter()
    .find(|(begins, ..)| name.contains(begins))
    .map_or(("o", Color::Blue), |(_, letter, colour)| (letter, colour))
}

/// Returns a name in `width` columns. If it is too wide, its end is kept, which is the more specific part of
/// a path.
pub(super) fn fitted(name: &str, width: usize) -> String {
    use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};
    if name.width() <= width {
        return name.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let mut from = name.len();
    for (at, character) in name.char_indices().rev() {
        let Some(left) = room.checked_sub(character.width().unwrap_or(0)) else { break };
        (room, from) = (left, at);
    }
    format!("…{}", &name[from..])
}

/// Returns a text in `width` columns. If it is too wide, its beginning is kept.
pub(super) fn fitted_front(text: &str, width: usize) -> String {
    use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut taken, mut front) = (1, String::new());
    for character in text.chars() {
        taken += character.width().unwrap_or(0);
        if taken > width {
            break;
        }
        front.push(character);
    }
    front + "…"
}
