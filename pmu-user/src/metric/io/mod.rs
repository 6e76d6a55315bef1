//! Metrics of I/O.

pub mod latency;
