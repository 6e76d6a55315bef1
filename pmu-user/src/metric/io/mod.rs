//! Metrics of I/O: what uncore PMUs counted → numbers of parts, stacks, channels, links, sockets and devices, each
//! with its interval; offline, from counts that somebody else has counted.

mod apportion;
mod check;
mod devices;
mod free_running;
mod groups;
mod kernel;
pub mod latency;
mod levels;
pub mod link;
mod measured;
pub mod offline;
mod owners;
mod port_map;
mod prepared;
mod program;
mod requesters;
mod row;
mod row_filter;
mod scope;
mod scopes;
mod terms;
mod totals;
mod traffic;
mod window;

use std::collections::BTreeMap;

pub use self::{
    check::{Check, Verdict},
    levels::{Basis, Level, LevelReport},
    port_map::MapReport,
    prepared::{History, Prepared, losses, missing},
    row::{Label, Row, Scope, Subject},
    traffic::DIRECTIONS,
};
use self::{
    devices::names,
    levels::Levels,
    measured::{Measured, UncoreCounts},
    requesters::Requesters,
    totals::IoMetrics,
    traffic::Names,
};
use crate::{drain::Owner, table::unit::Unit};

/// How a metric of a table is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormulaText {
    /// The metric's name.
    pub metric: String,
    /// Unit of its value.
    pub unit: Unit,
    /// [`Model::formula_of`](crate::table::model::Model::formula_of).
    pub text: String,
}

/// What an interval says. Plain data; views only choose words and columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoReport {
    /// Start, in ns since counting started.
    pub from_ns: u64,
    /// Length in ns.
    pub length_ns: u64,
    /// Time over which block requests and packets were counted, in ns: their rows are read a moment after the others.
    pub traffic_ns: u64,
    /// Every number.
    pub rows: Vec<Row>,
    /// Numbers of programs, of processes that have rows in `rows`.
    pub programs: Vec<Row>,
    /// Processes that share a row, with the program that it is of.
    pub members: BTreeMap<Owner, Owner>,
    /// What owners are ordered by, most first, where that was asked for.
    pub order: BTreeMap<Owner, f64>,
    /// For how long bandwidths were at which level; only of the whole run.
    pub levels: Vec<Level>,
    /// Where each port is counted, and what its traffic says to that; only of the whole run.
    pub maps: Vec<MapReport>,
    /// Counters that always run, held against metrics.
    pub checks: Vec<Check>,
    /// The table's formulas of metrics that have numbers; only of the whole run.
    pub formulas: Vec<FormulaText>,
}
