//! Back-off for reading a process's address map again after a read without result.

use std::time::{Duration, Instant};

/// Wait after a read without result: a multiple of its duration, with a minimum that doubles after each such
/// read, and a maximum.
const SHARE: u32 = 50;
pub(super) const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(10);

/// Reads of a process's map for an address that was not in it either. Stacks of code without frame pointers
/// are full of such addresses. Without a back-off, the map of a compiler with 170 mappings was read 2,500
/// times after a run of a second.
#[derive(Debug, Default)]
pub(super) struct Vain {
    /// Number of such reads in a row.
    readings: u32,
    /// Time before which no other read follows.
    until: Option<Instant>,
    /// Reason reported for the last address.
    pub(super) why: &'static str,
}

impl Vain {
    /// Adds a read without result that took `took`.
    pub(super) fn add(&mut self, took: Duration) {
        let wait = LEAST.saturating_mul(1 << self.readings.min(16)).max(took * SHARE);
        self.readings += 1;
        self.until = Some(Instant::now() + wait.min(MOST));
    }

    /// Returns whether it is too early for another read.
    pub(super) fn waits(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}
