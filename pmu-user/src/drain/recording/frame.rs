//! Frames: how each is laid out, checked, written and read one after the other.

use std::io::{self, ErrorKind, Read};

use bytes::{Buf as _, BufMut as _, BytesMut};
use serde::Serialize;

pub(super) const MAGIC: &[u8; 8] = b"pmbpf\x01\r\n";
const HEADER_BYTES: usize = 12;
/// Bytes of a frame's header that its checksum covers: all before it.
const CHECKED_BYTES: usize = 8;
/// Memory for a payload, to begin with.
const ROOM_BYTES: usize = 1 << 16;
/// A frame larger than this is damage, not data.
const BYTES_MAX: usize = 256 << 20;

/// Makes a frame of `value` in `frame`, in place of what was there.
pub(super) fn encode<T: Serialize>(frame: &mut BytesMut, kind: u8, value: &T) -> io::Result<()> {
    frame.clear();
    frame.put_bytes(0, HEADER_BYTES);
    serde_json::to_writer(frame.writer(), value)?;
    let (header, payload) = frame.split_at_mut(HEADER_BYTES);
    // What readers would take for damage is not written.
    if payload.len() > BYTES_MAX {
        return Err(io::Error::other("a drain is too large to record"));
    }
    let length = payload.len() as u32;
    let (start, mut sum) = header.split_at_mut(CHECKED_BYTES);
    start[..4].copy_from_slice(&length.to_le_bytes());
    start[4] = kind;
    sum.put_u32_le(checksum(start, payload));
    Ok(())
}

fn checksum(start: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(start), payload)
}

/// Frames as they come, one in memory at a time. Damage ends them.
pub(super) struct Frames<S> {
    source: S,
    payload: Vec<u8>,
    /// Bytes that were read, and how many of them are complete frames.
    read: u64,
    complete: u64,
}

/// How a file begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Like a recording that this version reads.
    Ours,
    /// Like one of another version.
    Version(u8),
    /// Like something else.
    Foreign,
}

impl<S: Read> Frames<S> {
    /// Reads how `source` begins, and no more of it.
    pub(super) fn begin(mut source: S) -> io::Result<(Beginning, Self)> {
        let mut magic = [0; MAGIC.len()];
        let read = read_up_to(&mut source, &mut magic)?;
        let beginning = match magic {
            _ if read < magic.len() => Beginning::Foreign,
            magic if magic == *MAGIC => Beginning::Ours,
            [b'p', b'm', b'b', b'p', b'f', version, b'\r', b'\n'] => Beginning::Version(version),
            _ => Beginning::Foreign,
        };
        let frames = Self { source, payload: Vec::new(), read: read as u64, complete: read as u64 };
        Ok((beginning, frames))
    }

    /// Kind and payload of the next complete, undamaged frame, if there is one.
    pub(super) fn next(&mut self) -> io::Result<Option<(u8, &[u8])>> {
        let mut header = [0; HEADER_BYTES];
        if self.read > self.complete || self.fill(&mut header)? < HEADER_BYTES {
            return Ok(None);
        }
        let (start, mut rest) = header.split_at(CHECKED_BYTES);
        let (mut fields, expected) = (start, rest.get_u32_le());
        let (length, kind) = (fields.get_u32_le() as usize, fields.get_u8());
        if length > BYTES_MAX {
            return Ok(None);
        }
        self.read_payload(length)?;
        if self.payload.len() < length || checksum(start, &self.payload) != expected {
            return Ok(None);
        }
        self.complete = self.read;
        Ok(Some((kind, &self.payload)))
    }

    /// Takes memory as bytes come, not as a length claims them, and never more than that length.
    fn read_payload(&mut self, length: usize) -> io::Result<()> {
        self.payload.clear();
        while self.payload.len() < length {
            let room = (length - self.payload.len()).min(self.payload.len().max(ROOM_BYTES));
            self.payload.reserve_exact(room);
            let got = self.source.by_ref().take(room as u64).read_to_end(&mut self.payload)?;
            self.read += got as u64;
            if got < room {
                break;
            }
        }
        Ok(())
    }

    /// Bytes after the last complete frame. Reads to the end.
    pub(super) fn lost_bytes(&mut self) -> io::Result<u64> {
        self.read += io::copy(&mut self.source, &mut io::sink())?;
        Ok(self.read - self.complete)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = read_up_to(&mut self.source, bytes)?;
        self.read += read as u64;
        Ok(read)
    }
}

/// Fills `bytes`, as far as there are enough; how many there were.
fn read_up_to(source: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match source.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
