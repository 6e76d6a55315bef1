//! Totals as other turns might have given them.
//!
//! Each slice in which a group counted brings a deviation, its share of the total's error. A replicate adds them up, each
//! with a sign from a Hadamard matrix: over all replicates the mean square is the sum of squares, exactly (balanced
//! repeated replication: Wolter, Introduction to Variance Estimation, 2007, ch. 3). The n-th slice of every group takes the
//! same row of signs. They are near in time, so what drifts for two events drifts together.

use super::student;

/// Number of replicates: a power of two, for the matrix is Sylvester's. All but one row hold a slice each; from the 32nd
/// slice on they hold several, far enough apart to have nothing to do with each other.
pub const REPLICATES: usize = 32;

/// How far a total may be off.
#[derive(Clone, Debug)]
pub(super) struct Deviations {
    /// In each replicate.
    pub(super) each: [f64; REPLICATES],
    /// Degrees of freedom of their mean square.
    pub(super) freedom: f64,
}

impl Deviations {
    /// From each slice's deviation, in order of time.
    pub(super) fn new(of_slices: &[f64], freedom: f64) -> Self {
        let mut each = [0.0; REPLICATES];
        for (at, deviation) in of_slices.iter().enumerate() {
            each[1 + at % (REPLICATES - 1)] += deviation;
        }
        transform(&mut each);
        Self { each, freedom: freedom.clamp(1.0, (REPLICATES - 1) as f64) }
    }

    /// Half the length of the 95 % interval.
    pub(super) fn reach(&self) -> f64 {
        reach(&self.each, self.freedom)
    }
}

/// Half the length of a 95 % interval, from what each replicate deviates.
pub(super) fn reach(deviations: &[f64], freedom: f64) -> f64 {
    let squares: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
    student::quantile(freedom) * (squares / deviations.len() as f64).sqrt()
}

/// Multiplies by Sylvester's Hadamard matrix, in n·log n additions.
fn transform(numbers: &mut [f64]) {
    let mut half = 1;
    while half < numbers.len() {
        for block in numbers.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                (*low, *high) = (*low + *high, *low - *high);
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::{Deviations, REPLICATES};

    #[test]
    fn the_mean_square_of_the_replicates_is_the_sum_of_squares() {
        let of_slices = [3.0, -1.0, 0.5, 2.0, 2.0];
        let deviations = Deviations::new(&of_slices, 4.0);
        let mean: f64 = deviations.each.iter().map(|d| d * d).sum::<f64>() / REPLICATES as f64;
        assert!((mean - of_slices.iter().map(|d| d * d).sum::<f64>()).abs() < 1e-12, "{mean}");
        assert!(deviations.each.iter().sum::<f64>().abs() < 1e-12);
    }

    #[test]
    fn what_deviates_alike_leaves_a_difference_exact() {
        let one = Deviations::new(&[3.0, -1.0, 0.5], 2.0);
        let other = Deviations::new(&[6.0, -2.0, 1.0], 2.0);
        assert!(one.each.iter().zip(&other.each).all(|(one, other)| (2.0 * one - other).abs() < 1e-12));
    }
}
