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

use crate::drain::Code;

/// Largest frame: the names of one request's addresses.
const FRAME_BYTES_MAX: usize = 16 << 20;
/// Addresses of one request.
pub(in crate::symbol) const ADDRESSES_MAX: usize = 2048;
/// Files of one request: a binary, its debug file, and the file that this one shares with others.
pub(super) const FILES_MAX: usize = 3;

/// What is asked of the symbolizer process.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::symbol) enum Request {
    /// Build id and links of an ELF file. With the file.
    Identify,
    /// Functions by address. With /proc/kallsyms.
    Kernel(Vec<u64>),
    /// Functions by offset in an ELF file, from its symbol tables. With the file, and its debug file if there is one.
    Symbols(Vec<u64>),
    /// Functions, lines and inlined calls by offset in an ELF file, from its DWARF. With the files of [`Request::Symbols`],
    /// and the file that the debug file shares with others (`.gnu_debugaltlink`) if there is one.
    Lines(Vec<u64>),
    /// Functions by address. With a `perf-PID.map`.
    PerfMap(Vec<u64>),
    /// Functions by offset in the vDSO that every 64-bit process of this kernel has.
    Vdso(Vec<u64>),
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
}

/// Why an address has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::symbol) enum Why {
    /// The file has no symbols.
    NoSymbols,
    /// It has some, and none holds the address.
    NotFound,
    /// The offset is in no segment of the file.
    Outside,
    /// A table of the file is larger than we read.
    TooLarge,
    /// The file is no ELF file, or a damaged one.
    Damaged,
    /// It cannot be read.
    Unreadable,
    /// The process has written no map of its code.
    NoPerfMap,
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
}

impl Why {
    /// What reports and recordings say.
    pub(in crate::symbol) const fn text(self) -> &'static str {
        match self {
            Self::NoSymbols => "its file has no symbols",
            Self::NotFound => "no symbol of its file holds the address",
            Self::Outside => "names: the offset is in no segment of the file",
            Self::TooLarge => "names: file too large",
            Self::Damaged => "names: no ELF file, or a damaged one",
            Self::Unreadable => "names: the file cannot be read",
            Self::NoPerfMap => "code in no file, and no perf-PID.map that says what it is",
            Self::Hidden => {
                "kernel addresses are hidden: CAP_SYSLOG, or kernel.kptr_restrict=0 and perf_event_paranoid<=1"
            }
            Self::Crashed => "names: crashed on this file",
            Self::Slow => "names: file took too long",
            Self::NoTime => "names: no time was left",
            Self::NoProcess => "names: their process cannot be started",
        }
    }
}

/// Sends a value, with files.
pub(super) fn send<T: Serialize>(stream: &mut UnixStream, value: &T, files: &[&File]) -> io::Result<()> {
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

/// Receives a value, with files; `None` at the end of the stream. `before` is called before every wait.
pub(super) fn receive<T: DeserializeOwned>(
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
