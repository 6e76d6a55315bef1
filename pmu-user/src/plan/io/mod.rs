//! What `io` will open.

pub mod boxes;
mod class;
mod order;
#[cfg(test)]
mod tests;
