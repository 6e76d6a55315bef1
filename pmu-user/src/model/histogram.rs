//! Log-linear histograms: differences, sums, and quantiles with the bounds of their bucket.

use pmu_common::histogram::Layout;

/// Range of the values that a histogram counts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket {
    /// Smallest value of the range.
    pub low: u64,
    /// Largest value; `u64::MAX` for the last bucket, which has no end.
    pub high: u64,
}

impl Bucket {
    /// Returns the bucket with an index. A recording may have a larger index: the last bucket holds
    /// everything above.
    fn of(layout: Layout, index: u32) -> Self {
        let index = index.min(layout.buckets as u32 - 1);
        Self { low: layout.lower_bound(index), high: layout.upper_bound(index) }
    }

    /// Returns the middle, or the start of a bucket without end.
    pub const fn middle(&self) -> u64 {
        if self.high == u64::MAX { self.low } else { self.low + (self.high - self.low) / 2 }
    }
}

/// Counts of values by bucket, ascending, without empty buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram(Vec<(Bucket, u64)>);

impl Histogram {
    /// Returns the counts between two readings of a row's buckets, both ascending. The kernel's counts wrap
    /// at 2³².
    pub fn between<I: Copy + Ord + Into<u32>>(
        layout: Layout,
        earlier: &[(I, u32)],
        later: &[(I, u32)],
    ) -> Self {
        let mut histogram = Self(Vec::with_capacity(later.len()));
        let (mut earlier, mut later) = (earlier.iter().peekable(), later.iter().peekable());
        // A count that wrapped to exactly 0 is not in the later reading.
        while let Some(index) = earlier.peek().into_iter().chain(later.peek()).map(|(index, _)| *index).min()
        {
            let [before, after] = [&mut earlier, &mut later]
                .map(|side| side.next_if(|(first, _)| *first == index).map_or(0, |(_, count)| *count));
            let count = u64::from(after.wrapping_sub(before));
            if count > 0 {
                histogram.add(histogram.0.len().saturating_sub(1), Bucket::of(layout, index.into()), count);
            }
        }
        histogram
    }

    /// Adds to a bucket that does not lie before index `from`. Returns the index of the bucket.
    fn add(&mut self, from: usize, bucket: Bucket, count: u64) -> usize {
        let at = from + self.0[from..].iter().take_while(|(ours, _)| *ours < bucket).count();
        match self.0.get_mut(at) {
            Some((ours, sum)) if *ours == bucket => *sum = sum.saturating_add(count),
            _ => self.0.insert(at, (bucket, count)),
        }
        at
    }

    /// Adds another histogram of the same layout, in one pass over both.
    pub fn merge(&mut self, other: &Self) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
            return;
        }
        let mut at = 0;
        for (bucket, count) in other.iter() {
            at = self.add(at, bucket, count);
        }
    }

    /// Returns the counts since `earlier`, which holds no more in any bucket.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut before = earlier.0.iter().peekable();
        let grown = self.0.iter().filter_map(|&(bucket, count)| {
            while before.next_if(|(first, _)| *first < bucket).is_some() {}
            let then = before.next_if(|(first, _)| *first == bucket).map_or(0, |&(_, count)| count);
            Some((bucket, count.saturating_sub(then))).filter(|&(_, count)| count > 0)
        });
        Self(grown.collect())
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|&(_, count)| count).fold(0, u64::saturating_add)
    }

    /// Returns the buckets that hold any value, with their counts, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (Bucket, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Returns the bucket that holds the value at this quantile (0 to 1): of n values in order, the one in
    /// place ⌈quantile · n⌉. `None` if there are no values.
    pub fn quantile(&self, quantile: f64) -> Option<Bucket> {
        let count = self.count();
        let rank = ((quantile * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0_u64;
        let holds = |&(_, count): &(Bucket, u64)| {
            below = below.saturating_add(count);
            below >= rank
        };
        self.iter().find(holds).map(|(bucket, _)| bucket)
    }

    /// Returns the bucket that holds the largest value.
    pub fn last(&self) -> Option<Bucket> {
        self.0.last().map(|&(bucket, _)| bucket)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pmu_common::histogram::{BLOCK, Layout, RUNQUEUE};
    use proptest::prelude::{Strategy, prop, prop_assert, prop_assert_eq, proptest};

    use super::{Bucket, Histogram};

    fn rows(layout: Layout, values: &[u64]) -> Vec<(u16, u32)> {
        let mut rows = BTreeMap::new();
        for &value in values {
            *rows.entry(layout.bucket_of(value) as u16).or_insert(0) += 1;
        }
        rows.into_iter().collect()
    }

    fn of(layout: Layout, values: &[u64]) -> Histogram {
        Histogram::between(layout, &[], &rows(layout, values))
    }

    fn layouts() -> impl Strategy<Value = Layout> {
        prop::sample::select(vec![RUNQUEUE, BLOCK])
    }

    /// Generates latencies of uniform bit length. Uniform numbers would fill the top buckets only.
    fn latencies() -> impl Strategy<Value = Vec<u64>> {
        let one = (0_u32..36, 0_u64..u64::MAX)
            .prop_map(|(bits, noise)| (1_u64 << bits) | (noise & ((1 << bits) - 1)));
        prop::collection::vec(one, 1..300)
    }

    proptest! {
        #[test]
        fn a_quantile_is_the_bucket_of_the_sorted_value(
            layout in layouts(), mut values in latencies(), quantile in 0.0_f64..1.0,
        ) {
            let bucket = of(layout, &values).quantile(quantile).unwrap();
            values.sort_unstable();
            let rank = ((quantile * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            prop_assert!(bucket.low <= exact && exact <= bucket.high, "{exact} in {bucket:?}");
        }

        #[test]
        fn merging_is_commutative_and_keeps_every_value(layout in layouts(), a in latencies(), b in latencies()) {
            let (mut ab, mut ba) = (of(layout, &a), of(layout, &b));
            ab.merge(&of(layout, &b));
            ba.merge(&of(layout, &a));
            prop_assert_eq!(&ab, &ba);
            let all: Vec<u64> = a.into_iter().chain(b).collect();
            prop_assert_eq!(ab, of(layout, &all));
        }

        #[test]
        fn what_came_between_is_what_was_added(layout in layouts(), a in latencies(), b in latencies()) {
            let all: Vec<u64> = a.iter().chain(&b).copied().collect();
            let between = Histogram::between(layout, &rows(layout, &a), &rows(layout, &all));
            prop_assert_eq!(between, of(layout, &b));
        }
    }

    #[test]
    fn a_bucket_that_wrapped_counts_what_was_added() {
        let between = |earlier, later: &[(u8, u32)]| Histogram::between(RUNQUEUE, earlier, later).count();
        assert_eq!(between(&[(40, u32::MAX - 1), (41, 7)], &[(40, 3), (41, 7)]), 5);
        assert_eq!(between(&[(40, u32::MAX)], &[]), 1);
    }

    #[test]
    fn what_is_beyond_the_last_bucket_is_in_it() {
        let beyond = Histogram::between(BLOCK, &[], &[(511_u16, 1), (700, 2)]);
        let last = Bucket { low: BLOCK.lower_bound(511), high: u64::MAX };
        assert_eq!(beyond.iter().collect::<Vec<_>>(), [(last, 3)]);
        assert_eq!(last.middle(), last.low);
    }

    #[test]
    fn no_values_have_no_quantiles() {
        assert_eq!((Histogram::default().quantile(0.5), Histogram::default().last()), (None, None));
    }
}
