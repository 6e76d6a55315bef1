//! I/O between two drains.

pub mod boxes;
pub mod groups;
pub mod traffic;
