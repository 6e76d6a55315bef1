//! Last barrier before a stream: whatever controls a terminal is escaped, as the format requires, whatever
//! let it through.

use std::io::{self, Write};

use crate::untrusted::{Untrusted, is_unsafe};

/// Escape sequences of the styles of the text report (`view::text`).
const STYLES: [&str; 4] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m"];

/// Escape of an unsafe character in a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escapes {
    /// Written as `\x1b`; the report's own styles pass.
    Text,
    /// Written as `\x1b`.
    Csv,
    /// Written as `\u001b`, which means the same character. Outside its strings JSON has no such character.
    Json,
}

/// Stream that lets through only line feeds and visible characters.
pub(super) struct Shown<W> {
    into: W,
    escapes: Escapes,
    /// Bytes of a character that is not complete yet.
    begun: Vec<u8>,
}

impl<W: Write> Shown<W> {
    pub(super) const fn new(into: W, escapes: Escapes) -> Self {
        Self { into, escapes, begun: Vec::new() }
    }

    fn escape(&self, character: char, into: &mut String) {
        match self.escapes {
            Escapes::Json => {
                let units = &mut [0; 2];
                for unit in character.encode_utf16(units) {
                    into.push_str(&format!("\\u{unit:04x}"));
                }
            }
            Escapes::Text | Escapes::Csv => {
                into.push_str(&Untrusted::from(character.encode_utf8(&mut [0; 4]) as &str).terminal());
            }
        }
    }

    fn plain(&self, text: &str) -> String {
        let mut plain = String::with_capacity(text.len() + 16);
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let styled = STYLES.iter().find(|style| rest.starts_with(**style));
            let taken = match styled {
                Some(style) if self.escapes == Escapes::Text => {
                    plain.push_str(style);
                    style.len()
                }
                _ => {
                    if character == '\n' || !is_unsafe(character) {
                        plain.push(character);
                    } else {
                        self.escape(character, &mut plain);
                    }
                    character.len_utf8()
                }
            };
            rest = &rest[taken..];
        }
        plain
    }
}

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.begun.is_empty() && are_plain(bytes) {
            return self.into.write(bytes);
        }
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        let mut plain = String::with_capacity(all.len());
        let mut rest = &all[..];
        while let Some(chunk) = rest.utf8_chunks().next() {
            plain.push_str(&self.plain(chunk.valid()));
            let invalid = chunk.invalid();
            rest = &rest[chunk.valid().len() + invalid.len()..];
            // At the end, the character may only be incomplete.
            if rest.is_empty() && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none())
            {
                self.begun = invalid.to_vec();
            } else {
                plain.push_str(&Untrusted::new(invalid).terminal());
            }
        }
        self.into.write_all(plain.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.into.flush()
    }
}

/// Returns whether there is nothing but line feeds and visible ASCII characters. Everything that is printed
/// comes through here. A piece is looked at as a whole, which the compiler vectorizes, where a search would
/// stop at each byte.
fn are_plain(bytes: &[u8]) -> bool {
    let is_plain = |byte: u8| (byte.wrapping_sub(b' ') <= b'~' - b' ') | (byte == b'\n');
    bytes.chunks(64).all(|piece| piece.iter().fold(true, |all, &byte| all & is_plain(byte)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{Escapes, Shown};

    /// Returns what comes through, written in pieces of `size` bytes.
    fn shown(bytes: &[u8], size: usize, escapes: Escapes) -> String {
        let mut seen = Vec::new();
        let mut into = Shown::new(&mut seen, escapes);
        bytes.chunks(size).for_each(|piece| into.write_all(piece).unwrap());
        into.flush().unwrap();
        String::from_utf8(seen).unwrap()
    }

    const HOSTILE: &str = "µ\u{1b}]52;c;\u{7}\r\t\u{7f}\u{9b}31m\u{202e}\u{e0001}…\n";

    #[test]
    fn nothing_that_steers_a_terminal_comes_through_whole_or_in_pieces() {
        for size in [1, 2, 3, 5, 100] {
            let text = "µ\\x1b]52;c;\\x07\\x0d\\x09\\x7f\\u{9b}31m\\u{202e}\\u{e0001}…\n";
            assert_eq!(shown(HOSTILE.as_bytes(), size, Escapes::Csv), text, "{size}");
            let json = shown(format!("\"{HOSTILE}\"").replace('\n', "").as_bytes(), size, Escapes::Json);
            assert!(!json.chars().any(super::is_unsafe), "{json}");
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), HOSTILE.replace('\n', ""));
        }
        assert_eq!(shown(b"a\xffb\xf0\x9f", 100, Escapes::Text), "a\\xffb", "half a character is none");
    }

    #[test]
    fn the_reports_own_styles_pass_in_text_alone() {
        let text = "\u{1b}[1mbold\u{1b}[0m \u{1b}[33myellow\u{1b}[0m";
        assert_eq!(shown(text.as_bytes(), 100, Escapes::Text), text);
        assert_eq!(shown("\u{1b}[31m\u{1b}[2J".as_bytes(), 100, Escapes::Text), "\\x1b[31m\\x1b[2J");
        assert!(shown(text.as_bytes(), 100, Escapes::Csv).starts_with("\\x1b[1mbold"));
    }
}
