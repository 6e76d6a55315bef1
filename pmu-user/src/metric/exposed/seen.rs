//! What the readers of snapshots have seen. Whatever changes in the series (one begins, one ends) takes effect once every reader has seen the
//! snapshot before, so that each of them can subtract it from the next.

/// When something changes in the series: the first snapshot that has it, and the time, in ns since counting began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) sequence: u64,
    pub(super) at_ns: u64,
}

/// What every active reader has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The last snapshot that all of them have seen, or a later one; 0 of none.
    pub sequence: u64,
    /// Time after which every reader has seen a snapshot that is out, where readers cannot be distinguished, in ns.
    pub hold_ns: u64,
}

impl Seen {
    /// What readers have seen that all had the snapshot of this number.
    pub const fn snapshot(sequence: u64) -> Self {
        Self { sequence, hold_ns: 0 }
    }

    /// Whether all of them have seen a change by `now_ns`.
    pub(super) const fn has(self, change: Change, now_ns: u64) -> bool {
        change.sequence <= self.sequence && now_ns.saturating_sub(change.at_ns) >= self.hold_ns
    }
}
