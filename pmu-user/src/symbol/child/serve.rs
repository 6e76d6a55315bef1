//! Symbolizer process: it serves requests from its standard input, a socket, until that ends. It holds no
//! secret and no privilege, so a malicious file costs names and nothing else.
//!
//! Before it reads an untrusted file it drops capabilities, limits memory and time, and forbids every system
//! call except those for reading mapped files and answering. It can open nothing.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{fs::FileExt as _, net::UnixStream},
    },
};

use rustix::{
    process::{
        DumpableBehavior, Resource, Rlimit, Signal, set_dumpable_behavior, set_parent_process_death_signal,
        setrlimit,
    },
    thread::{
        CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_name,
        set_no_new_privs,
    },
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::{
    dwarf::{self, without_lines},
    elf,
    instructions::instructions,
    jitdump,
    mapping::Mapping,
    symbols, text,
    unwind::Unwinder,
    wire::{Answer, Found, Request, Why, receive, receive_bytes, send},
};
use crate::{drain::Code, machine::own_cpu_ns};

/// Serves requests until the collector exits.
///
/// # Errors
///
/// The process cannot drop its privileges, or the socket fails.
pub fn serve() -> io::Result<()> {
    // The process was executed as /proc/self/exe, a name that does not identify it.
    let _ = set_name(c"pmbpf-symbols");
    let standard_input: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let mut stream = UnixStream::from(standard_input);
    // The process reads its own files here, because it can open nothing afterwards.
    let vdso = vdso().unwrap_or_default();
    let _ = own_cpu_ns();
    enter()?;
    let mut unwinder = Unwinder::default();
    while let Some((request, files)) = receive::<Request>(&mut stream, |_| Ok(()))? {
        let found = match &request {
            Request::Frames(number) => keep_frames(&mut unwinder, *number, &files, &vdso),
            Request::Unwind(mappings, starts) => {
                let stacks = receive_bytes(&mut stream, starts)?;
                Ok(Found::Stacks(unwinder.unwind_all(mappings, starts, &stacks)))
            }
            _ => answer(&request, &files, &vdso),
        };
        send(&mut stream, &Answer { cpu_ns: own_cpu_ns(), found }, &[])?;
    }
    Ok(())
}

fn keep_frames(unwinder: &mut Unwinder, number: u32, files: &[File], vdso: &[u8]) -> Result<Found, Why> {
    let mapped = |index: usize| files.get(index).map(Mapping::of).transpose();
    match mapped(0)? {
        Some(file) => unwinder.keep(number, &file, mapped(1).ok().flatten().as_deref())?,
        None => unwinder.keep(number, vdso, None)?,
    }
    Ok(Found::Ready)
}

fn answer(request: &Request, files: &[File], vdso: &[u8]) -> Result<Found, Why> {
    let mapped = |index: usize| files.get(index).map(Mapping::of).transpose();
    let binary = || mapped(0)?.ok_or(Why::Unreadable);
    let debug = || mapped(1).ok().flatten();
    let list = || files.first().ok_or(Why::Unreadable);
    let names = match request {
        Request::Identify => return Ok(Found::Identity(elf::identity(&binary()?)?)),
        Request::Instructions(offset) => {
            return Ok(Found::Instructions(instructions(&binary()?, debug().as_deref(), *offset)?));
        }
        Request::JitHeld(addresses) => return Ok(Found::Held(jitdump::held(&binary()?, addresses)?)),
        Request::JitPlaces(places) => jitdump::names(&binary()?, places)?,
        Request::JitAddresses(addresses) => jitdump::only(&binary()?, addresses)?,
        Request::Kernel(addresses) => plain(text::kernel(list()?, addresses)?),
        Request::PerfMap(addresses) => plain(text::perf_map(list()?, addresses)?),
        Request::Symbols(offsets, recorded) => {
            plain(symbols::symbols(&binary()?, debug().as_deref(), recorded, offsets)?)
        }
        Request::Vdso(offsets) => plain(symbols::symbols(vdso, None, &[], offsets)?),
        Request::Lines(offsets, recorded) => {
            let shared = mapped(2).ok().flatten();
            let files = (debug(), shared);
            let files = (files.0.as_deref(), files.1.as_deref());
            let codes = dwarf::lines(&binary()?, files, recorded, offsets)?;
            codes.into_iter().map(|code| code.ok_or(Why::NotFound)).collect()
        }
        Request::Frames(_) | Request::Unwind(..) => return Err(Why::NotFound),
    };
    Ok(Found::Names(names))
}

/// Returns the names as code without lines.
fn plain(names: Vec<Result<Vec<u8>, Why>>) -> Vec<Result<Code, Why>> {
    names.into_iter().map(|name| name.map(|name| without_lines(&name))).collect()
}

/// Reads this process's own vDSO: every 64-bit process has the same.
fn vdso() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

/// Limit of private memory. Mapped files do not count.
const DATA_BYTES_MAX: u64 = 160 << 20;
/// CPU time of the process in seconds, at most. It is started again afterwards.
const CPU_SECONDS_MAX: u64 = 30;
/// Descriptors: the socket, and the files of one request.
const DESCRIPTORS_MAX: u64 = 16;

/// Enters the sandbox, which is irreversible.
///
/// # Errors
///
/// The kernel refused a limit, or to drop the capabilities. Without seccomp in the kernel the other
/// restrictions must suffice.
pub(super) fn enter() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let limits = [
        (Resource::Data, DATA_BYTES_MAX),
        (Resource::Cpu, CPU_SECONDS_MAX),
        (Resource::Nofile, DESCRIPTORS_MAX),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Nproc, 0),
    ];
    for (resource, limit) in limits {
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    // No process may attach to it, whatever its user.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let none = CapabilitySet::empty();
    let _ = clear_ambient_capability_set();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    // A kernel without seccomp refuses the filter.
    let _ = filter().map(|filter| seccompiler::apply_filter(&filter));
    Ok(())
}

/// Returns the filter that ends the process at any system call that is not needed here.
fn filter() -> Result<BpfProgram, Box<dyn std::error::Error>> {
    let protection = |argument| {
        let executable = u64::from(ProtExec::BIT);
        let condition =
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(executable), 0)?;
        Ok::<_, seccompiler::BackendError>(vec![SeccompRule::new(vec![condition])?])
    };
    let mut rules: std::collections::BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    // Memory is never made executable.
    rules.insert(libc::SYS_mmap, protection(2)?);
    rules.insert(libc::SYS_mprotect, protection(2)?);
    // With debug assertions, std checks whether a descriptor is open before it closes it.
    let looks = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, LOOKS)?;
    rules.insert(libc::SYS_fcntl, vec![SeccompRule::new(vec![looks])?]);
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, architecture)?;
    Ok(filter.try_into()?)
}

/// Command `F_GETFD` (fcntl(2)).
const LOOKS: u64 = libc::F_GETFD.unsigned_abs() as u64;

/// Protection flag `PROT_EXEC` (mmap(2)).
struct ProtExec;

impl ProtExec {
    const BIT: u32 = libc::PROT_EXEC.unsigned_abs();
}

/// System calls for reading, answering, memory, and exit.
const ALLOWED: [i64; 25] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_write,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];
