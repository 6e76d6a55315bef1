//! Which slices speak for those in which a group did not count: the nearest in time, by how long it counted in them.

use super::population::Population;

/// What a slice that is far away has to say, beside a near one. It decides only where of the near ones a moment was seen.
const FAR: f64 = 0.02;

/// One slice in which a group counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Which slice.
    pub(super) slice: usize,
    /// Time the group counted, in ns.
    pub(super) running: f64,
}

/// For each slice seen: how much of the owner's time a ns of it stands for, itself included. Weighted by running time
/// they sum up to all of the owner's time.
///
/// An unseen ns is spoken for by all that was seen: by running time, and by nearness ([`Population::fading`]).
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

/// For each place the sum of all `masses`, each times `FAR` + how much is left of it after fading on the way. A sum of exponentials needs one
/// pass each way, not one a pair.
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
