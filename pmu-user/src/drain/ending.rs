//! Ending of a run.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// Ending of a run. In a complete recording, its frame follows the last drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Reason why the run stopped.
    pub stopped: Stopped,
    /// Exit state of the launched command, if there was one.
    pub workload: Option<Workload>,
    /// Duration of counting.
    pub duration: Duration,
    /// CPU time of the command and of those of its children that it waited for. `None` if the command still
    /// runs, and in older recordings of `run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl Ending {
    /// Returns whether the run stopped because the command had ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.stopped == Stopped::TargetGone && self.workload.is_some()
    }

    /// Returns whether the command ended by itself with exit code 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.stopped == Stopped::TargetGone && self.workload == Some(Workload::Exited(0))
    }
}

/// Reason why a run stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// The duration was over.
    Duration,
    /// The launched command, or every target, is gone.
    TargetGone,
    /// A signal, by number.
    Signal(i32),
    /// The recording broke off.
    Truncated,
}

/// Exit state of the launched command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// The command exited with this code.
    Exited(i32),
    /// A signal ended the command.
    Killed(i32),
    /// The command was still running.
    Running,
}

/// CPU time as in getrusage(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
}

impl Usage {
    /// Returns the CPU time added since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }

    /// Reads the output of [`Display`](fmt::Display).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (user, system) = text.split_once(' ')?;
        let time = |text: &str| text.parse().ok().map(Duration::from_micros);
        Some(Self { user: time(user)?, system: time(system)? })
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(into, "{} {}", self.user.as_micros(), self.system.as_micros())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Usage;

    #[test]
    fn what_a_process_says_of_its_time_is_read_to_the_microsecond() {
        let used = Usage { user: Duration::from_micros(1_234_567), system: Duration::from_micros(89) };
        assert_eq!(used.to_string(), "1234567 89");
        assert_eq!(Usage::parse(&used.to_string()), Some(used));
        assert_eq!(Usage::parse("126 cannot run"), None);
    }
}
