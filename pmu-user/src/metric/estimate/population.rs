//! What is known of every slice of an owner: how long it ran, and the signature, i.e. what always counts, per time.

use crate::{drain::slice::SliceRow, plan::turns::Turns};

/// Rates that differ by less than this share of their mean are one rate: no phase tells them apart.
const SPREAD_MIN: f64 = 1e-6;

/// An owner's slices, in order of time, none without any.
pub(super) struct Population<'a> {
    /// What was counted.
    pub(super) rows: &'a [&'a SliceRow],
    /// For each slice, how much less the one before it has to say than a nearer one: exp(−distance / groups), as a
    /// round of turns is what brings every group about two slices near.
    pub(super) fading: Vec<f64>,
    /// Time the owner ran in each, in ns.
    pub(super) time: Vec<f64>,
    /// Their sum.
    pub(super) time_total: f64,
    /// Numbers in a signature.
    pub(super) columns: usize,
    /// Signatures, slice by slice: rates with mean 0 over the owner's time.
    signatures: Vec<f64>,
}

impl<'a> Population<'a> {
    /// Reads rows that are in order of time.
    pub(super) fn new(turns: &Turns, rows: &'a [&'a SliceRow]) -> Self {
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

    /// The same slices without signatures: for what stands in them itself.
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

    /// A slice's signature.
    pub(super) fn signature(&self, slice: usize) -> &[f64] {
        &self.signatures[slice * self.columns..(slice + 1) * self.columns]
    }
}

/// Per event that always counts, its counts per ns in each slice; `None` where it did not run.
fn rate_columns(turns: &Turns, rows: &[&SliceRow]) -> impl Iterator<Item = Vec<Option<f64>>> {
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

/// Rates with mean 0, so that one ridge fits all: in units between their mean and their spread. By their spread alone, what
/// is noise only (reference cycles per time) would weigh as much as what tells phases apart; by their mean alone, what
/// varies by a few per cent (the frequency) could not tell anything. What is not known takes the mean. `None` if they do
/// not vary.
fn standardised(rates: &[Option<f64>], time: &[f64]) -> Option<Vec<f64>> {
    let known = || rates.iter().zip(time).filter_map(|(rate, time)| Some(((*rate)?, time)));
    let weight: f64 = known().map(|(_, time)| time).sum();
    let mean = known().map(|(rate, time)| time * rate).sum::<f64>() / weight;
    let spread = (known().map(|(rate, time)| time * (rate - mean).powi(2)).sum::<f64>() / weight).sqrt();
    let scale = (spread * mean).sqrt();
    (spread > SPREAD_MIN * mean)
        .then(|| rates.iter().map(|rate| rate.map_or(0.0, |rate| (rate - mean) / scale)).collect())
}
