//! Lines of a pane: text while there is room, numbers with their intervals, and a chart in the remaining
//! room.

use ratatui_core::{
    layout::Rect,
    style::{Color, Modifier, Style},
};

use super::{chart::Canvas, row::Bounded};
use crate::{
    metric::value::{How, Known},
    view::text::{percent, spread},
};

pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Returns a number in the format of [`spread`]: `3.7 % ±1.4`, or `-` where it is missing.
pub(super) fn with_interval(value: Option<Bounded>, show: impl Fn(f64) -> String) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let [estimate, low, high, coverage] =
        [value.estimate, value.low, value.high, value.coverage].map(f64::from);
    let (text, interval) = spread(&Known { estimate, low, high, coverage, how: How::Counted }, show);
    let covered = if coverage < 0.5 { format!(" ({} covered)", percent(coverage)) } else { String::new() };
    format!("{text} {interval}").trim_end().to_owned() + &covered
}

/// Lines of a pane, as long as there is room.
pub(super) struct Lines<'c, 'b> {
    pub(super) canvas: &'c mut Canvas<'b>,
    area: Rect,
    pub(super) y: u16,
}

impl<'c, 'b> Lines<'c, 'b> {
    pub(super) const fn new(canvas: &'c mut Canvas<'b>, area: Rect) -> Self {
        Self { canvas, y: area.y, area }
    }

    pub(super) fn add(&mut self, text: &str, style: Style) {
        if self.y < self.area.bottom() {
            let width = self.area.width.saturating_sub(1);
            self.canvas.put((self.area.x + 1, self.y), width, text, style);
            self.y += 1;
        }
    }

    /// Returns the room that is left.
    pub(super) fn rest(&self) -> Rect {
        let height = self.area.bottom().saturating_sub(self.y);
        Rect { x: self.area.x + 1, y: self.y, width: self.area.width.saturating_sub(2), height }
    }
}

/// Draws a band chart in the rest of the pane, with the largest upper bound.
pub(super) fn chart(
    lines: &mut Lines<'_, '_>,
    name: &str,
    series: &[Option<Bounded>],
    show: fn(f64) -> String,
) {
    let rest = lines.rest();
    if rest.height < 2 || rest.width < 20 || series.iter().all(Option::is_none) {
        return;
    }
    let style = lines.canvas.tint(Color::Cyan);
    let plot = Rect { x: rest.x + 10, width: rest.width - 10, ..rest };
    let most = lines.canvas.band(plot, series, style);
    lines.canvas.put((rest.x, rest.y), 9, &show(f64::from(most)), DIM);
    lines.canvas.put((rest.x, rest.bottom() - 1), 9, name, DIM);
}
