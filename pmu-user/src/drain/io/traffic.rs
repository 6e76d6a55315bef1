//! Counts of the programs for I/O at one moment.

use serde::{Deserialize, Serialize};

use super::{
    block::{BlockRow, InFlightRow},
    net::NetRow,
};

/// Counts of the programs up to a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Time of the reading (CLOCK_MONOTONIC ns).
    pub at_ns: u64,
    /// Block requests that completed.
    pub block: Vec<BlockRow>,
    /// Block requests that have not completed.
    pub in_flight: Vec<InFlightRow>,
    /// Packets of sockets.
    pub net: Vec<NetRow>,
    /// Rows that were given up since the previous drain, with their last values. Their counts are in no other
    /// row any more.
    #[serde(default, skip_serializing_if = "Retired::is_empty")]
    pub retired: Retired,
    /// Losses by reason (see [`pmu_common::io::loss`]), for the reasons that occurred.
    pub losses: Vec<(String, u64)>,
    /// Program runs that the kernel skipped because the program was already running on that CPU, by program,
    /// if any occurred. Each is a request that is not counted, or has no start.
    pub missed: Vec<(String, u64)>,
}

impl Traffic {
    /// Returns the ids of the cgroups that have a row, with repetitions. Rows that were given up are
    /// excluded.
    pub fn cgroups(&self) -> impl Iterator<Item = u64> {
        let of_block = self.block.iter().filter_map(|row| row.whose.cgroup());
        of_block.chain(self.net.iter().filter_map(|row| row.owner.cgroup()))
    }
}

/// Rows whose slots are free again, because their owners are gone. An owner that comes back begins a new row
/// at 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retired {
    /// Rows of block requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block: Vec<BlockRow>,
    /// Packets of sockets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub net: Vec<NetRow>,
}

impl Retired {
    /// Returns whether there are no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.block.is_empty() && self.net.is_empty()
    }
}
