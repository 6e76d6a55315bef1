//! Numbers with their uncertainty, or the reason why they are missing.

use crate::{
    model::histogram::{Bucket, Histogram},
    named::named,
    table::unit::Unit,
};

/// Quantiles of a distribution that are shown: name and share.
pub const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

named! {
    /// Method by which a number was obtained.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum How {
        Counted = "counted", "Every occurrence was counted.";
        Scaled = "scaled", "Counted part of the time and scaled to all of it.";
        Sampled = "sampled", "Estimated from samples.";
        Apportioned = "apportioned", "A share of what was counted for several owners together.";
    }
}

/// Number, or the reason why it is missing. A missing number is never 0.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Number that is known.
    Known(Known),
    /// Reason why it is missing.
    Missing(String),
}

/// Number with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Best estimate of the number.
    pub estimate: f64,
    /// Lower end of its 95 % interval; equal to the estimate if it is exact.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Share of the time, or of the occurrences, on which it rests (0 to 1).
    pub coverage: f64,
    /// Method by which it was obtained.
    pub how: How,
}

impl Known {
    /// Returns the number multiplied by `factor`.
    pub fn times(&self, factor: f64) -> Self {
        let (estimate, low, high) = (self.estimate * factor, self.low * factor, self.high * factor);
        Self { estimate, low, high, ..*self }
    }

    /// Limits the interval to values that the unit allows: not below 0, and no share above the whole. An
    /// estimate outside of that, as a ratio of two counters may be, stays in its interval.
    pub fn within(&self, unit: Unit) -> Self {
        let (low, high) =
            (self.low.max(self.estimate.min(0.0)), self.high.min(self.estimate.max(unit.most())));
        Self { low, high, ..*self }
    }

    /// Returns the sum of both. Errors of both may have the same sign.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            estimate: self.estimate + other.estimate,
            low: self.low + other.low,
            high: self.high + other.high,
            coverage: self.coverage.min(other.coverage),
            how: if self.how == How::Counted { other.how } else { self.how },
        }
    }
}

impl Value {
    /// Returns an exact count.
    pub fn counted(count: u64, coverage: f64) -> Self {
        let estimate = count as f64;
        Self::Known(Known { estimate, low: estimate, high: estimate, coverage, how: How::Counted })
    }

    /// Returns a number that was computed from exact ones.
    pub const fn exact(estimate: f64) -> Self {
        Self::Known(Known { estimate, low: estimate, high: estimate, coverage: 1.0, how: How::Counted })
    }

    /// Returns the number, if it is known.
    pub const fn known(&self) -> Option<&Known> {
        match self {
            Self::Known(known) => Some(known),
            Self::Missing(_) => None,
        }
    }

    /// Returns the reason why it is missing, if it is.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Known(_) => None,
            Self::Missing(why) => Some(why),
        }
    }

    /// Returns `numerator / denominator`. A ratio with a denominator of 0 is missing.
    pub fn ratio(numerator: f64, denominator: f64, why_missing: &str) -> Self {
        if denominator == 0.0 {
            return Self::Missing(why_missing.to_owned());
        }
        Self::exact(numerator / denominator)
    }
}

/// Distribution of one quantity, each value counted in its bucket: a quantile is as exact as its bucket is
/// narrow.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Number of values in each bucket: at least one value in total.
    pub histogram: Histogram,
    /// Sum of the values.
    pub sum: u64,
    /// Bounds of the largest value: its bucket, or less.
    pub max: Bucket,
    /// Share of the occurrences of which the value was counted (0 to 1).
    pub coverage: f64,
}

impl Distribution {
    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.histogram.count()
    }

    /// Returns the mean, which is exact.
    pub fn mean(&self) -> Known {
        let mean = self.sum as f64 / self.count().max(1) as f64;
        Known { estimate: mean, low: mean, high: mean, coverage: self.coverage, how: How::Counted }
    }

    /// Returns the value at this quantile (0 to 1): the middle of its bucket, with the bucket's bounds.
    pub fn quantile(&self, quantile: f64) -> Known {
        let bucket = self.histogram.quantile(quantile).unwrap_or(self.max);
        self.known([bucket.middle(), bucket.low, bucket.high].map(|value| value.min(self.max.high)))
    }

    /// Returns [`QUANTILES`] and the largest value, by name.
    pub fn quantiles(&self) -> impl Iterator<Item = (&'static str, Known)> {
        let max = self.known([self.max.middle(), self.max.low, self.max.high]);
        QUANTILES.iter().map(|&(name, share)| (name, self.quantile(share))).chain([("max", max)])
    }

    fn known(&self, [middle, low, high]: [u64; 3]) -> Known {
        // The last bucket has no end.
        let high = if high == u64::MAX { f64::INFINITY } else { high as f64 };
        let (estimate, low) = (middle as f64, low as f64);
        Known { estimate, low, high, coverage: self.coverage, how: How::Counted }
    }
}

/// Quantile of the normal distribution that leaves 2.5 % on each side.
pub(super) const Z: f64 = 1.959_963_984_540_054;

/// Returns the 95 % interval of the mean of a Poisson count (Byar's approximation; Breslow and Day,
/// Statistical Methods in Cancer Research II, 1987, p. 69).
pub fn poisson_interval(count: u64) -> (f64, f64) {
    poisson_bounds(count as f64)
}

/// Returns the same for a count that need not be an integer: samples of different weights correspond to a
/// number of equal ones.
pub(super) fn poisson_bounds(count: f64) -> (f64, f64) {
    let bound = |n: f64, sign: f64| n * (1.0 - 1.0 / (9.0 * n) + sign * Z / (3.0 * n.sqrt())).powi(3);
    let low = if count < 0.5 { 0.0 } else { bound(count, -1.0).max(0.0) };
    (low, bound(count + 1.0, 1.0))
}

/// Returns the 95 % interval of a share of which `hits` of `tries` are a sample (Wilson, J. Am. Stat. Assoc.
/// 22, 1927). Neither need be an integer.
pub(super) fn share_bounds(hits: f64, tries: f64) -> (f64, f64) {
    if tries == 0.0 {
        return (0.0, 1.0);
    }
    let (n, p) = (tries, hits / tries);
    let z2 = Z * Z;
    let middle = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

/// Returns `part / whole`, at most 1; 1 if `whole` is 0.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { (part as f64 / whole as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    use pmu_common::histogram::BLOCK;

    use super::{Distribution, How, Known, Value, poisson_interval, share_bounds};
    use crate::{
        metric::testing::Random,
        model::histogram::Histogram,
        table::{metric::PARTS, unit::Unit},
    };

    #[test]
    fn what_is_said_of_a_latency_has_the_names_of_the_catalogue() {
        let histogram = Histogram::between(BLOCK, &[], &[(40_u16, 1)]);
        let max = histogram.last().unwrap();
        let distribution = Distribution { histogram, sum: 40, max, coverage: 1.0 };
        let names: Vec<_> = distribution.quantiles().map(|(name, _)| name).collect();
        assert_eq!(names, PARTS[1..]);
    }

    fn covered(truth: f64, runs: u32, mut one: impl FnMut() -> (f64, f64)) -> f64 {
        let hits = (0..runs).filter(|_| {
            let (low, high) = one();
            low <= truth && truth <= high
        });
        hits.count() as f64 / f64::from(runs)
    }

    #[test]
    fn the_interval_of_a_poisson_count_covers_its_mean() {
        let mut random = Random(7);
        for mean in [0.3_f64, 2.0, 9.0, 60.0] {
            let coverage = covered(mean, 20_000, || poisson_interval(random.poisson(mean)));
            assert!(coverage >= 0.94, "mean {mean}: {coverage}");
        }
    }

    #[test]
    fn the_interval_of_a_share_covers_it() {
        let mut random = Random(11);
        for (share, tries) in [(0.5, 30), (0.05, 200), (0.9, 1000)] {
            let coverage = covered(share, 10_000, || {
                let hits = (0..tries).filter(|_| random.uniform() < share).count();
                share_bounds(hits as f64, f64::from(tries))
            });
            assert!(coverage >= 0.92, "share {share}: {coverage}");
        }
    }

    #[test]
    fn nothing_seen_is_not_nothing() {
        let (low, high) = poisson_interval(0);
        assert!(low == 0.0 && (3.5..3.8).contains(&high), "{high}");
        assert_eq!(share_bounds(0.0, 0.0), (0.0, 1.0));
    }

    #[test]
    fn an_interval_holds_nothing_that_its_unit_cannot_be() {
        let within = |[estimate, low, high]: [f64; 3], unit: &str| {
            let known = Known { estimate, low, high, coverage: 0.5, how: How::Scaled }.within(Unit::of(unit));
            assert_eq!((known.estimate, known.coverage), (estimate, 0.5));
            [known.low, known.high]
        };
        assert_eq!(within([0.0, -4e-5, 4e-5], "MB/s"), [0.0, 4e-5]);
        assert_eq!(within([97.0, 90.0, 104.0], "%"), [90.0, 100.0]);
        assert_eq!(within([2.0, -1.0, 5.0], "percent"), [0.0, 5.0]);
        assert_eq!(within([300.0, 250.0, 350.0], "ns"), [250.0, 350.0]);
        assert_eq!(within([101.0, 99.0, 103.0], "%"), [99.0, 101.0]);
        assert_eq!(within([-0.5, -2.0, 1.0], "MB/s"), [-0.5, 1.0]);
    }

    #[test]
    fn a_ratio_over_nothing_is_missing() {
        assert_eq!(Value::ratio(3.0, 0.0, "no slots"), Value::Missing("no slots".to_owned()));
    }
}
