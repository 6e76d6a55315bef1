//! Confinement of a thread once it has begun. It drops capabilities that it needs no more, the way to new
//! ones, and system calls that a collector never makes. Everything that needs privileges to be opened is open
//! by then.

use rustix::thread::CapabilitySet;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::machine::privilege::keep_only;

/// Remaining duty of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Reads counters and maps, opens counters of CPUs that come back.
    Collect,
    /// The same, and passes signals on to a command that may be another user's.
    CollectAndSignal,
    /// Reads what the kernel accounts to processes of other users.
    ReadAccounts,
    /// Reads configurations again, which may be readable by root alone.
    Reread,
    /// Serves untrusted clients, which needs no privilege.
    Answer,
    /// Writes pmbpf's files, where the user that started it may.
    Write,
}

/// Confines this thread, and the threads that it starts from now on. What the kernel refuses stays as it was.
pub fn confine(duty: Duty) {
    let collect = CapabilitySet::BPF | CapabilitySet::PERFMON;
    keep_only(match duty {
        Duty::Collect => collect,
        Duty::CollectAndSignal => collect | CapabilitySet::KILL,
        Duty::ReadAccounts => CapabilitySet::SYS_PTRACE,
        Duty::Reread => CapabilitySet::DAC_READ_SEARCH,
        Duty::Answer | Duty::Write => CapabilitySet::empty(),
    });
    let _ = filter().map(|filter| seccompiler::apply_filter(&filter));
}

/// Returns the filter that refuses what a collector never does (EPERM).
fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = REFUSED.iter().map(|&call| (call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refused, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// Number of kexec_file_load, which the libc crate does not have for musl on arm64 (include/uapi/asm-generic/unistd.h).
const KEXEC_FILE_LOAD: i64 = if cfg!(target_arch = "x86_64") { 320 } else { 294 };

/// System calls that start programs, access other processes, change the host, or undo the confinement.
const REFUSED: [i64; 42] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_open_by_handle_at,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_bind,
];
