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
