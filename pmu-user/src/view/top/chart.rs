//! Charts of characters: sparklines, bars and bands of numbers with their intervals.

use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};

use super::{choice::Looks, row::Bounded};
use crate::view::text::plain;

/// Characters that are filled to eighths, and those that stand for them where there is only ASCII.
const EIGHTHS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const EIGHTHS_ASCII: [&str; 8] = ["_", ".", ".", "-", "-", "=", "+", "#"];

/// Where something is written, and with what.
pub(super) struct Canvas<'a> {
    pub(super) buffer: &'a mut Buffer,
    pub(super) looks: Looks,
}

impl Canvas<'_> {
    /// Writes `text` in at most `width` columns; what does not fit is cut off. How many it took. Control characters are left out by
    /// the buffer, and none should come: names pass `Untrusted::terminal`.
    pub(super) fn put(&mut self, (x, y): (u16, u16), width: u16, text: &str, style: Style) -> u16 {
        let area = self.buffer.area;
        if y < area.top() || y >= area.bottom() || x >= area.right() || width == 0 {
            return 0;
        }
        let text = if self.looks.blocks { text.into() } else { ascii(text) };
        let (end, _) = self.buffer.set_stringn(x, y, text, usize::from(width), style);
        end - x
    }

    /// The same, so that it ends where the columns do.
    pub(super) fn put_right(&mut self, (x, y): (u16, u16), width: u16, text: &str, style: Style) {
        let taken = unicode_width::UnicodeWidthStr::width(text).min(usize::from(width)) as u16;
        self.put((x + width - taken, y), taken, text, style);
    }

    /// A style with a colour, where colours are wanted.
    pub(super) fn tint(&self, colour: ratatui_core::style::Color) -> Style {
        if self.looks.colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// Numbers as a line of bars up to `most`, the last at the right edge. A missing one is a gap, 0 the lowest bar.
    pub(super) fn sparkline(&mut self, at: (u16, u16), width: u16, series: &[Option<Bounded>], style: Style) {
        let most = most(series, |value| value.estimate);
        let shown = series.len().min(usize::from(width));
        let first = at.0 + width - shown as u16;
        for (column, value) in series[series.len() - shown..].iter().enumerate() {
            let Some(value) = value else { continue };
            let looks = if value.is_sure() { style } else { style.add_modifier(Modifier::DIM) };
            let filled = eighths(value.estimate / most, 8).max(1);
            self.put((first + column as u16, at.1), 1, self.bars()[filled - 1], looks);
        }
    }

    /// Numbers as columns of `area`, the last at its right edge: full up to the lower end of the interval, shaded up to the upper end.
    /// The largest upper end.
    pub(super) fn band(&mut self, area: Rect, series: &[Option<Bounded>], style: Style) -> f32 {
        let most = most(series, |value| if value.high.is_finite() { value.high } else { value.estimate });
        let shown = series.len().min(usize::from(area.width));
        let first = area.right() - shown as u16;
        let steps = usize::from(area.height) * 8;
        for (column, value) in series[series.len() - shown..].iter().enumerate() {
            let Some(value) = value else { continue };
            let (low, high) = (eighths(value.low / most, steps), eighths(value.high / most, steps).max(1));
            for row in 0..usize::from(area.height) {
                let (floor, ceiling) = (row * 8, row * 8 + 8);
                let glyph = if low >= ceiling {
                    self.bars()[7]
                } else if high <= floor {
                    continue;
                } else if high.saturating_sub(low) < 4 {
                    // As good as exact.
                    self.bars()[(high.min(ceiling) - floor).clamp(1, 8) - 1]
                } else {
                    self.shade()
                };
                self.put((first + column as u16, area.bottom() - 1 - row as u16), 1, glyph, style);
            }
        }
        most
    }

    /// A bar that is `share` (0 to 1) of `width` columns long.
    pub(super) fn bar(&mut self, at: (u16, u16), width: u16, share: f32, style: Style) {
        const PARTS: [&str; 7] = ["▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        let filled = eighths(share, usize::from(width) * 8);
        let (whole, part) = (filled / 8, filled % 8);
        let full = if self.looks.blocks { "█" } else { "#" };
        let taken = self.put(at, width, &full.repeat(whole), style);
        if part > 0 && self.looks.blocks {
            self.put((at.0 + taken, at.1), 1, PARTS[part - 1], style);
        }
    }

    const fn bars(&self) -> [&'static str; 8] {
        if self.looks.blocks { EIGHTHS } else { EIGHTHS_ASCII }
    }

    const fn shade(&self) -> &'static str {
        if self.looks.blocks { "░" } else { ":" }
    }
}

/// The largest of these, or 1 where none is above 0.
fn most(series: &[Option<Bounded>], value: impl Fn(&Bounded) -> f32) -> f32 {
    let most = series.iter().flatten().map(value).fold(0.0, f32::max);
    if most > 0.0 { most } else { 1.0 }
}

/// So many of `steps` steps that a share is.
fn eighths(share: f32, steps: usize) -> usize {
    ((share * steps as f32).round().max(0.0) as usize).min(steps)
}

/// Our own characters in ASCII; names pass as they are.
fn ascii(text: &str) -> String {
    let mut text = text.to_owned();
    for (ours, ascii) in
        [("▼", "v"), ("▲", "^"), ("‖", "|"), ("▶", ">"), ("●", "*"), ("·", "-"), ("←→", "<>"), ("⏎", "ret")]
    {
        if text.contains(ours) {
            text = text.replace(ours, ascii);
        }
    }
    plain(&text)
}
