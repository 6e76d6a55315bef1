//! I/O between two drains.

pub mod latency;
pub mod traffic;
