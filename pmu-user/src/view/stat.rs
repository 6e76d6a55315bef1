//! Counts without owners (`run --count`), in every format.

use std::io::{self, Write};

use super::{Format, Reported, Stage, json, text};
use crate::{drain::tally::Ended, metric::stat::Stat, plan::count::CountPlan};

impl Reported for Stat {
    type Header = CountPlan;
    type Ending = Ended;

    fn text(into: &mut dyn Write, style: &text::Style, stage: Stage<'_, Self>) -> io::Result<()> {
        match stage {
            Stage::Begin(_) => Ok(()),
            Stage::Interval(stat, before) => text::stat::interval(into, style, stat, before == 0),
            Stage::Whole(plan, stat, ended) => text::stat::whole(into, style, plan, stat, ended),
        }
    }

    fn json(into: &mut dyn Write, stage: Stage<'_, Self>) -> io::Result<()> {
        match stage {
            Stage::Begin(plan) => json::stat::begin(into, plan),
            Stage::Interval(..) => Ok(()),
            Stage::Whole(plan, stat, ended) => json::stat::end(into, plan, stat, ended),
        }
    }
}

/// Prints a plan without opening anything; `counters` is how many descriptors it takes.
///
/// # Errors
///
/// The stream cannot be written.
pub fn write_plan(
    into: &mut dyn Write,
    plan: &CountPlan,
    counters: usize,
    needs: &str,
    format: Format,
) -> io::Result<()> {
    match format {
        Format::Json => json::stat::plan(into, plan, counters, needs)?,
        Format::Text | Format::Csv => text::stat::plan(into, plan, counters, needs)?,
    }
    into.flush()
}

#[cfg(test)]
mod tests;
