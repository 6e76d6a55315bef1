//! Occasions of a drain, and the slow reads at each.

use std::time::{Duration, Instant};

use super::TasksSession;

/// Shortest interval between slow reads, if ticks come sooner: skipped program runs, pressure of cgroups, and
/// whether a CPU was away, each of which takes system calls. It is the shortest window in which the kernel
/// watches pressure.
const SLOW_EVERY: Duration = Duration::from_millis(500);

/// Occasion of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Occasion {
    /// Counting begins. What is there does not count.
    Begin,
    /// A tick is due.
    Tick,
    /// Slots run short.
    Pressed,
    /// Counting has ended.
    End,
}

impl Occasion {
    pub(super) const fn is_an_end(self) -> bool {
        matches!(self, Self::Begin | Self::End)
    }
}

impl TasksSession {
    /// Returns whether slow reads are due, too. If so, they are not due for some time from `now` on.
    pub(super) fn is_time_for_what_is_slow(&mut self, occasion: Occasion, now: Instant) -> bool {
        let waits = self.rarely.is_some_and(|last| now.duration_since(last) < SLOW_EVERY);
        let is = occasion.is_an_end() || occasion == Occasion::Tick && !waits;
        if is {
            self.rarely = Some(now);
        }
        is
    }
}
