//! I/O metrics: values of parts, stacks, channels, links, sockets and devices from uncore PMU counts, each
//! with its interval. `offline` computes them from counts that were collected elsewhere.

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

/// Formula of a metric in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormulaText {
    /// Name of the metric.
    pub metric: String,
    /// Unit of its value.
    pub unit: Unit,
    /// Text of the formula: [`Model::formula_of`](crate::table::model::Model::formula_of).
    pub text: String,
}

/// Report of one interval as plain data. Views choose only words and columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoReport {
    /// Start, in ns since counting started.
    pub from_ns: u64,
    /// Length in ns.
    pub length_ns: u64,
    /// Time over which block requests and packets were counted, in ns: their rows are read a moment after the
    /// others.
    pub traffic_ns: u64,
    /// Rows of all subjects.
    pub rows: Vec<Row>,
    /// Rows of programs, summed over processes that have rows in `rows`.
    pub programs: Vec<Row>,
    /// Processes that share a row, with the program of that row.
    pub members: BTreeMap<Owner, Owner>,
    /// Sort key of each owner, largest first. Empty unless an order was requested.
    pub order: BTreeMap<Owner, f64>,
    /// Time of bandwidths at each level. Set for the whole run only.
    pub levels: Vec<Level>,
    /// Part that counts each port, and whether its traffic agrees. Set for the whole run only.
    pub maps: Vec<MapReport>,
    /// Comparisons of free-running counters with metrics.
    pub checks: Vec<Check>,
    /// Formulas of the table for metrics that have values. Set for the whole run only.
    pub formulas: Vec<FormulaText>,
}
