//! What can be asked for by name: events to sample on, configurations of them, metrics to report, and their units.

pub mod event;
pub mod metric;
pub mod notation;
pub mod profile;
pub mod quantity;
pub mod ratio;
pub mod unit;
