//! Attributes that a command inherits: the limits, niceness, signals and user that it would have had without
//! pmbpf, which changes some of them for itself. They are read before that, and restored by the process that
//! becomes the command.

use std::{fs, io, process::Command, sync::OnceLock};

use rustix::process::{Resource, Rlimit, getpriority_process, getrlimit, setpriority_process, setrlimit};
use serde::{Deserialize, Serialize};

use super::{sys, user::User};

/// Limits that pmbpf raises for itself.
const RAISED: [Resource; 2] = [Resource::Nofile, Resource::Memlock];

/// The niceness of pmbpf itself. With 48 busy processes per CPU, a run of one second ends after 13 s at a
/// niceness of 0, and after 4.4 s at this one (docs/costs.md). Work of a tenth of a second must not wait for
/// each of them.
const NICENESS: i32 = -20;

/// Attributes that a command inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    /// Soft and hard limits, in the order of [`RAISED`]; `None`: unlimited.
    limits: Vec<(Option<u64>, Option<u64>)>,
    /// Signals that are blocked, one bit each; the lowest is signal 1.
    blocked: u64,
    /// Signals that are ignored, likewise.
    ignored: u64,
    /// Niceness of the command (setpriority(2)).
    niceness: i32,
    /// User that it runs as; `None`: pmbpf's.
    user: Option<User>,
    /// Whether its standard output is pmbpf's standard error.
    #[serde(skip)]
    pub(super) without_stdout: bool,
}

impl Inherited {
    /// Returns what this process inherited, as the first call read it. That call comes before any of it is
    /// changed.
    #[must_use]
    pub fn read() -> Self {
        static GIVEN: OnceLock<Inherited> = OnceLock::new();
        GIVEN.get_or_init(Self::now).clone()
    }

    fn now() -> Self {
        let limit = |resource| {
            let Rlimit { current, maximum } = getrlimit(resource);
            (current, maximum)
        };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            limits: RAISED.map(limit).to_vec(),
            blocked: signals(&status, "SigBlk:"),
            // Rust's runtime ignores it in every program before this code runs.
            ignored: signals(&status, "SigIgn:") & !bit(libc::SIGPIPE),
            niceness: getpriority_process(None).unwrap_or(0),
            user: None,
            without_stdout: false,
        }
    }

    /// Gives this process, and threads that it starts from now on, priority for the CPU, unless its niceness
    /// was chosen or the kernel refuses (without CAP_SYS_NICE).
    pub fn raise_priority() {
        if Self::read().niceness == 0 {
            let _ = setpriority_process(None, NICENESS);
        }
    }

    /// Returns the same for another user.
    #[must_use]
    pub fn for_user(self, user: Option<User>) -> Self {
        Self { user, ..self }
    }

    /// Returns the same with standard output left to results: the command's output goes to standard error.
    #[must_use]
    pub fn without_stdout(self) -> Self {
        Self { without_stdout: true, ..self }
    }

    /// Applies all of it to `command`, which this process is about to become.
    ///
    /// # Errors
    ///
    /// The kernel refused to change the user.
    pub(crate) fn give_to(&self, command: &mut Command) -> io::Result<()> {
        for (resource, &(current, maximum)) in RAISED.into_iter().zip(&self.limits) {
            // Lowering is always allowed. A limit that was never raised is unchanged.
            let _ = setrlimit(resource, Rlimit { current, maximum });
        }
        let _ = setpriority_process(None, self.niceness);
        sys::give_signals(command, self.blocked, self.ignored);
        self.user.as_ref().map_or(Ok(()), |user| user.become_with(command))
    }
}

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Returns a set of signals from /proc/PID/status.
fn signals(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Inherited, bit, signals};

    #[test]
    fn sets_of_signals_are_bits_from_signal_1() {
        let status = "SigPnd:\t0000000000000000\nSigBlk:\t0000000000000200\nSigIgn:\t0000000000001003\n";
        assert_eq!(signals(status, "SigBlk:"), bit(libc::SIGUSR1));
        assert_eq!(signals(status, "SigIgn:"), bit(libc::SIGHUP) | bit(libc::SIGINT) | bit(libc::SIGPIPE));
        assert_eq!(signals("", "SigIgn:"), 0);
    }

    #[test]
    fn a_closed_pipe_ends_a_command_as_it_does_without_pmbpf() {
        assert_eq!(Inherited::read().ignored & bit(libc::SIGPIPE), 0);
    }
}
