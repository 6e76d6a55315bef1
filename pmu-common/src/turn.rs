//! Counters per owner: the events that are read on a CPU, and the contents of an owner's row of a slice.
//!
//! A row has *places*, in the order of the events: those that always count, then those of the group in force.
//! A group takes one place for its running time, and one for each event. An event's descriptor lies in the
//! map `COUNTERS` at the same place, counted from the first one of its CPU. Descriptors of a group in force
//! are shifted by the group's offset.

use crate::wire;

/// Number of places of a row.
pub const PLACES: usize = 28;

/// [`Turn::heads`], [`Slice::next`]: no slot.
pub const NO_SLOT: u64 = u64::MAX;

wire! {
    /// One row of the map `TURNS`, by CPU. Words that user space sets are read only by `flush`, which it runs
    /// next. All other words are written with interrupts off on that CPU.
    pub struct Turn {
        /// Set by user space: slice to begin at the next flush; slices are numbered from 1.
        pub wanted_slice: u64,
        /// Set by user space: offset of the events of places from [`Turn::always`] on.
        pub wanted_shift: u64,
        /// Set by user space: places of running times, one bit each. A group's leader counts in the place
        /// that follows.
        pub wanted_leaders: u64,
        /// Set by user space: places of the other events.
        pub wanted_members: u64,
        /// Set by user space, once: number of places of groups that always count.
        pub always: u64,
        /// Slice in force, 0 while there is none.
        pub slice: u64,
        /// Value wanted when the slice began.
        pub shift: u64,
        /// Value wanted when the slice began.
        pub leaders: u64,
        /// Value wanted when the slice began.
        pub members: u64,
        /// Last slot to enter the slice of this parity; [`NO_SLOT`] if none did.
        pub heads: [u64; 2],
        /// Enabled time of the first group when it was last read, in ns.
        pub enabled_ns: u64,
        /// Time of that reading (CLOCK_MONOTONIC).
        pub read_ns: u64,
        /// Last reading of each place.
        pub last: [u64; PLACES],
        /// Keeps a row at whole cache lines.
        pub reserved: [u64; 7],
    }

    /// One row of the map `SLICES`, by slot, CPU, and the slice's parity. Slot
    /// [`crate::config::Config::slots`], one beyond the last, takes unowned counts. A row of another slice
    /// counts as zero.
    pub struct Slice {
        /// Slice that the row belongs to.
        pub slice: u64,
        /// Next slot that was used in the slice on this CPU.
        pub next: u64,
        /// Time that the owner ran, by the clock of the first group, in ns.
        pub time_ns: u64,
        /// Keeps the places together.
        pub reserved: u64,
        /// Sum of each place.
        pub places: [u64; PLACES],
    }
}

const _: () = assert!(size_of::<Turn>().is_multiple_of(64), "rows of two CPUs must not share a cache line");
const _: () = assert!(size_of::<Slice>().is_multiple_of(64), "rows of two CPUs must not share a cache line");

impl Turn {
    /// Applies the wanted values. Returns the first place to read without accounting its count.
    #[inline(always)]
    pub const fn begin(&mut self) -> usize {
        // Events that always count continue from their last reading: no count is lost between two slices.
        let from = if self.slice == 0 { 0 } else { self.always as usize };
        self.slice = self.wanted_slice;
        self.shift = self.wanted_shift;
        self.leaders = self.wanted_leaders;
        self.members = self.wanted_members;
        self.heads[(self.slice & 1) as usize] = NO_SLOT;
        from
    }

    /// Returns the time since the first group was last read, in ns, and restarts it. By the group's clock,
    /// which its running time is compared with. By CLOCK_MONOTONIC while it has never run: before Linux 5.17
    /// such a group's enabled time has a different origin (kernel/events/core.c, `calc_timer_values`).
    #[inline(always)]
    pub const fn time_since(&mut self, enabled_ns: u64, now_ns: u64) -> u64 {
        let by_group_ns = enabled_ns.wrapping_sub(self.enabled_ns);
        let by_us_ns = now_ns.wrapping_sub(self.read_ns);
        self.enabled_ns = enabled_ns;
        self.read_ns = now_ns;
        if self.last[0] == 0 { by_us_ns } else { by_group_ns }
    }

    /// Returns the same by CLOCK_MONOTONIC, where the group could not be read. It is no longer enabled, so
    /// its clock stands.
    #[inline(always)]
    pub const fn time_unread(&mut self, now_ns: u64) -> u64 {
        since(&mut self.read_ns, now_ns)
    }
}

impl Slice {
    /// Makes the row one of `slice`. Returns the bits to keep of its places: all, or none if they are of
    /// another slice.
    #[inline(always)]
    pub const fn enter(&mut self, slice: u64) -> u64 {
        if self.slice == slice {
            return u64::MAX;
        }
        self.slice = slice;
        self.time_ns = 0;
        0
    }
}

/// Returns the difference of a counter's readings and keeps the new one. Counters only grow, and a wrap is
/// harmless.
#[must_use]
#[inline(always)]
pub const fn since(last: &mut u64, now: u64) -> u64 {
    let difference = now.wrapping_sub(*last);
    *last = now;
    difference
}

#[cfg(test)]
mod tests {
    use super::{NO_SLOT, Slice, Turn, since};

    #[test]
    fn a_difference_survives_the_wrap() {
        let mut last = u64::MAX - 4;
        assert_eq!((since(&mut last, 5), last), (10, 5));
    }

    #[test]
    fn what_always_counts_is_not_read_anew_when_a_slice_begins() {
        let mut turn = Turn { wanted_slice: 1, always: 3, ..Turn::ZERO };
        assert_eq!(turn.begin(), 0);
        turn.wanted_slice = 2;
        assert_eq!((turn.begin(), turn.slice, turn.heads), (3, 2, [NO_SLOT, NO_SLOT]));
    }

    #[test]
    fn time_is_the_group_s_own_once_it_has_run() {
        let mut turn = Turn { enabled_ns: 100, read_ns: 1_000, ..Turn::ZERO };
        assert_eq!(turn.time_since(90, 1_050), 50);
        turn.last[0] = 1;
        assert_eq!(turn.time_since(130, 1_091), 40);
    }

    #[test]
    fn time_goes_on_by_our_clock_while_the_group_cannot_be_read() {
        let mut turn = Turn { enabled_ns: 100, read_ns: 1_000, ..Turn::ZERO };
        turn.last[0] = 1;
        assert_eq!((turn.time_unread(1_030), turn.time_since(120, 1_060)), (30, 20));
    }

    #[test]
    fn a_row_of_another_slice_counts_as_zero() {
        let mut row = Slice { slice: 4, time_ns: 9, ..Slice::ZERO };
        assert_eq!((row.enter(4), row.time_ns), (u64::MAX, 9));
        assert_eq!((row.enter(6), row.time_ns, row.slice), (0, 0, 6));
    }
}
