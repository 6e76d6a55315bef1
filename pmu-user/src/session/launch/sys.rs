//! Functions with unsafe code: signals of a command, and a descriptor that was left open.

use std::{
    fs::File,
    io,
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::process::CommandExt as _,
    },
    process::Command,
};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::{Interest, unix::AsyncFd};

use crate::{drain::Usage, perf::usage_of};

/// The highest signal number.
const SIGNALS: i32 = 64;

/// Makes the process that becomes `command` block and ignore these signals: one bit each, the lowest is
/// signal 1.
pub(super) fn give_signals(command: &mut Command, blocked: u64, ignored: u64) {
    let set_up = move || {
        let has = |set: u64, signal: i32| set >> (signal - 1) & 1 == 1;
        for signal in 1..=SIGNALS {
            let handler = if has(ignored, signal) { libc::SIG_IGN } else { libc::SIG_DFL };
            // `struct kernel_sigaction`: no flags, no restorer, no mask. The system call is used because
            // glibc ignores 32 and 33 in what it spawns, and its signal(3) refuses to change that.
            let action = [handler as u64, 0, 0, 0];
            let (action, size) = (action.as_ptr(), size_of::<u64>());
            let old = std::ptr::null_mut::<u64>();
            // SAFETY: the kernel reads an action that lives as long as the call, which installs no handler.
            // It refuses SIGKILL and SIGSTOP.
            unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, action, old, size) };
        }
        let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: it writes the whole set.
        unsafe { libc::sigemptyset(mask.as_mut_ptr()) };
        for signal in (1..=SIGNALS).filter(|&signal| has(blocked, signal)) {
            // SAFETY: the set was written a moment ago.
            unsafe { libc::sigaddset(mask.as_mut_ptr(), signal) };
        }
        // SAFETY: as above.
        match unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask.as_ptr(), std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: it makes system calls and nothing else, and this process has one thread.
    unsafe { command.pre_exec(set_up) };
}

/// Returns a descriptor that is readable once the process has ended (pidfd_open(2), Linux 5.3). Needs a tokio
/// runtime.
pub(super) fn end_of(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
    // SAFETY: the registration owns the descriptor, which stays open and the same until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

/// Returns the CPU time of a child that has ended and was not waited for, to 1 µs, as wait4(2) will report
/// it. It includes that of the children that it has waited for. The child can still be waited for.
pub(super) fn usage_of_ended(pid: Pid) -> io::Result<Usage> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let (options, about) =
        (libc::WEXITED | libc::WNOHANG | libc::WNOWAIT, std::ptr::null_mut::<libc::siginfo_t>());
    let (call, id) = (libc::SYS_waitid, pid.as_raw_pid());
    // SAFETY: the kernel writes one `rusage` there, which outlives the call. The null pointer gives it no
    // room for anything else.
    match unsafe { libc::syscall(call, libc::P_PID, id, about, options, usage.as_mut_ptr()) } {
        // SAFETY: zeros are a valid `rusage`, if the kernel wrote none.
        0 => Ok(usage_of(&unsafe { usage.assume_init() })),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes a descriptor that the process that started this one left open. The command does not inherit it. To
/// be called before anything is opened, because a later descriptor may have the number.
///
/// # Errors
///
/// The descriptor is not open (EBADF).
pub fn take_descriptor(number: RawFd) -> io::Result<File> {
    // SAFETY: the call returns whether the descriptor is open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if number <= libc::STDERR_FILENO {
        // SAFETY: it is open, and the standard streams stay so, because the command has them, too.
        let stream = unsafe { BorrowedFd::borrow_raw(number) };
        return Ok(stream.try_clone_to_owned()?.into());
    }
    // SAFETY: it is open.
    unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: it is open, and nothing else here owns it: nothing was opened before.
    Ok(unsafe { OwnedFd::from_raw_fd(number) }.into())
}
