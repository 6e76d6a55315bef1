//! Names that can be requested: events to count or sample, configurations of them, metrics to report, and
//! their units.

pub mod event;
pub mod event_syntax;
pub mod formula;
pub mod hint;
pub mod io;
pub mod listing;
pub mod metric;
pub mod model;
pub mod perfmon;
pub mod profile;
pub mod quantity;
pub mod unit;
