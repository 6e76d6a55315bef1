//! Native histograms: buckets as powers of 2^(1/8). pmbpf's buckets divide each power of two evenly. One of
//! them is split where it contains the edge of a native bucket. The total count stays the same. A quantile
//! stays in its original bucket, or next to its edge.

use std::collections::BTreeMap;

use super::message::BucketSpan;
use crate::metric::exposed::Observed;

/// log2 of the number of buckets per power of two.
pub(super) const SCHEMA: i32 = 3;
/// Threshold up to which a value counts as 0. It is less than the shortest time that there is.
pub(super) const ZERO_THRESHOLD_S: f64 = 0.5e-9;

/// Counts of native buckets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Native {
    /// Number of values of 0.
    pub(super) zeros: u64,
    /// Start and length of each run of consecutive buckets.
    pub(super) spans: Vec<BucketSpan>,
    /// Counts, each as the difference from the previous one.
    pub(super) deltas: Vec<i64>,
}

/// Returns the number of values of 0, and the counts of buckets by index. The upper bound of a bucket is
/// 2^(index/8) s.
pub(super) fn buckets(observed: &Observed) -> (u64, BTreeMap<i32, u64>) {
    let (mut zeros, mut counts) = (0, BTreeMap::<i32, u64>::new());
    for (bucket, count) in observed.buckets.iter() {
        if bucket.high == 0 {
            zeros += count;
            continue;
        }
        // The last bucket has no end: its values are counted where it begins.
        let end = if bucket.high == u64::MAX { bucket.low } else { bucket.high + 1 };
        part(bucket.low as f64 * 1e-9, end as f64 * 1e-9, count, &mut counts);
    }
    (zeros, counts)
}

impl Native {
    /// Returns the native buckets of values in ns, as values in s.
    pub(super) fn of(observed: &Observed) -> Self {
        let (zeros, counts) = buckets(observed);
        Self { zeros, ..Self::coded(&counts) }
    }

    fn coded(counts: &BTreeMap<i32, u64>) -> Self {
        let mut coded = Self::default();
        let mut last: Option<(i32, i64)> = None;
        for (&index, &count) in counts {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            match (last, coded.spans.last_mut()) {
                (Some((before, _)), Some(span)) if index == before + 1 => {
                    span.length = span.length.map(|length| length + 1);
                }
                (before, _) => {
                    let offset = before.map_or(index, |(before, _)| index - before - 1);
                    coded.spans.push(BucketSpan { offset: Some(offset), length: Some(1) });
                }
            }
            coded.deltas.push(count - last.map_or(0, |(_, count)| count));
            last = Some((index, count));
        }
        coded
    }
}

/// Returns the index of the bucket that holds a value. The upper bound of the bucket is 2^(index/8) and
/// belongs to it.
fn index_of(value: f64) -> i32 {
    let index = (value.log2() * 8.0).ceil();
    // For an edge, the logarithm may be slightly too large.
    let is_edge = (upper(index as i32 - 1) - value).abs() <= value * 1e-12;
    if is_edge { index as i32 - 1 } else { index as i32 }
}

fn upper(index: i32) -> f64 {
    (f64::from(index) / 8.0).exp2()
}

/// Splits the count of values from `low` to below `high` evenly among the native buckets that may hold them.
fn part(low: f64, high: f64, count: u64, counts: &mut BTreeMap<i32, u64>) {
    // A value at the edge of a pmbpf bucket is in the bucket above it.
    let first = index_of(low * (1.0 + 1e-9));
    let last = if high > low { index_of(high).max(first) } else { first };
    let mut left = count;
    for index in first..=last {
        let width = upper(index).min(high) - upper(index - 1).max(low);
        let share = if index == last { left } else { (width / (high - low) * count as f64).round() as u64 };
        let share = share.min(left);
        if share > 0 {
            *counts.entry(index).or_default() += share;
            left -= share;
        }
    }
}
