//! Time of the symbolizer process for deadlines. Time in which the process runs counts, and so does time in
//! which it is blocked, as by a page of a file that does not arrive. Time in which it waits for a CPU does
//! not count, nor does that of the requesting thread. A busy host delays names, but does not lose them. A
//! limit of wall time remains.

use std::{
    fs, io,
    time::{Duration, Instant},
};

use crate::machine::own_process::{LOOK, is_runnable};

/// Part of the time waiting for a CPU that is granted in addition: the process found its caches cold, and
/// shared its core.
const LONGER: u32 = 4;

/// Longest wait for an answer of a process that gets no CPU.
const WALL: Duration = Duration::from_secs(60);

/// Time at which an answer is given up.
#[derive(Clone, Copy, Debug)]
pub(in crate::symbol) struct Deadline {
    /// By the clock that stops while the process waits for a CPU ([`Clock::now`]).
    own: Instant,
    /// By the clock that never stops.
    wall: Instant,
}

impl Deadline {
    /// Returns the earlier one on both clocks.
    pub(in crate::symbol) fn min(self, other: Self) -> Self {
        Self { own: self.own.min(other.own), wall: self.wall.min(other.wall) }
    }

    /// Returns a deadline no later than this by the clock that never stops.
    pub(in crate::symbol) fn not_after(self, wall: Instant) -> Self {
        Self { wall: self.wall.min(wall), ..self }
    }

    /// Returns the time left by the clock that never stops. Returns an error if nothing is left.
    pub(super) fn left(self) -> io::Result<Duration> {
        match self.wall.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

/// Clock that stops while the process, or the requesting thread, waits for a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::symbol) struct Clock {
    /// Time that the process has waited, plus the addition for it.
    waited: Duration,
}

impl Clock {
    /// Returns the time of the clock.
    pub(in crate::symbol) fn now(self) -> Instant {
        let now = Instant::now();
        now.checked_sub(self.waited + Scheduled::of_thread().delay).unwrap_or(now)
    }

    /// Returns the deadline after `time` on this clock.
    pub(in crate::symbol) fn within(self, time: Duration) -> Deadline {
        Deadline { own: self.now() + time, wall: Instant::now() + WALL }
    }

    /// Returns whether the deadline is over.
    pub(in crate::symbol) fn is_over(self, deadline: Deadline) -> bool {
        self.now() >= deadline.own || Instant::now() >= deadline.wall
    }

    /// Returns the time left until the deadline.
    pub(in crate::symbol) fn left(self, deadline: Deadline) -> Duration {
        deadline.own.saturating_duration_since(self.now())
    }
}

/// Scheduler account of a process or thread (`/proc/PID/schedstat`, Documentation/scheduler/sched-stats.rst).
/// 0 where there is none.
#[derive(Clone, Copy, Debug, Default)]
struct Scheduled {
    ran: Duration,
    /// Time in which it waited for a CPU, until it last got one.
    delay: Duration,
}

impl Scheduled {
    fn read(path: &str) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut fields = text.split_ascii_whitespace();
        let mut next = || Duration::from_nanos(fields.next().and_then(|ns| ns.parse().ok()).unwrap_or(0));
        Self { ran: next(), delay: next() }
    }

    fn of_thread() -> Self {
        Self::read("/proc/thread-self/schedstat")
    }

    fn of_process(process: u32) -> Self {
        Self::read(&format!("/proc/{process}/schedstat"))
    }
}

/// A process during a request.
#[derive(Debug)]
pub(super) struct Watched {
    process: u32,
    clock: Clock,
    begun: Instant,
    before: Scheduled,
    delay_before: Duration,
    /// Time in which it was neither on a CPU nor waiting for one, as far as polls found.
    blocked: Duration,
}

impl Watched {
    /// Begins to watch the process.
    pub(super) fn begin(process: u32, clock: Clock) -> Self {
        Self {
            process,
            clock,
            begun: Instant::now(),
            before: Scheduled::of_process(process),
            delay_before: Scheduled::of_thread().delay,
            blocked: Duration::ZERO,
        }
    }

    /// Polls the process. Returns whether the deadline is over.
    pub(super) fn is_over(&mut self, deadline: Deadline) -> bool {
        if !is_runnable(&format!("/proc/{}/stat", self.process)) {
            self.blocked += LOOK;
        }
        self.so_far().is_over(deadline)
    }

    /// Returns the clock while there is no answer yet.
    pub(super) fn so_far(&self) -> Clock {
        let own = Scheduled::of_process(self.process).ran.saturating_sub(self.before.ran) + self.blocked;
        let asking = Scheduled::of_thread().delay.saturating_sub(self.delay_before);
        self.with(self.begun.elapsed().saturating_sub(own).saturating_sub(asking))
    }

    /// Returns the clock after an answer: the process has run since it last waited.
    pub(super) fn answered(&self) -> Clock {
        self.with(Scheduled::of_process(self.process).delay.saturating_sub(self.before.delay))
    }

    fn with(&self, waited: Duration) -> Clock {
        Clock { waited: self.clock.waited + waited + waited / LONGER }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Clock, Deadline, Watched, is_runnable};

    #[test]
    fn the_clock_stands_while_a_process_waits_for_a_cpu_and_goes_on_while_it_is_blocked() {
        let mut sleeps = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let clock = Clock::default();
        let mut watched = Watched::begin(sleeps.id(), clock);
        let deadline = clock.within(Duration::from_millis(200));
        let begun = Instant::now();
        while !watched.is_over(deadline) {
            std::thread::sleep(super::LOOK);
        }
        let took = begun.elapsed();
        sleeps.kill().unwrap();
        sleeps.wait().unwrap();
        assert!(took >= Duration::from_millis(180), "{took:?}");
        // A request without an answer ends at the limit of wall time.
        let past = Deadline { wall: Instant::now(), ..clock.within(Duration::from_secs(9)) };
        assert!(clock.is_over(past) && past.left().is_err());
    }

    #[test]
    fn this_thread_runs_and_a_process_that_is_gone_does_not() {
        assert!(is_runnable("/proc/thread-self/stat"));
        assert!(!is_runnable("/proc/4194305/stat"));
    }
}
