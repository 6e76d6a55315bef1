//! Records while there is room: a full disk is an error at the end, not the end of the run.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{self, BufWriter},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use tokio::signal::unix::{SignalKind, signal};

use super::{
    failure::Usage,
    output::{self, ReaderGone, Stream},
};
use crate::{
    drain::{
        Drain, Ending, Header, Names,
        recording::{Abandoned, Overwrite, Writer},
    },
    redact::{Redact, Redactor},
    untrusted::Untrusted,
    view::hdr_log::HdrLog,
};

/// Choices that every command which measures has.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Keep {
    /// Record to FILE, for `pmbpf report`; it is there from the start, and can be read however the run ends. `-` records nothing
    /// and sends results to stdout, where otherwise a command's go and results to stderr
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace FILE if it exists, by a new file that only you may read
    #[arg(long, requires = "output", help_heading = "Output")]
    force: bool,
    #[command(flatten)]
    pub(super) redaction: Redaction,
}

/// Whether a report shows names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// As they were recorded.
    Plain,
    /// Pseudonyms in their place (`--redact`).
    Redacted,
}

/// Whether names are shown and recorded as they are.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Redaction {
    /// Put pseudonyms in the place of names: processes, command lines, files, functions but the kernel's, cgroups, disks, interfaces,
    /// the host, addresses. The same name has the same pseudonym in one report or recording, and in no other
    #[arg(long, help_heading = "Output")]
    redact: bool,
}

impl Redaction {
    /// What was chosen otherwise than on a command line.
    pub(super) const fn of(naming: Naming) -> Self {
        Self { redact: matches!(naming, Naming::Redacted) }
    }

    /// What makes pseudonyms, if they are wanted.
    pub(super) fn begin(&self) -> Redacting {
        Redacting(self.redact.then(Redactor::new))
    }

    /// Are they wanted?
    pub(super) const fn is_on(&self) -> bool {
        self.redact
    }
}

/// Where everything passes that is shown or recorded.
pub(super) struct Redacting(Option<Redactor>);

impl Redacting {
    /// The value as it may be shown.
    pub(super) fn of<T: Redact>(&self, value: T) -> serde_json::Result<T> {
        match &self.0 {
            Some(redactor) => redactor.of(value),
            None => Ok(value),
        }
    }

    /// A sentence as it may be shown.
    pub(super) fn sentence(&self, text: &str) -> String {
        self.0.as_ref().map_or_else(|| text.to_owned(), |redactor| redactor.sentence(text))
    }
}

impl Keep {
    /// The file to record to, if one is named.
    pub(super) fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| path.as_os_str() != "-")
    }

    /// Were results sent to standard output by name?
    pub(super) fn is_stdout(&self) -> bool {
        self.output.as_deref().is_some_and(|path| path.as_os_str() == "-")
    }

    /// Says what was recorded, and how to read it.
    pub(super) fn say_what_is_written(&self) {
        if let Some(file) = self.file()
            && let Ok(bytes) = file.metadata().map(|file| file.len())
        {
            let name = Untrusted::from(file);
            let name = name.terminal();
            output::talk(&format!("recorded {} KB: pmbpf report {name}", bytes.div_ceil(1000)));
        }
    }

    /// Where results go: standard output belongs to a command unless `-` was named.
    pub(super) fn stream(&self, command: &[OsString]) -> Stream {
        if command.is_empty() || self.is_stdout() { Stream::Stdout } else { Stream::Stderr }
    }

    /// Whether the run goes on if nobody reads its results any more: for a recording, or a command, which is not ours to end.
    pub(super) fn if_unread(&self, command: &[OsString]) -> ReaderGone {
        if command.is_empty() && self.file().is_none() { ReaderGone::Ends } else { ReaderGone::Ignored }
    }

    /// Refuses a file that is there already, before anything is opened.
    pub(super) fn check(&self) -> Result<(), Usage> {
        match self.file().filter(|file| file.is_file() && !self.force) {
            Some(file) => Err(Usage(format!("{} exists; --force replaces it", file.display()))),
            None => Ok(()),
        }
    }

    /// Creates the recording, if one is wanted.
    pub(super) fn begin(&self, header: &Header) -> io::Result<Recorder> {
        // A file that grows beyond the limit (`ulimit -f`) is an error then, not the end of us.
        drop(signal(SignalKind::from_raw(libc::SIGXFSZ))?);
        let overwrite = if self.force { Overwrite::Yes } else { Overwrite::No };
        let Some(path) = self.file() else { return Ok(Recorder { writer: None, failure: None }) };
        if path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
            output::talk(&format!("{} is a pipe: waiting until somebody reads it", path.display()));
        }
        Ok(Recorder { writer: Some(Writer::create(path, overwrite, header)?), failure: None })
    }
}

/// Where drains are kept, if they are.
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

    /// The first failure, once everything else is done.
    pub(super) fn result(self) -> io::Result<()> {
        self.failure.map_or(Ok(()), Err)
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

/// Whether latencies go into a file of their own, for HdrHistogram's tools.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct HdrLogArgs {
    /// Write the latencies of every owner and interval (run queue, block requests) to FILE, too: a new file, in HdrHistogram's
    /// interval log format
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    hdr_log: Option<PathBuf>,
}

impl HdrLogArgs {
    /// Is a log wanted?
    pub(super) const fn is_given(&self) -> bool {
        self.hdr_log.is_some()
    }

    /// Creates the log, if one is wanted, of a run that started then (ns since 1970), for nobody else to read. A file that is there is no
    /// place for it.
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
