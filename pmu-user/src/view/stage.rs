//! Stages of a run, as formats write them.

use crate::{
    drain::{Ending, Header},
    metric::Report,
};

/// Part of a run that a report covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One interval of a run that reports while it runs.
    Interval,
    /// The whole run.
    Whole,
}

/// Stage that is being written.
#[derive(Clone, Copy)]
pub(super) enum Stage<'r> {
    /// Begin of the run, before everything else.
    Begin(&'r Header),
    /// Interval, with the number of intervals before it.
    Interval(&'r Report, u64),
    /// The whole run. Machine-readable formats write every number once: if there were intervals, the reader
    /// adds them up.
    Whole { header: &'r Header, report: &'r Report, ending: &'r Ending, intervals: u64 },
}
