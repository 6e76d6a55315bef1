//! Interrupt handlers: how often and how long each ran on a CPU, without nested handlers, and the tasks that
//! they interrupted.

use crate::wire;

/// Number of handlers with a place on a CPU; a power of two.
pub const HANDLERS: usize = 64;
/// Number of softirqs. They are the first handlers, by their number (include/linux/interrupt.h).
pub const SOFTIRQS: u32 = 10;
/// Handler of the local timer. Here begin the handlers of x86's vectors, which are not of lines
/// (arch/x86/include/asm/trace/irq_vectors.h).
pub const LOCAL_TIMER: u32 = 10;
/// A task on this CPU is to be preempted.
pub const RESCHEDULE: u32 = 11;
/// Another CPU makes several CPUs run a function.
pub const CALL_FUNCTION: u32 = 12;
/// Another CPU makes this one run a function.
pub const CALL_FUNCTION_SINGLE: u32 = 13;
/// Work that an NMI deferred (`irq_work`).
pub const IRQ_WORK: u32 = 14;
/// Lines without a place, together.
pub const OTHER_LINES: u32 = 15;
/// First place of the lines, which take any free place from here on. As many places as lie before.
pub const LINES: u32 = HANDLERS as u32 / 2;
/// Places where a line may lie.
pub const WAYS: u32 = 8;
/// Levels on which the first handler that is not a softirq is searched: only a softirq can be below it.
const HARD_LEVELS: u64 = 2;
/// Handlers that may interrupt each other; a power of two.
pub const DEPTH: usize = 8;

wire! {
    /// One handler on one CPU.
    pub struct Handler {
        /// Number of the line plus 1; 0 while the place is free, and for all other handlers.
        pub line: u64,
        /// Number of completed runs.
        pub runs: u64,
        /// Sum of their times in ns, without nested handlers.
        pub total_ns: u64,
        /// Longest run in [`Handler::epoch`], in ns.
        pub max_ns: u64,
        /// [`Interrupts::epoch`] at the last run.
        pub epoch: u64,
        /// Longest run in the previous epoch with a run, in ns.
        pub before_max_ns: u64,
        /// Number of that previous epoch.
        pub before_epoch: u64,
        /// Keeps a handler in a separate cache line.
        pub reserved: u64,
    }

    /// Handler that is running.
    pub struct Open {
        /// Place of the handler.
        pub handler: u64,
        /// Time of its start (CLOCK_MONOTONIC, ns).
        pub began_ns: u64,
        /// Time of handlers that interrupted it, in ns.
        pub inner_ns: u64,
    }

    /// One row of the map `INTERRUPTS`. Written only by programs on that CPU. One may interrupt another, and
    /// then ends before the interrupted one continues.
    pub struct Interrupts {
        /// Set by user space: a different number for each interval. The longest runs are reported by
        /// interval.
        pub epoch: u64,
        /// Number of running handlers, each interrupted by the next.
        pub depth: u64,
        /// Ends of handlers that did not match the last start.
        pub missed: u64,
        /// Time of handlers that interrupted the idle task, in ns.
        pub of_idle_ns: u64,
        /// Time of handlers that interrupted a task that does not count for any owner.
        pub of_others_ns: u64,
        /// Place of the longest run of a handler that is not a softirq since the last tick.
        pub hard_handler: u64,
        /// Time when that run began.
        pub hard_began_ns: u64,
        /// Time when that run ended; 0 if there was none.
        pub hard_ended_ns: u64,
        /// Ticks that were late because such a handler had the CPU.
        pub late_ticks: u64,
        /// Tick instants in those spans ([`crate::gap::tick_instants`]).
        pub late_instants: u64,
        /// Keeps the following fields in separate cache lines.
        pub reserved: [u64; 6],
        /// Running handlers, the outermost first.
        pub open: [Open; DEPTH],
        /// All handlers of the CPU.
        pub handlers: [Handler; HANDLERS],
    }

    /// Time of handlers that interrupted tasks of one owner on one CPU, in ns. It is part of their CPU time
    /// unless the kernel excludes it (CONFIG_IRQ_TIME_ACCOUNTING).
    pub struct Interrupted {
        /// Time of handlers of lines and vectors.
        pub hard_ns: u64,
        /// Time of softirqs. Those that `ksoftirqd` runs count for `ksoftirqd`.
        pub soft_ns: u64,
        /// Keeps rows of two CPUs in different cache lines.
        pub reserved: [u64; 6],
    }
}

/// Word of an [`Interrupts`] row that user space writes.
pub const EPOCH_WORD: usize = 0;
/// Word that user space writes, too, when no program that does is left.
pub const DEPTH_WORD: usize = core::mem::offset_of!(Interrupts, depth) / 8;

const _: () = assert!(core::mem::offset_of!(Interrupts, epoch) == EPOCH_WORD * 8);
const _: () = assert!(size_of::<Interrupts>().is_multiple_of(64) && size_of::<Interrupted>() == 64);
const _: () = assert!(HANDLERS.is_power_of_two() && DEPTH.is_power_of_two());

/// Returns whether a handler is a softirq.
#[must_use]
#[inline(always)]
pub const fn is_softirq(handler: u32) -> bool {
    handler < SOFTIRQS
}

impl Handler {
    /// Counts a run that took `ns`.
    #[inline(always)]
    pub const fn add(&mut self, ns: u64, epoch: u64) {
        self.runs += 1;
        self.total_ns = self.total_ns.wrapping_add(ns);
        if self.epoch != epoch {
            self.before_epoch = self.epoch;
            self.before_max_ns = self.max_ns;
            self.epoch = epoch;
            self.max_ns = ns;
        } else if ns > self.max_ns {
            self.max_ns = ns;
        }
    }

    /// Returns the longest run in an epoch; 0 if none ended there.
    #[must_use]
    pub const fn longest_ns(&self, epoch: u64) -> u64 {
        if self.epoch == epoch {
            self.max_ns
        } else if self.before_epoch == epoch {
            self.before_max_ns
        } else {
            0
        }
    }
}

impl Interrupts {
    /// Returns whether this is the place of the handler of a line. A new line takes it if it is free. The
    /// first of [`WAYS`] places is the number modulo [`LINES`], and the others follow.
    #[inline(always)]
    pub fn is_line_at(&mut self, place: usize, number: u32) -> bool {
        let key = u64::from(number) + 1;
        let handler = &mut self.handlers[place];
        if handler.line == 0 {
            handler.line = key;
        }
        handler.line == key
    }

    /// Adds a running handler and returns its level, 0 for the outermost. Written before all other fields: a
    /// handler that interrupts its writer there takes the next level.
    #[inline(always)]
    pub const fn deepen(&mut self) -> u64 {
        self.depth += 1;
        self.depth - 1
    }

    /// Returns the innermost running handler and its level, or `None` if none began since the programs were
    /// attached. Read it before [`Interrupts::depth`] is set to that level: a handler that interrupts its
    /// reader after that takes its place. `place` returns a level modulo [`DEPTH`], with a bound that the
    /// verifier accepts.
    #[inline(always)]
    pub fn innermost(&self, place: impl Fn(u64) -> usize) -> Option<(u64, Open)> {
        let level = self.depth.checked_sub(1)?;
        Some((level, self.open[place(level)]))
    }

    /// Begins a handler at a level. The time of one that is too deep counts for the one below.
    #[inline(always)]
    pub fn begin(&mut self, level: u64, handler: u32, now_ns: u64) {
        if level < DEPTH as u64 {
            let open = &mut self.open[level as usize & (DEPTH - 1)];
            open.handler = u64::from(handler);
            open.began_ns = now_ns;
            open.inner_ns = 0;
        }
    }

    /// Returns the handler, plus 1, that had this CPU at a moment and is not a softirq; 0 if none is known.
    /// Softirqs run with interrupts enabled.
    #[inline(always)]
    pub fn hard_at(&self, at_ns: u64) -> u32 {
        let mut level = 0;
        while level < HARD_LEVELS && level < self.depth {
            let open = &self.open[level as usize & (DEPTH - 1)];
            if !is_softirq(open.handler as u32) {
                if open.began_ns <= at_ns {
                    return open.handler as u32 + 1;
                }
                break;
            }
            level += 1;
        }
        if self.hard_began_ns <= at_ns && at_ns <= self.hard_ended_ns {
            self.hard_handler as u32 + 1
        } else {
            0
        }
    }

    /// Handles a tick: runs that ended before it cannot delay later ones.
    #[inline(always)]
    pub const fn tick(&mut self) {
        self.hard_began_ns = 0;
        self.hard_ended_ns = 0;
    }

    /// Keeps the run of a handler that is not a softirq, unless one since the last tick was longer.
    #[inline(always)]
    fn keep_hard(&mut self, handler: u32, began_ns: u64, ended_ns: u64) {
        if ended_ns.saturating_sub(began_ns) > self.hard_ended_ns.saturating_sub(self.hard_began_ns) {
            self.hard_handler = u64::from(handler);
            self.hard_began_ns = began_ns;
            self.hard_ended_ns = ended_ns;
        }
    }

    /// Ends the handler that is `open` at a level. Returns its time without nested handlers, in ns, or `None`
    /// if another handler began there or it was too deep. `place`: as for [`Interrupts::innermost`].
    #[inline(always)]
    pub fn end(
        &mut self,
        (level, open): (u64, Open),
        place: impl Fn(u64) -> usize,
        handler: u32,
        now_ns: u64,
    ) -> Option<u64> {
        if level >= DEPTH as u64 {
            return None;
        }
        if open.handler != u64::from(handler) {
            self.depth = 0;
            self.missed += 1;
            return None;
        }
        // The NMI-safe clock steps back by some ns where the time is adjusted (ktime_get_mono_fast_ns).
        let whole_ns = now_ns.saturating_sub(open.began_ns);
        let own_ns = whole_ns.saturating_sub(open.inner_ns);
        if level > 0 {
            let below = &mut self.open[place(level - 1)];
            below.inner_ns = below.inner_ns.wrapping_add(whole_ns);
        }
        if !is_softirq(handler) {
            self.keep_hard(handler, open.began_ns, now_ns);
        }
        let epoch = self.epoch;
        self.handlers[handler as usize & (HANDLERS - 1)].add(own_ns, epoch);
        Some(own_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::{DEPTH, Handler, Interrupts, LINES, LOCAL_TIMER, OTHER_LINES, WAYS};

    fn enter(row: &mut Interrupts, handler: u32, now_ns: u64) {
        let level = row.deepen();
        row.begin(level, handler, now_ns);
    }

    fn leave(row: &mut Interrupts, handler: u32, now_ns: u64) -> Option<u64> {
        let place = |level| level as usize % DEPTH;
        let innermost = row.innermost(place)?;
        row.depth = innermost.0;
        row.end(innermost, place, handler, now_ns)
    }

    fn line(row: &mut Interrupts, number: u32) -> u32 {
        let places = (0..WAYS).map(|way| LINES + (number + way) % LINES);
        let mut places = places.filter(|&place| row.is_line_at(place as usize, number));
        places.next().unwrap_or(OTHER_LINES)
    }

    #[test]
    fn a_handler_has_its_own_time_and_not_that_of_those_that_interrupt_it() {
        let mut row = Interrupts::ZERO;
        enter(&mut row, 3, 100);
        enter(&mut row, LOCAL_TIMER, 150);
        enter(&mut row, 20, 160);
        assert_eq!(leave(&mut row, 20, 170), Some(10));
        assert_eq!(leave(&mut row, LOCAL_TIMER, 180), Some(20));
        enter(&mut row, LOCAL_TIMER, 190);
        assert_eq!(leave(&mut row, LOCAL_TIMER, 195), Some(5));
        assert_eq!(leave(&mut row, 3, 200), Some(100 - 30 - 5));
        assert_eq!((row.depth, row.missed), (0, 0));
        let timer = row.handlers[LOCAL_TIMER as usize];
        assert_eq!((timer.runs, timer.total_ns, timer.max_ns), (2, 25, 20));
    }

    #[test]
    fn what_began_before_anybody_looked_is_not_counted_and_one_lost_end_costs_one_handler() {
        let mut row = Interrupts::ZERO;
        assert_eq!(leave(&mut row, 3, 100), None);
        assert_eq!((row.depth, row.missed), (0, 0));
        enter(&mut row, 3, 100);
        enter(&mut row, LOCAL_TIMER, 110);
        // The end of the timer's handler never came.
        assert_eq!(leave(&mut row, 3, 200), None);
        assert_eq!((row.depth, row.missed), (0, 1));
        enter(&mut row, 3, 300);
        assert_eq!(leave(&mut row, 3, 310), Some(10));
    }

    #[test]
    fn a_clock_that_steps_back_makes_no_run_of_centuries() {
        let mut row = Interrupts::ZERO;
        enter(&mut row, 3, 100);
        assert_eq!(leave(&mut row, 3, 98), Some(0));
        assert_eq!((row.handlers[3].total_ns, row.handlers[3].max_ns), (0, 0));
    }

    #[test]
    fn handlers_that_are_too_deep_are_in_the_time_of_those_below() {
        let mut row = Interrupts::ZERO;
        (0..DEPTH as u64 + 2).for_each(|level| enter(&mut row, 3, level));
        assert_eq!([leave(&mut row, 3, 100), leave(&mut row, 3, 100)], [None; 2]);
        assert_eq!(leave(&mut row, 3, 100), Some(100 - (DEPTH as u64 - 1)));
        (1..DEPTH).for_each(|_| assert!(leave(&mut row, 3, 200).is_some()));
        assert_eq!(row.depth, 0);
    }

    #[test]
    fn the_handler_that_had_the_cpu_at_a_moment_runs_still_or_was_the_longest_since_the_last_tick() {
        let mut row = Interrupts::ZERO;
        assert_eq!(row.hard_at(50), 0);
        enter(&mut row, 3, 100);
        enter(&mut row, 20, 150);
        assert_eq!([row.hard_at(140), row.hard_at(160)], [0, 21], "a softirq below lets interrupts in");
        leave(&mut row, 20, 180);
        enter(&mut row, 21, 190);
        leave(&mut row, 21, 195);
        assert_eq!([row.hard_at(149), row.hard_at(170), row.hard_at(192)], [0, 21, 0]);
        leave(&mut row, 3, 200);
        row.tick();
        assert_eq!(row.hard_at(170), 0);
        enter(&mut row, LOCAL_TIMER, 300);
        assert_eq!(row.hard_at(299), 0, "it came for the tick itself");
        assert_eq!(row.hard_at(301), LOCAL_TIMER + 1);
    }

    #[test]
    fn lines_find_room_and_the_last_ones_share_it() {
        let mut row = Interrupts::ZERO;
        let first = line(&mut row, 7);
        assert!(first >= LINES);
        assert_eq!(line(&mut row, 7), first, "it stays where it is");
        // Numbers that begin at the same place.
        let step = LINES;
        for turn in 1..WAYS {
            let place = line(&mut row, 7 + turn * step);
            assert!(place >= LINES && place != first);
        }
        assert_eq!(line(&mut row, 7 + WAYS * step), OTHER_LINES);
    }

    #[test]
    fn the_longest_run_is_told_of_an_epoch() {
        let mut handler = Handler::ZERO;
        handler.add(5, 1);
        handler.add(9, 1);
        handler.add(2, 2);
        assert_eq!([1, 2, 3].map(|epoch| handler.longest_ns(epoch)), [9, 2, 0]);
        handler.add(4, 7);
        assert_eq!([1, 2, 7].map(|epoch| handler.longest_ns(epoch)), [0, 2, 4]);
    }
}
