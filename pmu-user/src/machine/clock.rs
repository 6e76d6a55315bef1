//! Times of the kernel's clocks in nanoseconds.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// CLOCK_MONOTONIC now, in ns: the clock of the programs and of what the kernel tells.
#[must_use]
pub fn monotonic_ns() -> u64 {
    now_ns(ClockId::Monotonic)
}

/// The time of a clock now, in ns (clock_gettime(2)).
#[must_use]
pub fn now_ns(clock: ClockId) -> u64 {
    nanoseconds(clock_gettime(clock))
}

/// A time of the kernel in ns.
#[must_use]
pub const fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.unsigned_abs())
}

/// A duration in ns; one that is too long for that is the longest.
#[must_use]
pub fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
