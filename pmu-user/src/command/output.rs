//! Destination and look of results.

mod shown;

use std::{
    env,
    io::{self, IsTerminal as _, Write},
    os::unix::fs::FileTypeExt as _,
    path::Path,
};

use anstream::{AutoStream, ColorChoice};
use clap::builder::PossibleValuesParser;
use rustix::termios::tcgetwinsize;

use self::shown::{Escapes, Shown};
use super::parse::{self, WIDTH_MIN};
use crate::{
    untrusted::Untrusted,
    view::{
        Format, ReportFormat,
        export::Content,
        text::{Brevity, Folding, SCREEN, Sections, Style, plain},
    },
};

/// Buffer size for rows of machine-readable formats, in bytes.
const ROWS_BYTES: usize = 1 << 16;

/// Options of every command that writes results.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Output {
    /// Write one JSON object per line (schema pmbpf/2)
    #[arg(short, long, conflicts_with = "csv", help_heading = "Output")]
    json: bool,
    /// Write CSV
    #[arg(long, help_heading = "Output")]
    csv: bool,
    /// Limit the rows of a table in the text report [default: 20; 10 for sections without findings]
    #[arg(long, value_name = "N", help_heading = "Output")]
    top: Option<usize>,
    /// Set the width of the text report in columns; 0: as wide as its rows [default: the terminal's; 0 in a
    /// pipe or file]
    #[arg(long, value_name = "COLUMNS", value_parser = parse::width, help_heading = "Output")]
    width: Option<u16>,
    /// Colour the text report
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = "Output")]
    color: clap::ColorChoice,
    /// Format of a report, if chosen by name
    #[arg(skip)]
    named: Option<ReportFormat>,
    /// Sections of a text report, if chosen
    #[arg(skip)]
    sections: Option<Sections>,
    /// Separator of perf's fields, if those are written
    #[arg(skip)]
    separator: Option<char>,
}

/// Options of commands that write reports.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReportOutput {
    /// Write this format [default: text]
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["json", "csv"], help_heading = "Output",
          value_parser = PossibleValuesParser::new(ReportFormat::names()))]
    format: Option<String>,
    /// Write only these sections of the text report, e.g. findings,owners,stacks; an unknown name lists all
    /// of them
    #[arg(long, value_name = "LIST", value_parser = Sections::named, conflicts_with_all = ["json", "csv", "format"],
          help_heading = "Output")]
    sections: Option<Sections>,
    #[command(flatten)]
    output: Output,
}

impl ReportOutput {
    /// Returns whether a format is chosen by name.
    pub(super) const fn names_format(&self) -> bool {
        self.format.is_some()
    }

    /// Returns the destination and look of a report.
    pub(super) fn output(&self) -> Output {
        let named = self.format.as_deref().and_then(ReportFormat::named);
        Output { named: self.output.named.or(named), sections: self.sections, ..self.output.clone() }
    }

    /// Returns whether a machine-readable format is chosen.
    pub(super) fn is_for_machines(&self) -> bool {
        self.output().report_format().format() != Some(Format::Text)
    }

    /// Selects this format instead of text.
    pub(super) const fn write_as(&mut self, format: Format) {
        match format {
            Format::Json => self.output.json = true,
            Format::Csv => self.output.csv = true,
            Format::Text => {}
        }
    }

    /// Selects perf's fields for counts, with this separator.
    pub(super) fn write_fields(&mut self, separator: char) {
        (self.output.named, self.output.separator) = (Some(ReportFormat::fields()), Some(separator));
    }
}

impl From<Output> for ReportOutput {
    fn from(output: Output) -> Self {
        Self { output, format: None, sections: None }
    }
}

/// Stream for the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Standard output stream.
    Stdout,
    /// Standard error, because standard output is the command's.
    Stderr,
}

impl Output {
    /// Returns the format; text for a format of reports alone.
    pub(super) fn format(&self) -> Format {
        match (self.json, self.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => self.named.and_then(ReportFormat::format).unwrap_or(Format::Text),
        }
    }

    /// Returns the format of a report.
    pub(super) fn report_format(&self) -> ReportFormat {
        self.named.unwrap_or_else(|| self.format().into())
    }

    /// Returns the style of the text.
    pub(super) fn style(&self, stream: Stream) -> Style {
        Style {
            rows_max: self.top.unwrap_or(Style::DEFAULT.rows_max),
            rows_asked_for: self.top.is_some(),
            blocks: speaks_utf8(),
            width: self.width(stream),
            sections: self.sections.unwrap_or(Sections::ALL),
            screen: (self.top.is_none() && self.sections.is_none()).then_some(SCREEN),
            brevity: Brevity::Full,
            separator: self.separator.unwrap_or(Style::DEFAULT.separator),
        }
    }

    /// Returns the columns that text on the stream must fit.
    fn width(&self, stream: Stream) -> Option<usize> {
        let of_terminal = || match stream {
            Stream::Stdout => tcgetwinsize(io::stdout()).ok(),
            Stream::Stderr => tcgetwinsize(io::stderr()).ok(),
        };
        let columns = self.width.or_else(|| of_terminal().map(|size| size.ws_col));
        // A terminal without a known size reports 0.
        columns.filter(|&columns| columns > 0).map(|columns| columns.max(WIDTH_MIN).into())
    }

    /// Opens the stream for output that ends with its last result. Text is coloured if that is wanted, and
    /// plain ASCII if the locale requires it.
    pub(super) fn open(&self, stream: Stream) -> Box<dyn Write> {
        self.open_for(stream, ReaderGone::Ends)
    }

    /// Opens the stream, with the behaviour after its reader has gone.
    pub(super) fn open_for(&self, stream: Stream, reader_gone: ReaderGone) -> Box<dyn Write> {
        let (into, choice): (Box<dyn Write>, _) = match stream {
            Stream::Stdout => (Box::new(io::stdout()), AutoStream::choice(&io::stdout())),
            Stream::Stderr => (Box::new(io::stderr()), AutoStream::choice(&io::stderr())),
        };
        self.dress(Box::new(Results { into, reader_gone, unread: false }), choice, self.width(stream))
    }

    /// Opens the stream for raw bytes.
    pub(super) fn open_bytes(&self, stream: Stream) -> Box<dyn Write> {
        let into: Box<dyn Write> = match stream {
            Stream::Stdout => Box::new(io::stdout()),
            Stream::Stderr => Box::new(io::stderr()),
        };
        Box::new(Results { into, reader_gone: ReaderGone::Ends, unread: false })
    }

    /// Returns the options for output in `format`, as text without colours.
    pub(super) const fn plain(format: Format) -> Self {
        let (json, csv) = (matches!(format, Format::Json), matches!(format, Format::Csv));
        let color = clap::ColorChoice::Never;
        Self { json, csv, top: None, width: Some(0), color, named: None, sections: None, separator: None }
    }

    /// Wraps `into` in the stream of the format. `choice` is the stream's own colour choice, and text is
    /// folded at `width`.
    pub(super) fn dress(
        &self,
        into: Box<dyn Write>,
        choice: ColorChoice,
        width: Option<usize>,
    ) -> Box<dyn Write> {
        let rows =
            |into, escapes| Box::new(Shown::new(io::BufWriter::with_capacity(ROWS_BYTES, into), escapes));
        match self.report_format().format() {
            Some(Format::Json) => return rows(into, Escapes::Json),
            // A format of reports alone has its own quoting rules; nothing else in it controls a terminal.
            Some(Format::Csv) | None => return rows(into, Escapes::Csv),
            Some(Format::Text) => {}
        }
        // anstream handles NO_COLOR, CLICOLOR_FORCE, TERM=dumb and terminals.
        let choice = match self.color {
            clap::ColorChoice::Always => ColorChoice::Always,
            clap::ColorChoice::Never => ColorChoice::Never,
            clap::ColorChoice::Auto => choice,
        };
        let styled = io::BufWriter::new(AutoStream::new(into, choice));
        let styled: Box<dyn Write> = match width {
            Some(width) => Box::new(Folding::new(styled, width)),
            None => Box::new(styled),
        };
        let shown = Box::new(Shown::new(styled, Escapes::Text));
        if speaks_utf8() { shown } else { Box::new(Ascii(shown)) }
    }
}

/// Opens standard output, for an export and nothing else.
pub(super) fn stdout() -> Box<dyn Write> {
    Box::new(Results { into: Box::new(io::stdout()), reader_gone: ReaderGone::Ends, unread: false })
}

/// Wraps `into` in the stream of an export.
pub(super) fn exported(into: Box<dyn Write>, content: Content) -> Box<dyn Write> {
    let into = io::BufWriter::with_capacity(ROWS_BYTES, into);
    match content {
        Content::Lines => Box::new(Shown::new(into, Escapes::Csv)),
        Content::Json => Box::new(Shown::new(into, Escapes::Json)),
        Content::Binary => Box::new(into),
    }
}

/// Handling of results that are no longer read (EPIPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderGone {
    /// The run ends with [`Unread`], because the results were all that was wanted.
    Ends,
    /// Results are dropped, and everything else goes on.
    Ignored,
}

/// Error that the results are no longer read: not a failure, but nothing is left to do.
#[derive(Debug, thiserror::Error)]
#[error("the reader of the results closed its end")]
pub(super) struct Unread;

impl Unread {
    /// Returns whether an error is this one, directly or inside a CSV error.
    pub(super) fn is(error: &io::Error) -> bool {
        let Some(inner) = error.get_ref() else { return false };
        let of_csv = || match inner.downcast_ref::<csv::Error>().map(csv::Error::kind) {
            Some(csv::ErrorKind::Io(error)) => Self::is(error),
            _ => false,
        };
        inner.is::<Self>() || of_csv()
    }
}

/// Stream of results that detects when its reader is gone.
struct Results {
    into: Box<dyn Write>,
    reader_gone: ReaderGone,
    unread: bool,
}

impl Results {
    fn result<T>(&mut self, result: io::Result<T>, dropped: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.unread = true;
                match self.reader_gone {
                    ReaderGone::Ends => Err(io::Error::new(io::ErrorKind::BrokenPipe, Unread)),
                    ReaderGone::Ignored => Ok(dropped),
                }
            }
            Err(error) => {
                let named = format!("cannot write the results: {error}");
                Err(io::Error::new(error.kind(), named))
            }
            Ok(done) => Ok(done),
        }
    }
}

impl Write for Results {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.unread {
            return self.result(Err(io::ErrorKind::BrokenPipe.into()), bytes.len());
        }
        let result = self.into.write(bytes);
        self.result(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.unread {
            return self.result(Err(io::ErrorKind::BrokenPipe.into()), ());
        }
        let result = self.into.flush();
        self.result(result, ())
    }
}

/// Returns whether the locale uses UTF-8 (locale(7): the first of these that is set decides).
pub(super) fn speaks_utf8() -> bool {
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

/// Writes a message for the user to stderr, in one line, whatever it quotes.
pub(super) fn talk(text: &str) {
    let _ = writeln!(io::stderr().lock(), "pmbpf: {}", Untrusted::from(text).terminal());
}

/// Reports that opening a file will wait, if it is a pipe.
pub(super) fn say_if_pipe(path: &Path) {
    if path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
        talk(&format!("{} is a pipe: waiting until it is read", path.display()));
    }
}

/// Returns whether standard error is a terminal.
pub(super) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Returns the columns of the terminal that standard error is, if it is one that can erase a line.
pub(super) fn columns_watched() -> Option<usize> {
    let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
    let size = (is_watched() && !is_dumb).then(|| tcgetwinsize(io::stderr()).ok())??;
    // A terminal without a known size reports 0.
    Some(if size.ws_col == 0 { 80 } else { size.ws_col.into() })
}

/// Replaces the few non-ASCII characters of pmbpf's own text. Names pass unchanged.
struct Ascii<W>(W);

impl<W: Write> Write for Ascii<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Ok(text) = std::str::from_utf8(bytes) else { return self.0.write(bytes) };
        self.0.write_all(plain(text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests;
