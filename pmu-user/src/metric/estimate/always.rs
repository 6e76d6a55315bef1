//! Totals of the events that always count: exact, unless someone else took their counters for a while.

use super::{CLOCKS_DIFFER, Estimate, group, population::Population, represent::Seen};
use crate::{drain::slice::SliceRow, plan::turns::Turns};

/// One estimate per event that always counts. `rows` are all there are, `population` those in which the owner ran.
pub(super) fn estimates(turns: &Turns, rows: &[SliceRow], population: &Population<'_>) -> Vec<Estimate> {
    let groups = turns.always.iter().enumerate().flat_map(|(at, group)| group.events.iter().map(move |_| at));
    let estimate = |(event, group): (usize, usize)| {
        let ran_all_the_time = population.rows.iter().all(|row| {
            let running = row.always_running_ns.get(group).map_or(0.0, |running| *running as f64);
            event < row.always.len() && running >= row.time_ns as f64 * (1.0 - CLOCKS_DIFFER)
        });
        if ran_all_the_time && !population.rows.is_empty() {
            // A row without time may hold counts still: those of a switch that was just under way.
            let counts = rows.iter().filter_map(|row| row.always.get(event));
            return Estimate::Exact(counts.fold(0, |sum, count| sum.saturating_add(*count)));
        }
        partly(population, event, group)
    };
    groups.enumerate().map(estimate).collect()
}

/// From the slices in which it did count. The other events that always count have most likely lost their counters
/// together with it, so only near slices speak for it.
fn partly(population: &Population<'_>, event: usize, group: usize) -> Estimate {
    let mut seen = Vec::new();
    let mut counts = Vec::new();
    for (slice, row) in population.rows.iter().enumerate() {
        match (row.always.get(event), row.always_running_ns.get(group)) {
            (Some(count), Some(running)) if *running > 0 => {
                seen.push(Seen { slice, running: *running as f64 });
                counts.push(*count);
            }
            _ => {}
        }
    }
    let never = "others held the event's counter all the time";
    group::estimate_one(&population.unsigned(), &seen, &counts, never)
}
