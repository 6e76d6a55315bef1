//! Starts a command so that it waits, ready to run, until counting is on.
//!
//! pmbpf starts itself under a hidden name. That process waits on a socket and then becomes the command. The
//! programs count it from that moment. If pmbpf dies first, the socket closes and the command is never run.
//! If the process cannot become the command, it reports the reason on the socket, which a running command has
//! closed.

mod inherited;
mod sys;
mod user;

use std::{
    ffi::{OsStr, OsString},
    io::{self, ErrorKind, Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixListener, UnixStream},
            process::CommandExt as _,
        },
    },
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::Pid,
};
use tokio::{
    io::unix::AsyncFd,
    process::{Child, Command},
};

pub use self::{
    inherited::Inherited,
    sys::take_descriptor,
    user::{Entry, User},
};
use crate::{drain::Usage, perf::own_usage, untrusted::Untrusted};

/// The hidden subcommand.
pub const SUBCOMMAND: &str = "__launch";

/// Reason why a command could not be run. The codes are those of env(1) and the shells.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no such program (127).
    #[error("cannot run `{0}`: no such program")]
    NotFound(String),
    /// The program may not be executed (126).
    #[error("cannot run `{0}`: permission denied, or not executable")]
    NotExecutable(String),
    /// The program is a directory (126).
    #[error("cannot run `{0}`: it is a directory")]
    Directory(String),
    /// The process that was to become the command could not: with this code, for this reason.
    #[error("{1}")]
    Refused(u8, String),
    /// The process ended before it could report anything (125).
    #[error("cannot start the command: its process {}", ended(*.0))]
    Ended(Option<ExitStatus>),
    /// pmbpf itself failed (125).
    #[error("cannot start the command")]
    Io(#[from] io::Error),
}

fn ended(status: Option<ExitStatus>) -> String {
    status.map_or_else(|| "is gone".to_owned(), |status| format!("ended early: {status}"))
}

impl LaunchError {
    /// Returns the exit code.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable(_) | Self::Directory(_) => 126,
            Self::Refused(code, _) => *code,
            Self::Ended(_) | Self::Io(_) => 125,
        }
    }
}

/// A command that waits.
#[derive(Debug)]
pub struct Launched {
    /// The process that becomes the command.
    pub child: Child,
    stream: UnixStream,
    /// Descriptor that is readable once the process has ended; `None` if this kernel has no such descriptor.
    ended: Option<AsyncFd<OwnedFd>>,
    /// CPU time that the kernel accounts to it by then, with that of the children that it has waited for.
    used: Option<Usage>,
    /// Whether it is ended when the time of the run is over.
    pub(super) ends_with_run: bool,
}

/// Checks that the program of a command exists, if there is a command.
///
/// # Errors
///
/// The program does not exist, or may not be executed.
pub fn check(command: &[OsString]) -> Result<(), LaunchError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.first().map_or(Ok(()), |program| find(program, &path).map(drop))
}

/// Finds a program as execvp(3) does.
///
/// # Errors
///
/// The program does not exist, or may not be executed.
fn find(program: &OsStr, path: &OsStr) -> Result<PathBuf, LaunchError> {
    let shown = || Untrusted::from(program).terminal().into_owned();
    let is_path = program.as_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = if is_path {
        vec![PathBuf::from(program)]
    } else {
        std::env::split_paths(path).map(|folder| folder.join(program)).collect()
    };
    let files: Vec<&PathBuf> = candidates.iter().filter(|file| file.is_file()).collect();
    match files.iter().find(|file| is_executable(file)) {
        Some(file) => Ok((**file).clone()),
        None if !files.is_empty() => Err(LaunchError::NotExecutable(shown())),
        None if is_path => Err(no_file(Path::new(program), shown())),
        None => Err(LaunchError::NotFound(shown())),
    }
}

/// Returns the reason why a path without a regular file cannot be executed. As in env(1) and the shells, only
/// a path that does not exist is not found.
fn no_file(path: &Path, shown: String) -> LaunchError {
    match path.metadata() {
        Ok(found) if found.is_dir() => LaunchError::Directory(shown),
        Err(error) if error.kind() == ErrorKind::NotFound => LaunchError::NotFound(shown),
        _ => LaunchError::NotExecutable(shown),
    }
}

fn is_executable(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Time that a process that is gone may take to be known as such.
const REAPED: Duration = Duration::from_secs(1);
/// Interval at which this is checked, if nothing reports it.
const LOOK: Duration = Duration::from_millis(20);

impl Launched {
    /// Starts the waiting process. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// The program cannot be found, no process can be created, or it ended at once.
    pub fn start(words: &[OsString], inherited: &Inherited) -> Result<Self, LaunchError> {
        let program = words.first().ok_or_else(|| LaunchError::NotFound(String::new()))?;
        let program = find(program, &std::env::var_os("PATH").unwrap_or_default())?;
        let name = format!("pmbpf-launch-{}-{}", std::process::id(), unique());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let stdout = match inherited.without_stdout {
            true => Stdio::from(io::stderr().as_fd().try_clone_to_owned()?),
            false => Stdio::inherit(),
        };
        let inherited = serde_json::to_string(inherited).map_err(io::Error::from)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(SUBCOMMAND).arg(&name).arg(inherited).arg(&program).args(words);
        command.stdin(Stdio::inherit()).stdout(stdout).stderr(Stdio::inherit());
        let mut child = command.spawn()?;
        let stream = accept(&listener, &mut child)?;
        let ended = pid(&child).and_then(|pid| sys::end_of(pid).ok());
        Ok(Self { child, stream, ended, used: None, ends_with_run: false })
    }

    /// Makes SIGTERM end the command when the time of the run is over.
    #[must_use]
    pub fn ends_with_run(self) -> Self {
        Self { ends_with_run: true, ..self }
    }

    /// Lets the command go.
    ///
    /// # Errors
    ///
    /// The waiting process is gone.
    pub fn release(&mut self) -> Result<(), LaunchError> {
        match self.stream.write_all(&[1]) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(LaunchError::Ended(self.reap())),
            written => Ok(written?),
        }
    }

    /// Waits for its end. Nothing is lost if the wait is cancelled.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        if let (Some(ended), Some(pid)) = (&self.ended, pid(&self.child)) {
            ended.readable().await?.retain_ready();
            // Before it is waited for: afterwards its usage is part of that of all children.
            self.used = sys::usage_of_ended(pid).ok();
        }
        self.child.wait().await
    }

    /// Returns what an ended process reported: its CPU time as the command, and the reason why it did not
    /// become it. Both are `None` if it reported nothing.
    pub(super) fn said(&mut self) -> (Option<Usage>, Option<LaunchError>) {
        let mut said = String::new();
        // Everything before an error counts.
        let _ = self.stream.set_nonblocking(true).and_then(|()| self.stream.read_to_string(&mut said));
        let (first, rest) = said.split_once('\n').unwrap_or_default();
        let before = Usage::parse(first);
        let refusal = rest.split_once(' ');
        let refusal =
            refusal.and_then(|(code, why)| Some(LaunchError::Refused(code.parse().ok()?, why.to_owned())));
        (self.used.zip(before).map(|(used, before)| used.since(&before)), refusal)
    }

    /// Returns its exit status, once its end of the socket is closed.
    fn reap(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + REAPED;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK),
                status => return status.ok().flatten(),
            }
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(child.id()?.cast_signed())
}

fn unique() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos())
}

/// Accepts the connection of the child, as long as it lives. Any process can connect to the name.
fn accept(listener: &UnixListener, child: &mut Child) -> Result<UnixStream, LaunchError> {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    listener.set_nonblocking(true)?;
    let look = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK.subsec_nanos()) };
    loop {
        // Before `accept`: a child that connects and ends at once has connected.
        let status = child.try_wait()?;
        match listener.accept() {
            Ok((stream, _)) => {
                let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(io::Error::from)?;
                if Some(peer.pid.as_raw_pid()) == id {
                    stream.set_nonblocking(false)?;
                    return Ok(stream);
                }
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) if status.is_some() => return Err(LaunchError::Ended(status)),
            Err(_) => match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&look)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            },
        }
    }
}

/// Runs the waiting process: waits, then becomes the command. If it cannot, reports the reason and returns
/// its exit code.
#[must_use]
pub fn wait_and_become(name: &OsStr, inherited: &str, program: &Path, words: &[OsString]) -> u8 {
    let connected =
        SocketAddr::from_abstract_name(name.as_bytes()).and_then(|name| UnixStream::connect_addr(&name));
    // Without pmbpf the command has no purpose, and the reason has been reported there.
    let Ok(mut stream) = connected else { return PMBPF_FAILED };
    if stream.read_exact(&mut [0]).is_err() {
        return PMBPF_FAILED;
    }
    // Until the command has its name, its work is under this one, as perf's is under "perf-exec".
    let _ = rustix::thread::set_name(c"pmbpf-exec");
    // The process is not the command yet: CPU time used until now is not the command's.
    let _ = writeln!(stream, "{}", own_usage().unwrap_or_default());
    let error = become_command(inherited, program, words);
    let _ = write!(stream, "{} {error}", error.code());
    error.code()
}

/// Exit code if pmbpf failed, not the command (env(1)).
const PMBPF_FAILED: u8 = 125;

/// Becomes the command. Returns only if it cannot.
fn become_command(inherited: &str, program: &Path, words: &[OsString]) -> LaunchError {
    let Some((first, rest)) = words.split_first() else { return LaunchError::NotFound(String::new()) };
    let mut command = std::process::Command::new(program);
    command.arg0(first).args(rest);
    let given = serde_json::from_str::<Inherited>(inherited).map_err(io::Error::from);
    if let Err(error) = given.and_then(|given| given.give_to(&mut command)) {
        return LaunchError::Refused(PMBPF_FAILED, format!("cannot run the command as its user: {error}"));
    }
    let error = command.exec();
    let shown = Untrusted::from(first.as_os_str()).terminal().into_owned();
    match error.kind() {
        // The program was there when it was looked up.
        ErrorKind::NotFound if program.exists() => {
            LaunchError::Refused(127, format!("cannot run `{shown}`: there is no interpreter of that name"))
        }
        ErrorKind::NotFound => LaunchError::NotFound(shown),
        ErrorKind::PermissionDenied => LaunchError::NotExecutable(shown),
        // It became one since it was looked up, or the kernel does not take it as it is.
        ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::ExecutableFileBusy
        | ErrorKind::ArgumentListTooLong => {
            LaunchError::Refused(126, format!("cannot run `{shown}`: {error}"))
        }
        _ => LaunchError::Refused(PMBPF_FAILED, format!("cannot run `{shown}`: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{LaunchError, find};

    #[test]
    fn a_program_is_found_on_the_path() {
        assert!(find(OsStr::new("sh"), OsStr::new("/nonexistent:/bin")).is_ok());
        assert!(matches!(find(OsStr::new("sh"), OsStr::new("/nonexistent")), Err(LaunchError::NotFound(_))));
    }

    #[test]
    fn a_file_that_is_no_program_is_told_apart() {
        assert_eq!(find(OsStr::new("/etc/passwd"), OsStr::new("")).unwrap_err().code(), 126);
        assert_eq!(find(OsStr::new("/no/such"), OsStr::new("")).unwrap_err().code(), 127);
    }

    #[test]
    fn what_exists_and_is_no_file_may_not_be_executed() {
        let found = |program: &str| find(OsStr::new(program), OsStr::new("/")).unwrap_err();
        assert!(matches!(found("/tmp"), LaunchError::Directory(_)), "{}", found("/tmp"));
        assert_eq!(found("/tmp").code(), 126);
        assert_eq!(found("/dev/null").code(), 126);
        assert_eq!(found("/etc/passwd/below").code(), 126, "a file is no directory");
        assert_eq!(found("tmp").code(), 127, "a directory on the path is no program");
    }
}
