//! Regression that predicts a group's counts from what always counts, and the error of these predictions.
//!
//! Rates (counts per ns of running time) are weighted by running time: a slice twice as long is twice as
//! certain.

use super::population::{Population, Seen, weights};

/// Ridges that restrain the slopes, in units of the signatures' variance. The last leaves no slope at all:
/// the plain ratio to the owner's time. Below the first, the noise of what always counts would be fitted.
const RIDGES: [f64; 6] = [1e-4, 1e-3, 1e-2, 0.1, 1.0, f64::INFINITY];

/// Maximum share of a slice in its own prediction. Without a bound, a slice that the regression follows shows
/// no error and has it divided by nothing.
const LEVERAGE_MAX: f64 = 0.999;

/// Degrees of freedom of n differences between neighbours: 18 / 35 · n. A difference has −2/3 of its variance
/// in common with the next and 1/6 with the next but one. 1 + 2 · (4/9 + 1/36) = 35 / 18.
const FREEDOM: f64 = 18.0 / 35.0;

/// Regression of one group's events. Terms that do not depend on the event are computed once.
pub(super) struct Regression<'a> {
    seen: &'a [Seen],
    /// Owner's time for which a ns of each slice stands.
    stands_for: Vec<f64>,
    running_total: f64,
    columns: usize,
    /// Signatures of the slices seen, less their mean.
    centred: Vec<f64>,
    /// Signatures of all the owner's time, less those that the slices seen stand for, times time.
    gap: Vec<f64>,
    fits: Vec<Ridge>,
}

/// Terms of one ridge for a group. Signatures are divided by the square root of their moments with the ridge.
/// Slopes are then sums, and no event has to be solved for.
struct Ridge {
    /// Divided signatures, empty if there is no slope.
    signatures: Vec<f64>,
    /// Gap, divided in the same way.
    gap: Vec<f64>,
    /// Factor for each slice that makes its residual that of a regression without it.
    without_itself: Vec<f64>,
    /// Factor for each slice that makes its difference from its neighbours a deviation of the total.
    lever: Vec<f64>,
    /// Number of parameters that are left free, in total.
    parameters: f64,
}

/// Result of a regression for one event. The slices' deviations stay in [`Room`].
pub(super) struct Fitted {
    /// Estimate of the total.
    pub(super) total: f64,
    /// Degrees of freedom of the deviations.
    pub(super) freedom: f64,
}

/// Memory that is reused for each event.
#[derive(Default)]
pub(super) struct Room {
    /// Counts per ns of each slice seen.
    pub(super) rates: Vec<f64>,
    slopes: Vec<f64>,
    residuals: Vec<f64>,
    scores: Vec<f64>,
    totals: Vec<f64>,
    /// Contribution of each slice seen to the error of the total.
    pub(super) deviations: Vec<f64>,
}

impl<'a> Regression<'a> {
    /// Prepares the regression. `unseen` is the time in each slice that the group missed. At least three
    /// slices have to be seen.
    pub(super) fn new(population: &Population<'_>, seen: &'a [Seen], unseen: &[f64]) -> Self {
        let columns = population.columns;
        let stands_for = weights(population, seen, unseen);
        let running_total: f64 = seen.iter().map(|one| one.running).sum();
        let mut mean = vec![0.0; columns];
        for one in seen {
            for (mean, rate) in mean.iter_mut().zip(population.signature(one.slice)) {
                *mean += one.running / running_total * rate;
            }
        }
        let centred: Vec<f64> = seen
            .iter()
            .flat_map(|one| population.signature(one.slice).iter().zip(&mean).map(|(rate, mean)| rate - mean))
            .collect();
        // Over all the owner's time signatures have the mean 0.
        let mut gap: Vec<f64> = mean.iter().map(|mean| -mean * population.time_total).collect();
        for (at, one) in seen.iter().enumerate() {
            for (gap, rate) in gap.iter_mut().zip(&centred[at * columns..]) {
                *gap -= stands_for[at] * one.running * rate;
            }
        }
        let mut regression =
            Self { seen, stands_for, running_total, columns, centred, gap, fits: Vec::new() };
        let moments = regression.moments();
        // Without signatures all ridges are the same.
        let ridges = if columns == 0 { &RIDGES[RIDGES.len() - 1..] } else { &RIDGES[..] };
        regression.fits = ridges.iter().map(|ridge| regression.ridge(&moments, *ridge)).collect();
        regression
    }

    fn signature(&self, at: usize) -> &[f64] {
        &self.centred[at * self.columns..(at + 1) * self.columns]
    }

    fn share(&self, at: usize) -> f64 {
        self.seen[at].running / self.running_total
    }

    /// Returns the second moments of the signatures: the lower triangle, row by row.
    fn moments(&self) -> Vec<f64> {
        let mut moments = vec![0.0; self.columns * self.columns];
        for at in 0..self.seen.len() {
            let (signature, share) = (self.signature(at), self.share(at));
            for (row, left) in signature.iter().enumerate() {
                let into = &mut moments[row * self.columns..=row * self.columns + row];
                for (moment, right) in into.iter_mut().zip(signature) {
                    *moment += share * left * right;
                }
            }
        }
        moments
    }

    fn ridge(&self, moments: &[f64], ridge: f64) -> Ridge {
        let (mut signatures, mut gap) = (Vec::new(), Vec::new());
        if ridge.is_finite() {
            let square_root = Cholesky::new(moments, self.columns, ridge);
            signatures.clone_from(&self.centred);
            gap.clone_from(&self.gap);
            signatures.chunks_exact_mut(self.columns).for_each(|signature| square_root.divide(signature));
            square_root.divide(&mut gap);
        }
        let columns = gap.len();
        let slices = self.seen.len();
        let (mut without_itself, mut lever) = (Vec::with_capacity(slices), Vec::with_capacity(slices));
        let mut parameters = 0.0;
        for at in 0..slices {
            let signature = &signatures[at * columns..(at + 1) * columns];
            let leverage = self.share(at) * (1.0 + dot(signature, signature));
            parameters += leverage;
            without_itself.push(1.0 / (1.0 - leverage.min(LEVERAGE_MAX)));
            let weight = self.stands_for[at] + dot(signature, &gap) / self.running_total;
            lever.push(self.lever(at, weight));
        }
        Ridge { signatures, gap, without_itself, lever, parameters }
    }

    /// Returns the lever of a slice. If the variance of a count is s² times its running time c, a slice with
    /// `weight` in the total adds (weight − 1)²·s²·c to the error. The unseen time for which it stands adds
    /// its own. A rate's difference from its neighbours' has the variance s²·(1/c + 1/theirs).
    fn lever(&self, at: usize, weight: f64) -> f64 {
        let running = self.seen[at].running;
        let neighbours: f64 = self.neighbours(at).iter().map(|other| self.seen[*other].running).sum();
        let share = (weight - 1.0).powi(2) + (self.stands_for[at] - 1.0).max(0.0);
        (share * running / (1.0 / running + 1.0 / neighbours)).sqrt()
    }

    /// Returns the slices before and after, or at an end the next two.
    fn neighbours(&self, at: usize) -> [usize; 2] {
        match at {
            0 => [1, 2],
            _ if at + 1 == self.seen.len() => [at - 1, at - 2],
            _ => [at - 1, at + 1],
        }
    }

    /// Estimates an event from its rates in the slices seen, which are in `room`.
    ///
    /// No ridge is chosen. Each has the weight that its predictions of left-out slices earn it (as in
    /// Bayesian model averaging, at half its sharpness). A choice would ignore that others did nearly as
    /// well.
    pub(super) fn fit(&self, room: &mut Room) -> Fitted {
        let slices = self.seen.len();
        let rates = &room.rates;
        let mean: f64 = rates.iter().enumerate().map(|(at, rate)| self.share(at) * rate).sum();
        let by_time: f64 =
            (0..slices).map(|at| self.stands_for[at] * self.seen[at].running * rates[at]).sum();
        room.residuals.clear();
        room.scores.clear();
        room.totals.clear();
        for ridge in &self.fits {
            self.slopes(ridge, rates, mean, &mut room.slopes);
            let columns = ridge.gap.len();
            let mut score = 0.0;
            for (at, rate) in rates.iter().enumerate() {
                let predicted = dot(&ridge.signatures[at * columns..(at + 1) * columns], &room.slopes);
                let residual = (rate - mean - predicted) * ridge.without_itself[at];
                score += self.seen[at].running * residual * residual;
                room.residuals.push(residual);
            }
            room.scores.push(-0.25 * slices as f64 * score.max(f64::MIN_POSITIVE).ln());
            room.totals.push(by_time + dot(&room.slopes, &ridge.gap));
        }
        let best = room.scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        room.scores.iter_mut().for_each(|score| *score = (*score - best).exp());
        let sum: f64 = room.scores.iter().sum();
        room.deviations.clear();
        room.deviations.resize(slices, 0.0);
        let (mut total, mut parameters) = (0.0, 0.0);
        for (at, ridge) in self.fits.iter().enumerate() {
            let weight = room.scores[at] / sum;
            total += weight * room.totals[at];
            parameters += weight * ridge.parameters;
            let residuals = &room.residuals[at * slices..(at + 1) * slices];
            self.deviate(ridge, residuals, weight, &mut room.deviations);
        }
        Fitted { total, freedom: freedom(&room.deviations, parameters) }
    }

    fn slopes(&self, ridge: &Ridge, rates: &[f64], mean: f64, slopes: &mut Vec<f64>) {
        slopes.clear();
        slopes.resize(ridge.gap.len(), 0.0);
        if slopes.is_empty() {
            return;
        }
        for (at, (rate, signature)) in
            rates.iter().zip(ridge.signatures.chunks_exact(slopes.len())).enumerate()
        {
            let pull = self.share(at) * (rate - mean);
            for (slope, number) in slopes.iter_mut().zip(signature) {
                *slope += pull * number;
            }
        }
    }

    /// Adds each slice's deviation from its neighbours, so that a drift which all turns followed is not an
    /// error.
    fn deviate(&self, ridge: &Ridge, residuals: &[f64], weight: f64, deviations: &mut [f64]) {
        for (at, deviation) in deviations.iter_mut().enumerate() {
            let [one, other] = self.neighbours(at);
            let (one_ns, other_ns) = (self.seen[one].running, self.seen[other].running);
            let near = (one_ns * residuals[one] + other_ns * residuals[other]) / (one_ns + other_ns);
            *deviation += weight * ridge.lever[at] * (residuals[at] - near);
        }
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// Returns the degrees of freedom: those that the regression leaves, or fewer if there are a few large
/// deviations among small ones. With normal deviations (Σd²)² / Σd⁴ is a third of their number. Half of that
/// is used, because few deviations do not show their own tail (bursts): the simulation misses the truth more
/// often without.
fn freedom(deviations: &[f64], parameters: f64) -> f64 {
    let (squares, fourths) = deviations.iter().fold((0.0, 0.0), |(squares, fourths), deviation| {
        let square = deviation * deviation;
        (squares + square, fourths + square * square)
    });
    let by_number = FREEDOM * (deviations.len() as f64 - parameters);
    let by_size = if fourths > 0.0 { (3.0 * squares * squares / fourths - 1.0) / 2.0 } else { by_number };
    by_number.min(by_size).max(1.0)
}

/// The lower triangle L of A = L·Lᵀ, row by row.
pub(super) struct Cholesky {
    size: usize,
    lower: Vec<f64>,
}

impl Cholesky {
    /// Splits `matrix` + `ridge` · 1. The matrix (row by row) must not have negative eigenvalues. With a
    /// ridge above what rounding leaves of them, the square roots exist.
    pub(super) fn new(matrix: &[f64], size: usize, ridge: f64) -> Self {
        let mut lower = vec![0.0; size * size];
        for row in 0..size {
            for column in 0..=row {
                let mut rest = matrix[row * size + column];
                if row == column {
                    rest += ridge;
                }
                for k in 0..column {
                    rest -= lower[row * size + k] * lower[column * size + k];
                }
                lower[row * size + column] =
                    if row == column { rest.max(ridge).sqrt() } else { rest / lower[column * size + column] };
            }
        }
        Self { size, lower }
    }

    /// Solves L·x = `side` in place. The square of what remains is side·A⁻¹·side.
    pub(super) fn divide(&self, side: &mut [f64]) {
        for row in 0..self.size {
            let (before, rest) = side.split_at_mut(row);
            let lower = &self.lower[row * self.size..=row * self.size + row];
            let known: f64 = lower.iter().zip(before.iter()).map(|(lower, before)| lower * before).sum();
            rest[0] = (rest[0] - known) / lower[row];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cholesky;

    #[test]
    fn the_square_of_a_quotient_is_the_form_of_the_inverse() {
        // The inverse of this matrix takes (1, −2, 3) to x, by A·x = (1, −2, 3).
        let matrix = [4.0, 2.0, 0.6, 2.0, 3.0, -0.4, 0.6, -0.4, 1.5];
        let x: [f64; 3] = [0.5, -1.25, 2.0];
        let side: Vec<f64> =
            matrix.chunks(3).map(|row| row.iter().zip(&x).map(|(a, x)| a * x).sum()).collect();
        let form: f64 = side.iter().zip(&x).map(|(side, x)| side * x).sum();
        let mut quotient = side;
        Cholesky::new(&matrix, 3, 0.0).divide(&mut quotient);
        assert!((quotient.iter().map(|q| q * q).sum::<f64>() - form).abs() < 1e-12, "{quotient:?}, {form}");
    }

    #[test]
    fn columns_that_are_equal_are_divided_with_a_ridge() {
        let mut quotient = [1.0, 1.0];
        Cholesky::new(&[1.0, 1.0, 1.0, 1.0], 2, 1e-6).divide(&mut quotient);
        let square: f64 = quotient.iter().map(|q| q * q).sum();
        assert!((square - 1.0).abs() < 1e-5, "{quotient:?}");
    }
}
