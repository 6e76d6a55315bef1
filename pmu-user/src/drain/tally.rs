//! What the counters of a list said at one moment: rows for whoever adds them up.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Stopped, Workload, reading::Reading};

/// A reading of every counter of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Which run of the command, from 1.
    pub run: u32,
    /// Time since counting started in this run.
    pub at: Duration,
    /// By target cgroup, in the order of the plan; a single part if cgroups are no target.
    pub parts: Vec<Part>,
    /// How the run ended, if this is its last reading.
    pub ended: Option<Ended>,
}

/// What one target's counters said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Counters, always in the same order.
    pub readings: Vec<Reading>,
    /// Events that have no counter at a place where they should have.
    pub uncounted: Vec<Uncounted>,
}

/// An event without a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncounted {
    /// Which event of the list, from 0.
    pub index: u32,
    /// The PMU that should count it.
    pub pmu: String,
    /// Why it does not.
    pub why: String,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// What ended it.
    pub stopped: Stopped,
    /// What became of the command, if there was one.
    pub workload: Option<Workload>,
    /// CPU time of the command and of those of its children that it has waited for; none if it still runs.
    pub usage: Option<Usage>,
}

impl Ended {
    /// Did the command come to its own good end?
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.stopped == Stopped::TargetGone && self.workload == Some(Workload::Exited(0))
    }
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
