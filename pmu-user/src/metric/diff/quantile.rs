//! Quantiles of latencies: estimates within their bucket, and their variance from that of the share of values
//! below them (Woodruff, Confidence Intervals for Medians and Other Position Measures, J. Am. Stat. Assoc.
//! 47, 1952).

use super::{
    super::value::Z,
    series::{Estimate, Spread, of_ratio},
};
use crate::model::histogram::{Bucket, Histogram};

/// Number of values above a quantile below which it is not compared: it would be one of the few largest.
const ABOVE_MIN: f64 = 10.0;

/// Returns a bucket's bounds. A bucket without an end extends to twice its start.
fn bounds(bucket: Bucket) -> (f64, f64) {
    let (low, high) = (bucket.low as f64, bucket.high);
    (low, if high == u64::MAX { 2.0 * low.max(1.0) } else { high as f64 + 1.0 })
}

/// Returns the value below which `share` of all values lie, as if they were uniform in their bucket.
fn quantile(all: &Histogram, share: f64) -> f64 {
    let (wanted, mut below) = (share.clamp(0.0, 1.0) * all.count() as f64, 0.0);
    let mut last = 0.0;
    for (bucket, count) in all.iter() {
        let (low, high) = bounds(bucket);
        let count = count as f64;
        if below + count >= wanted {
            return low + (high - low) * ((wanted - below) / count).clamp(0.0, 1.0);
        }
        (below, last) = (below + count, high);
    }
    last
}

/// Returns the number of values below `value`.
fn below(part: &Histogram, value: f64) -> f64 {
    let one = |(bucket, count): (Bucket, u64)| {
        let (low, high) = bounds(bucket);
        count as f64 * ((value - low) / (high - low)).clamp(0.0, 1.0)
    };
    part.iter().map(one).sum()
}

/// Returns the standard deviation of the error from bucketing: none where values are spread over neighbouring
/// buckets, the bucket's own where all are in one.
fn of_bucket(all: &Histogram, value: f64) -> f64 {
    let density = |(bucket, count): &(Bucket, u64)| {
        let (low, high) = bounds(*bucket);
        (low, high, *count as f64 / (high - low))
    };
    let buckets: Vec<_> = all.iter().map(|one| density(&one)).collect();
    let Some(at) = buckets.iter().position(|&(low, high, _)| (low..=high).contains(&value)) else {
        return 0.0;
    };
    let (low, high, here) = buckets[at];
    // Buckets without values are not in the list.
    let lower = buckets.get(at.wrapping_sub(1)).filter(|one| one.1 == low).map_or(0.0, |one| one.2);
    let upper = buckets.get(at + 1).filter(|one| one.0 == high).map_or(0.0, |one| one.2);
    let alone = ((here - f64::midpoint(lower, upper)) / here).max(0.0);
    (high - low) / 12_f64.sqrt() * alone
}

/// Returns the quantile of all parts of a run together.
pub(super) fn of(parts: &[Histogram], share: f64) -> Estimate {
    let mut all = Histogram::default();
    parts.iter().for_each(|part| all.merge(part));
    let (count, value) = (all.count() as f64, quantile(&all, share));
    let spread = spread(parts, &all, share, value);
    let few = (1.0 - share).min(share) * count < ABOVE_MIN;
    let why = || format!("{count} values are too few for this quantile");
    Estimate { value, spread: if few { Err(why()) } else { spread } }
}

fn spread(parts: &[Histogram], all: &Histogram, share: f64, value: f64) -> Result<Spread, String> {
    let count = all.count() as f64;
    let of_part = |part: &Histogram| (below(part, value), part.count() as f64);
    let over_time = of_ratio(&parts.iter().map(of_part).collect::<Vec<_>>())?;
    // Independent values would vary by this much.
    let binomial = share * (1.0 - share) / count;
    let deviation = over_time.variance.max(binomial).sqrt();
    let (low, high) =
        ((share - Z * deviation).max(0.5 / count), (share + Z * deviation).min(1.0 - 0.5 / count));
    // Movement of the quantile for each unit of share.
    let slope = (quantile(all, high) - quantile(all, low)) / (high - low);
    let variance = (slope * deviation).powi(2) + of_bucket(all, value).powi(2);
    Ok(Spread { variance, ..over_time })
}
