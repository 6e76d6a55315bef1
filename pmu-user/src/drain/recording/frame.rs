//! Frames: layout, checksum, writing and sequential reading.

use std::io::{self, ErrorKind, Read};

use bytes::Buf as _;
use flate2::{Compress, Compression, FlushCompress, Status, read::DeflateDecoder};
use serde::{Serialize, de::DeserializeOwned};

use crate::untrusted;

pub(super) const MAGIC: &[u8; 8] = b"pmbpf\x02\r\n";
/// Previous format, which had no encodings.
const PLAIN: u8 = 1;
const FORMAT: u8 = MAGIC[5];
const HEADER_BYTES: usize = 12;
/// Bytes of a frame's header that its checksum covers: all before the checksum.
const CHECKED_BYTES: usize = 8;
/// Initial memory for a payload.
const ROOM_BYTES: usize = 1 << 16;
/// Memory limit for the contents of one frame. It is higher if the JSON alone is longer, as for a host with
/// very many CPUs.
const MEMORY_BYTES_MAX: usize = 96 << 20;
/// Limit for the size of a frame. A larger frame is damage, not data.
const BYTES_MAX: usize = 256 << 20;
/// Length of the JSON that is compressed. Shorter JSON is not worth it. Longer JSON stays as it is, which
/// bounds what a small file may inflate to.
const DEFLATED_BYTES: std::ops::RangeInclusive<usize> = 256..=32 << 20;

/// Encodings of a frame's payload.
const AS_JSON: u8 = 0;
const AS_DEFLATED_JSON: u8 = 1;

/// Encoder of frames.
#[derive(Debug)]
pub(super) struct Encoder {
    json: Vec<u8>,
    frame: Vec<u8>,
    deflate: Compress,
}

impl Encoder {
    pub(super) fn new() -> Self {
        let deflate = Compress::new(Compression::fast(), false);
        Self { json: Vec::new(), frame: Vec::new(), deflate }
    }

    /// Returns the frame of a value.
    pub(super) fn frame<T: Serialize>(&mut self, kind: u8, value: &T) -> io::Result<&[u8]> {
        self.json.clear();
        serde_json::to_writer(&mut self.json, value)?;
        // Readers take a larger frame for damage.
        if self.json.len() > BYTES_MAX {
            return Err(io::Error::other("a drain is too large to record"));
        }
        self.frame.clear();
        self.frame.resize(HEADER_BYTES, 0);
        let encoding = if self.deflated() {
            AS_DEFLATED_JSON
        } else {
            self.frame.truncate(HEADER_BYTES);
            self.frame.extend_from_slice(&self.json);
            AS_JSON
        };
        let (header, payload) = self.frame.split_at_mut(HEADER_BYTES);
        let (start, sum) = header.split_at_mut(CHECKED_BYTES);
        start[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        (start[4], start[5]) = (kind, encoding);
        sum.copy_from_slice(&checksum(start, payload).to_le_bytes());
        Ok(&self.frame)
    }

    /// Appends the JSON to the frame, compressed by itself. Returns whether the result is shorter.
    fn deflated(&mut self) -> bool {
        if !DEFLATED_BYTES.contains(&self.json.len()) {
            return false;
        }
        self.deflate.reset();
        self.frame.reserve(self.json.len());
        let done = self.deflate.compress_vec(&self.json, &mut self.frame, FlushCompress::Finish);
        matches!(done, Ok(Status::StreamEnd)) && self.frame.len() < HEADER_BYTES + self.json.len()
    }
}

/// Decodes a payload in a bounded amount of memory.
pub(super) fn decode<T: DeserializeOwned>(payload: &[u8]) -> serde_json::Result<T> {
    untrusted::json::from_slice(payload, MEMORY_BYTES_MAX)
}

fn checksum(start: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(start), payload)
}

/// Sequential reader of frames, with one in memory at a time. Damage ends the sequence.
pub(super) struct Frames<S> {
    source: S,
    format: u8,
    payload: Vec<u8>,
    inflated: Vec<u8>,
    /// Bytes that were read, and the number of them in complete frames.
    read: u64,
    complete: u64,
}

/// Beginning of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// A recording that this version reads.
    Ours,
    /// A recording of another version.
    Version(u8),
    /// A recording of perf.
    OfPerf,
    /// Any other file.
    Foreign,
}

impl<S: Read> Frames<S> {
    /// Reads the beginning of `source`, and no more of it.
    pub(super) fn begin(mut source: S) -> io::Result<(Beginning, Self)> {
        let mut magic = [0; MAGIC.len()];
        let read = read_up_to(&mut source, &mut magic)?;
        let beginning = match magic {
            _ if read < magic.len() => Beginning::Foreign,
            [b'p', b'm', b'b', b'p', b'f', PLAIN | FORMAT, b'\r', b'\n'] => Beginning::Ours,
            [b'p', b'm', b'b', b'p', b'f', format, b'\r', b'\n'] => Beginning::Version(format),
            magic if &magic == b"PERFILE2" => Beginning::OfPerf,
            _ => Beginning::Foreign,
        };
        let (format, read) = (magic[5], read as u64);
        let frames = Self { source, format, payload: Vec::new(), inflated: Vec::new(), read, complete: read };
        Ok((beginning, frames))
    }

    /// Returns the kind and the JSON of the next complete, undamaged frame, if there is one. An unknown
    /// encoding, or a payload that does not match its encoding, is an error.
    pub(super) fn next(&mut self) -> io::Result<Option<(u8, &[u8])>> {
        let mut header = [0; HEADER_BYTES];
        if self.read > self.complete || self.fill(&mut header)? < HEADER_BYTES {
            return Ok(None);
        }
        let (start, mut rest) = header.split_at(CHECKED_BYTES);
        let (mut fields, expected) = (start, rest.get_u32_le());
        let (length, kind) = (fields.get_u32_le() as usize, fields.get_u8());
        let encoding = if self.format == PLAIN { AS_JSON } else { fields.get_u8() };
        if length > BYTES_MAX {
            return Ok(None);
        }
        self.read_payload(length)?;
        if self.payload.len() < length || checksum(start, &self.payload) != expected {
            return Ok(None);
        }
        self.complete = self.read;
        match encoding {
            AS_JSON => Ok(Some((kind, &self.payload))),
            AS_DEFLATED_JSON => self.inflate().map(|json| Some((kind, json))),
            _ => Err(invalid("a frame has an encoding that this version of pmbpf does not know")),
        }
    }

    fn inflate(&mut self) -> io::Result<&[u8]> {
        self.inflated.clear();
        let bytes_max = *DEFLATED_BYTES.end();
        let json = DeflateDecoder::new(&self.payload[..]);
        json.take(bytes_max as u64 + 1)
            .read_to_end(&mut self.inflated)
            .map_err(|_| invalid("the compressed data of a frame is damaged"))?;
        if self.inflated.len() > bytes_max {
            return Err(invalid("the compressed data of a frame is too large"));
        }
        Ok(&self.inflated)
    }

    /// Reads a payload. Allocates memory as bytes arrive, not as a length claims, and never more than that
    /// length.
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

    /// Returns the number of bytes after the last complete frame. Reads to the end.
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

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// Fills `bytes`, as far as the source has enough. Returns the number of bytes read.
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
