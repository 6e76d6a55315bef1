//! Counts without owners (`run --count`): an event a line, in every format.

use std::io::{self, Write};

use super::{Format, csv, json, text};
use crate::{drain::tally::Ended, metric::stat::Stat, plan::count::CountPlan};

/// Writes the counts of one plan to one place.
pub struct StatView<'a> {
    plan: &'a CountPlan,
    format: Format,
    into: Box<dyn Write + 'a>,
    intervals: u64,
    begun: bool,
}

impl<'a> StatView<'a> {
    /// A view of what `plan` counts.
    pub fn new(plan: &'a CountPlan, format: Format, into: Box<dyn Write + 'a>) -> Self {
        Self { plan, format, into, intervals: 0, begun: false }
    }

    /// Writes the counts of an interval.
    ///
    /// # Errors
    ///
    /// The stream cannot be written.
    pub fn interval(&mut self, stat: &Stat) -> io::Result<()> {
        self.begin()?;
        self.intervals += 1;
        match self.format {
            Format::Text => text::stat::interval(&mut self.into, stat, self.intervals == 1)?,
            Format::Json => json::stat::interval(&mut self.into, stat)?,
            Format::Csv => csv::stat::rows(&mut self.into, stat)?,
        }
        self.into.flush()
    }

    /// Writes the counts of the whole, and how it ended.
    ///
    /// # Errors
    ///
    /// The stream cannot be written.
    pub fn whole(&mut self, stat: &Stat, ended: &Ended) -> io::Result<()> {
        self.begin()?;
        match self.format {
            Format::Text => text::stat::whole(&mut self.into, self.plan, stat, ended)?,
            Format::Json => json::stat::whole(&mut self.into, self.plan, stat, ended)?,
            Format::Csv if self.intervals == 0 => csv::stat::rows(&mut self.into, stat)?,
            Format::Csv => {}
        }
        self.into.flush()
    }

    fn begin(&mut self) -> io::Result<()> {
        let first = !std::mem::replace(&mut self.begun, true);
        if first && self.format == Format::Csv { csv::stat::begin(&mut self.into) } else { Ok(()) }
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
