//! Where results go and how they look.

use std::{
    env,
    io::{self, IsTerminal as _, Write},
};

use anstream::{AutoStream, ColorChoice};

use crate::view::{Format, text::Style};

/// Rows of the formats for machines that are written at a time.
const ROWS_BYTES: usize = 1 << 16;

/// Choices that `run` and `report` share.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Output {
    /// Write one JSON object a line (schema pmbpf/1)
    #[arg(short, long, conflicts_with = "csv", help_heading = "Output")]
    json: bool,
    /// Write CSV
    #[arg(long, help_heading = "Output")]
    csv: bool,
    /// Rows of a table in the text report
    #[arg(long, value_name = "N", default_value_t = 20, help_heading = "Output")]
    top: usize,
    /// Colour the text report
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = "Output")]
    color: clap::ColorChoice,
}

/// The stream for results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error: standard output is the command's.
    Stderr,
}

impl Output {
    /// The format.
    pub(super) const fn format(&self) -> Format {
        match (self.json, self.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => Format::Text,
        }
    }

    /// How the text looks.
    pub(super) fn style(&self) -> Style {
        Style { rows_max: self.top, blocks: speaks_utf8() }
    }

    /// The stream. Text gets colours if they are wanted there, and is plain ASCII if the locale asks for it.
    pub(super) fn open(&self, stream: Stream) -> Box<dyn Write> {
        if self.format() != Format::Text {
            return match stream {
                Stream::Stdout => Box::new(io::BufWriter::with_capacity(ROWS_BYTES, io::stdout())),
                Stream::Stderr => Box::new(io::BufWriter::with_capacity(ROWS_BYTES, io::stderr())),
            };
        }
        let choice = match self.color {
            clap::ColorChoice::Always => ColorChoice::Always,
            clap::ColorChoice::Never => ColorChoice::Never,
            clap::ColorChoice::Auto => ColorChoice::Auto,
        };
        // anstream knows NO_COLOR, CLICOLOR_FORCE, TERM=dumb and terminals.
        let styled: Box<dyn Write> = match stream {
            Stream::Stdout => Box::new(io::BufWriter::new(AutoStream::new(io::stdout(), choice))),
            Stream::Stderr => Box::new(io::BufWriter::new(AutoStream::new(io::stderr(), choice))),
        };
        if speaks_utf8() { styled } else { Box::new(Ascii(styled)) }
    }
}

/// Does the locale use UTF-8? (locale(7): the first of these that is set decides.)
fn speaks_utf8() -> bool {
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(env::var_os).find(|value| !value.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_string_lossy_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

trait Lowercase {
    fn to_string_lossy_lowercase(&self) -> String;
}

impl Lowercase for std::ffi::OsString {
    fn to_string_lossy_lowercase(&self) -> String {
        self.to_str().unwrap_or_default().to_ascii_lowercase()
    }
}

/// Says something on stderr, for a person who is watching.
pub(super) fn talk(text: &str) {
    let _ = writeln!(io::stderr().lock(), "pmbpf: {text}");
}

/// Is a person watching standard error?
pub(super) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Replaces the few characters of our own that are not ASCII. Names pass as they are.
struct Ascii<W>(W);

impl<W: Write> Write for Ascii<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Ok(text) = std::str::from_utf8(bytes) else { return self.0.write(bytes) };
        let mut plain = String::with_capacity(text.len());
        for character in text.chars() {
            match character {
                'µ' => plain.push('u'),
                '–' => plain.push('-'),
                '…' => plain.push_str("..."),
                '†' => plain.push_str("(ended)"),
                other => plain.push(other),
            }
        }
        self.0.write_all(plain.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::Ascii;

    #[test]
    fn our_own_characters_become_ascii_and_names_stay() {
        let mut bytes = Vec::new();
        Ascii(&mut bytes).write_all("1 µs – größe…".as_bytes()).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), "1 us - größe...");
    }
}
