//! The recording: a header, then drains, then an ending, each in a frame that can be checked by itself.
//!
//! ```text
//! file  = "pmbpf" 0x01 "\r\n"  frame*
//! frame = length: u32 LE, kind: u8, 0 0 0, crc32c(the 8 bytes before, payload): u32 LE, payload: JSON
//! ```
//!
//! A file that breaks off anywhere gives back every complete frame. Frames of an unknown kind are skipped.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};

use super::{Drain, Ending, Header};

const MAGIC: &[u8; 8] = b"pmbpf\x01\r\n";
const FRAME_HEADER_BYTES: usize = 12;
/// Bytes of a frame's header that its checksum covers: all before it.
const CHECKED_BYTES: usize = 8;
/// A frame larger than this is damage, not data.
const FRAME_BYTES_MAX: usize = 256 << 20;

const HEADER: u8 = b'H';
const DRAIN: u8 = b'D';
const ENDING: u8 = b'E';

/// May an existing file be replaced?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Yes.
    Yes,
    /// No: it is an error.
    No,
}

/// Writes a recording as it happens.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
    frame: BytesMut,
}

impl Writer {
    /// Creates the file, readable by its owner only, and writes the header. Never follows a symbolic link.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be created or written; the error names it.
    pub fn create(path: &Path, overwrite: Overwrite, header: &Header) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
        let special = path.metadata().is_ok_and(|metadata| {
            let kind = metadata.file_type();
            kind.is_char_device() || kind.is_fifo()
        });
        match overwrite {
            _ if special => &mut options,
            Overwrite::Yes => options.create(true).truncate(true),
            Overwrite::No => options.create_new(true),
        };
        let file = options.open(path).map_err(|error| named("create", path, &error))?;
        let mut writer = Self { file, path: path.to_owned(), frame: BytesMut::new() };
        writer.file.write_all(MAGIC).map_err(|error| named("write", path, &error))?;
        writer.write(HEADER, header)?;
        Ok(writer)
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
    /// As for [`Writer::drain`].
    pub fn end(&mut self, ending: &Ending) -> io::Result<()> {
        self.write(ENDING, ending)
    }

    /// Marks an unfinished file by its name: `x.pmbpf` becomes `x.pmbpf.partial`. Returns the new name.
    ///
    /// # Errors
    ///
    /// The file cannot be renamed; it keeps its name.
    pub fn abandon(self) -> io::Result<PathBuf> {
        let mut partial = self.path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        if self.path.metadata()?.file_type().is_file() {
            std::fs::rename(&self.path, &partial)?;
            return Ok(partial);
        }
        Ok(self.path)
    }

    fn write<T: Serialize>(&mut self, kind: u8, value: &T) -> io::Result<()> {
        self.frame.clear();
        self.frame.put_bytes(0, FRAME_HEADER_BYTES);
        serde_json::to_writer((&mut self.frame).writer(), value)?;
        let (header, payload) = self.frame.split_at_mut(FRAME_HEADER_BYTES);
        let length =
            u32::try_from(payload.len()).map_err(|_| io::Error::other("a drain is too large to record"))?;
        let (start, mut sum) = header.split_at_mut(CHECKED_BYTES);
        start[..4].copy_from_slice(&length.to_le_bytes());
        start[4] = kind;
        sum.put_u32_le(checksum(start, payload));
        self.file.write_all(&self.frame).map_err(|error| named("write", &self.path, &error))
    }
}

fn checksum(start: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(start), payload)
}

fn named(verb: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {verb} {}: {error}", path.display()))
}

/// A recording that was read.
#[derive(Debug)]
pub struct Recording {
    /// Its header.
    pub header: Header,
    /// Its drains.
    pub drains: Vec<Drain>,
    /// Its ending; `None` if the recording broke off.
    pub ending: Option<Ending>,
    /// Bytes at the end that are no complete frame.
    pub lost_bytes: u64,
}

/// Why a file is no recording.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("cannot read {path}: {error}")]
    Io {
        /// File.
        path: String,
        /// Cause.
        error: io::Error,
    },
    /// It does not begin like one.
    #[error("{0} is not a pmbpf recording")]
    Foreign(String),
    /// Not even the header is complete.
    #[error("{0} breaks off before the end of its header")]
    NoHeader(String),
    /// A frame is whole but this version cannot read it.
    #[error("{path} was written by another version of pmbpf: {error}")]
    Version {
        /// File.
        path: String,
        /// Cause.
        error: serde_json::Error,
    },
}

impl Recording {
    /// Reads every complete frame of a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no recording, or has no complete header.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let name = || path.display().to_string();
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(|error| ReadError::Io { path: name(), error })?;
        Self::parse(Bytes::from(bytes), &name())
    }

    /// Reads every complete frame of a file's bytes; `name` is for messages.
    ///
    /// # Errors
    ///
    /// As for [`Recording::read`].
    pub fn parse(mut bytes: Bytes, name: &str) -> Result<Self, ReadError> {
        if !bytes.starts_with(MAGIC) {
            return Err(ReadError::Foreign(name.to_owned()));
        }
        bytes.advance(MAGIC.len());
        let (mut header, mut drains, mut ending) = (None, Vec::new(), None);
        while let Some((kind, payload)) = next_frame(&mut bytes) {
            match kind {
                HEADER => header = Some(decode::<Header>(&payload, name)?),
                DRAIN => drains.push(decode::<Drain>(&payload, name)?),
                ENDING => ending = Some(decode::<Ending>(&payload, name)?),
                _ => {}
            }
        }
        let header = header.ok_or_else(|| ReadError::NoHeader(name.to_owned()))?;
        Ok(Self { header, drains, ending, lost_bytes: bytes.len() as u64 })
    }
}

/// Takes a complete, undamaged frame off the front.
fn next_frame(bytes: &mut Bytes) -> Option<(u8, Bytes)> {
    let start = bytes.slice(..CHECKED_BYTES.min(bytes.len()));
    let mut head = bytes.get(..FRAME_HEADER_BYTES)?;
    let length = head.get_u32_le() as usize;
    let kind = head.get_u8();
    head.advance(3);
    let expected = head.get_u32_le();
    if length > FRAME_BYTES_MAX || bytes.len() < FRAME_HEADER_BYTES + length {
        return None;
    }
    let payload = bytes.slice(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + length);
    if checksum(&start, &payload) != expected {
        return None;
    }
    bytes.advance(FRAME_HEADER_BYTES + length);
    Some((kind, payload))
}

fn decode<T: DeserializeOwned>(payload: &[u8], name: &str) -> Result<T, ReadError> {
    serde_json::from_slice(payload).map_err(|error| ReadError::Version { path: name.to_owned(), error })
}
