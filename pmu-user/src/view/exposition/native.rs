//! Native histograms: buckets as powers of 2^(1/8). Ours divide each power of two evenly, so one of ours is parted where it holds the edge of
//! one of theirs; what is counted stays the same, and a quantile is in the bucket of ours that it was in, or beside its edge.

use std::collections::BTreeMap;

use super::message::BucketSpan;
use crate::metric::exposed::Observed;

/// log2 of how many buckets a power of two has.
pub(super) const SCHEMA: i32 = 3;
/// What is at most this is 0: less than the shortest time that there is.
pub(super) const ZERO_THRESHOLD_S: f64 = 0.5e-9;

/// Counts of native buckets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Native {
    /// Values of 0.
    pub(super) zeros: u64,
    /// Where buckets that follow each other begin, and how many they are.
    pub(super) spans: Vec<BucketSpan>,
    /// Counts, each as its difference from the one before.
    pub(super) deltas: Vec<i64>,
}

/// Values of 0, and by index the counts of buckets whose upper bound is 2^(index/8) s.
pub(super) fn buckets(observed: &Observed) -> (u64, BTreeMap<i32, u64>) {
    let (mut zeros, mut counts) = (0, BTreeMap::<i32, u64>::new());
    for (bucket, count) in observed.buckets.iter() {
        if bucket.high == 0 {
            zeros += count;
            continue;
        }
        // The last has no end: its values are counted where it begins.
        let end = if bucket.high == u64::MAX { bucket.low } else { bucket.high + 1 };
        part(bucket.low as f64 * 1e-9, end as f64 * 1e-9, count, &mut counts);
    }
    (zeros, counts)
}

impl Native {
    /// Those of values in ns, as values in s.
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

/// The bucket that holds a value: its upper bound is 2^(index/8), and belongs to it.
fn index_of(value: f64) -> i32 {
    let index = (value.log2() * 8.0).ceil();
    // Of an edge the logarithm may be a little more.
    let is_edge = (upper(index as i32 - 1) - value).abs() <= value * 1e-12;
    if is_edge { index as i32 - 1 } else { index as i32 }
}

fn upper(index: i32) -> f64 {
    (f64::from(index) / 8.0).exp2()
}

/// Parts the count of values from `low` to below `high` among the native buckets that they may be in, evenly.
fn part(low: f64, high: f64, count: u64, counts: &mut BTreeMap<i32, u64>) {
    // A value at an edge of ours is in the bucket above it.
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
