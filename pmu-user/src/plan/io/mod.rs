//! What `io` will open.

pub mod boxes;
mod class;
pub mod free;
mod order;
#[cfg(test)]
mod tests;
