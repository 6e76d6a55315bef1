//! Totals of the events of one group: one that was multiplexed, or one that always counts.

use std::rc::Rc;

use super::{
    CLOCKS_DIFFER, Estimate, SLICES_MIN, Scaled,
    population::{Population, Seen},
    regression::{Regression, Room},
    replicates::Deviations,
};
use crate::{drain::reading::SliceRow, plan::multiplexing::Multiplexing};

/// Returns one estimate per event of the group.
pub(super) fn rotating(
    turns: &Multiplexing,
    group: usize,
    population: &Population<'_>,
    room: &mut Room,
) -> Vec<Estimate> {
    let events = turns.groups[group].events.len();
    let in_force = || {
        let rows = population.rows.iter().enumerate();
        rows.filter(move |(_, row)| row.group == u32::try_from(group).ok() && row.counts.len() == events)
    };
    let seen: Vec<Seen> = in_force()
        .filter(|(_, row)| row.running_ns > 0)
        .map(|(slice, row)| Seen { slice, running: row.running_ns as f64 })
        .collect();
    let never = if in_force().next().is_some() {
        "others held the counters of its group whenever that had its turn"
    } else {
        "its group had no turn while this ran; a longer run gives every group one"
    };
    let sample = match Sample::new(population, &seen, never) {
        Ok(sample) => sample,
        Err(why) => return vec![Estimate::Missing(why.into()); events],
    };
    let mut counts = Vec::with_capacity(seen.len());
    let estimate = |event: usize| {
        counts.clear();
        counts.extend(seen.iter().map(|one| population.rows[one.slice].counts[event]));
        sample.estimate(&counts, room)
    };
    (0..events).map(estimate).collect()
}

/// Returns the estimate of one event from the slices in which it counted, `counts` in the order of `seen`.
pub(super) fn estimate_one(
    population: &Population<'_>,
    seen: &[Seen],
    counts: &[u64],
    never: &str,
) -> Estimate {
    match Sample::new(population, seen, never) {
        Ok(sample) => sample.estimate(counts, &mut Room::default()),
        Err(why) => Estimate::Missing(why.into()),
    }
}

/// The slices in which a group counted.
struct Sample<'a> {
    seen: &'a [Seen],
    coverage: f64,
    /// Regression, `None` if those were all of the owner's time.
    regression: Option<Regression<'a>>,
}

impl<'a> Sample<'a> {
    fn new(population: &Population<'_>, seen: &'a [Seen], never: &str) -> Result<Self, String> {
        if population.rows.is_empty() {
            return Err("what was to be counted never ran".to_owned());
        }
        if seen.is_empty() {
            return Err(never.to_owned());
        }
        let mut unseen = population.time.clone();
        for one in seen {
            let time = population.time[one.slice];
            unseen[one.slice] =
                if one.running < time * (1.0 - CLOCKS_DIFFER) { time - one.running } else { 0.0 };
        }
        let coverage = (seen.iter().map(|one| one.running).sum::<f64>() / population.time_total).min(1.0);
        // Clocks differ by more than their share in a slice of a few microseconds, but that is nothing of the
        // whole.
        if unseen.iter().sum::<f64>() < population.time_total * CLOCKS_DIFFER {
            return Ok(Self { seen, coverage, regression: None });
        }
        if seen.len() < SLICES_MIN {
            let slices = if seen.len() == 1 { "slice" } else { "slices" };
            return Err(format!(
                "its group counted in {} {slices} only; an error estimate takes {SLICES_MIN}",
                seen.len()
            ));
        }
        Ok(Self { seen, coverage, regression: Some(Regression::new(population, seen, &unseen)) })
    }

    fn estimate(&self, counts: &[u64], room: &mut Room) -> Estimate {
        let exact = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let Some(regression) = &self.regression else { return Estimate::Exact(exact) };
        room.rates.clear();
        room.rates.extend(self.seen.iter().zip(counts).map(|(one, count)| *count as f64 / one.running));
        let fitted = regression.fit(room);
        let seen = exact as f64;
        at_least_by_chance(&mut room.deviations, seen, self.coverage);
        Estimate::Scaled(Rc::new(Scaled {
            total: fitted.total.max(seen),
            seen,
            coverage: self.coverage,
            deviations: Deviations::new(&room.deviations, fitted.freedom),
        }))
    }
}

/// Raises deviations to at least those of occurrences that fall into the turns by chance, as in
/// [`super::super::counts`]. Nothing, or the same few, in every slice seen does not prove the same in the
/// others. One more than was seen is allowed for.
fn at_least_by_chance(deviations: &mut [f64], seen: f64, share: f64) {
    let variance: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
    let by_chance = (seen + 1.0) * (1.0 - share) / (share * share);
    if variance < by_chance {
        deviations.fill((by_chance / deviations.len() as f64).sqrt());
    }
}

/// Returns one estimate per event that always counts: exact, unless another user took its counter for a
/// while. `rows` are all rows, `population` those in which the owner ran.
pub(super) fn always(turns: &Multiplexing, rows: &[SliceRow], population: &Population<'_>) -> Vec<Estimate> {
    let groups = turns.always.iter().enumerate().flat_map(|(at, group)| group.events.iter().map(move |_| at));
    let estimate = |(event, group): (usize, usize)| {
        let ran_all_the_time = population.rows.iter().all(|row| {
            let running = row.always_running_ns.get(group).map_or(0.0, |running| *running as f64);
            event < row.always.len() && running >= row.time_ns as f64 * (1.0 - CLOCKS_DIFFER)
        });
        if ran_all_the_time && !population.rows.is_empty() {
            // A row without time may still hold counts: those of a switch that was just under way.
            let counts = rows.iter().filter_map(|row| row.always.get(event));
            return Estimate::Exact(counts.fold(0, |sum, count| sum.saturating_add(*count)));
        }
        partly(population, event, group)
    };
    groups.enumerate().map(estimate).collect()
}

/// Returns the estimate from the slices in which the event did count. The other events that always count have
/// most likely lost their counters together with it, so only near slices represent it.
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
    estimate_one(&population.unsigned(), &seen, &counts, never)
}
