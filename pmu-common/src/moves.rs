//! Moves of processes between cgroups. The kernel accounts a running task's CPU time at ticks and switches.
//! The time between two of them is divided here among the cgroups that the task was in.

use crate::wire;

/// Moves that are kept per process; a power of two. A task that keeps running is accounted at every tick, and
/// the accounted span may end up to a tick before. Two ticks of 4 ms are as long as 31 moves a quarter of a
/// millisecond apart.
pub const MOVES_KEPT: usize = 32;

wire! {
    /// Last moves of a process. Written by the mover: the kernel allows one at a time.
    pub struct Moves {
        /// Number of moves so far. Move number n lies at n modulo [`MOVES_KEPT`].
        pub made: u64,
        /// Time of each move (CLOCK_MONOTONIC).
        pub at_ns: [u64; MOVES_KEPT],
        /// Slot of the cgroup that each led to; [`crate::count::SLOT_NONE`] for one that is not wanted.
        pub slots: [u32; MOVES_KEPT],
    }
}

/// Span that a task ran without a break.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Start of the span (CLOCK_MONOTONIC).
    pub start_ns: u64,
    /// Time up to which its CPU time is accounted.
    pub end_ns: u64,
}

impl Ran {
    /// Returns the part of the span between two times.
    #[must_use]
    #[inline(always)]
    pub const fn within(self, from_ns: u64, to_ns: u64) -> u64 {
        let from_ns = if from_ns > self.start_ns { from_ns } else { self.start_ns };
        let to_ns = if to_ns < self.end_ns { to_ns } else { self.end_ns };
        to_ns.saturating_sub(from_ns)
    }
}

/// Result of a walk back through moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// The walk reached a move before the span.
    Whole,
    /// The time before the move of this number is to be charged to the previous cgroup.
    Begins(u64),
    /// The same, but earlier moves may have been within the span: they are not kept.
    Lost(u64),
}

/// Walks back from the last of the `made` moves. `charge` charges the time between each move and the next,
/// and returns whether the move was before the span.
#[inline(always)]
pub fn walk(made: u64, mut charge: impl FnMut(u64) -> bool) -> Walk {
    // The oldest may be overwritten at this moment.
    for back in 1..MOVES_KEPT as u64 {
        if back > made {
            return Walk::Begins(0);
        }
        if charge(made - back) {
            return Walk::Whole;
        }
    }
    let oldest = made.wrapping_sub(MOVES_KEPT as u64 - 1);
    if oldest == 0 { Walk::Begins(0) } else { Walk::Lost(oldest) }
}

/// Returns the time up to which a running task's CPU time is accounted (CLOCK_MONOTONIC). No clock gives it
/// exactly: it is `ran_ns` after `switched_ns`, when the task got the CPU, plus the time that interrupts and
/// the hypervisor took since then. The result is limited to the two bounds, a tick apart.
#[must_use]
#[inline(always)]
pub const fn accounted_until_ns(switched_ns: u64, ran_ns: u64, earliest_ns: u64, latest_ns: u64) -> u64 {
    let until_ns = switched_ns.wrapping_add(ran_ns);
    if until_ns < earliest_ns {
        earliest_ns
    } else if until_ns > latest_ns {
        latest_ns
    } else {
        until_ns
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{vec, vec::Vec};

    use super::{MOVES_KEPT, Ran, Walk, accounted_until_ns, walk};

    /// Returns the charges of each slot, in the order of the walk, and the result of the walk. The present
    /// cgroup is 0 and the previous one is 9. Moves are by time and slot, the oldest first.
    fn charged(start_ns: u64, end_ns: u64, moves: &[(u64, u32)]) -> (Vec<(u32, u64)>, Walk) {
        let ran = Ran { start_ns, end_ns };
        let mut charges = Vec::new();
        let at_ns = |number: usize| moves.get(number).map_or(u64::MAX, |(at_ns, _)| *at_ns);
        let came = walk(moves.len() as u64, |number| {
            let number = number as usize;
            let (slot, is_last) = (moves[number].1, number + 1 == moves.len());
            charges.push((if is_last { 0 } else { slot }, ran.within(at_ns(number), at_ns(number + 1))));
            at_ns(number) <= start_ns
        });
        if let Walk::Begins(number) | Walk::Lost(number) = came {
            let first = if moves.is_empty() { u64::MAX } else { at_ns(number as usize) };
            charges.push((9, ran.within(0, first)));
        }
        charges.retain(|(_, ns)| *ns > 0);
        (charges, came)
    }

    #[test]
    fn what_ran_after_the_last_move_belongs_to_the_present_cgroup() {
        assert_eq!(charged(10, 20, &[(4, 1)]), (vec![(0, 10)], Walk::Whole));
        assert_eq!(charged(10, 20, &[(10, 1)]), (vec![(0, 10)], Walk::Whole));
        assert_eq!(charged(10, 20, &[(17, 1)]), (vec![(0, 3), (9, 7)], Walk::Begins(0)));
    }

    #[test]
    fn each_cgroup_gets_what_ran_in_it() {
        assert_eq!(charged(10, 20, &[(2, 8), (17, 1)]), (vec![(0, 3), (8, 7)], Walk::Whole));
        let moves = [(11, 1), (14, 2), (19, 3)];
        assert_eq!(charged(10, 20, &moves), (vec![(0, 1), (2, 5), (1, 3), (9, 1)], Walk::Begins(0)));
    }

    #[test]
    fn what_is_accounted_late_belongs_to_where_it_ran() {
        // The task is in another cgroup by now.
        assert_eq!(charged(10, 20, &[(25, 1)]), (vec![(9, 10)], Walk::Begins(0)));
        assert_eq!(charged(10, 20, &[(3, 7), (20, 1), (28, 2)]), (vec![(7, 10)], Walk::Whole));
        assert_eq!(charged(10, 20, &[(15, 7), (25, 1)]), (vec![(7, 5), (9, 5)], Walk::Begins(0)));
    }

    #[test]
    fn moves_that_are_not_kept_are_lost() {
        let often: Vec<(u64, u32)> = (0..40).map(|number| (100 + number, 1 + number as u32)).collect();
        let (charges, came) = charged(50, 200, &often);
        assert_eq!(came, Walk::Lost(9));
        assert_eq!(charges.len(), MOVES_KEPT);
        assert_eq!(*charges.last().unwrap(), (9, 59), "up to the first that is kept");
        assert_eq!(charges.iter().map(|(_, ns)| ns).sum::<u64>(), 150);
        assert_eq!(charged(50, 200, &often[..31]).1, Walk::Begins(0));
    }

    #[test]
    fn an_end_is_between_its_bounds() {
        assert_eq!(accounted_until_ns(100, 50, 140, 160), 150);
        assert_eq!(accounted_until_ns(100, 30, 140, 160), 140, "30 of them were stolen");
        assert_eq!(accounted_until_ns(100, 90, 140, 160), 160);
        assert_eq!(accounted_until_ns(100, 0_u64.wrapping_sub(30), 140, 160), 140);
    }
}
