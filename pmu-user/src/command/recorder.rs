//! Records while there is room: a full disk is an error at the end, not the end of the run.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use super::{
    failure::Usage,
    output::{self, Stream},
};
use crate::drain::{
    Ending, Names,
    recording::{Overwrite, Recorded, Writer},
};

/// Choices that `run` and `io` share.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Keep {
    /// Record to FILE, for `pmbpf report`; `-` records nothing and sends results to stdout
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "output", help_heading = "Output")]
    force: bool,
}

impl Keep {
    /// The file to record to, if one is named.
    pub(super) fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| path.as_os_str() != "-")
    }

    /// Where results go: standard output belongs to a command unless a file or `-` was named.
    pub(super) fn stream(&self, command: &[OsString]) -> Stream {
        if command.is_empty() || self.output.is_some() { Stream::Stdout } else { Stream::Stderr }
    }

    /// Refuses a file that is there already, before anything is opened.
    pub(super) fn check(&self) -> Result<(), Usage> {
        match self.file().filter(|file| file.is_file() && !self.force) {
            Some(file) => Err(Usage(format!("{} exists; --force replaces it", file.display()))),
            None => Ok(()),
        }
    }

    /// Creates the recording, if one is wanted.
    pub(super) fn begin<R: Recorded>(&self, header: &R) -> io::Result<Recorder<R>> {
        let overwrite = if self.force { Overwrite::Yes } else { Overwrite::No };
        let writer = self.file().map(|path| Writer::create(path, overwrite, header)).transpose()?;
        Ok(Recorder { writer, failure: None })
    }
}

/// Where drains are kept, if they are.
pub(super) struct Recorder<R> {
    writer: Option<Writer<R>>,
    failure: Option<io::Error>,
}

impl<R: Recorded> Recorder<R> {
    /// Appends a drain.
    pub(super) fn drain(&mut self, drain: &R::Drain) {
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

    fn write(&mut self, write: impl FnOnce(&mut Writer<R>) -> io::Result<()>) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = write(writer) {
            let kept = self.writer.take().and_then(|writer| writer.abandon().ok());
            let kept = kept.map(|path| format!("; what was recorded before is in {}", path.display()));
            output::talk(&format!("{error}; recording stops, counting goes on{}", kept.unwrap_or_default()));
            self.failure = Some(error);
        }
    }
}
