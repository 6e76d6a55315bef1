//! Why everything is read, and how much of it that is slow.

use std::time::{Duration, Instant};

use super::TasksSession;

/// How often at most what is slow is read, where ticks come sooner: runs of programs that the kernel left out, pressure of cgroups, whether a
/// CPU was away, each of which takes system calls. The shortest window in which the kernel watches pressure.
const SLOW_EVERY: Duration = Duration::from_millis(500);

/// Why everything is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Occasion {
    /// Counting begins: what is there is not ours.
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
    /// Is what is slow to be read, too? Then it is not for some time from `now` on.
    pub(super) fn is_time_for_what_is_slow(&mut self, occasion: Occasion, now: Instant) -> bool {
        let waits = self.rarely.is_some_and(|last| now.duration_since(last) < SLOW_EVERY);
        let is = occasion.is_an_end() || occasion == Occasion::Tick && !waits;
        if is {
            self.rarely = Some(now);
        }
        is
    }
}
