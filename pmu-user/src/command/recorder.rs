//! Records while there is room: a full disk is an error at the end, not the end of the run.

use std::{io, path::Path};

use super::output;
use crate::drain::{
    Drain, Ending, Header,
    recording::{Overwrite, Writer},
};

/// Where drains are kept, if they are.
pub(super) struct Recorder {
    writer: Option<Writer>,
    failure: Option<io::Error>,
}

impl Recorder {
    /// Creates the recording, if one is wanted.
    pub(super) fn new(path: Option<&Path>, force: bool, header: &Header) -> io::Result<Self> {
        let overwrite = if force { Overwrite::Yes } else { Overwrite::No };
        let writer = path.map(|path| Writer::create(path, overwrite, header)).transpose()?;
        Ok(Self { writer, failure: None })
    }

    /// Appends a drain.
    pub(super) fn drain(&mut self, drain: &Drain) {
        self.write(|writer| writer.drain(drain));
    }

    /// Appends the ending.
    pub(super) fn end(&mut self, ending: &Ending) {
        self.write(|writer| writer.end(ending));
    }

    /// The first failure, once everything else is done.
    pub(super) fn result(self) -> io::Result<()> {
        self.failure.map_or(Ok(()), Err)
    }

    fn write(&mut self, write: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = write(writer) {
            let kept = self.writer.take().and_then(|writer| writer.abandon().ok());
            let kept = kept.map(|path| format!("; what was recorded before is in {}", path.display()));
            output::talk(&format!("{error}; recording stops, counting goes on{}", kept.unwrap_or_default()));
            self.failure = Some(error);
        }
    }
}
