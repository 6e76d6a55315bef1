//! What an interval of `pmbpf io` says: one kind of row for everything, so that every format shows the same.

use super::{Row, agreement::MapReport, check::Check, levels::Level};
use crate::drain::{Absent, Cost};

/// What an interval says. Plain data; views only choose words and columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoReport {
    /// Start, in ns since counting started.
    pub from_ns: u64,
    /// Length in ns.
    pub length_ns: u64,
    /// Every number.
    pub rows: Vec<Row>,
    /// For how long bandwidths were at which level; only of the whole run.
    pub levels: Vec<Level>,
    /// Where each port is counted, and what its traffic says to that; only of the whole run.
    pub maps: Vec<MapReport>,
    /// Counters that always run, held against metrics.
    pub checks: Vec<Check>,
    /// What is not there, and why.
    pub missing: Vec<Absent>,
    /// What was lost since counting started, by reason.
    pub losses: Vec<(String, u64)>,
    /// What this process has cost since it started.
    pub cost: Cost,
    /// What the programs have cost since counting started, in ns.
    pub programs_ns: u64,
}
