//! Processes of pmbpf itself that read what another user's process may block: how they are started, awaited
//! and ended. A wait counts time in which the process is blocked, and not time in which it waits for a CPU.

use std::{
    fs, io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::stat::state;

/// Interval at which such a process is polled.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// Same interval for poll(2).
pub(crate) const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };

/// Polls that may find a killed process blocked before it is left behind.
const LOOKS_MAX: u32 = 100;

/// Returns the command that runs `program`, which is pmbpf, as this hidden subcommand, and the socket to its
/// standard input.
pub(crate) fn command(program: &Path, subcommand: &str) -> io::Result<(Command, UnixStream)> {
    let (ours, its) = UnixStream::pair()?;
    let mut command = Command::new(program);
    // A separate process group: a terminal's Ctrl-C is for the collector.
    command.arg(subcommand).process_group(0).env_clear();
    command.stdin(Stdio::from(OwnedFd::from(its))).stdout(Stdio::null()).stderr(Stdio::null());
    Ok((command, ours))
}

/// Returns whether a process or thread is on a CPU or waits for one, by its `stat` in /proc. Returns false
/// for one that is gone.
pub(crate) fn is_runnable(stat: &str) -> bool {
    state(&fs::read(stat).unwrap_or_default()) == Some("R")
}

/// Waits until the process has written data. Adds the time that it was blocked to `blocked`.
///
/// # Errors
///
/// The process was blocked for as long as `patience`, or did not respond within `wall`.
pub(crate) fn wait(
    (process, stream): (&Child, &UnixStream),
    blocked: &mut Duration,
    (patience, wall): (Duration, Duration),
) -> io::Result<()> {
    let (stat, given_up) = (format!("/proc/{}/stat", process.id()), Instant::now() + wall);
    while *blocked < patience && Instant::now() < given_up {
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&POLL)) {
            Ok(0) | Err(Errno::INTR) => *blocked += if is_runnable(&stat) { Duration::ZERO } else { LOOK },
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Waits for the end of a killed process. One that is blocked in the kernel ends when its read completes, and
/// is left behind.
pub(crate) fn reap(mut process: Child) {
    let (stat, mut looks) = (format!("/proc/{}/stat", process.id()), 0);
    while let Ok(None) = process.try_wait()
        && looks < LOOKS_MAX
    {
        looks += u32::from(!is_runnable(&stat));
        thread::sleep(Duration::from_millis(1));
    }
}
