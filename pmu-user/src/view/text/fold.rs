//! Lines as wide as a terminal. Longer lines continue below, broken between words.

use std::io::{self, Write};

use unicode_width::UnicodeWidthChar as _;

/// Stream that folds lines at a width. A continuation is indented to the start of the line's own text. Styles
/// take no columns.
pub struct Folding<W: Write> {
    into: W,
    width: usize,
    /// Line that has not ended yet.
    begun: Vec<u8>,
}

impl<W: Write> Folding<W> {
    /// Returns a stream that folds what is written to `into` at `width` columns.
    pub const fn new(into: W, width: usize) -> Self {
        Self { into, width, begun: Vec::new() }
    }
}

impl<W: Write> Write for Folding<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else { return Ok(bytes.len()) };
        let rest = self.begun.split_off(end + 1);
        let lines = std::mem::replace(&mut self.begun, rest);
        match std::str::from_utf8(&lines) {
            Ok(text) => {
                for line in text.lines() {
                    writeln!(self.into, "{}", folded(line, self.width, hang(line, self.width)))?;
                }
            }
            // Not text of a report, which is escaped before it comes here.
            Err(_) => self.into.write_all(&lines)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.into.write_all(&std::mem::take(&mut self.begun))?;
        self.into.flush()
    }
}

impl<W: Write> Drop for Folding<W> {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

/// Returns `text` in lines of at most `width` columns, all but the first indented by `hang`.
pub(in crate::view) fn folded(text: &str, width: usize, hang: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let hang = hang.min(width / 2);
    let (mut lines, mut column, mut spaces) = (String::with_capacity(text.len() + 64), 0, 0);
    for (index, word) in words(text).enumerate() {
        spaces += usize::from(index > 0);
        let wide = columns(word);
        if wide == 0 {
            // The next of several spaces, or a style.
            lines.push_str(word);
            continue;
        }
        if column + spaces + wide > width && column + spaces > hang && wide <= width - hang {
            next_line(&mut lines, hang);
            column = hang;
        } else {
            let indent = spaces.min(width.saturating_sub(column));
            lines.extend(std::iter::repeat_n(' ', indent));
            column += indent;
        }
        spaces = 0;
        for (piece, wide) in pieces(word) {
            if column + wide > width {
                next_line(&mut lines, hang);
                column = hang;
            }
            lines.push_str(piece);
            column += wide;
        }
    }
    lines
}

/// Returns the words of a text. A number and its unit are one word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    const UNITS: [&str; 11] = ["%", "ns", "µs", "us", "ms", "s", "B", "KiB", "MiB", "GiB", "MB/s"];
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let whole = rest?;
        let mut spaces = whole.match_indices(' ').map(|(at, _)| at);
        let end = spaces.find(|&at| {
            let after = whole[at + 1..].split(' ').next().unwrap_or_default();
            let unit = after.trim_end_matches(|character: char| ",;:)]".contains(character));
            !(whole[..at].ends_with(|character: char| character.is_ascii_digit()) && UNITS.contains(&unit))
        });
        let (word, after) = end.map_or((whole, None), |at| (&whole[..at], Some(&whole[at + 1..])));
        rest = after;
        Some(word)
    })
}

fn next_line(lines: &mut String, hang: usize) {
    lines.truncate(lines.trim_end_matches(' ').len());
    lines.push('\n');
    lines.extend(std::iter::repeat_n(' ', hang));
}

/// Returns the column where a line's own text begins: behind its label, if that leaves room. Two or more
/// spaces end the label.
fn hang(line: &str, width: usize) -> usize {
    let (mut column, mut spaces, mut indent, mut behind) = (0, 0, None, 0);
    for (piece, wide) in pieces(line) {
        if wide > 0 && piece != " " {
            match indent {
                None => indent = Some(column),
                Some(_) if spaces > 1 && column <= width / 2 => behind = column,
                Some(_) => {}
            }
            spaces = 0;
        } else {
            spaces += wide;
        }
        column += wide;
    }
    if behind > 0 { behind } else { indent.unwrap_or(0) + 2 }
}

/// Returns the number of columns of a text, as terminals count: by character.
pub(in crate::view) fn columns(text: &str) -> usize {
    pieces(text).map(|(_, wide)| wide).sum()
}

/// Returns the characters and styles of a text, each with its columns.
fn pieces(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let character = rest.chars().next()?;
        let style = rest.starts_with("\x1b[").then(|| rest.find('m')).flatten();
        let (length, wide) = match style {
            Some(end) => (end + 1, 0),
            None => (character.len_utf8(), character.width().unwrap_or(0)),
        };
        let (piece, after) = rest.split_at(length);
        rest = after;
        Some((piece, wide))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{Folding, columns};

    fn folded(text: &str, width: usize) -> Vec<String> {
        let mut bytes = Vec::new();
        let mut into = Folding::new(&mut bytes, width);
        // In pieces, as streams write.
        text.as_bytes().chunks(3).for_each(|piece| into.write_all(piece).unwrap());
        drop(into);
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_sentence_goes_on_below_where_it_began() {
        assert_eq!(
            folded("target   one two three four\n  floor     not known here\n", 24),
            ["target   one two three", "         four", "  floor     not known", "            here"]
        );
        assert_eq!(folded("  –: one two three\n", 12), ["  –: one two", "    three"]);
        assert_eq!(
            folded("  took all of 15 % (6 s) once\n", 17),
            ["  took all of", "    15 % (6 s)", "    once"]
        );
        assert_eq!(folded("fits as it  is\n\n", 14), ["fits as it  is", ""]);
    }

    #[test]
    fn styles_take_no_room_and_stay() {
        let line = "\x1b[2mone two\x1b[0m";
        assert_eq!(folded(&format!("{line}\n"), 7), [line]);
        assert_eq!(folded(&format!("{line} three\n"), 8), [line, "  three"]);
        assert_eq!(columns(line), 7);
    }

    #[test]
    fn a_word_wider_than_a_line_is_broken_between_its_characters() {
        assert_eq!(folded("at /aaaaaaaaa/b\n", 8), ["at /aaaa", "  aaaaa/", "  b"]);
        // Each character takes two columns.
        assert_eq!(folded("服务服务服务\n", 7), ["服务服", "  务服", "  务"]);
    }

    #[test]
    fn what_does_not_end_in_a_line_feed_is_not_lost() {
        assert_eq!(folded("prompt", 80), ["prompt"]);
    }
}
