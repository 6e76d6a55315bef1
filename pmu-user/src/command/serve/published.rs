//! What is scraped: the last snapshot, and which one anybody has seen. One thread publishes, another answers.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::metric::exposed::Snapshot;

/// Intervals without a snapshot after which counting stands still.
const INTERVALS_MISSED: u32 = 3;

/// The last snapshot, and who has seen what.
#[derive(Debug)]
pub(super) struct Published {
    latest: Mutex<Option<(Arc<Snapshot>, Instant)>>,
    scraped: AtomicU64,
    begun: Instant,
    interval: Duration,
    /// When counting began, in ns since 1970.
    pub(super) started_unix_ns: u64,
}

impl Published {
    pub(super) fn new(interval: Duration, started_unix_ns: u64) -> Self {
        Self {
            latest: Mutex::new(None),
            scraped: AtomicU64::new(0),
            begun: Instant::now(),
            interval,
            started_unix_ns,
        }
    }

    /// Publishes a snapshot.
    pub(super) fn publish(&self, snapshot: Snapshot) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = Some((Arc::new(snapshot), Instant::now()));
    }

    /// The last snapshot.
    pub(super) fn latest(&self) -> Option<Arc<Snapshot>> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.as_ref().map(|(snapshot, _)| Arc::clone(snapshot))
    }

    /// Somebody sees the snapshot of this number.
    pub(super) fn see(&self, sequence: u64) {
        self.scraped.fetch_max(sequence, Ordering::Relaxed);
    }

    /// Number of the last that somebody saw; 0 of none.
    pub(super) fn scraped(&self) -> u64 {
        self.scraped.load(Ordering::Relaxed)
    }

    /// For how long there was no new snapshot, if that is too long.
    pub(super) fn stands_still(&self) -> Option<Duration> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let since = latest.as_ref().map_or(self.begun, |(_, at)| *at).elapsed();
        (since > self.interval * INTERVALS_MISSED + Duration::from_secs(5)).then_some(since)
    }
}
