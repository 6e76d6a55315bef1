//! Protocol between the collector and its symbolizer process: frames of JSON, each after its length, on a
//! stream socket. The files of a request are sent with its first bytes, as descriptors (unix(7), SCM_RIGHTS).

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

/// Largest frame, in bytes: the names of one request's addresses.
const FRAME_BYTES_MAX: usize = 16 << 20;
/// Addresses of one request, at most.
pub(in crate::symbol) const ADDRESSES_MAX: usize = 2048;
/// Frames of an unwound stack, at most.
pub(in crate::symbol) const FRAMES_MAX: usize = 1024;
/// Stacks of one request, at most.
pub(in crate::symbol) const STACKS_MAX: usize = 32;
/// Bytes of the stacks of one request, at most.
const STACK_BYTES_MAX: usize = STACKS_MAX * pmu_common::ring::COPY_BYTES_MAX;
/// Segments of a file that are kept, at most.
pub(super) const SEGMENTS_MAX: usize = 16;
/// Files of one request, at most: a binary, its debug file, and the file that the debug file shares with
/// others.
pub(super) const FILES_MAX: usize = 3;

/// A request to the symbolizer process.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::symbol) enum Request {
    /// Build id and links of an ELF file. Sent with the file.
    Identify,
    /// Functions by address. Sent with /proc/kallsyms.
    Kernel(Vec<u64>),
    /// Functions by offset in an ELF file, from its symbol tables. Sent with the file, and its debug file if
    /// there is one. Where the file itself is missing, sent with the recorded segments.
    Symbols(Vec<u64>, Vec<Loaded>),
    /// Functions, lines and inlined calls by offset in an ELF file, from its DWARF. Sent with the files of
    /// [`Request::Symbols`], and with the file that the debug file shares with others (`.gnu_debugaltlink`),
    /// if there is one.
    Lines(Vec<u64>, Vec<Loaded>),
    /// Functions by address, each with the least and the greatest length of the map when the address was
    /// sampled. Sent with a `perf-PID.map`.
    PerfMap(Vec<(u64, u64, u64)>),
    /// Code that addresses held, each with its start time. Sent with a JIT's dump.
    JitHeld(Vec<u64>),
    /// Functions by their places in a JIT's dump. Sent with the dump.
    JitPlaces(Vec<u64>),
    /// Functions by address, of addresses that held one function only. Sent with a JIT's dump.
    JitAddresses(Vec<u64>),
    /// Functions by offset in the vDSO of the 64-bit processes of this kernel.
    Vdso(Vec<u64>),
    /// Instructions of the function around an offset in an ELF file. Sent with the files of
    /// [`Request::Symbols`].
    Instructions(u64),
    /// Keeps the call frame information of a file under this number. Sent with the file, and its debug file
    /// if there is one. Without a file it is that of the vDSO.
    Frames(u32),
    /// Unwinds user stacks of one process, with these of its mappings. The stacks' bytes follow the request.
    Unwind(Vec<Mapped>, Vec<Start>),
}

/// Code that an address held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) struct Held {
    /// Start time (CLOCK_MONOTONIC, ns).
    pub(in crate::symbol) from_ns: u64,
    /// Place of the code in the dump. `None`: the address holds nothing from then on.
    pub(in crate::symbol) code: Option<u64>,
}

/// An executable mapping of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) struct Mapped {
    /// Start address of the mapping.
    pub(in crate::symbol) start: u64,
    pub(in crate::symbol) end: u64,
    /// Offset in the file at which the mapping begins.
    pub(in crate::symbol) offset: u64,
    /// Number of the file. `None`: there is no call frame information, and frame pointers are followed.
    pub(in crate::symbol) file: Option<u32>,
}

/// Starting point of unwinding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) struct Start {
    /// Registers as in [`pmu_common::ring::StackCopy::registers`].
    pub(in crate::symbol) registers: [u64; 4],
    /// Bytes of the stack copy.
    pub(in crate::symbol) bytes: u32,
}

/// An unwound user stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) struct Unwound {
    /// Addresses, innermost first: the current one, then return addresses.
    pub(in crate::symbol) frames: Vec<u64>,
    pub(in crate::symbol) end: End,
}

/// Reason why unwinding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) enum End {
    /// The last frame is the function that the thread began with.
    First,
    /// The stack has more frames than are kept.
    Deep,
    /// The rest of the stack was not copied, or is not plausible.
    Lost,
    /// An address is in no mapping of the request.
    Unmapped(u64),
    /// The call frame information of a file is not kept, or no longer.
    Absent(u32),
}

/// Answer of the symbolizer process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// CPU time of the process so far, in ns.
    pub(super) cpu_ns: u64,
    pub(super) found: Result<Found, Why>,
}

/// Result of a request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Found {
    /// Result of [`Request::Identify`].
    Identity(Identity),
    /// Result of [`Request::Frames`].
    Ready,
    /// Result of [`Request::Unwind`]: the stacks, in their order.
    Stacks(Vec<Unwound>),
    /// Result of [`Request::Instructions`]: each with its offset, as text.
    Instructions(Vec<(u64, Vec<u8>)>),
    /// Result of [`Request::JitHeld`]: for each address, its code in order of time.
    Held(Vec<Vec<Held>>),
    /// Result of every other request: the code at each of its addresses, in their order.
    Names(Vec<Result<Code, Why>>),
}

/// Identity of an ELF file, and links to files with more of its symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) struct Identity {
    /// Build id of the file.
    pub(in crate::symbol) build_id: Option<Vec<u8>>,
    /// Name of its debug file (`.gnu_debuglink`).
    pub(in crate::symbol) debug_link: Option<Vec<u8>>,
    /// Path of the file that it shares with others (`.gnu_debugaltlink`).
    pub(in crate::symbol) shared_link: Option<Vec<u8>>,
    /// Segments that are loaded for execution. Empty for a debug file.
    pub(in crate::symbol) loaded: Vec<Loaded>,
    /// The file is a debug file, which has its program's sections without their contents.
    pub(in crate::symbol) holds_no_code: bool,
}

/// Reason why an address has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) enum Why {
    /// The file has no symbols.
    NoSymbols,
    /// The file has symbols, and none holds the address.
    NotFound,
    /// No symbol holds the address. By the call frame information its function begins at this offset.
    InFunction(u64),
    /// The offset is in no segment of the file.
    Outside,
    /// A table of the file is larger than the reader's limit.
    TooLarge,
    /// The file is not an ELF file, or is damaged.
    Damaged,
    /// The file cannot be read.
    Unreadable,
    /// The instructions are those of a processor that is not decoded.
    NotDecoded,
    /// The process has written no map of its code.
    NoPerfMap,
    /// The address held several functions, and the time of each is not known.
    Replaced,
    /// The kernel hides its addresses.
    Hidden,
    /// The symbolizer process ended while it read the file.
    Crashed,
    /// The file took longer than one file may.
    Slow,
    /// The time for names was over.
    NoTime,
    /// The symbolizer process cannot be started.
    NoProcess,
    /// Files of its owner have ended the process too often.
    Greedy,
}

impl Why {
    /// Returns the text of the reason in reports and recordings.
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

/// Receives the bytes that follow a request. Returns an error if they exceed [`STACK_BYTES_MAX`].
pub(super) fn receive_bytes(stream: &mut UnixStream, starts: &[Start]) -> io::Result<Vec<u8>> {
    let bytes = starts.iter().fold(0_usize, |sum, start| sum.saturating_add(start.bytes as usize));
    if bytes > STACK_BYTES_MAX {
        return Err(io::Error::other("the stacks are too large"));
    }
    let mut stacks = vec![0; bytes];
    stream.read_exact(&mut stacks)?;
    Ok(stacks)
}

/// Receives a value, with files. Returns `None` at the end of the stream. Calls `before` ahead of every wait.
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
