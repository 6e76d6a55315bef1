//! Readers of `/metrics` and of what is pushed: the snapshots that each has seen, and what follows for all of
//! them.
//!
//! A series may begin or end only once every reader has seen the snapshot before. Requests of one reader come
//! at equal distances. As long as that holds, those with the same address, credentials, `User-Agent`, scrape
//! timeout and query are one reader. Otherwise they are several that cannot be distinguished, and time has to
//! pass that covers the longest interval among them.

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasher as _,
};

use crate::metric::exposed::Seen;

const SECOND_NS: u64 = 1_000_000_000;

/// Maximum number of distinguished readers; those beyond are one.
const READERS_MAX: usize = 32;
/// Maximum number of remembered requests of a reader.
const ARRIVALS_MAX: usize = 512;
/// Time for which distances between requests have to be equal: twice the longest usual interval.
const PROOF_NS: u64 = 120 * SECOND_NS;
/// Number of distances that have to be equal.
const PROOF_GAPS: usize = 3;
/// Tolerance of distances: the delay of a request on a busy host, and a share.
const JITTER_NS: u64 = 200_000_000;
const JITTER_SHARE: u64 = 100;
/// Longest usual interval, and a quarter more.
const HOLD_MIN_NS: u64 = 75 * SECOND_NS;
/// Longest interval of a reader: with a longer one Prometheus' queries find nothing between two scrapes.
const INTERVAL_MAX_NS: u64 = 300 * SECOND_NS;
/// Number of its intervals after which a reader is gone.
const INTERVALS_MISSED: u64 = 3;

/// One reader, or several whose requests cannot be assigned.
#[derive(Debug, Default)]
struct Reader {
    /// Times of its last requests, the last one last, in ns.
    arrivals: VecDeque<u64>,
    /// Last snapshot that it has seen.
    sequence: u64,
    /// Interval of the reader, if it is pmbpf's own and known.
    interval_ns: Option<u64>,
    /// Whether they are several by construction.
    is_crowd: bool,
}

impl Reader {
    fn see(&mut self, sequence: u64, now_ns: u64) {
        // After a longer absence a reader begins again.
        if self.arrivals.back().is_some_and(|last| now_ns.saturating_sub(*last) > 2 * INTERVAL_MAX_NS) {
            self.arrivals.clear();
        }
        if self.arrivals.len() == ARRIVALS_MAX {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(now_ns);
        // Two that share a snapshot need it both.
        self.sequence = self.sequence.max(sequence);
    }

    /// Returns the distances between requests, the last one first, as far as they matter: for [`PROOF_NS`],
    /// and [`PROOF_GAPS`] of them.
    fn gaps(&self) -> impl Iterator<Item = u64> {
        let last_ns = self.arrivals.back().copied().unwrap_or(0);
        let pairs = self.arrivals.iter().rev().zip(self.arrivals.iter().rev().skip(1)).enumerate();
        let recent = pairs.take_while(move |(at, (later, _))| {
            *at < PROOF_GAPS || last_ns.saturating_sub(**later) < PROOF_NS
        });
        recent.map(|(_, (later, earlier))| later.saturating_sub(*earlier))
    }

    /// Returns the shortest and the longest of these distances.
    fn extremes(&self) -> Option<(u64, u64)> {
        self.gaps().fold(None, |found, gap| {
            let (shortest, longest) = found.unwrap_or((gap, gap));
            Some((gap.min(shortest), gap.max(longest)))
        })
    }

    /// Returns whether its requests come at equal distances, as those of one reader do.
    fn is_one(&self) -> bool {
        let is_regular = self
            .extremes()
            .is_none_or(|(shortest, longest)| longest - shortest <= JITTER_NS + longest / JITTER_SHARE);
        !self.is_crowd && (self.interval_ns.is_some() || is_regular)
    }

    /// Returns its interval, as far as it is known.
    fn interval_ns(&self) -> u64 {
        let measured = || self.extremes().map_or(0, |(_, longest)| longest);
        self.interval_ns.unwrap_or_else(measured)
    }

    /// Returns whether the reader still sends requests.
    fn is_active(&self, now_ns: u64) -> bool {
        let Some(last_ns) = self.arrivals.back() else { return false };
        let patience_ns = (INTERVALS_MISSED * self.interval_ns()).min(INTERVALS_MISSED * INTERVAL_MAX_NS);
        now_ns.saturating_sub(*last_ns) <= patience_ns.max(HOLD_MIN_NS)
    }

    /// Returns the time in which all readers that it may be have come; 0 if it is one. Several that come at
    /// distances of a third of their intervals are three.
    fn hold_ns(&self) -> u64 {
        if self.is_one() {
            return 0;
        }
        (INTERVALS_MISSED * self.interval_ns()).clamp(HOLD_MIN_NS, INTERVAL_MAX_NS)
    }
}

/// Set of all readers.
#[derive(Debug, Default)]
pub(super) struct Readers {
    known: HashMap<u64, Reader>,
    /// Readers beyond the limit, as one.
    crowd: Reader,
    /// Pushes, as a reader.
    pushed: Reader,
    /// Last snapshot that any of them has seen.
    last: u64,
    hasher: std::hash::RandomState,
}

impl Readers {
    /// Records that the reader with these words in its requests sees a snapshot.
    pub(super) fn see(&mut self, words: &[&str], sequence: u64, now_ns: u64) {
        self.last = self.last.max(sequence);
        let key = self.hasher.hash_one(words);
        if !self.known.contains_key(&key) && self.known.len() >= READERS_MAX {
            self.known.retain(|_, reader| reader.is_active(now_ns));
        }
        if self.known.contains_key(&key) || self.known.len() < READERS_MAX {
            self.known.entry(key).or_default().see(sequence, now_ns);
        } else {
            self.crowd.is_crowd = true;
            self.crowd.see(sequence, now_ns);
        }
    }

    /// Records that a snapshot was pushed, as one is at each interval.
    pub(super) fn push(&mut self, sequence: u64, every_ns: u64, now_ns: u64) {
        self.last = self.last.max(sequence);
        self.pushed.interval_ns = Some(every_ns);
        self.pushed.see(sequence, now_ns);
    }

    /// Returns what all active readers have seen. Without an active one, nothing new has been seen.
    pub(super) fn seen(&self, now_ns: u64) -> Seen {
        let all = self.known.values().chain([&self.crowd, &self.pushed]);
        let active = all.filter(|reader| reader.is_active(now_ns));
        active.fold(Seen::snapshot(self.last), |seen, reader| Seen {
            sequence: seen.sequence.min(reader.sequence),
            hold_ns: seen.hold_ns.max(reader.hold_ns()),
        })
    }
}
