//! Reader of a recording: the header first, then one drain at a time. The length of a recording costs no
//! memory.

use std::{
    fmt,
    fs::File,
    io::{self, BufReader, Cursor, Read},
    path::Path,
};

use bytes::Bytes;

use super::{
    DRAIN, ENDING, NAMES,
    frame::{Beginning, Frames, decode},
    older,
};
use crate::{
    drain::{Drain, Ending, Header, Names, TasksDrain, io::IoDrain},
    file::open_regular,
};

/// Number of bytes read at a time.
const READ_BYTES: usize = 1 << 16;

/// Reason why a file cannot be read as a recording.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Io {
        /// Path of the file.
        path: String,
        /// Cause of the error.
        error: io::Error,
    },
    /// The file does not begin like a recording.
    #[error("{0} is not a pmbpf recording")]
    Foreign(String),
    /// The file is a recording of perf.
    #[error("{0} is not a pmbpf recording: it is perf's, which `perf report -i` reads")]
    OfPerf(String),
    /// The header is not complete.
    #[error("{0} breaks off before the end of its header")]
    NoHeader(String),
    /// The file begins like a recording of another format.
    #[error("{path} is a recording in format {format}, which this version of pmbpf does not know")]
    Format {
        /// Path of the file.
        path: String,
        /// Number of the format.
        format: u8,
    },
    /// A frame is whole but this version cannot read it.
    #[error("{path} was written by another version of pmbpf: {error}")]
    Version {
        /// Path of the file.
        path: String,
        /// Cause of the error.
        error: serde_json::Error,
    },
}

/// A recording: its header, and what follows.
pub struct Opened {
    /// Header, with a part for each source of the run.
    pub header: Header,
    /// Entries after the header.
    pub entries: Entries,
}

impl Opened {
    /// Opens a regular file, or standard input if `path` is `-`, and reads up to the end of the header.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not a regular file, is not a recording, or has no complete header.
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

    /// Reads up to the end of the header. Frames before it are skipped. `name` is for messages.
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
            Beginning::OfPerf => return Err(ReadError::OfPerf(path())),
            Beginning::Foreign => return Err(ReadError::Foreign(path())),
        }
        while let Some((kind, payload)) = frames.next().map_err(unreadable)? {
            let header = older::header(kind, payload);
            if let Some(header) = header.map_err(|error| ReadError::Version { path: path(), error })? {
                return Ok(Self { header, entries: Entries { frames, name: path() } });
            }
        }
        Err(ReadError::NoHeader(path()))
    }
}

type Source = BufReader<Box<dyn Read>>;

/// Entries after a recording's header, in order.
pub struct Entries {
    frames: Frames<Source>,
    name: String,
}

impl fmt::Debug for Entries {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Entries").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One entry of a recording.
#[derive(Debug)]
pub enum Entry {
    /// Readings of one tick.
    Drain(Box<Drain>),
    /// Ending of the run.
    Ending(Ending),
    /// Names after the ending.
    Names(Names),
}

impl Entries {
    /// Returns the next entry, or `None` at the end or where the recording breaks off. Frames of unknown
    /// kinds are skipped.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or another version wrote it.
    pub fn read(&mut self) -> Result<Option<Entry>, ReadError> {
        let name = &self.name;
        loop {
            let next = self.frames.next().map_err(|error| ReadError::Io { path: name.clone(), error })?;
            let Some((kind, payload)) = next else { return Ok(None) };
            let entry = match kind {
                DRAIN => decode(payload).map(Entry::Drain).map(Some),
                ENDING => decode(payload).map(Entry::Ending).map(Some),
                NAMES => decode(payload).map(Entry::Names).map(Some),
                _ => older::drain(kind, payload).map(|drain| drain.map(Box::new).map(Entry::Drain)),
            };
            let entry = entry.map_err(|error| ReadError::Version { path: name.clone(), error })?;
            if entry.is_some() {
                return Ok(entry);
            }
        }
    }

    /// Returns the number of bytes after the last complete frame, where the recording broke off. To be called
    /// at the end.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn lost_bytes(&mut self) -> Result<u64, ReadError> {
        self.frames.lost_bytes().map_err(|error| ReadError::Io { path: self.name.clone(), error })
    }
}

/// A recording that was read into memory, if its length is known. [`Opened`] reads any.
#[derive(Debug)]
pub struct Recording {
    /// Header of the recording.
    pub header: Header,
    /// Drains of the recording.
    pub drains: Vec<Drain>,
    /// Ending; `None` if the recording broke off.
    pub ending: Option<Ending>,
    /// Names after the ending.
    pub names: Option<Names>,
    /// Bytes at the end that are not a complete frame.
    pub lost_bytes: u64,
}

impl Recording {
    /// Reads every complete frame of a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not a recording, or has no complete header.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| ReadError::Io { path: name.clone(), error })?;
        Self::all(file, &name)
    }

    /// Reads every complete frame of a file's bytes; `name` is for messages.
    ///
    /// # Errors
    ///
    /// As for [`Recording::read`].
    pub fn parse(bytes: Bytes, name: &str) -> Result<Self, ReadError> {
        Self::all(Cursor::new(bytes), name)
    }

    fn all(source: impl Read + 'static, name: &str) -> Result<Self, ReadError> {
        let Opened { header, mut entries } = Opened::read(source, name)?;
        let mut all = Self { header, drains: Vec::new(), ending: None, names: None, lost_bytes: 0 };
        while let Some(entry) = entries.read()? {
            match entry {
                Entry::Drain(drain) => all.drains.push(*drain),
                Entry::Ending(ending) => all.ending = Some(ending),
                Entry::Names(names) => all.names = Some(names),
            }
        }
        all.lost_bytes = entries.lost_bytes()?;
        Ok(all)
    }

    /// Returns the drains' readings of tasks.
    pub fn tasks(&self) -> impl Iterator<Item = &TasksDrain> {
        self.drains.iter().filter_map(|drain| drain.tasks.as_ref())
    }

    /// Returns the drains' readings of I/O.
    pub fn io(&self) -> impl Iterator<Item = &IoDrain> {
        self.drains.iter().filter_map(|drain| drain.io.as_ref())
    }
}
