//! Part of a wait for a CPU that a limit of CPU time takes, by the clock of a run queue that is throttled at
//! times.

use crate::wire;

wire! {
    /// Time that a run queue has been throttled since the programs were attached (CLOCK_MONOTONIC), where the
    /// kernel keeps no such clock. Written with the run queue locked.
    pub struct Throttled {
        /// Sum of the throttled times that are over, in ns.
        pub ended_ns: u64,
        /// Time since when it is throttled; 0 while it is not.
        pub since_ns: u64,
    }
}

/// Returns the total time that a run queue has been throttled at `now_ns`: `ended_ns` in times that are over,
/// and the rest since `since_ns`. `since_ns` is 0 while it is not throttled.
#[must_use]
#[inline(always)]
pub const fn so_far(ended_ns: u64, since_ns: u64, now_ns: u64) -> u64 {
    if since_ns == 0 || now_ns <= since_ns { ended_ns } else { ended_ns.wrapping_add(now_ns - since_ns) }
}

/// Returns the part of a wait of `wait_ns` that a limit took. The run queue had been throttled for
/// `before_ns` when the wait began and for `ended_ns` when it ended. A freed run queue may read as anything:
/// the result is at most the wait.
#[must_use]
#[inline(always)]
pub const fn of_wait(before_ns: u64, ended_ns: u64, wait_ns: u64) -> u64 {
    if ended_ns <= before_ns {
        return 0;
    }
    let throttled_ns = ended_ns - before_ns;
    if throttled_ns < wait_ns { throttled_ns } else { wait_ns }
}

#[cfg(test)]
mod tests {
    use super::{of_wait, so_far};

    #[test]
    fn a_task_that_comes_while_its_run_queue_is_throttled_is_held_back_for_the_rest_only() {
        // The run queue is throttled from 100 to 180, and the task waits from 160 to 190.
        let before_ns = so_far(40, 100, 160);
        assert_eq!(before_ns, 100);
        assert_eq!(of_wait(before_ns, 40 + 80, 30), 20);
    }

    #[test]
    fn what_is_not_throttled_has_no_open_time() {
        assert_eq!(so_far(40, 0, 160), 40);
        assert_eq!(so_far(40, 170, 160), 40, "a clock that is behind");
    }

    #[test]
    fn a_limit_takes_no_more_than_the_wait_and_no_less_than_nothing() {
        assert_eq!(of_wait(0, 500, 30), 30);
        assert_eq!(of_wait(500, 10, 30), 0);
        assert_eq!(of_wait(10, 10, 30), 0);
    }
}
