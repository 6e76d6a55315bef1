//! Slices of an owner: its running time in each, and the signature, i.e. the rates of what always counts.
//!
//! A slice in which a group did not count is represented by the nearest in time in which it did, weighted by
//! the time that it counted there.

use crate::{drain::reading::SliceRow, plan::multiplexing::Multiplexing};

/// Share of their mean below which the spread of rates is ignored: no phase distinguishes them.
const SPREAD_MIN: f64 = 1e-6;

/// Slices of an owner, in order of time, none without time.
pub(super) struct Population<'a> {
    /// Rows of the slices.
    pub(super) rows: &'a [&'a SliceRow],
    /// Factor by which the weight of the slice before each one fades: exp(−distance / groups), as a round of
    /// turns is what brings every group about two slices near.
    pub(super) fading: Vec<f64>,
    /// Time that the owner ran in each slice, in ns.
    pub(super) time: Vec<f64>,
    /// Sum of these times.
    pub(super) time_total: f64,
    /// Numbers in a signature.
    pub(super) columns: usize,
    /// Signatures, slice by slice: rates with mean 0 over the owner's time.
    signatures: Vec<f64>,
}

impl<'a> Population<'a> {
    /// Reads rows that are in order of time.
    pub(super) fn new(turns: &Multiplexing, rows: &'a [&'a SliceRow]) -> Self {
        let round = turns.groups.len().max(1) as f64;
        let mut last = rows.first().map_or(0, |row| row.slice);
        let fade =
            |row: &&SliceRow| (-((row.slice - std::mem::replace(&mut last, row.slice)) as f64) / round).exp();
        let time: Vec<f64> = rows.iter().map(|row| row.time_ns as f64).collect();
        let columns: Vec<Vec<f64>> =
            rate_columns(turns, rows).filter_map(|rates| standardised(&rates, &time)).collect();
        Self {
            rows,
            fading: rows.iter().map(fade).collect(),
            time_total: time.iter().sum(),
            time,
            columns: columns.len(),
            signatures: (0..rows.len())
                .flat_map(|slice| columns.iter().map(move |column| column[slice]))
                .collect(),
        }
    }

    /// Returns the same slices without signatures, for an event that is part of the signature.
    pub(super) fn unsigned(&self) -> Self {
        Self {
            rows: self.rows,
            fading: self.fading.clone(),
            time: self.time.clone(),
            time_total: self.time_total,
            columns: 0,
            signatures: Vec::new(),
        }
    }

    /// Returns the signature of a slice.
    pub(super) fn signature(&self, slice: usize) -> &[f64] {
        &self.signatures[slice * self.columns..(slice + 1) * self.columns]
    }
}

/// Returns the counts per ns in each slice of each event that always counts, `None` where it did not run.
fn rate_columns(turns: &Multiplexing, rows: &[&SliceRow]) -> impl Iterator<Item = Vec<Option<f64>>> {
    let groups = turns.always.iter().enumerate().flat_map(|(at, group)| group.events.iter().map(move |_| at));
    groups.enumerate().map(|(event, group)| {
        let rate = |row: &&SliceRow| {
            let running = *row.always_running_ns.get(group)?;
            let count = *row.always.get(event)?;
            (running > 0).then(|| count as f64 / running as f64)
        };
        rows.iter().map(rate).collect()
    })
}

/// Scales rates to mean 0, so that one ridge fits all, in units between their mean and their spread. By their
/// spread alone, pure noise (reference cycles per time) would weigh as much as what distinguishes phases. By
/// their mean alone, what varies by a few per cent (the frequency) would have no effect. Unknown rates take
/// the mean. Returns `None` if the rates do not vary.
fn standardised(rates: &[Option<f64>], time: &[f64]) -> Option<Vec<f64>> {
    let known = || rates.iter().zip(time).filter_map(|(rate, time)| Some(((*rate)?, time)));
    let weight: f64 = known().map(|(_, time)| time).sum();
    let mean = known().map(|(rate, time)| time * rate).sum::<f64>() / weight;
    let spread = (known().map(|(rate, time)| time * (rate - mean).powi(2)).sum::<f64>() / weight).sqrt();
    let scale = (spread * mean).sqrt();
    (spread > SPREAD_MIN * mean)
        .then(|| rates.iter().map(|rate| rate.map_or(0.0, |rate| (rate - mean) / scale)).collect())
}

/// Weight of a slice that is far away, relative to a near one. It matters only where the near ones were seen
/// for a moment.
const FAR: f64 = 0.02;

/// One slice in which a group counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Index of the slice.
    pub(super) slice: usize,
    /// Time the group counted, in ns.
    pub(super) running: f64,
}

/// Returns the owner's time for which a ns of each slice seen stands, itself included. Weighted by running
/// time these sum up to all of the owner's time.
///
/// An unseen ns is represented by all that was seen, by running time and by nearness
/// ([`Population::fading`]).
pub(super) fn weights(population: &Population<'_>, seen: &[Seen], unseen: &[f64]) -> Vec<f64> {
    let mut running = vec![0.0; unseen.len()];
    for one in seen {
        running[one.slice] += one.running;
    }
    let voices = smooth(&population.fading, &running);
    let claims: Vec<f64> = unseen.iter().zip(&voices).map(|(time, voices)| time / voices).collect();
    let shares = smooth(&population.fading, &claims);
    seen.iter().map(|one| 1.0 + shares[one.slice]).collect()
}

/// Returns for each place the sum of all `masses`, each times `FAR` + what is left of it after fading on the
/// way. A sum of exponentials needs one pass each way, not one per pair.
fn smooth(fading: &[f64], masses: &[f64]) -> Vec<f64> {
    let mut sums = vec![FAR * masses.iter().sum::<f64>(); masses.len()];
    let mut before = 0.0;
    for (place, mass) in masses.iter().enumerate() {
        before = before * fading[place] + mass;
        sums[place] += before;
    }
    let mut after = 0.0;
    for place in (0..masses.len()).rev() {
        sums[place] += after;
        after = (after + masses[place]) * fading[place];
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::{FAR, smooth};

    #[test]
    fn two_passes_sum_up_what_pairs_do() {
        let (at, masses): ([f64; 5], _) = ([0.0, 1.0, 4.0, 5.0, 9.0], [1.0, 0.0, 2.0, 5.0, 0.5]);
        let fading: Vec<f64> = (0..5).map(|at_| (-(at[at_] - at[at_.max(1) - 1]) / 2.0).exp()).collect();
        for (place, sum) in at.iter().zip(smooth(&fading, &masses)) {
            let pairs = at
                .iter()
                .zip(&masses)
                .map(|(other, mass)| mass * ((-(place - other).abs() / 2.0).exp() + FAR));
            assert!((pairs.sum::<f64>() - sum).abs() < 1e-12);
        }
    }
}
