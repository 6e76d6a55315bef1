//! What of a CPU model's metrics is to be measured, before it is known whether it can be.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How deep into the tree to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// The first two levels, and below them only where a node was flagged.
    #[default]
    DrillDown,
    /// This level and those above, everywhere.
    Level(u32),
}

/// What of a model's metrics to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsRequest {
    /// Name of the CPU model; the machine's own if none.
    pub model: Option<String>,
    /// The user's perfmon directory.
    pub folder: Option<PathBuf>,
    /// How deep.
    pub depth: Depth,
    /// Metrics, or groups of them, beside the tree.
    pub names: Vec<String>,
    /// May metrics take turns?
    pub multiplex: Multiplex,
}

/// May events take turns on the counters?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Multiplex {
    /// Yes, in groups chosen by us.
    #[default]
    Yes,
    /// No: what does not fit at once is left out, by name.
    No,
    /// No: the command runs once for each group.
    Runs,
}
