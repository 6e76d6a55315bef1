//! Charts of characters: sparklines, bars and bands of numbers with their intervals.

use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};

use super::{choice::Looks, row::Bounded};
use crate::view::text::plain;

/// Characters that are filled by eighths, and their replacements in ASCII.
const EIGHTHS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const EIGHTHS_ASCII: [&str; 8] = ["_", ".", ".", "-", "-", "=", "+", "#"];

/// Buffer that is drawn into, and the looks.
pub(super) struct Canvas<'a> {
    pub(super) buffer: &'a mut Buffer,
    pub(super) looks: Looks,
}

impl Canvas<'_> {
    /// Writes `text` in at most `width` columns, and returns the columns taken. Text beyond them is cut off.
    /// The buffer leaves out control characters, and none should come: names pass `Untrusted::terminal`.
    pub(super) fn put(&mut self, (x, y): (u16, u16), width: u16, text: &str, style: Style) -> u16 {
        let area = self.buffer.area;
        if y < area.top() || y >= area.bottom() || x >= area.right() || width == 0 {
            return 0;
        }
        let text = if self.looks.blocks { text.into() } else { ascii(text) };
        let (end, _) = self.buffer.set_stringn(x, y, text, usize::from(width), style);
        end - x
    }

    /// Writes `text` as `put` does, but so that it ends at the last column.
    pub(super) fn put_right(&mut self, (x, y): (u16, u16), width: u16, text: &str, style: Style) {
        let taken = unicode_width::UnicodeWidthStr::width(text).min(usize::from(width)) as u16;
        self.put((x + width - taken, y), taken, text, style);
    }

    /// Returns a style with a colour, if colours are wanted.
    pub(super) fn tint(&self, colour: ratatui_core::style::Color) -> Style {
        if self.looks.colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// Draws numbers as a line of bars up to the largest one, the last at the right edge. A missing number is
    /// a gap, and 0 is the lowest bar.
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

    /// Draws numbers as columns of `area`, the last at its right edge. A column is full up to the lower end
    /// of the interval, and shaded up to the upper end. Returns the largest upper end.
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
                    // The number is as good as exact.
                    self.bars()[(high.min(ceiling) - floor).clamp(1, 8) - 1]
                } else {
                    self.shade()
                };
                self.put((first + column as u16, area.bottom() - 1 - row as u16), 1, glyph, style);
            }
        }
        most
    }

    /// Draws a bar that is `share` (0 to 1) of `width` columns long.
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

/// Returns the largest of these values, or 1 if none is above 0.
fn most(series: &[Option<Bounded>], value: impl Fn(&Bounded) -> f32) -> f32 {
    let most = series.iter().flatten().map(value).fold(0.0, f32::max);
    if most > 0.0 { most } else { 1.0 }
}

/// Returns a share as a number of steps out of `steps`.
fn eighths(share: f32, steps: usize) -> usize {
    ((share * steps as f32).round().max(0.0) as usize).min(steps)
}

/// Returns text with the characters of pmbpf itself in ASCII. Names pass unchanged.
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
