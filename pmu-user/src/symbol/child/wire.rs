//! What the collector and its symbolizer process say to each other: frames of JSON behind a length, on a stream socket.
//! A request's files travel with its first bytes, as descriptors (unix(7), SCM_RIGHTS).

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    os::{fd::AsFd as _, unix::net::UnixStream},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::drain::{Code, Loaded, in_time};

/// Largest frame: the names of one request's addresses.
const FRAME_BYTES_MAX: usize = 16 << 20;
/// Addresses of one request.
pub(in crate::symbol) const ADDRESSES_MAX: usize = 2048;
/// Frames of a stack that is unwound.
pub(in crate::symbol) const FRAMES_MAX: usize = 1024;
/// Stacks of one request.
pub(in crate::symbol) const STACKS_MAX: usize = 32;
/// Their bytes.
const STACK_BYTES_MAX: usize = STACKS_MAX * pmu_common::ring::COPY_BYTES_MAX;
/// Segments of a file that are kept.
pub(super) const SEGMENTS_MAX: usize = 16;
/// Files of one request: a binary, its debug file, and the file that this one shares with others.
pub(super) const FILES_MAX: usize = 3;

/// What is asked of the symbolizer process.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::symbol) enum Request {
    /// Build id and links of an ELF file. With the file.
    Identify,
    /// Functions by address. With /proc/kallsyms.
    Kernel(Vec<u64>),
    /// Functions by offset in an ELF file, from its symbol tables. With the file, and its debug file if there is one; with what was
    /// recorded of its segments, where the file itself is not there.
    Symbols(Vec<u64>, Vec<Loaded>),
    /// Functions, lines and inlined calls by offset in an ELF file, from its DWARF. With the files of [`Request::Symbols`],
    /// and the file that the debug file shares with others (`.gnu_debugaltlink`) if there is one.
    Lines(Vec<u64>, Vec<Loaded>),
    /// Functions by address, each with how long the map was at least and at most when the address was sampled. With a `perf-PID.map`.
    PerfMap(Vec<(u64, u64, u64)>),
    /// What code addresses had, from when on. With a JIT's dump.
    JitHeld(Vec<u64>),
    /// Functions by their places in a JIT's dump. With it.
    JitPlaces(Vec<u64>),
    /// Functions by address, of those that had one only. With a JIT's dump.
    JitAddresses(Vec<u64>),
    /// Functions by offset in the vDSO that every 64-bit process of this kernel has.
    Vdso(Vec<u64>),
    /// Instructions of the function around an offset in an ELF file. With the files of [`Request::Symbols`].
    Instructions(u64),
    /// Keep the call frame information of a file, by this number. With the file, and its debug file if there is one; of the
    /// vDSO without any.
    Frames(u32),
    /// Unwind user stacks of one process, with these of its mappings. The stacks' bytes follow the request.
    Unwind(Vec<Mapped>, Vec<Start>),
}

/// Code that an address had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) struct Held {
    /// From when on (CLOCK_MONOTONIC, ns).
    pub(in crate::symbol) from_ns: u64,
    /// Its place in the dump; none if nothing is there any more.
    pub(in crate::symbol) code: Option<u64>,
}

/// An executable mapping of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) struct Mapped {
    /// Addresses.
    pub(in crate::symbol) start: u64,
    pub(in crate::symbol) end: u64,
    /// Where in its file it begins.
    pub(in crate::symbol) offset: u64,
    /// The number of its file; none if there is no call frame information: frame pointers are followed there.
    pub(in crate::symbol) file: Option<u32>,
}

/// Where unwinding begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) struct Start {
    /// As [`pmu_common::ring::StackCopy::registers`].
    pub(in crate::symbol) registers: [u64; 4],
    /// Bytes of the stack.
    pub(in crate::symbol) bytes: u32,
}

/// A user stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) struct Unwound {
    /// Addresses, innermost first: where it is, and where it returns to.
    pub(in crate::symbol) frames: Vec<u64>,
    pub(in crate::symbol) end: End,
}

/// Why unwinding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) enum End {
    /// It is the function that the thread began with.
    First,
    /// There are more frames than are kept.
    Deep,
    /// The rest of the stack was not copied, or makes no sense.
    Lost,
    /// An address is in none of the mappings of the request.
    Unmapped(u64),
    /// The call frame information of a file is not kept, or not any more.
    Absent(u32),
}

/// What the symbolizer process says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// CPU time of the process so far, in ns.
    pub(super) cpu_ns: u64,
    pub(super) found: Result<Found, Why>,
}

/// What was found.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Found {
    /// Of [`Request::Identify`].
    Identity(Identity),
    /// Of [`Request::Frames`].
    Ready,
    /// Of [`Request::Unwind`]: the stacks, in their order.
    Stacks(Vec<Unwound>),
    /// Of [`Request::Instructions`]: each with its offset, as text.
    Instructions(Vec<(u64, Vec<u8>)>),
    /// Of [`Request::JitHeld`]: in order, of each address.
    Held(Vec<Vec<Held>>),
    /// Of every other request: the code at each of its addresses, in their order.
    Names(Vec<Result<Code, Why>>),
}

/// Who an ELF file is, and where more is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) struct Identity {
    /// Its build id.
    pub(in crate::symbol) build_id: Option<Vec<u8>>,
    /// Name of its debug file (`.gnu_debuglink`).
    pub(in crate::symbol) debug_link: Option<Vec<u8>>,
    /// Path of the file that it shares with others (`.gnu_debugaltlink`).
    pub(in crate::symbol) shared_link: Option<Vec<u8>>,
    /// What of it is loaded to be executed; nothing of a debug file.
    pub(in crate::symbol) loaded: Vec<Loaded>,
    /// Is it a debug file, which has its program's sections without what is in them?
    pub(in crate::symbol) holds_no_code: bool,
}

/// Why an address has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) enum Why {
    /// The file has no symbols.
    NoSymbols,
    /// It has some, and none holds the address.
    NotFound,
    /// No symbol holds the address, and the function that does begins at this offset by its call frame information.
    InFunction(u64),
    /// The offset is in no segment of the file.
    Outside,
    /// A table of the file is larger than we read.
    TooLarge,
    /// The file is no ELF file, or a damaged one.
    Damaged,
    /// It cannot be read.
    Unreadable,
    /// Its instructions are those of a processor that is not decoded.
    NotDecoded,
    /// The process has written no map of its code.
    NoPerfMap,
    /// The address had several functions, and when each was there is not known.
    Replaced,
    /// The kernel hides its addresses.
    Hidden,
    /// The symbolizer process ended on the file.
    Crashed,
    /// It took longer than a file may.
    Slow,
    /// The time for names was over.
    NoTime,
    /// The symbolizer process cannot be started.
    NoProcess,
    /// Files of its owner have ended the process too often.
    Greedy,
}

impl Why {
    /// What reports and recordings say.
    pub(in crate::symbol) const fn text(self) -> &'static str {
        match self {
            Self::NoSymbols => "its file has no symbols",
            Self::NotFound => "no symbol of its file holds the address",
            Self::InFunction(_) => "no symbol: the offset is where the function begins (.eh_frame)",
            Self::Outside => "names: the offset is in no segment of the file",
            Self::TooLarge => "names: file too large",
            Self::Damaged => "names: no ELF file, or a damaged one",
            Self::Unreadable => "names: the file cannot be read",
            Self::NotDecoded => "instructions of x86-64 alone are decoded",
            Self::NoPerfMap => "code in no file, and no perf-PID.map that says what it is",
            Self::Replaced => "the code at the address was replaced while it was sampled",
            Self::Hidden => {
                "kernel addresses are hidden: CAP_SYSLOG, or kernel.kptr_restrict=0 and perf_event_paranoid<=1"
            }
            Self::Crashed => "names: crashed on this file",
            Self::Slow => in_time::SLOW,
            Self::NoTime => in_time::NO_TIME,
            Self::NoProcess => "names: their process cannot be started",
            Self::Greedy => "names: its owner's files crashed or hung their reader too often",
        }
    }
}

/// Sends a value, with files.
pub(in crate::symbol) fn send<T: Serialize>(
    stream: &mut UnixStream,
    value: &T,
    files: &[&File],
) -> io::Result<()> {
    let body = serde_json::to_vec(value)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?.to_le_bytes();
    let descriptors: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("too many files for a request"));
    }
    let sent = sendmsg(&*stream, &[IoSlice::new(&length)], &mut ancillary, SendFlags::NOSIGNAL)?;
    stream.write_all(&length[sent..])?;
    stream.write_all(&body)
}

/// Receives the bytes that follow a request; an error if they are more than may be.
pub(super) fn receive_bytes(stream: &mut UnixStream, starts: &[Start]) -> io::Result<Vec<u8>> {
    let bytes = starts.iter().fold(0_usize, |sum, start| sum.saturating_add(start.bytes as usize));
    if bytes > STACK_BYTES_MAX {
        return Err(io::Error::other("the stacks are too large"));
    }
    let mut stacks = vec![0; bytes];
    stream.read_exact(&mut stacks)?;
    Ok(stacks)
}

/// Receives a value, with files; `None` at the end of the stream. `before` is called before every wait.
pub(in crate::symbol) fn receive<T: DeserializeOwned>(
    stream: &mut UnixStream,
    before: impl Fn(&UnixStream) -> io::Result<()>,
) -> io::Result<Option<(T, Vec<File>)>> {
    before(stream)?;
    let (mut length, mut files) = ([0; 4], Vec::new());
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(&*stream, &mut [IoSliceMut::new(&mut length)], &mut ancillary, flags)?.bytes;
    if got == 0 {
        return Ok(None);
    }
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            files.extend(descriptors.map(File::from));
        }
    }
    stream.read_exact(&mut length[got..])?;
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other("a frame is too large"));
    }
    let (mut body, mut filled) = (vec![0; length], 0);
    while filled < length {
        before(stream)?;
        match stream.read(&mut body[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            got => filled += got,
        }
    }
    Ok(Some((serde_json::from_slice(&body)?, files)))
}
