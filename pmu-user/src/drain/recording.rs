//! The recording: a header, then drains, then an ending, each in a frame that can be checked by itself.
//!
//! ```text
//! file  = "pmbpf" 0x02 "\r\n"  frame*
//! frame = length: u32 LE, kind: u8, encoding: u8, 0 0, crc32c(the 8 bytes before, payload): u32 LE, payload
//! ```
//!
//! A payload is JSON: as it is (encoding 0), or compressed by itself (encoding 1: DEFLATE, RFC 1951). Format 0x01 had no
//! encodings, and is still read.
//! A file that breaks off anywhere gives back every complete frame. Frames of an unknown kind are skipped. Header and drains
//! of `pmbpf run` and of `pmbpf io` are frames of different kinds, so a file says which of them wrote it.

mod frame;
mod place;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;

use serde::{Serialize, de::DeserializeOwned};

pub use self::{
    place::Abandoned,
    reader::{Entries, Entry, IoRecording, Opened, ReadError, Recording, RecordingOf},
    writer::{Overwrite, Writer},
};
use super::{
    Drain, Header,
    io::{IoDrain, IoHeader},
};

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

    /// A recording's header and the rest, if it is one of these.
    fn of(opened: Opened) -> Option<(Self, Entries<Self>)>;
}

impl Recorded for Header {
    type Drain = Drain;
    const KIND: Kind = Kind::Run;

    fn at_ns(drain: &Drain) -> u64 {
        drain.at_ns
    }

    fn of(opened: Opened) -> Option<(Self, Entries<Self>)> {
        match opened {
            Opened::Run(header, entries) => Some((*header, entries)),
            Opened::Io(..) => None,
        }
    }
}

impl Recorded for IoHeader {
    type Drain = IoDrain;
    const KIND: Kind = Kind::Io;

    fn at_ns(drain: &IoDrain) -> u64 {
        drain.at_ns
    }

    fn of(opened: Opened) -> Option<(Self, Entries<Self>)> {
        match opened {
            Opened::Io(header, entries) => Some((*header, entries)),
            Opened::Run(..) => None,
        }
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
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Run => "`pmbpf run`",
            Self::Io => "`pmbpf io`",
        })
    }
}
