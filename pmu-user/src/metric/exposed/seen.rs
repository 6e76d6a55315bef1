//! Snapshots that readers have seen. A change in the series (one begins, one ends) takes effect once every
//! reader has seen the snapshot before it. Each reader can then subtract that snapshot from the next.

/// Change in the series: the first snapshot that has it, and the time, in ns since counting began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) sequence: u64,
    pub(super) at_ns: u64,
}

/// Snapshots that every active reader has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Number of the last snapshot that all of them have seen, or of a later one, 0 of none.
    pub sequence: u64,
    /// Time in ns after which every reader has seen a published snapshot, where readers cannot be
    /// distinguished.
    pub hold_ns: u64,
}

impl Seen {
    /// Returns the state of readers that have all seen the snapshot of this number.
    pub const fn snapshot(sequence: u64) -> Self {
        Self { sequence, hold_ns: 0 }
    }

    /// Returns whether all readers have seen a change by `now_ns`.
    pub(super) const fn has(self, change: Change, now_ns: u64) -> bool {
        change.sequence <= self.sequence && now_ns.saturating_sub(change.at_ns) >= self.hold_ns
    }
}
