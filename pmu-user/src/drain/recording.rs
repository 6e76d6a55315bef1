//! The recording: a header, then drains, then an ending, each in a frame that can be checked by itself.
//!
//! ```text
//! file  = "pmbpf" 0x01 "\r\n"  frame*
//! frame = length: u32 LE, kind: u8, 0 0 0, crc32c(the 8 bytes before, payload): u32 LE, payload: JSON
//! ```
//!
//! A file that breaks off anywhere gives back every complete frame. Frames of an unknown kind are skipped. Header and drains
//! of `pmbpf run` and of `pmbpf io` are frames of different kinds, so a file says which of them wrote it.

#[cfg(test)]
mod tests;

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    marker::PhantomData,
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Drain, Ending, Header, Names,
    io::{IoDrain, IoHeader},
};

const MAGIC: &[u8; 8] = b"pmbpf\x01\r\n";
const FRAME_HEADER_BYTES: usize = 12;
/// Bytes of a frame's header that its checksum covers: all before it.
const CHECKED_BYTES: usize = 8;
/// A frame larger than this is damage, not data.
const FRAME_BYTES_MAX: usize = 256 << 20;

/// Kind of the frame with the ending, whatever was recorded.
const ENDING: u8 = b'E';
/// Kind of the frame with names, which are looked up after the ending.
const NAMES: u8 = b'N';

/// What can be recorded: a header, with what is read at each tick after it.
pub trait Recorded: Serialize + DeserializeOwned {
    /// What one tick read.
    type Drain: Serialize + DeserializeOwned;
    /// Whose they are.
    const KIND: Kind;

    /// When a drain was read, in ns since counting started.
    fn at_ns(drain: &Self::Drain) -> u64;
}

impl Recorded for Header {
    type Drain = Drain;
    const KIND: Kind = Kind::Run;

    fn at_ns(drain: &Drain) -> u64 {
        drain.at_ns
    }
}

impl Recorded for IoHeader {
    type Drain = IoDrain;
    const KIND: Kind = Kind::Io;

    fn at_ns(drain: &IoDrain) -> u64 {
        drain.at_ns
    }
}

/// Which command a recording is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `pmbpf run`.
    Run,
    /// `pmbpf io`.
    Io,
}

impl Kind {
    /// Kind of the frame with its header.
    const fn header(self) -> u8 {
        match self {
            Self::Run => b'H',
            Self::Io => b'h',
        }
    }

    /// Kind of the frames with its drains.
    const fn drain(self) -> u8 {
        match self {
            Self::Run => b'D',
            Self::Io => b'd',
        }
    }

    /// What the frames of a file say, by the first header among them.
    fn of(mut frames: Bytes) -> Option<Self> {
        while let Some((frame, _)) = next_frame(&mut frames) {
            if let Some(kind) = [Self::Run, Self::Io].into_iter().find(|kind| kind.header() == frame) {
                return Some(kind);
            }
        }
        None
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Run => "`pmbpf run`",
            Self::Io => "`pmbpf io`",
        })
    }
}

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
pub struct Writer<R> {
    file: File,
    path: PathBuf,
    frame: BytesMut,
    recorded: PhantomData<fn(&R)>,
}

impl<R: Recorded> Writer<R> {
    /// Creates the file, readable by its owner only, and writes the header. Never follows a symbolic link.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be created or written; the error names it.
    pub fn create(path: &Path, overwrite: Overwrite, header: &R) -> io::Result<Self> {
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
        let mut writer = Self { file, path: path.to_owned(), frame: BytesMut::new(), recorded: PhantomData };
        writer.file.write_all(MAGIC).map_err(|error| named("write", path, &error))?;
        writer.write(R::KIND.header(), header)?;
        Ok(writer)
    }

    /// Appends a drain.
    ///
    /// # Errors
    ///
    /// The file cannot be written; what was written before can still be read.
    pub fn drain(&mut self, drain: &R::Drain) -> io::Result<()> {
        self.write(R::KIND.drain(), drain)
    }

    /// Appends the ending.
    ///
    /// # Errors
    ///
    /// As for [`Writer::drain`].
    pub fn end(&mut self, ending: &Ending) -> io::Result<()> {
        self.write(ENDING, ending)
    }

    /// Appends names, after the ending.
    ///
    /// # Errors
    ///
    /// As for [`Writer::drain`].
    pub fn names(&mut self, names: &Names) -> io::Result<()> {
        self.write(NAMES, names)
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
        // What readers would take for damage is not written.
        if payload.len() > FRAME_BYTES_MAX {
            return Err(io::Error::other("a drain is too large to record"));
        }
        let length = payload.len() as u32;
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

/// A recording of `pmbpf run`.
pub type Recording = RecordingOf<Header>;
/// A recording of `pmbpf io`.
pub type IoRecording = RecordingOf<IoHeader>;

/// A recording that was read.
#[derive(Debug)]
pub struct RecordingOf<R: Recorded> {
    /// Its header.
    pub header: R,
    /// Its drains.
    pub drains: Vec<R::Drain>,
    /// Its ending; `None` if the recording broke off.
    pub ending: Option<Ending>,
    /// Names that came after it.
    pub names: Option<Names>,
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
    /// Another command wrote it.
    #[error("{path} is a recording of {kind}")]
    Other {
        /// File.
        path: String,
        /// Which command.
        kind: Kind,
    },
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

/// A recording of whichever command wrote it.
#[derive(Debug)]
pub enum AnyRecording {
    /// Of `pmbpf run`.
    Run(Box<Recording>),
    /// Of `pmbpf io`.
    Io(Box<IoRecording>),
}

impl AnyRecording {
    /// Reads every complete frame of a file, once: it may be a pipe.
    ///
    /// # Errors
    ///
    /// As for [`RecordingOf::read`].
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let name = path.display().to_string();
        Self::parse(&bytes_of(path)?, &name)
    }

    /// Reads every complete frame of a file's bytes; `name` is for messages.
    ///
    /// # Errors
    ///
    /// As for [`RecordingOf::parse`].
    pub fn parse(bytes: &Bytes, name: &str) -> Result<Self, ReadError> {
        match kind(bytes, name)? {
            Kind::Run => Recording::parse(bytes.clone(), name).map(|read| Self::Run(Box::new(read))),
            Kind::Io => IoRecording::parse(bytes.clone(), name).map(|read| Self::Io(Box::new(read))),
        }
    }
}

/// Which command a file's bytes are a recording of; `name` is for messages.
///
/// # Errors
///
/// They are no recording, or have no complete header.
pub fn kind(bytes: &Bytes, name: &str) -> Result<Kind, ReadError> {
    let frames = bytes.strip_prefix(MAGIC).ok_or_else(|| ReadError::Foreign(name.to_owned()))?;
    Kind::of(bytes.slice_ref(frames)).ok_or_else(|| ReadError::NoHeader(name.to_owned()))
}

fn bytes_of(path: &Path) -> Result<Bytes, ReadError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|error| ReadError::Io { path: path.display().to_string(), error })?;
    Ok(Bytes::from(bytes))
}

impl<R: Recorded> RecordingOf<R> {
    /// Reads every complete frame of a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no recording, is one of another command, or has no complete header.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::parse(bytes_of(path)?, &path.display().to_string())
    }

    /// Reads every complete frame of a file's bytes; `name` is for messages.
    ///
    /// # Errors
    ///
    /// As for [`RecordingOf::read`].
    pub fn parse(mut bytes: Bytes, name: &str) -> Result<Self, ReadError> {
        let kind = kind(&bytes, name)?;
        if kind != R::KIND {
            return Err(ReadError::Other { path: name.to_owned(), kind });
        }
        bytes.advance(MAGIC.len());
        let (mut header, mut drains, mut ending, mut names) = (None, Vec::new(), None, None);
        while let Some((frame, payload)) = next_frame(&mut bytes) {
            match frame {
                frame if frame == kind.header() => header = Some(decode::<R>(&payload, name)?),
                frame if frame == kind.drain() => drains.push(decode::<R::Drain>(&payload, name)?),
                ENDING => ending = Some(decode::<Ending>(&payload, name)?),
                NAMES => names = Some(decode::<Names>(&payload, name)?),
                _ => {}
            }
        }
        let header = header.ok_or_else(|| ReadError::NoHeader(name.to_owned()))?;
        Ok(Self { header, drains, ending, names, lost_bytes: bytes.len() as u64 })
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
