//! Scraped data: the last snapshot, and what its readers have seen. One thread publishes, another responds.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::readers::Readers;
use crate::{
    machine::duration_ns,
    metric::exposed::{Seen, Snapshot},
};

/// Number of intervals without a snapshot after which counting stands still.
const INTERVALS_MISSED: u32 = 3;

/// Last snapshot, and what each reader has seen.
#[derive(Debug)]
pub(super) struct Published {
    latest: Mutex<Option<(Arc<Snapshot>, Instant)>>,
    readers: Mutex<Readers>,
    begun: Instant,
    interval: Duration,
    /// Start of counting, in ns since 1970.
    pub(super) started_unix_ns: u64,
}

impl Published {
    pub(super) fn new(interval: Duration, started_unix_ns: u64) -> Self {
        Self {
            latest: Mutex::new(None),
            readers: Mutex::default(),
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

    /// Returns the last snapshot.
    pub(super) fn latest(&self) -> Option<Arc<Snapshot>> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.as_ref().map(|(snapshot, _)| Arc::clone(snapshot))
    }

    /// Records that the reader with these words in its requests sees the snapshot with this number.
    pub(super) fn see(&self, reader: &[&str], sequence: u64) {
        self.readers().see(reader, sequence, duration_ns(self.begun.elapsed()));
    }

    /// Records that the snapshot with this number was pushed, as one is at each interval.
    pub(super) fn pushed(&self, sequence: u64, every: Duration) {
        self.readers().push(sequence, duration_ns(every), duration_ns(self.begun.elapsed()));
    }

    /// Returns what readers have seen.
    pub(super) fn seen(&self) -> Seen {
        self.readers().seen(duration_ns(self.begun.elapsed()))
    }

    fn readers(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns for how long there was no new snapshot, if that is too long.
    pub(super) fn stands_still(&self) -> Option<Duration> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let since = latest.as_ref().map_or(self.begun, |(_, at)| *at).elapsed();
        (since > self.interval * INTERVALS_MISSED + Duration::from_secs(5)).then_some(since)
    }
}
