//! When the address map of a process is read again although the last reading was in vain.

use std::time::{Duration, Instant};

/// How much longer than a reading in vain took is waited before the next, and at least how long after the first, and twice as long after
/// each that follows; at most how long.
const SHARE: u32 = 50;
pub(super) const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(10);

/// Readings of a process's map for an address that was not there, either. Stacks of code without frame pointers are full of such: read for
/// each, the map of a compiler of 170 mappings was read 2,500 times after a run of a second.
#[derive(Debug, Default)]
pub(super) struct Vain {
    /// How many in a row.
    readings: u32,
    /// Until when no other follows.
    until: Option<Instant>,
    /// What was said of the last address.
    pub(super) why: &'static str,
}

impl Vain {
    /// One more, which took so long.
    pub(super) fn add(&mut self, took: Duration) {
        let wait = LEAST.saturating_mul(1 << self.readings.min(16)).max(took * SHARE);
        self.readings += 1;
        self.until = Some(Instant::now() + wait.min(MOST));
    }

    /// Is it too early for another?
    pub(super) fn waits(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}
