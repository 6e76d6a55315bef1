//! Selection of the stacks of blocking tasks. There may be a million waits a second, so most are left out,
//! and the stacks that are taken stand for the others.
//!
//! The decision to take a stack is made when its task leaves the CPU, by the length of its previous waits:
//! with a probability of 2^-k, where k is not below 0 and falls with that length. So long waits are all
//! taken. A wait's time multiplied by 2^k is unbiased for any distribution of waits (Horvitz and Thompson,
//! JASA 47, 1952): the probability never depends on the wait itself.
//!
//! Taking a stack costs some microseconds. If the task that wakes it up has to wait for the same CPU during
//! that time, the wait is longer by that, and it is subtracted. For two tasks that take turns on one CPU
//! every 3 µs it would be most of the wait.

use crate::{count::TaskState, histogram::exponent_of, wire};

/// Length of a window in ns, as a power of two: 134 ms.
const WINDOW_BITS: u32 = 27;
/// Stacks that a CPU takes in a window before it lowers its rate.
pub const TAKEN_MAX: u32 = 32;
/// Largest value of k.
pub const THINNING_MAX: u32 = 24;
/// Estimated length of a wait without history, in ns, as a power of two: 1 ms.
const FIRST_GUESS: u32 = 20;

/// Bits of [`TaskState::blocking`] for the estimated length of its waits, in ns, as a power of two, plus one;
/// 0 if nothing is known.
const GUESS: u32 = 0xff;
/// [`TaskState::blocking`]: the stack of the present wait was taken.
const TAKEN: u32 = 1 << 8;
/// [`TaskState::blocking`]: the waker could not run while the task's stack was taken.
const WAITED_FOR: u32 = 1 << 9;
/// Bits of [`TaskState::blocking`] for the time that taking the stack took, and their unit in ns.
const TAKING_BIT: u32 = 10;
const TAKING_UNIT_BITS: u32 = 4;
const TAKING_MAX: u64 = u32::MAX as u64 >> TAKING_BIT;

wire! {
    /// Rate at which a CPU takes stacks of blocking tasks. Written only by programs that run with interrupts
    /// off on that CPU.
    pub struct Pace {
        /// Time when its window began (CLOCK_MONOTONIC, ns).
        pub since_ns: u64,
        /// Number of stacks taken in that window.
        pub taken: u32,
        /// Length from which on all waits are taken, in ns, as a power of two.
        pub level: u32,
    }
}

impl Pace {
    /// Returns k of a wait that begins at `now_ns` and is estimated at 2^`guess` ns.
    #[must_use]
    #[inline(always)]
    pub const fn thinning(&mut self, guess: u32, now_ns: u64) -> u32 {
        let windows = now_ns.wrapping_sub(self.since_ns) >> WINDOW_BITS;
        if windows != 0 {
            if (self.taken as u64) < windows.wrapping_mul(TAKEN_MAX as u64 / 2) {
                self.level = if (self.level as u64) > windows { self.level - windows as u32 } else { 0 };
            }
            self.taken = 0;
            self.since_ns = now_ns;
        }
        let above = self.level.saturating_sub(guess);
        if above < THINNING_MAX { above } else { THINNING_MAX }
    }

    /// Counts a stack that was taken at `now_ns`.
    #[inline(always)]
    pub const fn took(&mut self, now_ns: u64) {
        self.taken += 1;
        if self.taken >= TAKEN_MAX {
            // Nothing waits for 2^64 ns.
            self.level = if self.level < 63 + THINNING_MAX { self.level + 1 } else { self.level };
            self.taken = 0;
            self.since_ns = now_ns;
        }
    }
}

/// Returns whether a stack is taken. `random` is 32 random bits.
#[must_use]
#[inline(always)]
pub const fn is_taken(thinning: u32, random: u32) -> bool {
    random & ((1 << (thinning & 31)) - 1) == 0
}

impl TaskState {
    /// Returns the estimated length of the task's next wait in ns, as a power of two.
    #[must_use]
    #[inline(always)]
    pub const fn guess(&self) -> u32 {
        match self.blocking & GUESS {
            0 => FIRST_GUESS,
            guess => guess - 1,
        }
    }

    /// Records that the task blocks without its stack being taken.
    #[inline(always)]
    pub const fn block(&mut self) {
        self.blocking &= GUESS;
    }

    /// Records that the task blocks, and that taking its stack took `taking_ns`.
    #[inline(always)]
    pub const fn block_with_stack(&mut self, taking_ns: u64) {
        let units = taking_ns >> TAKING_UNIT_BITS;
        let units = if units < TAKING_MAX { units } else { TAKING_MAX };
        self.blocking = self.blocking & GUESS | TAKEN | (units as u32) << TAKING_BIT;
    }

    /// Returns whether the stack of the present wait was taken.
    #[must_use]
    #[inline(always)]
    pub const fn has_stack(&self) -> bool {
        self.blocking & TAKEN != 0
    }

    /// Records that the waker runs on the CPU that took the stack.
    #[inline(always)]
    pub const fn wake_on_its_cpu(&mut self) {
        self.blocking |= WAITED_FOR;
    }

    /// Ends a wait of `blocked_ns`. Returns its length in ns without the time that taking the stack added, if
    /// its stack was taken. The next estimate is the length of this wait, and at least half of the last
    /// estimate.
    #[inline(always)]
    pub const fn unblock(&mut self, blocked_ns: u64) -> Option<u64> {
        let taking_ns = if self.blocking & WAITED_FOR != 0 {
            ((self.blocking >> TAKING_BIT) as u64) << TAKING_UNIT_BITS
        } else {
            0
        };
        let blocked_ns = blocked_ns.saturating_sub(taking_ns);
        let (last, half) = (exponent_of(blocked_ns | 1), self.guess().saturating_sub(1));
        let taken = self.has_stack();
        self.blocking = 1 + if last > half { last } else { half };
        if taken { Some(blocked_ns) } else { None }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{Pace, THINNING_MAX, WINDOW_BITS, is_taken};
    use crate::count::TaskState;

    /// Random number generator (Steele, Lea and Flood's SplitMix).
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }
    }

    /// Simulates a second of waits of several tasks, one after the other on one CPU. Returns the number of
    /// stacks taken, and the ratio of the time that they stand for to the time that the waits took.
    fn taken(tasks: &[(u64, u64)], seed: u64) -> (u64, f64) {
        let (mut pace, mut random, mut now_ns) = (Pace::ZERO, Random(seed), 1_000);
        let mut states: std::vec::Vec<TaskState> = tasks.iter().map(|_| TaskState::ZERO).collect();
        let (mut count, mut estimate, mut truth) = (0_u64, 0.0, 0.0);
        while now_ns < 1_000_000_000 {
            for (state, &(short_ns, long_ns)) in states.iter_mut().zip(tasks) {
                let thinning = pace.thinning(state.guess(), now_ns);
                let is = is_taken(thinning, random.next() as u32);
                state.block();
                if is {
                    state.block_with_stack(5_000);
                    pace.took(now_ns);
                }
                let wait_ns = if random.next().is_multiple_of(16) { long_ns } else { short_ns };
                assert_eq!(state.unblock(wait_ns), is.then_some(wait_ns));
                truth += wait_ns as f64;
                if is {
                    count += 1;
                    estimate += wait_ns as f64 * f64::from(1_u32 << thinning);
                }
                // The tasks wait at the same time.
                now_ns += 3_000;
            }
        }
        (count, estimate / truth)
    }

    #[test]
    fn times_are_right_on_average_and_stacks_are_few() {
        // Waits of a lock and of a timer, of two tasks with both long and short waits, and of one that
        // sleeps.
        let tasks = [(2_000, 3_000), (100_000, 120_000), (5_000, 9_000_000), (50_000_000, 50_000_000)];
        let runs: std::vec::Vec<(u64, f64)> = (0..200).map(|seed| taken(&tasks, seed)).collect();
        let mean = runs.iter().map(|(_, ratio)| ratio).sum::<f64>() / runs.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        let most = runs.iter().map(|(count, _)| *count).max().unwrap();
        assert!((100..2_000).contains(&most), "{most} of 333,000 waits");
    }

    #[test]
    fn what_waits_long_is_always_taken_beside_what_waits_often() {
        let (mut pace, mut now_ns) = (Pace::ZERO, 0);
        for _ in 0..100_000 {
            now_ns += 2_000;
            let thinning = pace.thinning(12, now_ns);
            if is_taken(thinning, now_ns as u32 / 2_000) {
                pace.took(now_ns);
            }
        }
        assert!((13..30).contains(&pace.level), "{}", pace.level);
        assert_eq!(pace.thinning(30, now_ns), 0);
        assert!(pace.thinning(12, now_ns) > 0);
        // A long quiet time clears the history.
        assert_eq!(pace.thinning(0, now_ns + (60 << WINDOW_BITS)), 0);
        pace.level = u32::MAX;
        assert_eq!(pace.thinning(0, now_ns + (60 << WINDOW_BITS)), THINNING_MAX);
    }

    #[test]
    fn a_task_is_guessed_to_wait_as_it_did() {
        let mut state = TaskState::ZERO;
        assert_eq!(state.guess(), 20);
        state.block_with_stack(0);
        assert_eq!(state.unblock(1 << 30), Some(1 << 30));
        assert_eq!(state.guess(), 30);
        state.block();
        assert_eq!(state.unblock(0), None);
        assert_eq!(state.guess(), 29, "a short wait may have been an exception");
        (0..40).for_each(|_| assert_eq!(state.unblock(1_500), None));
        assert_eq!(state.guess(), 10);
        assert_eq!(state.unblock(u64::MAX), None);
        assert_eq!(state.guess(), 63);
    }

    #[test]
    fn what_taking_a_stack_added_to_a_wait_is_no_part_of_it() {
        let wait = |taking_ns, woken_there, blocked_ns| {
            let mut state = TaskState::ZERO;
            state.block_with_stack(taking_ns);
            if woken_there {
                state.wake_on_its_cpu();
            }
            state.unblock(blocked_ns)
        };
        assert_eq!(wait(8_000, true, 11_000), Some(3_000));
        assert_eq!(wait(8_000, false, 11_000), Some(11_000));
        assert_eq!(wait(8_000, true, 5_000), Some(0));
        assert_eq!(wait(u64::MAX, true, 1 << 40), Some((1 << 40) - (((1 << 22) - 1) << 4)));
    }
}
