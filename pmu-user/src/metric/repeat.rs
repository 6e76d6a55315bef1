//! Repeated measurements: the mean, its interval, and outliers.

use super::{
    estimate::student_quantile,
    value::{How, Known, Value},
};

/// Modified z-score above which a run is an outlier (Iglewicz and Hoaglin, How to Detect and Handle Outliers,
/// 1993, p. 11).
const SCORE_MAX: f64 = 3.5;
/// Smallest distance from the median, as a share of it, at which a run is an outlier, however steady the
/// others are.
const SHARE_MIN: f64 = 0.05;
/// Smallest number of runs that shows the usual spread.
const RUNS_MIN: usize = 5;

/// Run with a number far from that of the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// Number of the run, from 1.
    pub run: u32,
    /// Name of the measurement.
    pub what: String,
    /// Unit of the numbers.
    pub unit: String,
    /// Number in this run.
    pub value: f64,
    /// Median of all runs.
    pub median: f64,
    /// Modified z-score: distance in robust standard deviations.
    pub score: f64,
}

/// Returns values of several runs as one: the mean with its 95 % interval by Student's t. One run keeps its
/// own interval. A run without the value makes the result missing.
pub fn over_runs(runs: &[&Value]) -> Value {
    let mut known: Vec<Known> = Vec::with_capacity(runs.len());
    for (run, value) in (1..).zip(runs) {
        match value {
            Value::Known(one) => known.push(*one),
            Value::Missing(why) if runs.len() == 1 => return Value::Missing(why.clone()),
            Value::Missing(why) => return Value::Missing(format!("in run {run}: {why}")),
        }
    }
    let [first, .., _] = known.as_slice() else {
        return known
            .first()
            .map_or_else(|| Value::Missing("there was no run".to_owned()), |one| Value::Known(*one));
    };
    let count = known.len() as f64;
    let estimates: Vec<f64> = known.iter().map(|one| one.estimate).collect();
    let (mean, error) = mean_and_error(&estimates);
    let half = student_quantile(count - 1.0) * error;
    let scaled = known.iter().any(|one| one.how == How::Scaled);
    Value::Known(Known {
        estimate: mean,
        // Nothing that is counted can be negative.
        low: (mean - half).max(0.0),
        high: mean + half,
        coverage: known.iter().map(|one| one.coverage).sum::<f64>() / count,
        how: if scaled { How::Scaled } else { first.how },
    })
}

/// Returns the mean of two values or more, and its standard error.
pub fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt())
}

/// Returns the ratio of the sums of several runs, as one long run would: a mean of ratios gives a short run
/// the weight of a long one. `above` holds the numerators of the runs' ratios.
pub fn ratio_over_runs(above: &[&Value], ratios: &[&Value]) -> Value {
    let Value::Known(mean) = over_runs(ratios) else { return over_runs(ratios) };
    let known = |values: &[&Value]| values.iter().map(|value| Some(value.known()?.estimate)).collect();
    let (Some(above), Some(ratios)): (Option<Vec<f64>>, Option<Vec<f64>>) = (known(above), known(ratios))
    else {
        return Value::Known(mean);
    };
    // A ratio of 0 does not determine its denominator: the mean of the other runs' is used.
    let below: Vec<Option<f64>> =
        above.iter().zip(&ratios).map(|(above, ratio)| (*ratio > 0.0).then(|| above / ratio)).collect();
    let (sum, count) = below.iter().flatten().fold((0.0, 0.0), |(sum, count), one| (sum + one, count + 1.0));
    if count == 0.0 || sum == 0.0 {
        return Value::Known(mean);
    }
    let below_mean = sum / count;
    let runs = above.len() as f64;
    let estimate = above.iter().sum::<f64>() / (below_mean * runs);
    // Cochran, Sampling Techniques, 6.4: the variance of each run's residual from the ratio of all.
    let rests = above.iter().zip(&below);
    let squares: f64 =
        rests.map(|(above, below)| (above - estimate * below.unwrap_or(below_mean)).powi(2)).sum();
    let half = if runs > 1.0 {
        student_quantile(runs - 1.0) * (squares / (runs - 1.0) / runs).sqrt() / below_mean
    } else {
        0.0
    };
    let bounds =
        if runs > 1.0 { ((estimate - half).max(0.0), estimate + half) } else { (mean.low, mean.high) };
    Value::Known(Known { estimate, low: bounds.0, high: bounds.1, ..mean })
}

/// Returns the outliers: their index and modified z-score, in order.
pub fn outliers(values: &[f64]) -> Vec<(usize, f64)> {
    if values.len() < RUNS_MIN {
        return Vec::new();
    }
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let (absolute, mean) = (median(&distances), distances.iter().sum::<f64>() / distances.len() as f64);
    // Where more than half of the runs agree exactly, the mean deviation replaces it (Iglewicz and Hoaglin,
    // ibid.).
    let deviation = if absolute > 0.0 { absolute / 0.6745 } else { mean * 1.253_314 };
    let score = |distance: f64| if deviation > 0.0 { distance / deviation } else { 0.0 };
    let far = |distance: f64| score(distance) > SCORE_MAX && distance > SHARE_MIN * middle.abs();
    distances
        .iter()
        .enumerate()
        .filter(|(_, one)| far(**one))
        .map(|(index, one)| (index, score(*one)))
        .collect()
}

/// Returns the median of the values; the mean of the two middle ones if their number is even.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match (sorted.get(half), sorted.len() % 2) {
        (None, _) => 0.0,
        (Some(upper), 0) => f64::midpoint(sorted[half - 1], *upper),
        (Some(middle), _) => *middle,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{outliers, over_runs, ratio_over_runs};
    use crate::metric::value::{How, Known, Value};

    #[test]
    fn runs_become_their_mean_with_student_s_interval() {
        let values = [10, 12, 14].map(|count| Value::counted(count, 1.0));
        let Value::Known(mean) = over_runs(&values.iter().collect::<Vec<_>>()) else { panic!() };
        assert_eq!((mean.estimate, mean.how), (12.0, How::Counted));
        // 4.3027 · 2 / √3.
        assert!((mean.high - 16.968).abs() < 0.001 && (mean.low - 7.032).abs() < 0.001, "{mean:?}");
    }

    #[test]
    fn a_ratio_of_runs_is_that_of_their_sums() {
        // 1 of 10, 1 of 1 and 0: 2 of 16.5, as the denominator of the last is taken to be the mean of the
        // others.
        let value = |estimate: f64| {
            Value::Known(Known { estimate, low: 0.0, high: 9.0, coverage: 1.0, how: How::Counted })
        };
        let (above, ratios) = ([1.0, 1.0, 0.0].map(value), [0.1, 1.0, 0.0].map(value));
        let refs = |values: &[Value]| {
            ratio_over_runs(&above.iter().collect::<Vec<_>>(), &values.iter().collect::<Vec<_>>())
        };
        let Value::Known(ratio) = refs(&ratios) else { panic!() };
        assert!((ratio.estimate - 2.0 / 16.5).abs() < 1e-12, "{ratio:?}");
        assert!(ratio.low <= ratio.estimate && ratio.estimate < ratio.high, "{ratio:?}");
        // Where all are equal, the interval has no width.
        let (above, ratios) = ([2.0, 4.0].map(value), [0.5, 0.5].map(value));
        let Value::Known(ratio) =
            ratio_over_runs(&above.iter().collect::<Vec<_>>(), &ratios.iter().collect::<Vec<_>>())
        else {
            panic!()
        };
        assert_eq!((ratio.estimate, ratio.low, ratio.high), (0.5, 0.5, 0.5));
    }

    #[test]
    fn one_run_keeps_what_it_knew() {
        let one = Value::Known(Known { estimate: 5.0, low: 4.0, high: 7.0, coverage: 0.5, how: How::Scaled });
        assert_eq!(over_runs(&[&one]), one);
        let missing = Value::Missing("never ran".to_owned());
        assert_eq!(over_runs(&[&missing]), missing);
    }

    #[test]
    fn a_run_without_the_number_leaves_no_mean() {
        let (known, missing) = (Value::counted(5, 1.0), Value::Missing("never ran".to_owned()));
        assert_eq!(over_runs(&[&known, &missing]), Value::Missing("in run 2: never ran".to_owned()));
    }

    #[test]
    fn the_interval_covers_the_mean_of_normal_numbers_in_95_of_100_cases() {
        let mut state = 42_u64;
        let mut uniform = || {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
        };
        let tries = 10_000;
        let covered = (0..tries).filter(|_| {
            // Twelve uniform numbers are nearly normal, with deviation 1.
            let normal: Vec<Value> = (0..5)
                .map(|_| {
                    let estimate = 100.0 + (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
                    Value::Known(Known {
                        estimate,
                        low: estimate,
                        high: estimate,
                        coverage: 1.0,
                        how: How::Counted,
                    })
                })
                .collect();
            let Value::Known(mean) = over_runs(&normal.iter().collect::<Vec<_>>()) else { panic!() };
            (mean.low..=mean.high).contains(&100.0)
        });
        let share = covered.count() as f64 / f64::from(tries);
        assert!((0.94..0.96).contains(&share), "{share}");
    }

    #[test]
    fn a_run_that_stands_out_is_found_and_its_score_is_robust() {
        let found = outliers(&[10.0, 10.2, 9.9, 10.1, 30.0, 10.0]);
        assert_eq!(found.len(), 1);
        // Median 10.05; the middle distance is 0.1: 0.6745 · 19.95 / 0.1.
        assert!(found[0].0 == 4 && (found[0].1 - 134.56).abs() < 0.5, "{found:?}");
        assert_eq!(outliers(&[10.0, 10.2, 9.9, 10.1, 10.3, 10.0]), []);
    }

    #[test]
    fn steady_runs_have_no_outlier_for_a_count_more_or_less() {
        assert_eq!(outliers(&[93.0, 93.0, 93.0, 93.0, 94.0, 93.0]), []);
        assert_eq!(outliers(&[7.0; 9]), []);
        let one = outliers(&[93.0, 93.0, 93.0, 93.0, 93.0, 93.0, 200.0]);
        assert_eq!(one.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn few_runs_have_no_outliers() {
        assert_eq!(outliers(&[1.0, 1.0, 1.0, 900.0]), []);
    }

    proptest! {
        #[test]
        fn the_mean_lies_in_its_interval(counts in prop::collection::vec(any::<u32>(), 1..20)) {
            let values: Vec<Value> = counts.iter().map(|count| Value::counted(u64::from(*count), 1.0)).collect();
            let Value::Known(mean) = over_runs(&values.iter().collect::<Vec<_>>()) else { panic!() };
            prop_assert!(mean.low <= mean.estimate && mean.estimate <= mean.high);
        }
    }
}
