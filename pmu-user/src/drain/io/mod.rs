//! What one tick read of I/O.

pub mod block;
pub mod net;
pub mod traffic;
