//! What a format is given to write.

use crate::{
    drain::{Ending, Header},
    metric::Report,
};

/// Is this report all, or one of many?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One interval of a run that reports while it runs.
    Interval,
    /// The whole run.
    Whole,
}

/// What is being written.
#[derive(Clone, Copy)]
pub(super) enum Stage<'r> {
    /// What stands before everything.
    Begin(&'r Header),
    /// An interval, and how many there were before it.
    Interval(&'r Report, u64),
    /// The whole run. Formats for machines tell no number twice: where there were intervals, their sums are the reader's.
    Whole { header: &'r Header, report: &'r Report, ending: &'r Ending, intervals: u64 },
}
