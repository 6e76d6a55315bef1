//! I/O between two drains.

pub mod boxes;
pub mod latency;
pub mod traffic;
