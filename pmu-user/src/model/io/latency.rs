//! Latencies of I/O in log-linear buckets: subtracted, added up, and their quantiles with the bounds of the bucket they
//! lie in.

use pmu_common::io::histogram::{BUCKETS, lower_bound, upper_bound};

/// Counts per bucket of [`pmu_common::io::histogram`], ascending; only those that are not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies(Vec<(u16, u64)>);

/// A latency that is known to lie in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Smallest value of the bucket, in ns.
    pub low_ns: u64,
    /// Largest value of the bucket, in ns; of the last, whose values have no end, `u64::MAX`.
    pub high_ns: u64,
}

impl Bounds {
    /// A recording may name a bucket that there is not: the last holds everything above.
    fn of(bucket: u16) -> Self {
        let bucket = u32::from(bucket).min(BUCKETS as u32 - 1);
        Self { low_ns: lower_bound(bucket), high_ns: upper_bound(bucket) }
    }

    /// The middle; of a bucket without end, where it begins.
    #[must_use]
    pub const fn middle_ns(&self) -> u64 {
        if self.high_ns == u64::MAX { self.low_ns } else { self.low_ns + (self.high_ns - self.low_ns) / 2 }
    }
}

impl Latencies {
    /// What was counted between two readings of a row, both ascending. The kernel's buckets wrap at 2³².
    #[must_use]
    pub fn between(earlier: &[(u16, u32)], later: &[(u16, u32)]) -> Self {
        let before = |bucket: u16| match earlier.binary_search_by_key(&bucket, |&(bucket, _)| bucket) {
            Ok(place) => earlier[place].1,
            Err(_) => 0,
        };
        // One that wrapped to exactly 0 is not in the later reading.
        let gone = earlier
            .iter()
            .filter(|&&(bucket, _)| later.binary_search_by_key(&bucket, |&(bucket, _)| bucket).is_err());
        let mut counts: Vec<(u16, u64)> = later
            .iter()
            .map(|&(bucket, count)| (bucket, count.wrapping_sub(before(bucket)).into()))
            .chain(gone.map(|&(bucket, count)| (bucket, 0_u32.wrapping_sub(count).into())))
            .filter(|&(_, count)| count > 0)
            .collect();
        counts.sort_unstable();
        Self(counts)
    }

    /// Adds others.
    pub fn merge(&mut self, other: &Self) {
        for &(bucket, count) in &other.0 {
            match self.0.binary_search_by_key(&bucket, |&(bucket, _)| bucket) {
                Ok(place) => self.0[place].1 = self.0[place].1.saturating_add(count),
                Err(place) => self.0.insert(place, (bucket, count)),
            }
        }
    }

    /// Number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|&(_, count)| count).fold(0, u64::saturating_add)
    }

    /// Buckets that hold something: bounds and count, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (Bounds, u64)> + '_ {
        self.0.iter().map(|&(bucket, count)| (Bounds::of(bucket), count))
    }

    /// The bucket that holds the value at this quantile (0 to 1): of n values in order, the one in place ⌈quantile ·
    /// n⌉. None if there are no values.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Bounds> {
        let count = self.count();
        let rank = ((quantile * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0_u64;
        let holds = |&&(_, count): &&(u16, u64)| {
            below = below.saturating_add(count);
            below >= rank
        };
        self.0.iter().find(holds).map(|&(bucket, _)| Bounds::of(bucket))
    }

    /// The bucket that holds the largest value.
    #[must_use]
    pub fn last(&self) -> Option<Bounds> {
        self.0.last().map(|&(bucket, _)| Bounds::of(bucket))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pmu_common::io::histogram::bucket_of;
    use proptest::prelude::{Strategy, prop, prop_assert, prop_assert_eq, proptest};

    use super::Latencies;

    fn rows(values: &[u64]) -> Vec<(u16, u32)> {
        let mut rows = BTreeMap::new();
        for &value in values {
            *rows.entry(bucket_of(value) as u16).or_insert(0) += 1;
        }
        rows.into_iter().collect()
    }

    /// Latencies of uniform bit length: uniform numbers would fill the top buckets only.
    fn latencies() -> impl Strategy<Value = Vec<u64>> {
        let one = (0_u32..36, 0_u64..u64::MAX)
            .prop_map(|(bits, noise)| (1_u64 << bits) | (noise & ((1 << bits) - 1)));
        prop::collection::vec(one, 1..300)
    }

    proptest! {
        #[test]
        fn a_quantile_is_the_bucket_of_the_sorted_value(mut values in latencies(), quantile in 0.0_f64..1.0) {
            let bounds = Latencies::between(&[], &rows(&values)).quantile(quantile).unwrap();
            values.sort_unstable();
            let rank = ((quantile * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            prop_assert!(bounds.low_ns <= exact && exact <= bounds.high_ns, "{exact} in {bounds:?}");
        }

        #[test]
        fn merging_is_commutative_and_keeps_every_value(a in latencies(), b in latencies()) {
            let [of_a, of_b] = [&a, &b].map(|values| Latencies::between(&[], &rows(values)));
            let (mut ab, mut ba) = (of_a.clone(), of_b.clone());
            ab.merge(&of_b);
            ba.merge(&of_a);
            prop_assert_eq!(&ab, &ba);
            prop_assert_eq!(ab.count(), (a.len() + b.len()) as u64);
        }

        #[test]
        fn what_came_between_is_what_was_added(a in latencies(), b in latencies()) {
            let all: Vec<u64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(Latencies::between(&rows(&a), &rows(&all)), Latencies::between(&[], &rows(&b)));
        }
    }

    #[test]
    fn a_bucket_that_wrapped_counts_what_was_added() {
        assert_eq!(Latencies::between(&[(40, u32::MAX - 1), (41, 7)], &[(40, 3), (41, 7)]).count(), 5);
        assert_eq!(Latencies::between(&[(40, u32::MAX)], &[]).count(), 1);
    }

    #[test]
    fn no_values_have_no_quantiles() {
        assert_eq!((Latencies::default().quantile(0.5), Latencies::default().last()), (None, None));
    }
}
