//! Numbers that vary over time: the estimate, and its deviation in another run of the same program, from the
//! variation within the recording.
//!
//! Ticks of a run are not independent, so the variance of their mean is not theirs divided by their number.
//! It is the spectrum at frequency 0 (long-run variance). The estimate is the mean of the first few cosine
//! transforms, which are nearly independent of each other. The mean divided by its error then has Student's t
//! distribution with as many degrees of freedom as there are transforms (Lazarus, Lewis, Stock and Watson,
//! HAR Inference: Recommendations for Practice, J. Bus. Econ. Stat. 36, 2018). Their power is extrapolated to
//! frequency 0 by the correlation of successive ticks, as in prewhitening (Andrews and Monahan, Econometrica
//! 60, 1992).

use std::f64::consts::PI;

use super::super::value::Z;

/// Number of parts of a run below which its variation is not known.
pub const PARTS_MIN: usize = 4;
/// Factor for the number of transforms for `n` parts: 0.41 · n^⅔ keeps the size of the test where numbers are
/// autocorrelated (ibid.).
const TRANSFORMS: f64 = 0.41;
/// Degrees of freedom of a transform. The autocorrelation is estimated from the same parts, and
/// Satterthwaite's approximation is a little generous with few degrees. In a simulation, AR(1) numbers with a
/// memory of 0 to 0.8 in 20 to 120 parts were compared at a level of 5 %. Three quarters flag 2 to 5 % of
/// pairs, all degrees flag 5 to 8 %.
const FREEDOM: f64 = 0.75;
/// Maximum correlation of a part with the one before it: beyond it is a trend, of which no recording shows
/// the continuation.
const MEMORY_MAX: f64 = 0.9;

/// Variance of a number, and the degrees of freedom with which it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Variance of the estimate.
    pub variance: f64,
    /// Degrees of freedom of the variance.
    pub freedom: f64,
}

/// Number of one side, with its variation beyond the measured error.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Value of the number.
    pub value: f64,
    /// Variance of the number, or the reason why it is not known.
    pub spread: Result<Spread, String>,
}

/// Returns the long-run variance of the sum of `parts`, which vary around 0, and its degrees of freedom.
/// `None` where there are too few.
fn long_run(parts: &[f64]) -> Option<Spread> {
    let count = parts.len();
    if count < PARTS_MIN {
        return None;
    }
    let transforms = (TRANSFORMS * (count as f64).powf(2.0 / 3.0)).floor().max(1.0);
    let power = |order: usize| {
        let at = |index: usize| (PI * order as f64 * (index as f64 + 0.5) / count as f64).cos();
        let sum: f64 = parts.iter().enumerate().map(|(index, part)| part * at(index)).sum();
        sum * sum * 2.0
    };
    let orders = || 1..=transforms as usize;
    let all: f64 = orders().map(power).sum();
    // Where a part is like the one before it, all transforms but that of frequency 0 have less power than
    // that.
    let memory = memory(parts);
    let below: f64 = orders().map(|order| spectrum(memory, PI * order as f64 / count as f64)).sum();
    Some(Spread { variance: all / below, freedom: (FREEDOM * transforms).max(1.0) })
}

/// Returns the share of a part's deviation that the next one has: the autocorrelation at lag 1, corrected for
/// its downward bias (Kendall, Biometrika 41, 1954). Alternating parts vary less together than apart; that is
/// not exploited.
fn memory(parts: &[f64]) -> f64 {
    let squares: f64 = parts.iter().map(|part| part * part).sum();
    let products: f64 = parts.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if squares == 0.0 {
        return 0.0;
    }
    let found = products / squares;
    (found + (1.0 + 4.0 * found) / parts.len() as f64).clamp(0.0, MEMORY_MAX)
}

/// Returns the power at a frequency, as a share of that at frequency 0, for this memory (an AR(1) process).
fn spectrum(memory: f64, frequency: f64) -> f64 {
    (1.0 - memory).powi(2) / (1.0 - 2.0 * memory * frequency.cos() + memory * memory)
}

/// Returns the reason for a recording that is too short.
pub(super) fn too_few(parts: usize) -> String {
    let ticks = match parts {
        1 => "one tick".to_owned(),
        ticks => format!("{ticks} ticks"),
    };
    format!("{ticks}: variation unknown; record longer, or several runs a side")
}

/// Returns the variance of Σ numerators ÷ Σ denominators, from the variation of the parts of a run. It is
/// linearised as `numerator − ratio · denominator`.
///
/// # Errors
///
/// Returns the reason why it is not known.
pub(super) fn of_ratio(parts: &[(f64, f64)]) -> Result<Spread, String> {
    let present: Vec<_> = parts.iter().filter(|(_, below)| *below > 0.0).collect();
    let (above, below) = present.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    let ratio = above / below;
    let residuals: Vec<f64> = present.iter().map(|part| part.0 - ratio * part.1).collect();
    let Some(spread) = long_run(&residuals) else { return Err(too_few(present.len())) };
    Ok(Spread { variance: spread.variance / (below * below), ..spread })
}

/// Returns the spread with at least the variance of the measured error: that of the half-width, and the
/// `poisson` variance of a count. Variation over time includes these errors, unless they have the same sign
/// in all of it.
pub(super) fn at_least(spread: Spread, half_width: f64, poisson: f64) -> Spread {
    let measured = (half_width / Z).powi(2);
    Spread { variance: spread.variance.max(measured).max(poisson), ..spread }
}

/// Returns the mean of one number over runs, from its `values`.
pub(super) fn of_runs(values: &[f64]) -> (f64, Spread) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, Spread { variance: squares / (count - 1.0) / count, freedom: count - 1.0 })
}
