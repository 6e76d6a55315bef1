//! Comparison of two numbers: difference, ratio, and the probability of so large a difference by chance
//! alone, corrected for the number of comparisons.

use std::f64::consts::FRAC_PI_2;

use super::{
    super::estimate::student_quantile,
    series::{Estimate, Spread},
};

/// Accepted probability of a false finding.
pub const LEVEL: f64 = 0.05;
/// Name of the correction for the number of comparisons, in outputs.
pub const METHOD: &str = "benjamini-hochberg";

/// Number with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounded {
    /// Value of the number.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tested {
    /// Difference: second side minus first.
    pub difference: Bounded,
    /// Difference as a share of the first side; `None` where that may be 0.
    pub relative: Option<Bounded>,
    /// Probability of a difference as large, if there were none.
    pub p: f64,
    /// Probability corrected for the number of comparisons.
    pub p_adjusted: f64,
    /// Degrees of freedom of the difference.
    pub freedom: f64,
}

impl Tested {
    /// Returns whether the difference exceeds chance, corrected for the number of comparisons.
    pub fn is_significant(&self) -> bool {
        self.p_adjusted < LEVEL
    }
}

/// Returns the probability that Student's t is farther from 0 than `t`. With θ = atan(t/√ν) its density is
/// that of cos^(ν−1) θ.
pub(super) fn two_sided(t: f64, freedom: f64) -> f64 {
    // Above 1000 degrees of freedom the distribution is normal, to three digits of any p that matters.
    let power = freedom.clamp(1.0, 1000.0) - 1.0;
    let density = |angle: f64| angle.cos().max(0.0).powf(power);
    let from = (t.abs() / freedom.clamp(1.0, 1000.0).sqrt()).atan();
    simpson(density, from, FRAC_PI_2) / simpson(density, 0.0, FRAC_PI_2)
}

fn simpson(of: impl Fn(f64) -> f64, from: f64, to: f64) -> f64 {
    const STEPS: usize = 1000;
    let step = (to - from) / STEPS as f64;
    let weight = |index: usize| match index {
        0 | STEPS => 1.0,
        index if index % 2 == 1 => 4.0,
        _ => 2.0,
    };
    (0..=STEPS).map(|index| weight(index) * of(from + step * index as f64)).sum::<f64>() * step / 3.0
}

/// Returns the interval of one side's number.
pub fn interval(estimate: &Estimate) -> Option<Bounded> {
    let spread = estimate.spread.as_ref().ok()?;
    Some(bounded(estimate.value, student_quantile(spread.freedom) * spread.variance.sqrt()))
}

fn bounded(value: f64, half: f64) -> Bounded {
    Bounded { value, low: value - half, high: value + half }
}

/// Compares `b` with `a` by Welch's t with the degrees of freedom of Satterthwaite. The ratio's interval is
/// Fieller's, so that it agrees with the difference's.
///
/// # Errors
///
/// Returns the reason why a comparison is not possible.
pub(super) fn contrast(a: &Estimate, b: &Estimate) -> Result<Tested, String> {
    let of = |estimate: &Estimate| estimate.spread.clone();
    let (from, to): (Spread, Spread) = (of(a)?, of(b)?);
    let variance = from.variance + to.variance;
    let freedom = if variance > 0.0 {
        variance.powi(2) / (from.variance.powi(2) / from.freedom + to.variance.powi(2) / to.freedom)
    } else {
        from.freedom.min(to.freedom)
    };
    let (difference, reach) = (b.value - a.value, student_quantile(freedom));
    // Sums of the same numbers in another order differ in their last digits.
    let is_same = difference.abs() <= 1e-9 * a.value.abs().max(b.value.abs());
    let p = match variance > 0.0 {
        _ if is_same => 1.0,
        true => two_sided(difference / variance.sqrt(), freedom),
        false => 0.0,
    };
    Ok(Tested {
        difference: bounded(difference, reach * variance.sqrt()),
        relative: relative((a.value, from.variance), (b.value, to.variance), reach),
        p,
        p_adjusted: p,
        freedom,
    })
}

/// Returns `b ÷ a − 1`; `None` where `a` may be 0.
fn relative((a, of_a): (f64, f64), (b, of_b): (f64, f64), reach: f64) -> Option<Bounded> {
    let square = reach * reach;
    let below = a * a - square * of_a;
    if below <= 0.0 || a == 0.0 {
        return None;
    }
    let root = ((a * b).powi(2) - below * (b * b - square * of_b)).max(0.0).sqrt();
    let [low, high] = [(a * b - root) / below, (a * b + root) / below];
    let (low, high) = (low.min(high), low.max(high));
    Some(Bounded { value: b / a - 1.0, low: low - 1.0, high: high - 1.0 })
}

/// Corrects for the number of comparisons. Among those below a level after correction, at most that share is
/// expected by chance (Benjamini and Hochberg, J. R. Stat. Soc. B 57, 1995). Where nothing differs, the level
/// is the probability of any finding at all, as with Holm's correction. Where something differs, more of it
/// is found, because a list that is read from its top may hold an error in twenty rows.
pub(super) fn correct(tested: &mut [&mut Tested]) {
    tested.sort_by(|left, right| left.p.total_cmp(&right.p));
    let (count, mut least) = (tested.len() as f64, 1.0_f64);
    for (rank, one) in tested.iter_mut().enumerate().rev() {
        least = least.min(one.p * count / (rank + 1) as f64);
        one.p_adjusted = least;
    }
}

#[cfg(test)]
mod tests {
    use super::{Tested, bounded, contrast, correct, two_sided};
    use crate::metric::{
        diff::series::{Estimate, Spread},
        estimate::student_quantile,
    };

    #[test]
    fn the_chance_beyond_the_95_percent_quantile_is_5_percent() {
        for freedom in [1.0, 2.0, 3.0, 7.5, 10.0, 30.0, 120.0, 5000.0] {
            let p = two_sided(student_quantile(freedom), freedom);
            assert!((p - 0.05).abs() < 5e-4, "{freedom}: {p}");
        }
        // R: 2 * pt(-5, 4) and 2 * pt(-8, 20).
        assert!((two_sided(5.0, 4.0) / 7.490_5e-3 - 1.0).abs() < 1e-3);
        assert!((two_sided(-8.0, 20.0) / 1.160_8e-7 - 1.0).abs() < 1e-2);
    }

    fn estimate(value: f64, variance: f64) -> Estimate {
        Estimate { value, spread: Ok(Spread { variance, freedom: 9.0 }) }
    }

    #[test]
    fn difference_ratio_and_chance_say_the_same() {
        for value in [100.0, 101.0, 102.0, 103.0, 104.0, 105.0, 110.0, 120.0] {
            let tested = contrast(&estimate(100.0, 1.0), &estimate(value, 2.0)).unwrap();
            let relative = tested.relative.unwrap();
            let beyond = tested.difference.low > 0.0;
            assert_eq!(beyond, relative.low > 0.0, "{value}");
            assert_eq!(beyond, tested.p < 0.05, "{value}: {tested:?}");
            assert!((relative.value * 100.0 - tested.difference.value).abs() < 1e-9);
        }
    }

    #[test]
    fn nothing_is_a_share_of_what_may_be_nothing() {
        assert_eq!(contrast(&estimate(1.0, 1.0), &estimate(9.0, 1.0)).unwrap().relative, None);
        assert_eq!(contrast(&estimate(0.0, 0.0), &estimate(9.0, 1.0)).unwrap().relative, None);
    }

    #[test]
    fn what_never_varies_differs_or_does_not() {
        assert_eq!(contrast(&estimate(5.0, 0.0), &estimate(5.0, 0.0)).unwrap().p, 1.0);
        assert_eq!(contrast(&estimate(5.0, 0.0), &estimate(6.0, 0.0)).unwrap().p, 0.0);
    }

    #[test]
    fn a_correction_keeps_the_order_and_multiplies_by_number_over_rank() {
        let tested =
            |p| Tested { difference: bounded(0.0, 1.0), relative: None, p, p_adjusted: p, freedom: 9.0 };
        let mut all = [0.04, 0.01, 0.03, 0.5].map(tested);
        correct(&mut all.iter_mut().collect::<Vec<_>>());
        let adjusted = all.map(|one| (one.p_adjusted * 1e4).round());
        assert_eq!(adjusted, [533.0, 400.0, 533.0, 5000.0]);
    }
}
