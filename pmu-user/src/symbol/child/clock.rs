//! Time of the symbolizer process as deadlines count it. What it runs and what it is blocked count, as by a page of a file that does not
//! come. Time in which it waits for a CPU does not, nor that of the thread that asks: a busy host takes names later, not away. A limit of
//! wall time remains.

use std::{
    fs, io,
    time::{Duration, Instant},
};

use crate::machine::own_process::{LOOK, is_runnable};

/// Part of the time in which it waited for a CPU that it may run longer: it found its caches cold, and shared its core.
const LONGER: u32 = 4;

/// How long an answer is waited for that a process does not give because it gets no CPU.
const WALL: Duration = Duration::from_secs(60);

/// When an answer is given up.
#[derive(Clone, Copy, Debug)]
pub(in crate::symbol) struct Deadline {
    /// By the clock that stands while the process waits for a CPU ([`Clock::now`]).
    own: Instant,
    /// By the clock that never stands.
    wall: Instant,
}

impl Deadline {
    /// The earlier one of both clocks.
    pub(in crate::symbol) fn min(self, other: Self) -> Self {
        Self { own: self.own.min(other.own), wall: self.wall.min(other.wall) }
    }

    /// No later than this by the clock that never stands.
    pub(in crate::symbol) fn not_after(self, wall: Instant) -> Self {
        Self { wall: self.wall.min(wall), ..self }
    }

    /// What is left by the clock that never stands; an error if that is nothing.
    pub(super) fn left(self) -> io::Result<Duration> {
        match self.wall.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

/// A clock that stands while the process, or the thread that asks it, waits for a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::symbol) struct Clock {
    /// How long the process has waited, and what that gives it.
    waited: Duration,
}

impl Clock {
    /// What it shows.
    pub(in crate::symbol) fn now(self) -> Instant {
        let now = Instant::now();
        now.checked_sub(self.waited + Scheduled::of_thread().delay).unwrap_or(now)
    }

    /// A deadline after so much of its time.
    pub(in crate::symbol) fn within(self, time: Duration) -> Deadline {
        Deadline { own: self.now() + time, wall: Instant::now() + WALL }
    }

    /// Is it over?
    pub(in crate::symbol) fn is_over(self, deadline: Deadline) -> bool {
        self.now() >= deadline.own || Instant::now() >= deadline.wall
    }

    /// What is left until then.
    pub(in crate::symbol) fn left(self, deadline: Deadline) -> Duration {
        deadline.own.saturating_duration_since(self.now())
    }
}

/// What the scheduler accounts to a process or thread (`/proc/PID/schedstat`, Documentation/scheduler/sched-stats.rst); 0 where it does not.
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

/// A process while it is asked.
#[derive(Debug)]
pub(super) struct Watched {
    process: u32,
    clock: Clock,
    begun: Instant,
    before: Scheduled,
    delay_before: Duration,
    /// So long it was neither on a CPU nor waiting for one, as far as looks found.
    blocked: Duration,
}

impl Watched {
    /// From now on.
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

    /// Looks at it. Is the deadline over?
    pub(super) fn is_over(&mut self, deadline: Deadline) -> bool {
        if !is_runnable(&format!("/proc/{}/stat", self.process)) {
            self.blocked += LOOK;
        }
        self.so_far().is_over(deadline)
    }

    /// The clock, as it is while no answer has come.
    pub(super) fn so_far(&self) -> Clock {
        let own = Scheduled::of_process(self.process).ran.saturating_sub(self.before.ran) + self.blocked;
        let asking = Scheduled::of_thread().delay.saturating_sub(self.delay_before);
        self.with(self.begun.elapsed().saturating_sub(own).saturating_sub(asking))
    }

    /// The clock, when it has answered: it has run since it last waited.
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
        // What nothing answers ends at the wall's limit.
        let past = Deadline { wall: Instant::now(), ..clock.within(Duration::from_secs(9)) };
        assert!(clock.is_over(past) && past.left().is_err());
    }

    #[test]
    fn this_thread_runs_and_a_process_that_is_gone_does_not() {
        assert!(is_runnable("/proc/thread-self/stat"));
        assert!(!is_runnable("/proc/4194305/stat"));
    }
}
