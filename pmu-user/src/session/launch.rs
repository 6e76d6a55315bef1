//! Starts a command so that it waits, ready to go, until counting is on.
//!
//! pmbpf starts itself under a hidden name; that process waits on a socket and then becomes the command. The programs
//! count it from the moment it does. If pmbpf dies first, the socket closes and the command is never run.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read as _, Write as _},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixListener, UnixStream},
            process::CommandExt as _,
        },
    },
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::process::{Child, Command};

/// The hidden subcommand.
pub const SUBCOMMAND: &str = "__launch";

/// Why a command could not be run; the numbers are those of env(1) and the shells.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no such program (127).
    #[error("cannot run `{0}`: no such program")]
    NotFound(String),
    /// It may not be executed (126).
    #[error("cannot run `{0}`: it may not be executed")]
    NotExecutable(String),
    /// pmbpf itself failed (125).
    #[error("cannot start the command: {0}")]
    Io(#[from] io::Error),
}

impl LaunchError {
    /// Exit code.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable(_) => 126,
            Self::Io(_) => 125,
        }
    }
}

/// A command that waits.
#[derive(Debug)]
pub struct Launched {
    /// The process that becomes the command.
    pub child: Child,
    stream: UnixStream,
}

/// Is the program of a command there, if there is a command?
///
/// # Errors
///
/// It is not, or may not be executed.
pub fn check(command: &[OsString]) -> Result<(), LaunchError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.first().map_or(Ok(()), |program| find(program, &path).map(drop))
}

/// Finds a program as execvp(3) does.
///
/// # Errors
///
/// It is not there, or may not be executed.
fn find(program: &OsStr, path: &OsStr) -> Result<PathBuf, LaunchError> {
    let shown = || crate::untrusted::Untrusted::from(program).terminal().into_owned();
    let candidates: Vec<PathBuf> = if program.as_bytes().contains(&b'/') {
        vec![PathBuf::from(program)]
    } else {
        std::env::split_paths(path).map(|folder| folder.join(program)).collect()
    };
    let files: Vec<&PathBuf> = candidates.iter().filter(|file| file.is_file()).collect();
    match files.iter().find(|file| is_executable(file)) {
        Some(file) => Ok((**file).clone()),
        None if files.is_empty() => Err(LaunchError::NotFound(shown())),
        None => Err(LaunchError::NotExecutable(shown())),
    }
}

fn is_executable(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

impl Launched {
    /// Starts the waiting process. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// The program cannot be found, or no process can be made.
    pub fn start(words: &[OsString]) -> Result<Self, LaunchError> {
        let program = words.first().ok_or_else(|| LaunchError::NotFound(String::new()))?;
        let program = find(program, &std::env::var_os("PATH").unwrap_or_default())?;
        let name = format!("pmbpf-launch-{}-{}", std::process::id(), unique());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(SUBCOMMAND).arg(&name).arg(&program).args(words);
        command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
        let child = command.spawn()?;
        let stream = accept(&listener, child.id())?;
        Ok(Self { child, stream })
    }

    /// Lets the command go.
    ///
    /// # Errors
    ///
    /// The waiting process is gone.
    pub fn release(&mut self) -> io::Result<()> {
        self.stream.write_all(&[1])
    }
}

fn unique() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos())
}

/// Accepts our own child; anyone can connect to the name.
fn accept(listener: &UnixListener, child: Option<u32>) -> io::Result<UnixStream> {
    let child = child.and_then(|child| i32::try_from(child).ok());
    loop {
        let (stream, _) = listener.accept()?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        if Some(peer.pid.as_raw_pid()) == child {
            return Ok(stream);
        }
    }
}

/// What the waiting process does: waits, then becomes the command. Returns only if it cannot.
///
/// # Errors
///
/// pmbpf is gone, or the command cannot be executed.
pub fn wait_and_become(
    name: &OsStr,
    program: &Path,
    words: &[OsString],
) -> Result<std::convert::Infallible, LaunchError> {
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name.as_bytes())?)?;
    stream.read_exact(&mut [0])?;
    let (first, rest) = words.split_first().ok_or_else(|| LaunchError::NotFound(String::new()))?;
    let error = std::process::Command::new(program).arg0(first).args(rest).exec();
    let shown = crate::untrusted::Untrusted::from(first.as_os_str()).terminal().into_owned();
    Err(match error.kind() {
        io::ErrorKind::NotFound => LaunchError::NotFound(shown),
        io::ErrorKind::PermissionDenied => LaunchError::NotExecutable(shown),
        // ENOEXEC: the shells run such a file as a script, env(1) does not.
        _ => LaunchError::Io(error),
    })
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
}
