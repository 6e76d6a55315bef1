//! Units of metrics. A number never leaves pmbpf without one.

use serde::{Deserialize, Serialize};

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Context switches.
    Switches,
    /// Moves of a task to another CPU.
    Migrations,
    /// Page faults.
    Faults,
    /// Samples.
    Samples,
    /// Occurrences of a PMU's event.
    Counts,
}

impl Unit {
    /// The unit's name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Switches => "switches",
            Self::Migrations => "migrations",
            Self::Faults => "faults",
            Self::Samples => "samples",
            Self::Counts => "counts",
        }
    }
}
