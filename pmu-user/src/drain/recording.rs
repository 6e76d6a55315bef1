//! The recording: a header, then drains, then an ending, each in a frame that can be checked by itself.
//!
//! ```text
//! file  = "pmbpf" 0x02 "\r\n"  frame*
//! frame = length: u32 LE, kind: u8, encoding: u8, 0 0, crc32c(the 8 bytes before, payload): u32 LE, payload
//! ```
//!
//! A payload is JSON: as it is (encoding 0), or compressed by itself (encoding 1: DEFLATE, RFC 1951). Format 0x01 had no
//! encodings, and is still read.
//! A file that breaks off anywhere gives back every complete frame. Frames of an unknown kind are skipped. A header and a drain hold
//! a part for each source of the run. Older recordings have one source: their frames hold that part alone, and are of kinds of
//! their own.

mod frame;
mod place;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use self::{
    place::{Abandoned, Overwrite},
    reader::{Entries, Entry, Opened, ReadError, Recording},
    writer::Writer,
};

/// Kind of the frame with the header, and of those with drains.
const HEADER: u8 = b'S';
const DRAIN: u8 = b's';
/// The same in older recordings of `pmbpf run`.
const TASKS_HEADER: u8 = b'H';
const TASKS_DRAIN: u8 = b'D';
/// The same in older recordings of `pmbpf io`.
const IO_HEADER: u8 = b'h';
const IO_DRAIN: u8 = b'd';
/// Kind of the frame with the ending.
const ENDING: u8 = b'E';
/// Kind of the frame with names, which are looked up after the ending.
const NAMES: u8 = b'N';
