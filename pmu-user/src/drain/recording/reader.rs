//! A recording as it is read: its header first, then one drain at a time, so that its length costs no memory.

use std::{
    fmt,
    fs::File,
    io::{self, BufReader, Cursor, Read},
    marker::PhantomData,
    path::Path,
};

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::{
    ENDING, Kind, NAMES, Recorded,
    frame::{Beginning, Frames},
};
use crate::{
    drain::{Ending, Header, Names, io::IoHeader},
    file::open_regular,
    untrusted,
};

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 16;
/// Memory of what one frame holds; more if its JSON alone is so long, as that of a host with very many CPUs is.
const MEMORY_BYTES_MAX: usize = 96 << 20;

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
    /// It begins like a recording of another format.
    #[error("{path} is a recording in format {format}, which this version of pmbpf does not know")]
    Format {
        /// File.
        path: String,
        /// Its format's number.
        format: u8,
    },
    /// A frame is whole but this version cannot read it.
    #[error("{path} was written by another version of pmbpf: {error}")]
    Version {
        /// File.
        path: String,
        /// Cause.
        error: serde_json::Error,
    },
}

/// A recording of whichever command wrote it: its header, and what follows.
pub enum Opened {
    /// Of `pmbpf run`.
    Run(Box<Header>, Entries<Header>),
    /// Of `pmbpf io`.
    Io(Box<IoHeader>, Entries<IoHeader>),
}

impl Opened {
    /// Opens a regular file, or reads standard input if `path` is `-`, up to the end of the header.
    ///
    /// # Errors
    ///
    /// It cannot be read, is no regular file, is no recording, or has no complete header.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        if path.as_os_str() == "-" {
            return Self::read(io::stdin(), "standard input");
        }
        let name = path.display().to_string();
        match open_regular(path) {
            Ok(file) => Self::read(file, &name),
            Err(error) => Err(ReadError::Io { path: name, error }),
        }
    }

    /// Reads up to the end of the header; `name` is for messages. What comes before the header is skipped.
    ///
    /// # Errors
    ///
    /// As for [`Opened::open`].
    pub fn read(source: impl Read + 'static, name: &str) -> Result<Self, ReadError> {
        let source: Source = BufReader::with_capacity(READ_BYTES, Box::new(source));
        let path = || name.to_owned();
        let unreadable = |error| ReadError::Io { path: path(), error };
        let (beginning, mut frames) = Frames::begin(source).map_err(unreadable)?;
        match beginning {
            Beginning::Ours => {}
            Beginning::Version(format) => return Err(ReadError::Format { path: path(), format }),
            Beginning::Foreign => return Err(ReadError::Foreign(path())),
        }
        while let Some((frame, payload)) = frames.next().map_err(unreadable)? {
            if frame == Kind::Run.header() {
                let header = Box::new(decode(payload, name)?);
                return Ok(Self::Run(header, Entries::new(frames, name)));
            }
            if frame == Kind::Io.header() {
                let header = Box::new(decode(payload, name)?);
                return Ok(Self::Io(header, Entries::new(frames, name)));
            }
        }
        Err(ReadError::NoHeader(path()))
    }

    /// Which command wrote it.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Run(..) => Kind::Run,
            Self::Io(..) => Kind::Io,
        }
    }
}

type Source = BufReader<Box<dyn Read>>;

/// What follows a recording's header, in order.
pub struct Entries<R> {
    frames: Frames<Source>,
    name: String,
    recorded: PhantomData<fn(&R)>,
}

impl<R> fmt::Debug for Entries<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Entries").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One of them.
#[derive(Debug)]
pub enum Entry<R: Recorded> {
    /// What a tick read.
    Drain(R::Drain),
    /// How it ended.
    Ending(Ending),
    /// Names that came after that.
    Names(Names),
}

impl<R: Recorded> Entries<R> {
    fn new(frames: Frames<Source>, name: &str) -> Self {
        Self { frames, name: name.to_owned(), recorded: PhantomData }
    }

    /// The next one; `None` at the end, or where the recording breaks off. Frames of unknown kinds are skipped.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or another version wrote it.
    pub fn read(&mut self) -> Result<Option<Entry<R>>, ReadError> {
        let name = &self.name;
        loop {
            let next = self.frames.next().map_err(|error| ReadError::Io { path: name.clone(), error })?;
            let Some((frame, payload)) = next else { return Ok(None) };
            return Ok(Some(match frame {
                frame if frame == R::KIND.drain() => Entry::Drain(decode(payload, name)?),
                ENDING => Entry::Ending(decode(payload, name)?),
                NAMES => Entry::Names(decode(payload, name)?),
                _ => continue,
            }));
        }
    }

    /// Bytes after the last complete frame: what broke off. To be asked at the end.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn lost_bytes(&mut self) -> Result<u64, ReadError> {
        self.frames.lost_bytes().map_err(|error| ReadError::Io { path: self.name.clone(), error })
    }
}

fn decode<T: DeserializeOwned>(payload: &[u8], name: &str) -> Result<T, ReadError> {
    untrusted::json::from_slice(payload, MEMORY_BYTES_MAX)
        .map_err(|error| ReadError::Version { path: name.to_owned(), error })
}

/// A recording of `pmbpf run`, all of it in memory.
pub type Recording = RecordingOf<Header>;
/// A recording of `pmbpf io`, all of it in memory.
pub type IoRecording = RecordingOf<IoHeader>;

/// A recording that was read, all of it in memory: for one whose length is known. [`Opened`] reads any.
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

impl<R: Recorded> RecordingOf<R> {
    /// Reads every complete frame of a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no recording, is one of another command, or has no complete header.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| ReadError::Io { path: name.clone(), error })?;
        Self::all(file, &name)
    }

    /// Reads every complete frame of a file's bytes; `name` is for messages.
    ///
    /// # Errors
    ///
    /// As for [`RecordingOf::read`].
    pub fn parse(bytes: Bytes, name: &str) -> Result<Self, ReadError> {
        Self::all(Cursor::new(bytes), name)
    }

    fn all(source: impl Read + 'static, name: &str) -> Result<Self, ReadError> {
        let opened = Opened::read(source, name)?;
        let kind = opened.kind();
        let (header, mut entries) =
            R::of(opened).ok_or_else(|| ReadError::Other { path: name.to_owned(), kind })?;
        let mut all = Self { header, drains: Vec::new(), ending: None, names: None, lost_bytes: 0 };
        while let Some(entry) = entries.read()? {
            match entry {
                Entry::Drain(drain) => all.drains.push(drain),
                Entry::Ending(ending) => all.ending = Some(ending),
                Entry::Names(names) => all.names = Some(names),
            }
        }
        all.lost_bytes = entries.lost_bytes()?;
        Ok(all)
    }
}
