//! Recording while there is room: a full disk is an error at the end, not the end of the run.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, BufWriter},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use super::{
    failure::Usage,
    output::{self, ReaderGone, Stream},
    page,
    redaction::{Naming, Redaction},
    select::SelectArgs,
};
use crate::{
    drain::{
        Drain, Ending, Header, Names,
        recording::{Abandoned, Overwrite, Writer},
    },
    untrusted::Untrusted,
    view::{Format, hdr_log::HdrLog},
};

/// Options of every command that measures.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Keep {
    /// Record to FILE, for `pmbpf report`; it exists from the start and can be read however the run ends.
    /// NAME.html: a recording that becomes a page for a browser at the end. `-`: do not record; print results
    /// to stdout and redirect the command's stdout to stderr
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace FILE if it exists, with a new file that only you can read
    #[arg(long, requires = "output", help_heading = "Output")]
    force: bool,
    #[command(flatten)]
    pub(super) redaction: Redaction,
    /// Whether the file receives results instead of a recording.
    #[arg(skip)]
    takes_results: bool,
}

/// Formats of results, by file extension.
const RESULTS: [(&str, Format); 4] =
    [("json", Format::Json), ("jsonl", Format::Json), ("csv", Format::Csv), ("txt", Format::Text)];
/// Extensions of other programs' files, and the command that makes them.
const OTHERS: [(&str, &str); 6] = [
    (
        "svg",
        "`pmbpf run -g -o x.html` makes a page with a flame graph, `pmbpf export FILE --to folded` the input of others",
    ),
    ("folded", "record to NAME.pmbpf, then `pmbpf export NAME.pmbpf --to folded`"),
    ("pprof", "record to NAME.pmbpf, then `pmbpf export NAME.pmbpf --to pprof`"),
    ("parquet", "record to NAME.pmbpf, then `pmbpf export NAME.pmbpf --to parquet`"),
    ("data", "pmbpf does not write perf.data files: name it NAME.pmbpf"),
    ("pdf", "`-o NAME.html` makes a page"),
];

impl Keep {
    /// Returns the file to record to, if one is named.
    pub(super) fn file(&self) -> Option<&Path> {
        self.named_file().filter(|_| !self.takes_results)
    }

    fn named_file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| path.as_os_str() != "-")
    }

    fn extension(&self) -> Option<String> {
        Some(self.named_file()?.extension()?.to_str()?.to_ascii_lowercase())
    }

    /// Returns the format of results that the name of the file stands for, if any.
    pub(super) fn named_format(&self) -> Option<Format> {
        let extension = self.extension()?;
        RESULTS.iter().find(|(name, _)| *name == extension).map(|(_, format)| *format)
    }

    /// Returns whether the file is named as a recording or a page.
    pub(super) fn is_named_recording(&self) -> bool {
        self.extension().is_some_and(|extension| matches!(&*extension, "pmbpf" | "html"))
    }

    /// Makes the file receive the results, which are then not recorded.
    pub(super) const fn take_results(&mut self) {
        self.takes_results = true;
    }

    /// Returns whether the file receives results.
    pub(super) fn takes_results(&self) -> bool {
        self.takes_results && self.named_file().is_some()
    }

    /// Creates the file for results, if they go to one.
    pub(super) fn results(&self) -> anyhow::Result<Option<File>> {
        let Some(path) = self.named_file().filter(|_| self.takes_results) else { return Ok(None) };
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        let is_new = !self.force && !path.exists();
        let options = if is_new { options.create_new(true) } else { options.create(true).truncate(true) };
        let file = options.open(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Some(file))
    }

    /// Returns whether the recording becomes a page at the end.
    fn is_page(&self) -> bool {
        self.file().and_then(Path::extension).is_some_and(|extension| extension.eq_ignore_ascii_case("html"))
    }

    /// Returns whether results were sent to standard output by `-o -`.
    pub(super) fn is_stdout(&self) -> bool {
        self.output.as_deref().is_some_and(|path| path.as_os_str() == "-")
    }

    /// Reports what was recorded, and how to read it.
    pub(super) fn say_what_is_written(&self) {
        if let Some(file) = self.file()
            && let Ok(bytes) = file.metadata().map(|file| file.len())
        {
            let name = Untrusted::from(file);
            let name = name.terminal();
            let kilobytes = bytes.div_ceil(1000);
            output::talk(&if self.is_page() {
                format!("wrote {kilobytes} KB: {name}")
            } else {
                format!("recorded {kilobytes} KB: pmbpf report {name}")
            });
        }
    }

    /// Returns the stream for results: standard output belongs to a command unless `-` was named.
    pub(super) fn stream(&self, command: &[OsString]) -> Stream {
        if command.is_empty() || self.is_stdout() { Stream::Stdout } else { Stream::Stderr }
    }

    /// Returns whether the run goes on once its results are no longer read. A run with a recording does, and
    /// one with a command, which pmbpf does not end.
    pub(super) fn if_unread(&self, command: &[OsString]) -> ReaderGone {
        if command.is_empty() && self.file().is_none() { ReaderGone::Ends } else { ReaderGone::Ignored }
    }

    /// Refuses an existing file before anything is opened, and a page where there cannot be one.
    pub(super) fn check(&self) -> Result<(), Usage> {
        if self.is_page()
            && self.file().and_then(|file| file.metadata().ok()).is_some_and(|there| !there.is_file())
        {
            let name = self.file().map(Path::display);
            let name = name.map(|name| name.to_string()).unwrap_or_default();
            return Err(Usage(format!(
                "{name} is not a regular file, and a page is made of the recording that was written there: name a new file"
            )));
        }
        self.check_name()?;
        match self.named_file().filter(|file| file.is_file() && !self.force) {
            Some(file) => Err(Usage(format!("{} exists; --force replaces it", file.display()))),
            None => Ok(()),
        }
    }

    /// Refuses a recording that is named as another format.
    fn check_name(&self) -> Result<(), Usage> {
        let (Some(file), Some(extension)) = (self.file(), self.extension()) else { return Ok(()) };
        let why = match RESULTS.iter().find(|(name, _)| *name == extension) {
            Some((_, Format::Json)) => "for rows of JSON: `--json -o - > FILE`",
            Some((_, Format::Csv)) => "for CSV: `--csv -o - > FILE`",
            Some((_, Format::Text)) => "for the text of the report: `-o - > FILE`",
            None => match OTHERS.iter().find(|(name, _)| *name == extension) {
                Some((_, why)) => why,
                None => return Ok(()),
            },
        };
        let name = Untrusted::from(file);
        Err(Usage(format!("{}: -o writes a recording, not .{extension}; {why}", name.terminal())))
    }

    /// Creates the recording, if one is wanted.
    pub(super) fn begin(&self, header: &Header) -> io::Result<Recorder> {
        // A file beyond the limit (`ulimit -f`) is then an error, not the end of this process.
        drop(signal(SignalKind::from_raw(libc::SIGXFSZ))?);
        let overwrite = if self.force { Overwrite::Yes } else { Overwrite::No };
        let Some(path) = self.file() else { return Ok(Recorder { writer: None, failure: None }) };
        output::say_if_pipe(path);
        Ok(Recorder { writer: Some(Writer::create(path, overwrite, header)?), failure: None })
    }
}

/// Writer of drains to a recording, if there is one.
pub(super) struct Recorder {
    writer: Option<Writer>,
    failure: Option<io::Error>,
}

impl Recorder {
    /// Appends a drain.
    pub(super) fn drain(&mut self, drain: &Drain) {
        self.write(|writer| writer.drain(drain));
    }

    /// Appends the ending.
    pub(super) fn end(&mut self, ending: &Ending) {
        self.write(|writer| writer.end(ending));
    }

    /// Appends names, after the ending.
    pub(super) fn names(&mut self, names: &Names) {
        self.write(|writer| writer.names(names));
    }

    /// Makes a page of the recording, if requested. Returns the first failure, once everything else is done.
    pub(super) fn result(self, keep: &Keep, perfmon_dir: Option<&Path>) -> anyhow::Result<()> {
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        let (Some(writer), true, Some(path)) = (self.writer, keep.is_page(), keep.file()) else {
            return Ok(());
        };
        let name = path.display().to_string();
        let made = page(&writer, &name, perfmon_dir).and_then(|page| Ok(writer.replace(&page)?));
        made.with_context(|| format!("no page could be made; {name} is the recording: pmbpf report {name}"))
    }

    fn write(&mut self, write: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = write(writer) {
            let kept = match self.writer.take().map(Writer::abandon) {
                Some(Abandoned::At(path)) => format!("; what was recorded before is in {}", path.display()),
                _ => String::new(),
            };
            output::talk(&format!("{error}; recording stops, counting goes on{kept}"));
            self.failure = Some(error);
        }
    }
}

/// Returns the page of a recording, in which names are already as they may be shown.
fn page(recording: &Writer, name: &str, perfmon_dir: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let open = || recording.opened(name);
    let redacting = Redaction::of(Naming::Plain).begin();
    let select = &SelectArgs::default();
    let source = page::Source { open: &open, symfs: &[], perfmon_dir, redacting: &redacting, select };
    Ok(source.page(&open()?.header)?.page)
}

/// Option to write latencies to a separate file, for HdrHistogram's tools.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct HdrLogArgs {
    /// Also write run-queue and block-request latencies by owner and interval to a new FILE, in
    /// HdrHistogram's interval log format
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    hdr_log: Option<PathBuf>,
}

impl HdrLogArgs {
    /// Returns whether a log is wanted.
    pub(super) const fn is_given(&self) -> bool {
        self.hdr_log.is_some()
    }

    /// Creates the log, if one is wanted, of a run that started then (ns since 1970). The file must not
    /// exist, and only its owner can read it.
    pub(super) fn begin(&self, started_unix_ns: u64) -> io::Result<Option<HdrLog<'static>>> {
        let Some(path) = &self.hdr_log else { return Ok(None) };
        let begin = || {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            HdrLog::begin(Box::new(BufWriter::new(file)), started_unix_ns)
        };
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot create {}: {error}", path.display()))
        };
        begin().map(Some).map_err(named)
    }
}
