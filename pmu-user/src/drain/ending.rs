//! How a run ended.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How it ended. The last frame of a complete recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Why it stopped.
    pub stopped: Stopped,
    /// How the launched command ended, if there was one.
    pub workload: Option<Workload>,
    /// How long was counted.
    pub duration: Duration,
    /// CPU time of the command and of those of its children that it has waited for, where it was asked for; none if it still runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl Ending {
    /// Did the command end by itself, well?
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.stopped == Stopped::TargetGone && self.workload == Some(Workload::Exited(0))
    }
}

/// Why it stopped.
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

/// How the launched command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// It exited with this code.
    Exited(i32),
    /// A signal ended it.
    Killed(i32),
    /// It was still running.
    Running,
}

/// CPU time, as getrusage(2) has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl Usage {
    /// What was added since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }

    /// Without `used`, which was in both modes alike: how much in which, nobody knows.
    #[must_use]
    pub fn without(&self, used: Duration) -> Self {
        let all = (self.user + self.system).as_secs_f64();
        let rest = if all > 0.0 { (1.0 - used.as_secs_f64() / all).max(0.0) } else { 0.0 };
        Self { user: self.user.mul_f64(rest), system: self.system.mul_f64(rest) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Usage;

    #[test]
    fn time_before_the_command_is_taken_from_both_modes_alike() {
        let ms = Duration::from_millis;
        let all = Usage { user: ms(30), system: ms(10) };
        assert_eq!(all.without(ms(20)), Usage { user: ms(15), system: ms(5) });
        assert_eq!(all.without(ms(50)), Usage::default(), "a clock that ran ahead makes no negative time");
        assert_eq!(Usage::default().without(ms(1)), Usage::default());
    }
}
