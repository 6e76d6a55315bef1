//! The recording: a header, then drains, then an ending, each in a frame that can be checked by itself.
//!
//! ```text
//! file  = "pmbpf" 0x02 "\r\n"  frame*
//! frame = length: u32 LE, kind: u8, encoding: u8, 0 0, crc32c(the 8 bytes before, payload): u32 LE, payload
//! ```
//!
//! A payload is JSON: as it is (encoding 0), or compressed by itself (encoding 1: DEFLATE, RFC 1951). Format 0x01 had no
//! encodings, and is still read.
//! A file that breaks off anywhere yields every complete frame. Frames of an unknown kind are skipped. A
//! header and a drain hold a part for each source of the run. Facts of the whole run stand once in the
//! header. Older recordings (`older`) have other headers.

mod frame;
mod older;
mod place;
mod reader;
#[cfg(test)]
mod tests;

use std::{io, path::Path};

use serde::Serialize;

use self::frame::{Encoder, MAGIC};
pub(crate) use self::place::Place;
pub use self::{
    place::{Abandoned, Overwrite},
    reader::{Entries, Entry, Opened, ReadError, Recording},
};
use super::{Drain, Ending, Header, Names};

/// Kind of the frame with the header, and of those with drains.
const HEADER: u8 = b'S';
const DRAIN: u8 = b's';
/// Kind of the frame with the ending.
const ENDING: u8 = b'E';
/// Kind of the frame with names, which are looked up after the ending.
const NAMES: u8 = b'N';

/// Creates a file that holds `bytes` only, as [`Writer::create`] creates a recording: the file is there
/// whole, or not at all.
///
/// # Errors
///
/// The file exists, or cannot be created or written; the error names it.
pub fn write_new(path: &Path, overwrite: Overwrite, bytes: &[u8]) -> io::Result<()> {
    Place::create(path, overwrite, bytes).map(drop)
}

/// Writer of a recording while the run goes on.
#[derive(Debug)]
pub struct Writer {
    place: Place,
    encoder: Encoder,
    bytes: u64,
}

impl Writer {
    /// Creates the file with the header in it, readable by its owner only. From then on it can be read,
    /// however the run ends. A symbolic link is never followed, and nothing of a replaced file is kept. A
    /// device or a pipe is written as it is.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be created or written; the error names it.
    pub fn create(path: &Path, overwrite: Overwrite, header: &Header) -> io::Result<Self> {
        let mut encoder = Encoder::new();
        let first = [&MAGIC[..], encoder.frame(HEADER, header)?].concat();
        let place = Place::create(path, overwrite, &first)?;
        Ok(Self { place, encoder, bytes: first.len() as u64 })
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

    /// Returns the number of bytes written.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Marks an unfinished file by its name, unless another file has that name: `x.pmbpf` becomes
    /// `x.pmbpf.partial`. Returns the outcome.
    #[must_use]
    pub fn abandon(self) -> Abandoned {
        self.place.abandon()
    }

    /// Opens the recording from its beginning, as often as wanted. It must be a file that [`Writer::create`]
    /// made, not a device or a pipe. Nothing can be appended afterwards.
    ///
    /// # Errors
    ///
    /// The recording cannot be read.
    pub fn opened(&self, name: &str) -> Result<Opened, ReadError> {
        let file = self.place.reader().map_err(|error| ReadError::Io { path: name.to_owned(), error })?;
        Opened::read(file, name)
    }

    /// Replaces the contents of the recording. It stays a recording if there is no room.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or is not there any more under its name.
    pub fn replace(mut self, bytes: &[u8]) -> io::Result<()> {
        self.place.replace(bytes)
    }

    fn write<T: Serialize>(&mut self, kind: u8, value: &T) -> io::Result<()> {
        let frame = self.encoder.frame(kind, value)?;
        self.place.write(frame)?;
        self.bytes += frame.len() as u64;
        Ok(())
    }
}
