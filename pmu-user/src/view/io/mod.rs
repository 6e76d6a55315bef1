//! Reports about I/O → bytes.

pub mod summary;
