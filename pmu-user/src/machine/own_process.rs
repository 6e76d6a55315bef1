//! Processes that pmbpf starts of itself to read what a stranger may block: how they are started, waited for and ended. A wait counts time in
//! which the process is blocked, and not time in which it waits for a CPU.

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

/// How often such a process is looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// The same, for poll(2).
pub(crate) const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };

/// How often a process that was killed may be found blocked before it is left behind.
const LOOKS_MAX: u32 = 100;

/// The command that runs `program`, which is pmbpf, as this hidden subcommand, and the socket to the standard input of what it will be.
pub(crate) fn command(program: &Path, subcommand: &str) -> io::Result<(Command, UnixStream)> {
    let (ours, its) = UnixStream::pair()?;
    let mut command = Command::new(program);
    // A group of its own: a terminal's Ctrl-C is for us.
    command.arg(subcommand).process_group(0).env_clear();
    command.stdin(Stdio::from(OwnedFd::from(its))).stdout(Stdio::null()).stderr(Stdio::null());
    Ok((command, ours))
}

/// Is a process or thread on a CPU, or does it wait for one, by its `stat` in /proc? One that is gone does not.
pub(crate) fn is_runnable(stat: &str) -> bool {
    state(&fs::read(stat).unwrap_or_default()) == Some("R")
}

/// Waits until the process has written something. Adds to `blocked` how long it was blocked.
///
/// # Errors
///
/// It was blocked for as long as `patience`, or did not answer within `wall`.
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

/// Waits for the end of a process that was killed. One that is blocked in the kernel ends when what it reads comes; it is left behind.
pub(crate) fn reap(mut process: Child) {
    let (stat, mut looks) = (format!("/proc/{}/stat", process.id()), 0);
    while let Ok(None) = process.try_wait()
        && looks < LOOKS_MAX
    {
        looks += u32::from(!is_runnable(&stat));
        thread::sleep(Duration::from_millis(1));
    }
}
