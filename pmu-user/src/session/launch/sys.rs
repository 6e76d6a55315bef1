//! What takes unsafe code: signals of a command, and a descriptor that was handed to us.

use std::{
    fs::File,
    io,
    os::{
        fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::process::CommandExt as _,
    },
    process::Command,
};

/// The highest signal.
const SIGNALS: i32 = 64;

/// Has the process that becomes `command` hold back and ignore these signals: a bit each, the lowest is signal 1.
pub(super) fn give_signals(command: &mut Command, blocked: u64, ignored: u64) {
    let set_up = move || {
        let has = |set: u64, signal: i32| set >> (signal - 1) & 1 == 1;
        for signal in (1..=SIGNALS).filter(|&signal| has(ignored, signal)) {
            // SAFETY: to ignore a signal installs no handler.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        let mut mask = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
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

/// Takes a descriptor that whoever started this process left open for us; the command does not inherit it. Call before
/// anything is opened: what is opened later may have the number.
///
/// # Errors
///
/// It is not open (EBADF).
pub fn take_descriptor(number: RawFd) -> io::Result<File> {
    // SAFETY: whether it is open is what is asked.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if number <= libc::STDERR_FILENO {
        // SAFETY: it is open, and the standard streams stay so, for the command has them, too.
        let stream = unsafe { BorrowedFd::borrow_raw(number) };
        return Ok(stream.try_clone_to_owned()?.into());
    }
    // SAFETY: it is open.
    unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: it is open, and nobody here has it: nothing was opened before.
    Ok(unsafe { OwnedFd::from_raw_fd(number) }.into())
}
