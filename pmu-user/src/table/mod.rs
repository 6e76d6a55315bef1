//! What can be asked for by name: events to sample on, metrics to report, and their units.

pub mod event;
pub mod listing;
pub mod metric;
pub mod notation;
pub mod unit;
