//! The plan of counts without owners (`pmbpf stat --dry-run`).

use std::io::{self, Write};

use super::{Format, json, text};
use crate::plan::count::CountPlan;

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
