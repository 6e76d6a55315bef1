//! Owners that had a CPU while a task waited for it: the last spans of each CPU, and waits charged by victim
//! and culprit.

use crate::{
    count::{SLOT_NONE, SLOT_UNRESOLVED},
    wire,
};

/// Number of spans kept per CPU; a power of two. A wait that began before the first of them is charged as far
/// as they reach. Where processes are very short-lived, a wait of 50 ms contains some hundred spans.
pub const SPANS: usize = 512;
/// Spans that are read in one call.
pub const SPANS_A_CALL: usize = 16;
/// Pairs of a victim and a culprit that have a place on a CPU; a power of two. A charge without a place goes
/// through the ring buffer and a hash table in user space.
pub const CHARGES: usize = 2048;
/// Places where a pair may lie: those of one cache line, then those of another.
pub const WAYS: u32 = 2 * NEAR_WAYS;
/// Places of a cache line, where most pairs have one; a power of two.
pub const NEAR_WAYS: u32 = 4;

/// [`Span::slot`]: the idle task.
pub const CULPRIT_IDLE: u32 = SLOT_UNRESOLVED;
/// [`Span::slot`]: a task that does not count for any owner.
pub const CULPRIT_OUTSIDE: u32 = SLOT_NONE;
/// Culprit in a pair, never in a span: the victim waited for another CPU than the one it got.
pub const CULPRIT_MIGRATED: u32 = SLOT_NONE - 1;

wire! {
    /// Owner that had a CPU from a moment on, until the next span of that CPU began.
    pub struct Span {
        /// Start of the span (CLOCK_MONOTONIC, ns).
        pub from_ns: u64,
        /// Slot of the owner, [`CULPRIT_IDLE`] or [`CULPRIT_OUTSIDE`]; not yet known for the last span.
        pub slot: u64,
    }

    /// Time that tasks of one owner waited for a CPU while another owner had it.
    pub struct Charge {
        /// [`pair`] of the two, 0 while the place is free.
        pub pair: u64,
        /// Wait time in ns.
        pub wait_ns: u64,
    }

    /// One row of the map `CULPRITS`. Written only by programs that run with interrupts off on that CPU. User
    /// space clears the charges of an owner when it frees the slot.
    pub struct Culprits {
        /// Number of spans that began, modulo 2⁶⁴: the last one is at this place, modulo [`SPANS`].
        pub begun: u64,
        /// Keeps the following fields in separate cache lines.
        pub reserved: [u64; 7],
        /// Places that have held a pair, one bit each. Most CPUs use few of them, and user space reads only
        /// these.
        pub used: [u64; CHARGES / 64],
        /// Last spans of the CPU.
        pub spans: [Span; SPANS],
        /// Pairs, each at one of the [`WAYS`] places returned by [`place`].
        pub charges: [Charge; CHARGES],
    }
}

/// Returns the key of a victim and a culprit; never 0.
#[must_use]
#[inline(always)]
pub const fn pair(victim: u32, culprit: u32) -> u64 {
    ((victim as u64 + 1) << 32) | culprit as u64
}

/// Returns the victim's slot and the culprit of a pair, or `None` for a free place.
#[must_use]
pub const fn of_pair(pair: u64) -> Option<(u32, u32)> {
    match (pair >> 32) as u32 {
        0 => None,
        above => Some((above - 1, pair as u32)),
    }
}

/// Returns one of the places of a pair, by way (below [`WAYS`]): an index to be taken modulo [`CHARGES`].
#[must_use]
#[inline(always)]
pub const fn place(pair: u64, way: u32) -> u32 {
    // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4). The two lines use different
    // bits.
    let hash = pair.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let shift = if way < NEAR_WAYS { 48 } else { 32 };
    (hash >> shift) as u32 ^ (way % NEAR_WAYS)
}

const _: () =
    assert!(size_of::<Culprits>().is_multiple_of(64), "rows of two CPUs must not share a cache line");

#[cfg(test)]
mod tests {
    use super::{CHARGES, CULPRIT_IDLE, NEAR_WAYS, WAYS, of_pair, pair, place};

    #[test]
    fn a_pair_tells_victim_and_culprit() {
        for (victim, culprit) in [(0, 0), (7, CULPRIT_IDLE), (u32::MAX - 2, 3)] {
            assert_eq!(of_pair(pair(victim, culprit)), Some((victim, culprit)));
        }
        assert_eq!(of_pair(0), None);
    }

    /// Returns the places of a pair, those of its first line first.
    fn places(of: u64) -> [usize; WAYS as usize] {
        core::array::from_fn(|way| place(of, way as u32) as usize % CHARGES)
    }

    #[test]
    fn the_places_of_a_pair_are_those_of_two_lines() {
        let places = places(pair(3, 9));
        let (near, far) = places.split_at(NEAR_WAYS as usize);
        for line in [near, far] {
            let first = line.iter().min().unwrap();
            assert!(first.is_multiple_of(NEAR_WAYS as usize), "{line:?}");
            assert!((0..NEAR_WAYS as usize).all(|at| line.contains(&(first + at))), "{line:?}");
        }
        assert_ne!(near.iter().min(), far.iter().min());
    }

    #[test]
    fn the_pairs_of_a_thousand_busy_owners_have_places() {
        let mut held = [0_u64; CHARGES];
        let mut without = 0;
        // A ring of owners, each woken by the one before; and each of them behind the root cgroup's.
        let pairs = (1..=1000).flat_map(|owner| [pair(owner, owner - 1), pair(owner, 0)]).take(1500);
        for one in pairs {
            match places(one).into_iter().find(|&at| held[at] == 0) {
                Some(at) => held[at] = one,
                None => without += 1,
            }
        }
        assert!(without <= 15, "{without} of 1500 have none");
    }
}
