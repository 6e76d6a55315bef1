//! Where results go and how they look.

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

/// Rows of the formats for machines that are written at a time.
const ROWS_BYTES: usize = 1 << 16;

/// Choices of every command that writes results.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Output {
    /// Write one JSON object a line (schema pmbpf/2)
    #[arg(short, long, conflicts_with = "csv", help_heading = "Output")]
    json: bool,
    /// Write CSV
    #[arg(long, help_heading = "Output")]
    csv: bool,
    /// Rows of a table in the text report [default: 20, and 10 where nothing that stands out rests on them]
    #[arg(long, value_name = "N", help_heading = "Output")]
    top: Option<usize>,
    /// Columns of the text report; 0 for as many as its rows take [default: the terminal's; 0 in a pipe or file]
    #[arg(long, value_name = "COLUMNS", value_parser = parse::width, help_heading = "Output")]
    width: Option<u16>,
    /// Colour the text report
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = "Output")]
    color: clap::ColorChoice,
    /// The format of a report, where it is chosen by its name
    #[arg(skip)]
    named: Option<ReportFormat>,
    /// Sections of a text report, where they are chosen
    #[arg(skip)]
    sections: Option<Sections>,
    /// What stands between perf's fields, where those are written
    #[arg(skip)]
    separator: Option<char>,
}

/// Choices of commands that write reports.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReportOutput {
    /// Write this format [default: text]
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["json", "csv"], help_heading = "Output",
          value_parser = PossibleValuesParser::new(ReportFormat::names()))]
    format: Option<String>,
    /// Write these sections of the text report only, as findings,owners,stacks; an unknown name lists them all
    #[arg(long, value_name = "LIST", value_parser = Sections::named, conflicts_with_all = ["json", "csv", "format"],
          help_heading = "Output")]
    sections: Option<Sections>,
    #[command(flatten)]
    output: Output,
}

impl ReportOutput {
    /// Is a format chosen by its name?
    pub(super) const fn names_format(&self) -> bool {
        self.format.is_some()
    }

    /// Where a report goes and how it looks.
    pub(super) fn output(&self) -> Output {
        let named = self.format.as_deref().and_then(ReportFormat::named);
        Output { named: self.output.named.or(named), sections: self.sections, ..self.output.clone() }
    }

    /// Is a format for machines chosen?
    pub(super) fn is_for_machines(&self) -> bool {
        self.output().report_format().format() != Some(Format::Text)
    }

    /// Writes this format instead of text.
    pub(super) const fn write_as(&mut self, format: Format) {
        match format {
            Format::Json => self.output.json = true,
            Format::Csv => self.output.csv = true,
            Format::Text => {}
        }
    }

    /// Writes counts in perf's fields, with this character between them.
    pub(super) fn write_fields(&mut self, separator: char) {
        (self.output.named, self.output.separator) = (Some(ReportFormat::fields()), Some(separator));
    }
}

impl From<Output> for ReportOutput {
    fn from(output: Output) -> Self {
        Self { output, format: None, sections: None }
    }
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
    /// The format; text where it is one of reports alone.
    pub(super) fn format(&self) -> Format {
        match (self.json, self.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => self.named.and_then(ReportFormat::format).unwrap_or(Format::Text),
        }
    }

    /// The format of a report.
    pub(super) fn report_format(&self) -> ReportFormat {
        self.named.unwrap_or_else(|| self.format().into())
    }

    /// How the text looks.
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

    /// Columns that text on the stream must fit.
    fn width(&self, stream: Stream) -> Option<usize> {
        let of_terminal = || match stream {
            Stream::Stdout => tcgetwinsize(io::stdout()).ok(),
            Stream::Stderr => tcgetwinsize(io::stderr()).ok(),
        };
        let columns = self.width.or_else(|| of_terminal().map(|size| size.ws_col));
        // A terminal that does not know its size says 0.
        columns.filter(|&columns| columns > 0).map(|columns| columns.max(WIDTH_MIN).into())
    }

    /// The stream, for what ends with its last result. Text gets colours if they are wanted there, and is plain ASCII if the
    /// locale asks for it.
    pub(super) fn open(&self, stream: Stream) -> Box<dyn Write> {
        self.open_for(stream, ReaderGone::Ends)
    }

    /// The stream, and what becomes of results if its reader goes away.
    pub(super) fn open_for(&self, stream: Stream, reader_gone: ReaderGone) -> Box<dyn Write> {
        let (into, choice): (Box<dyn Write>, _) = match stream {
            Stream::Stdout => (Box::new(io::stdout()), AutoStream::choice(&io::stdout())),
            Stream::Stderr => (Box::new(io::stderr()), AutoStream::choice(&io::stderr())),
        };
        self.dress(Box::new(Results { into, reader_gone, unread: false }), choice, self.width(stream))
    }

    /// The stream as it is, for what is no text of ours to dress.
    pub(super) fn open_bytes(&self, stream: Stream) -> Box<dyn Write> {
        let into: Box<dyn Write> = match stream {
            Stream::Stdout => Box::new(io::stdout()),
            Stream::Stderr => Box::new(io::stderr()),
        };
        Box::new(Results { into, reader_gone: ReaderGone::Ends, unread: false })
    }

    /// What is written in `format`, as text without colours.
    pub(super) const fn plain(format: Format) -> Self {
        let (json, csv) = (matches!(format, Format::Json), matches!(format, Format::Csv));
        let color = clap::ColorChoice::Never;
        Self { json, csv, top: None, width: Some(0), color, named: None, sections: None, separator: None }
    }

    /// A stream of the format before `into`; `choice` is what the stream itself says about colours, and text is folded at `width`.
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
            // A format of reports alone has rules of its own for what it quotes; beside them nothing steers a terminal.
            Some(Format::Csv) | None => return rows(into, Escapes::Csv),
            Some(Format::Text) => {}
        }
        // anstream knows NO_COLOR, CLICOLOR_FORCE, TERM=dumb and terminals.
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

/// Standard output, for an export and nothing else.
pub(super) fn stdout() -> Box<dyn Write> {
    Box::new(Results { into: Box::new(io::stdout()), reader_gone: ReaderGone::Ends, unread: false })
}

/// The stream of an export before `into`.
pub(super) fn exported(into: Box<dyn Write>, content: Content) -> Box<dyn Write> {
    let into = io::BufWriter::with_capacity(ROWS_BYTES, into);
    match content {
        Content::Lines => Box::new(Shown::new(into, Escapes::Csv)),
        Content::Json => Box::new(Shown::new(into, Escapes::Json)),
        Content::Binary => Box::new(into),
    }
}

/// What becomes of results that nobody reads any more (EPIPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderGone {
    /// They were all that was wanted: [`Unread`] ends us.
    Ends,
    /// They are dropped, and what else is under way goes on.
    Ignored,
}

/// Nobody reads the results any more: no failure, but nothing is left to do.
#[derive(Debug, thiserror::Error)]
#[error("the reader of the results has gone")]
pub(super) struct Unread;

impl Unread {
    /// Is it this, in whatever it came through?
    pub(super) fn is(error: &io::Error) -> bool {
        let Some(inner) = error.get_ref() else { return false };
        let of_csv = || match inner.downcast_ref::<csv::Error>().map(csv::Error::kind) {
            Some(csv::ErrorKind::Io(error)) => Self::is(error),
            _ => false,
        };
        inner.is::<Self>() || of_csv()
    }
}

/// A stream of results, which knows when its reader is gone.
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

/// Does the locale use UTF-8? (locale(7): the first of these that is set decides.)
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

/// Says something on stderr, for a person who is watching: in one line, whatever it quotes.
pub(super) fn talk(text: &str) {
    let _ = writeln!(io::stderr().lock(), "pmbpf: {}", Untrusted::from(text).terminal());
}

/// Says that opening a file will wait, where it is a pipe.
pub(super) fn say_if_pipe(path: &Path) {
    if path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
        talk(&format!("{} is a pipe: waiting until it is read", path.display()));
    }
}

/// Is a person watching standard error?
pub(super) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Columns of the terminal that standard error is, if it is one that can erase a line.
pub(super) fn columns_watched() -> Option<usize> {
    let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
    let size = (is_watched() && !is_dumb).then(|| tcgetwinsize(io::stderr()).ok())??;
    // A terminal that does not know its size says 0.
    Some(if size.ws_col == 0 { 80 } else { size.ws_col.into() })
}

/// Replaces the few characters of our own that are not ASCII. Names pass as they are.
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
