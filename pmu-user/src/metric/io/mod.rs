//! Metrics of I/O: from counts of boxes and properties of links to values.

pub mod formulas;
pub mod link;
pub mod offline;
