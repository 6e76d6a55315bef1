//! Metrics of I/O: what boxes outside the cores counted → numbers of parts, stacks, channels, links, sockets and devices, each
//! with its interval; offline, from counts that somebody else has counted.

mod agreement;
mod apportion;
mod check;
mod choice;
mod devices;
mod extent;
mod groups;
mod history;
mod inlets;
pub mod latency;
mod levels;
pub mod link;
mod maximum;
mod measured;
pub mod offline;
mod owners;
mod places;
mod prepared;
mod report;
mod requesters;
mod row;
mod terms;
mod totals;
mod traffic;

pub use self::{
    agreement::MapReport,
    check::{Check, Verdict},
    history::History,
    levels::{Basis, Level, LevelReport},
    prepared::Prepared,
    report::IoReport,
    row::{Label, Place, Row, Subject},
};
use self::{
    devices::names,
    levels::Levels,
    measured::{BoxCounts, Measured},
    requesters::Requesters,
    totals::IoMetrics,
    traffic::Names,
};
