//! Replicates of totals, as other turns might have given them.
//!
//! Each slice in which a group counted has a deviation, its share of the total's error. A replicate adds them
//! up, each with a sign from a Hadamard matrix. Over all replicates the mean square is the sum of squares,
//! exactly (balanced repeated replication: Wolter, Introduction to Variance Estimation, 2007, ch. 3). The
//! n-th slice of every group takes the same row of signs. They are near in time, so what drifts for two
//! events drifts together.

use std::{array, cell::Cell};

use super::{Estimate, Estimates, EventIndex};
use crate::{
    metric::value::{How, Known, Value},
    table::unit::Unit,
};

/// Number of replicates: a power of two, because the matrix is Sylvester's. All rows but one hold a slice
/// each. From the 32nd slice on they hold several, far enough apart to be independent.
pub const REPLICATES: usize = 32;

/// Deviations of a total in the replicates.
#[derive(Clone, Debug)]
pub(super) struct Deviations {
    /// Deviation in each replicate.
    pub(super) each: [f64; REPLICATES],
    /// Degrees of freedom of their mean square.
    pub(super) freedom: f64,
}

impl Deviations {
    /// Returns the deviations in the replicates, from each slice's deviation, in order of time.
    pub(super) fn new(of_slices: &[f64], freedom: f64) -> Self {
        let mut each = [0.0; REPLICATES];
        for (at, deviation) in of_slices.iter().enumerate() {
            each[1 + at % (REPLICATES - 1)] += deviation;
        }
        transform(&mut each);
        Self { each, freedom: freedom.clamp(1.0, (REPLICATES - 1) as f64) }
    }

    /// Returns half the length of the 95 % interval.
    pub(super) fn reach(&self) -> f64 {
        reach(&self.each, self.freedom)
    }
}

/// Returns half the length of a 95 % interval, from the deviation of each replicate.
pub(super) fn reach(deviations: &[f64], freedom: f64) -> f64 {
    let squares: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
    student_quantile(freedom) * (squares / deviations.len() as f64).sqrt()
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

/// Quantile that leaves 2.5 % above, at 1 to 10 degrees of freedom and then at those of `SPARSE`.
const DENSE: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
const SPARSE: [(f64, f64); 6] =
    [(10.0, 2.228), (15.0, 2.131), (20.0, 2.086), (30.0, 2.042), (60.0, 2.000), (120.0, 1.980)];

/// Returns Student's t: the number of standard errors that a 95 % interval reaches with `freedom` degrees of
/// freedom, from 1 up. Between those of the table it is interpolated by their reciprocals.
pub fn student_quantile(freedom: f64) -> f64 {
    let freedom = freedom.max(1.0);
    let between = |(from, low): (f64, f64), (to, high): (f64, f64)| {
        low + (high - low) * (1.0 / from - 1.0 / freedom) / (1.0 / from - 1.0 / to)
    };
    if freedom < 10.0 {
        let from = freedom.floor();
        let at = from as usize - 1;
        return between((from, DENSE[at]), (from + 1.0, DENSE[at + 1]));
    }
    match SPARSE.windows(2).find(|pair| freedom < pair[1].0) {
        Some(pair) => between(pair[0], pair[1]),
        None => between(SPARSE[5], (f64::INFINITY, crate::metric::value::Z)),
    }
}

/// Number of undefined replicates above which a metric has no interval, hence no value.
const UNDEFINED_MAX: usize = REPLICATES / 4;

/// Record of the events that a formula requested, in all of its evaluations.
#[derive(Default)]
struct Asked {
    missing: Cell<Option<usize>>,
    coverage: Cell<Option<f64>>,
    freedom: Cell<Option<f64>>,
}

impl Asked {
    /// Returns a value with the interval of its replicas. A replica that is not finite is undefined.
    fn value(&self, estimate: f64, replicas: &[f64; REPLICATES]) -> Value {
        let deviations = replicas.map(|total| total - estimate);
        let defined = || deviations.iter().filter(|deviation| deviation.is_finite());
        if REPLICATES - defined().count() > UNDEFINED_MAX {
            return Value::Missing(
                "its events are too uncertain: within their error it is undefined".to_owned(),
            );
        }
        let farthest = defined().fold(0.0_f64, |farthest, deviation| farthest.max(deviation.abs()));
        let all = deviations.map(|deviation| if deviation.is_finite() { deviation } else { farthest });
        let reach = reach(&all, self.freedom.get().unwrap_or(1.0));
        let coverage = self.coverage.get().unwrap_or(1.0);
        Value::Known(Known {
            estimate,
            low: estimate - reach,
            high: estimate + reach,
            coverage,
            how: How::Scaled,
        })
    }
}

impl Estimates {
    /// Returns the value of a formula over totals. `formula` receives a function that returns an event's
    /// total (`None` if it is missing), and returns `None` where it is undefined.
    ///
    /// The interval is the estimate ± t · the replicates' root mean square deviation from it. t has the
    /// degrees of freedom of the worst known event requested. Coverage is the smallest of theirs. The value
    /// is missing if the formula is undefined for the estimates, or in more than a quarter of the replicates.
    /// Fewer count as far off as the farthest that is defined. A formula over exact counts is exact.
    pub fn metric(&self, formula: impl Fn(&dyn Fn(EventIndex) -> Option<f64>) -> Option<f64>) -> Value {
        let asked = Asked::default();
        let defined = |number: &f64| number.is_finite();
        let Some(estimate) = formula(&|event| self.ask(event, None, &asked)).filter(defined) else {
            return Value::Missing(self.why_undefined(&asked));
        };
        if asked.freedom.get().is_none() {
            return Value::exact(estimate);
        }
        let replicas = array::from_fn(|replicate| {
            formula(&|event| self.ask(event, Some(replicate), &asked)).unwrap_or(f64::NAN)
        });
        asked.value(estimate, &replicas)
    }

    /// Returns the same as [`Estimates::metric`] for a formula that the caller has evaluated. `estimate` is
    /// over the totals of `events`, `replicas` are over their replicates. A replica that is not finite is
    /// undefined. Without replicas the value is exact. Its interval is cut to the range of its unit.
    pub fn evaluated(
        &self,
        events: &[EventIndex],
        estimate: f64,
        replicas: Option<&[f64; REPLICATES]>,
        unit: Unit,
    ) -> Value {
        let asked = Asked::default();
        for &event in events {
            if self.ask(event, None, &asked).is_none() {
                return Value::Missing(self.why_undefined(&asked));
            }
        }
        let Some(replicas) = replicas.filter(|_| asked.freedom.get().is_some()) else {
            return Value::exact(estimate);
        };
        match asked.value(estimate, replicas) {
            Value::Known(known) => Value::Known(known.within(unit)),
            missing => missing,
        }
    }

    /// Returns an event's total, in a replicate or by estimate, and records the request in `asked`.
    fn ask(&self, event: EventIndex, replicate: Option<usize>, asked: &Asked) -> Option<f64> {
        match self.events.get(event.0) {
            Some(Estimate::Exact(count)) => Some(*count as f64),
            Some(Estimate::Scaled(scaled)) => {
                let least = |cell: &Cell<Option<f64>>, number: f64| {
                    cell.set(Some(cell.get().map_or(number, |least| least.min(number))));
                };
                least(&asked.coverage, scaled.coverage);
                least(&asked.freedom, scaled.deviations.freedom);
                Some(replicate.map_or(scaled.total, |replicate| scaled.replicate(replicate)))
            }
            Some(Estimate::Missing(_)) | None => {
                asked.missing.set(asked.missing.get().or(Some(event.0)));
                None
            }
        }
    }

    fn why_undefined(&self, asked: &Asked) -> String {
        match asked.missing.get().map(|event| self.value(EventIndex(event))) {
            Some(Value::Missing(why)) => why,
            _ => "its formula is undefined for these counts, as a ratio over nothing is".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Deviations, REPLICATES, student_quantile};

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

    #[test]
    fn the_quantile_falls_from_that_of_one_degree_to_that_of_the_normal() {
        // Abramowitz and Stegun, table 26.10.
        for (freedom, expected) in [(1.0, 12.706), (7.0, 2.365), (12.0, 2.179), (40.0, 2.021), (1e12, 1.960)]
        {
            assert!(
                (student_quantile(freedom) - expected).abs() < 0.003,
                "{freedom}: {}",
                student_quantile(freedom)
            );
        }
        assert!((10..400).all(|tenths| {
            let freedom = f64::from(tenths) / 10.0;
            student_quantile(freedom) > student_quantile(freedom + 0.1)
        }));
    }
}
