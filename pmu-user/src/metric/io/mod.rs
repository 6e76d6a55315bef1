//! Metrics of I/O: what boxes outside the cores counted → numbers of parts, stacks, channels, links, sockets and devices, each
//! with its interval; offline, from counts that somebody else has counted.

mod agreement;
mod apportion;
mod check;
mod choice;
mod devices;
mod extent;
mod groups;
mod inlets;
pub mod latency;
mod levels;
pub mod link;
mod maximum;
mod measured;
pub mod offline;
mod places;
mod report;
mod requesters;
mod terms;
mod totals;
mod traffic;

pub use self::{
    agreement::{Agreement, MapReport},
    apportion::rows as owners_rows,
    check::{Check, Ticks, Verdict},
    choice::chosen,
    devices::names,
    groups::{missing as groups_missing, rows as groups_rows},
    levels::{Basis, Level, LevelReport, Levels},
    maximum::{maxima, utilization},
    measured::{BoxCounts, Measured},
    places::{Place, places},
    report::{IoReport, Label, Row, Subject},
    requesters::Requesters,
    totals::IoMetrics,
    traffic::{Names, UNSEEN, rows as traffic_rows},
};
