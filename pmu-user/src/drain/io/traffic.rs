//! Everything that the programs for I/O said at one moment.

use serde::{Deserialize, Serialize};

use super::{
    block::{BlockRow, InFlightRow},
    net::NetRow,
};

/// What the programs counted until a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// When it was read (CLOCK_MONOTONIC ns).
    pub at_ns: u64,
    /// Block requests that completed.
    pub block: Vec<BlockRow>,
    /// Block requests that have not.
    pub in_flight: Vec<InFlightRow>,
    /// Packets of sockets.
    pub net: Vec<NetRow>,
    /// Rows that were given up since the drain before, as they were last: what they counted is in no row any more.
    #[serde(default, skip_serializing_if = "Retired::is_empty")]
    pub retired: Retired,
    /// What was lost, by reason (see [`pmu_common::io::loss`]); only reasons that occurred.
    pub losses: Vec<(String, u64)>,
    /// Runs of programs that the kernel left out because the program was at work on that CPU already, by program; only
    /// those that occurred. Each is a request that is not counted, or has no start.
    pub missed: Vec<(String, u64)>,
}

impl Traffic {
    /// Ids of the cgroups that have a row, any number of times each; without those of rows that were given up.
    pub fn cgroups(&self) -> impl Iterator<Item = u64> {
        let of_block = self.block.iter().filter_map(|row| row.whose.cgroup());
        of_block.chain(self.net.iter().filter_map(|row| row.owner.cgroup()))
    }
}

/// Rows whose slots are free again, because their owners are gone. An owner that comes back begins a new row at 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retired {
    /// Block requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block: Vec<BlockRow>,
    /// Packets of sockets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub net: Vec<NetRow>,
}

impl Retired {
    /// No rows?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.block.is_empty() && self.net.is_empty()
    }
}
