//! What a run reports of I/O, in every format.

mod checks;
pub mod evaluation;
pub(super) mod json;
mod levels;
pub mod summary;
pub(super) mod text;
