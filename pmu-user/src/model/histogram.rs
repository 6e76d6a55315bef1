//! Latencies in log-linear buckets: added up here, read by hdrhistogram.

use pmu_common::histogram::{bucket_of, lower_bound, upper_bound};

/// Counts per bucket of [`pmu_common::histogram`], ascending; only those that are not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets(Vec<(u8, u64)>);

/// A value that is known to lie in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within {
    /// Smallest value of the bucket.
    pub low: u64,
    /// Its middle.
    pub middle: u64,
    /// Largest value of the bucket; `u64::MAX` for the last, which has no end.
    pub high: u64,
}

impl Within {
    fn bucket(bucket: u8) -> Self {
        let (low, high) = (lower_bound(bucket.into()), upper_bound(bucket.into()));
        // The last bucket has no end, and so no middle.
        let middle = if high == u64::MAX { low } else { low + (high - low) / 2 };
        Self { low, middle, high }
    }
}

impl Buckets {
    /// What was counted between two readings of a row, both ascending. The kernel's buckets wrap at 2³².
    #[must_use]
    pub fn between(earlier: &[(u8, u32)], later: &[(u8, u32)]) -> Self {
        let mut buckets = Vec::with_capacity(later.len());
        joined(earlier, later, |bucket, before: u32, after: u32| {
            let count = u64::from(after.wrapping_sub(before));
            if count > 0 {
                buckets.push((bucket, count));
            }
        });
        Self(buckets)
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        let mut buckets = Vec::with_capacity(self.0.len().max(other.0.len()));
        joined(&self.0, &other.0, |bucket, ours: u64, theirs| {
            buckets.push((bucket, ours.saturating_add(theirs)));
        });
        self.0 = buckets;
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|&(_, count)| count).fold(0, u64::saturating_add)
    }

    /// Buckets that hold something: bounds and count, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (Within, u64)> + '_ {
        self.0.iter().map(|&(bucket, count)| (Within::bucket(bucket), count))
    }

    /// The bucket that holds the largest value.
    #[must_use]
    pub fn last(&self) -> Option<Within> {
        self.0.last().map(|&(bucket, _)| Within::bucket(bucket))
    }

    /// The values at these quantiles (0 to 1): each the middle of its bucket, with the bucket's bounds. Empty if there
    /// are no values.
    #[must_use]
    pub fn quantiles(&self, quantiles: &[f64]) -> Vec<Within> {
        // One digit is sixteen cells per power of two, twice as many as buckets; the bounds cover every bucket.
        let Ok(mut histogram) = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 1 << 36, 1) else {
            return Vec::new();
        };
        for &(bucket, count) in &self.0 {
            histogram.saturating_record_n(Within::bucket(bucket).middle, count);
        }
        if histogram.is_empty() {
            return Vec::new();
        }
        let within = |&quantile: &f64| {
            let value = histogram.value_at_quantile(quantile);
            let bucket = bucket_of(histogram.lowest_equivalent(value)).min(bucket_of(value));
            self.nearest(bucket as u8)
        };
        quantiles.iter().map(within).collect()
    }

    /// hdrhistogram's resolution may end one bucket beside: the filled bucket nearest to `bucket`.
    fn nearest(&self, bucket: u8) -> Within {
        let filled = self.0.iter().map(|&(filled, _)| filled).min_by_key(|filled| filled.abs_diff(bucket));
        Within::bucket(filled.unwrap_or(bucket))
    }
}

/// Every bucket that either side holds, ascending, with both sides' counts.
fn joined<T: Copy + Default>(mut left: &[(u8, T)], mut right: &[(u8, T)], mut each: impl FnMut(u8, T, T)) {
    let next = |side: &[(u8, T)]| side.first().map(|&(bucket, _)| bucket);
    while let Some(bucket) = next(left).into_iter().chain(next(right)).min() {
        let take = |side: &mut &[(u8, T)]| match **side {
            [(first, count), ref rest @ ..] if first == bucket => {
                *side = rest;
                count
            }
            _ => T::default(),
        };
        let (ours, theirs) = (take(&mut left), take(&mut right));
        each(bucket, ours, theirs);
    }
}

#[cfg(test)]
mod tests {
    use pmu_common::histogram::bucket_of;
    use proptest::prelude::{Strategy, prop, prop_assert, prop_assert_eq, proptest};

    use super::Buckets;

    fn of(values: &[u64]) -> Buckets {
        let mut rows: Vec<(u8, u32)> = Vec::new();
        for &value in values {
            let bucket = bucket_of(value) as u8;
            match rows.iter_mut().find(|(filled, _)| *filled == bucket) {
                Some((_, count)) => *count += 1,
                None => rows.push((bucket, 1)),
            }
        }
        Buckets::between(&[], &rows)
    }

    /// Latencies of uniform bit length: uniform numbers would fill the top buckets only.
    fn latencies() -> impl Strategy<Value = Vec<u64>> {
        let one = (0_u32..34, 0_u64..u64::MAX)
            .prop_map(|(bits, noise)| (1_u64 << bits) | (noise & ((1 << bits) - 1)));
        prop::collection::vec(one, 1..300)
    }

    proptest! {
        #[test]
        fn a_quantile_is_the_bucket_of_the_sorted_value(mut values in latencies(), quantile in 0.0_f64..1.0) {
            let within = of(&values).quantiles(&[quantile])[0];
            values.sort_unstable();
            let rank = ((quantile * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            prop_assert!(within.low <= exact && exact <= within.high, "{exact} in {within:?}");
        }

        #[test]
        fn merging_is_commutative_and_keeps_every_value(a in latencies(), b in latencies()) {
            let (mut ab, mut ba) = (of(&a), of(&b));
            ab.merge(&of(&b));
            ba.merge(&of(&a));
            prop_assert_eq!(&ab, &ba);
            prop_assert_eq!(ab.count(), (a.len() + b.len()) as u64);
        }
    }

    #[test]
    fn a_bucket_that_wrapped_counts_what_was_added() {
        let between = Buckets::between(&[(40, u32::MAX - 1), (41, 7)], &[(40, 3), (41, 7)]);
        assert_eq!(between.count(), 5);
    }

    #[test]
    fn no_values_have_no_quantiles() {
        assert!(Buckets::default().quantiles(&[0.5]).is_empty());
    }
}
