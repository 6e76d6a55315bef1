//! A recording as it is written: a frame for each thing that happens, when it happens.

use std::{io, path::Path};

use serde::Serialize;

use super::{
    DRAIN, ENDING, HEADER, NAMES,
    frame::{Encoder, MAGIC},
    place::{Abandoned, Overwrite, Place},
};
use crate::drain::{Drain, Ending, Header, Names};

/// Writes a recording as it happens.
#[derive(Debug)]
pub struct Writer {
    place: Place,
    encoder: Encoder,
}

impl Writer {
    /// Makes the file, with the header in it, readable by its owner only. From then on it can be read, however the run ends. A
    /// symbolic link is never followed, and nothing of a file that is replaced is kept. A device or a pipe is written as it is.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be created or written; the error names it.
    pub fn create(path: &Path, overwrite: Overwrite, header: &Header) -> io::Result<Self> {
        let mut encoder = Encoder::new();
        let first = [&MAGIC[..], encoder.frame(HEADER, header)?].concat();
        let place = Place::create(path, overwrite, &first)?;
        Ok(Self { place, encoder })
    }

    /// Appends a drain.
    ///
    /// # Errors
    ///
    /// The file cannot be written; what was written before can still be read.
    pub fn drain(&mut self, drain: &Drain) -> io::Result<()> {
        self.write(DRAIN, drain)
    }

    /// Appends the ending.
    ///
    /// # Errors
    ///
    /// As for [`Writer::drain`]; or the file is not there any more under its name.
    pub fn end(&mut self, ending: &Ending) -> io::Result<()> {
        self.write(ENDING, ending)?;
        self.place.check()
    }

    /// Appends names, after the ending.
    ///
    /// # Errors
    ///
    /// As for [`Writer::drain`].
    pub fn names(&mut self, names: &Names) -> io::Result<()> {
        self.write(NAMES, names)
    }

    /// Marks an unfinished file by its name, if no other file has that: `x.pmbpf` becomes `x.pmbpf.partial`. What became of it.
    #[must_use]
    pub fn abandon(self) -> Abandoned {
        self.place.abandon()
    }

    fn write<T: Serialize>(&mut self, kind: u8, value: &T) -> io::Result<()> {
        self.place.write(self.encoder.frame(kind, value)?)
    }
}
