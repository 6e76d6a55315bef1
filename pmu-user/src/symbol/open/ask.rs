//! Requests of the collector to the process that opens files of others, and that process's side.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{
            fs::{FileExt as _, MetadataExt as _},
            net::UnixStream,
        },
    },
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstatfs, memfd_create},
    io::Errno,
    process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit},
    thread::{set_name, set_no_new_privs},
};
use serde::{Deserialize, Serialize};

use super::{rights, root_of};
use crate::{
    machine::{own_cpu_ns, privilege::keep_only},
    symbol::{
        address_map::{self, Region},
        child::{receive, send},
        perf_map::PerfMap,
        source::debug_beside,
    },
    untrusted::{Untrusted, exact},
};

/// A request to that process.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::symbol) enum Ask {
    /// The file of a mapping that was found in the map of the process `of`. It is opened through `of`, else
    /// through `tgid`, else as one of its `kin` sees it.
    Mapped { region: Region, of: u32, tgid: u32, kin: Vec<u32> },
    /// The debug file that a binary names, in its folder in the view of a process.
    DebugBeside { tgid: u32, path: Path, link: Vec<u8> },
    /// The map that a JIT wrote, and its inode.
    PerfMap(u32),
    /// Memory of a process.
    Memory { tgid: u32, start: u64, bytes: u64 },
    /// Mappings of a process, as text.
    AddressMap(u32),
    /// Size of the file that comes with the request.
    Size,
}

/// A path that is not trusted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::symbol) struct Path(#[serde(with = "exact")] pub(in crate::symbol) Untrusted);

/// A request, with the room left for copies of files.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Question {
    pub(super) ask: Ask,
    pub(super) copy_bytes_max: u64,
}

/// Reply to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) cpu_ns: u64,
    pub(super) got: Result<Got, i32>,
    /// Bytes of a file that were copied into memory.
    pub(super) copied: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Got {
    /// A file follows, with its inode if that was requested. The flag is set if root owns the file, and no
    /// other process serves its mount.
    File(u64, bool),
    /// Number of bytes that follow.
    Bytes(u64),
    /// Size of a file.
    Size(u64),
}

/// Name of the hidden subcommand.
pub const SUBCOMMAND: &str = "__open";

/// Descriptors: the socket, and those needed to open a file.
const DESCRIPTORS_MAX: u64 = 64;
/// Memory of the process: several times the text of an address map.
const DATA_BYTES_MAX: u64 = 128 << 20;

/// Bytes of another process's memory that are read.
const MEMORY_BYTES_MAX: u64 = 64 << 10;

/// Opens files of others until the collector exits.
///
/// # Errors
///
/// The socket fails, or the kernel refuses a limit.
pub fn serve() -> io::Result<()> {
    let _ = set_name(c"pmbpf-open");
    let standard_input: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let mut stream = UnixStream::from(standard_input);
    set_parent_process_death_signal(Some(Signal::KILL))?;
    for (resource, limit) in
        [(Resource::Nofile, DESCRIPTORS_MAX), (Resource::Data, DATA_BYTES_MAX), (Resource::Core, 0)]
    {
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    keep_only(rights());
    set_no_new_privs(true)?;
    while let Some((question, files)) = receive::<Question>(&mut stream, |_| Ok(()))? {
        let mut answer = answer(&question.ask, &files);
        let mut copied = 0;
        if let Ok((Got::File(_, is_of_root), Some(file), _)) = &mut answer {
            match detached(file, question.copy_bytes_max) {
                Ok(Some((copy, bytes))) => (*file, copied) = (copy, bytes),
                Ok(None) => *is_of_root = file.metadata().is_ok_and(|metadata| metadata.uid() == 0),
                Err(error) => answer = Err(error),
            }
        }
        let (got, file, bytes) = match answer {
            Ok((got, file, bytes)) => (Ok(got), file, bytes),
            Err(error) => (Err(error.raw_os_error()), None, Vec::new()),
        };
        let reply = Reply { cpu_ns: own_cpu_ns(), got, copied };
        send(&mut stream, &reply, file.as_ref().as_slice())?;
        stream.write_all(&bytes)?;
    }
    Ok(())
}

type Answer = Result<(Got, Option<File>, Vec<u8>), Errno>;

fn answer(ask: &Ask, files: &[File]) -> Answer {
    let file = |file: File| (Got::File(0, false), Some(file), Vec::new());
    let bytes = |bytes: Vec<u8>| (Got::Bytes(bytes.len() as u64), None, bytes);
    match ask {
        Ask::Mapped { region, of, tgid, kin } => {
            let whose =
                region.open(*of).or_else(|error| if tgid == of { Err(error) } else { region.open(*tgid) });
            whose.or_else(|_| region.open_elsewhere(kin)).map(file)
        }
        Ask::DebugBeside { tgid, path, link } => {
            debug_beside(&root_of(*tgid)?, &path.0.to_path(), link).ok_or(Errno::NOENT).map(file)
        }
        Ask::PerfMap(tgid) => {
            let (file, inode) = PerfMap::find(*tgid).ok_or(Errno::NOENT)?;
            Ok((Got::File(inode, false), Some(file), Vec::new()))
        }
        Ask::Memory { tgid, start, bytes: count } => {
            memory_of(*tgid, *start, *count).map(bytes).map_err(|error| errno(&error))
        }
        Ask::AddressMap(tgid) => address_map::text_of(*tgid).map(bytes).map_err(|error| errno(&error)),
        Ask::Size => {
            let metadata = files.first().ok_or(Errno::BADF)?.metadata().map_err(|error| errno(&error))?;
            Ok((Got::Size(metadata.len()), None, Vec::new()))
        }
    }
}

/// Reads memory of a process. Needs the permission to trace it.
fn memory_of(tgid: u32, start: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = vec![0; usize::try_from(bytes.min(MEMORY_BYTES_MAX)).map_err(io::Error::other)?];
    File::open(format!("/proc/{tgid}/mem"))?.read_exact_at(&mut content, start)?;
    Ok(content)
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Magic number of FUSE: `FUSE_SUPER_MAGIC` (include/uapi/linux/magic.h).
const FUSE: u64 = 0x6573_5546;

/// Returns a copy in memory of a file that another process serves, with its size. Not only a read, but also
/// the close of such a file may wait for that process. Returns `None` for any other file.
fn detached(file: &File, bytes_max: u64) -> Result<Option<(File, u64)>, Errno> {
    if fstatfs(file)?.f_type as u64 != FUSE {
        return Ok(None);
    }
    let memory = memfd_create("pmbpf-copy", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut copy = File::from(memory);
    let bytes = io::copy(&mut file.take(bytes_max + 1), &mut copy).map_err(|error| errno(&error))?;
    if bytes > bytes_max {
        return Err(Errno::FBIG);
    }
    copy.rewind().map_err(|error| errno(&error))?;
    fcntl_add_seals(&copy, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
    Ok(Some((copy, bytes)))
}
