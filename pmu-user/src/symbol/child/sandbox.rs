//! What the symbolizer process gives up before it reads a stranger's file: capabilities, memory, time, and every system call
//! but those that reading mapped files and answering takes. It can open nothing.

use std::io;

use rustix::{
    process::{
        DumpableBehavior, Resource, Rlimit, Signal, set_dumpable_behavior, set_parent_process_death_signal,
        setrlimit,
    },
    thread::{
        CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
    },
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Memory of its own; mapped files do not count.
const DATA_BYTES_MAX: u64 = 160 << 20;
/// CPU time of its whole life, in seconds. It is started again.
const CPU_SECONDS_MAX: u64 = 30;
/// Descriptors: the socket, and the files of one request.
const DESCRIPTORS_MAX: u64 = 16;

/// Enters the sandbox; there is no way back.
///
/// # Errors
///
/// The kernel refused a limit, or to take the capabilities. Without seccomp in the kernel the rest has to do.
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
    // Nobody attaches to it, whoever it runs as.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let none = CapabilitySet::empty();
    let _ = clear_ambient_capability_set();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    // A kernel without seccomp refuses the filter.
    let _ = filter().map(|filter| seccompiler::apply_filter(&filter));
    Ok(())
}

/// Ends the process at any system call that is not needed here.
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
    // With debug assertions, std looks whether a descriptor is open before it closes it.
    let looks = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, LOOKS)?;
    rules.insert(libc::SYS_fcntl, vec![SeccompRule::new(vec![looks])?]);
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, architecture)?;
    Ok(filter.try_into()?)
}

/// `F_GETFD` (fcntl(2)).
const LOOKS: u64 = libc::F_GETFD.unsigned_abs() as u64;

/// `PROT_EXEC` (mmap(2)).
struct ProtExec;

impl ProtExec {
    const BIT: u32 = libc::PROT_EXEC.unsigned_abs();
}

/// System calls of reading, answering, memory, and ending.
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
