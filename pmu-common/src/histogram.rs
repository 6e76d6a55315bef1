//! Log-linear histograms: every power of two is divided into buckets of the same width. The layout is the
//! same in the kernel and in user space.

/// Division of values into buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bits of a value below its highest that select its bucket. A power of two has 2^`sub_bits` buckets, so
    /// a bucket is at most that part of its values wide.
    pub sub_bits: u32,
    /// Number of buckets; the last also holds all larger values.
    pub buckets: usize,
}

/// Run-queue latencies in ns: known to ±6.25 %, up to 16 s. Twice as many buckets would halve the owners that
/// fit.
pub const RUNQUEUE: Layout = Layout { sub_bits: 3, buckets: 256 };
/// Latencies of block requests in ns: known to ±3.125 %, up to 33 s.
pub const BLOCK: Layout = Layout { sub_bits: 4, buckets: 512 };

/// Run-queue latencies of one owner on one CPU. Counts wrap at 2³² and are subtracted wrapping.
pub type RunqueueBuckets = [u32; RUNQUEUE.buckets];
/// Block latencies of one slot and lane. Counts wrap at 2³² and are subtracted wrapping.
pub type BlockBuckets = [u32; BLOCK.buckets];

impl Layout {
    /// Returns the bucket of `value`.
    #[must_use]
    #[inline(always)]
    pub const fn bucket_of(self, value: u64) -> u32 {
        let sub_buckets = 1_u32 << self.sub_bits;
        if value < sub_buckets as u64 {
            return value as u32;
        }
        let exponent = exponent_of(value);
        let sub = (value >> (exponent - self.sub_bits)) as u32 & (sub_buckets - 1);
        let index = ((exponent - self.sub_bits + 1) << self.sub_bits) | sub;
        if index < self.buckets as u32 { index } else { self.buckets as u32 - 1 }
    }

    /// Returns the number of buckets in a group. A word of 64 bits records which groups are not empty.
    #[must_use]
    #[inline(always)]
    pub const fn group_buckets(self) -> usize {
        self.buckets / 64
    }

    /// Returns the smallest value of a bucket. Buckets above the last start where it ends.
    #[must_use]
    pub const fn lower_bound(self, bucket: u32) -> u64 {
        let sub_buckets = 1_u32 << self.sub_bits;
        if bucket < sub_buckets {
            return bucket as u64;
        }
        ((sub_buckets + (bucket & (sub_buckets - 1))) as u64) << ((bucket >> self.sub_bits) - 1)
    }

    /// Returns the largest value of a bucket; for the last one, the largest of all values.
    #[must_use]
    pub const fn upper_bound(self, bucket: u32) -> u64 {
        if bucket + 1 < self.buckets as u32 { self.lower_bound(bucket + 1) - 1 } else { u64::MAX }
    }
}

/// Returns the place of the highest bit of a value that is not 0. BPF has no instruction for it, and
/// `leading_zeros` compiles to some thirty instructions there, a dozen more than this. There is no branch in
/// it: the verifier visits the following code once more for each path through a branch, which was a third of
/// its work on `switch`.
#[inline(always)]
pub(crate) const fn exponent_of(value: u64) -> u32 {
    let mut ones = value;
    let mut bits = 1;
    while bits < u64::BITS {
        ones |= ones >> bits;
        bits *= 2;
    }
    EXPONENTS[place(ones)] as u32
}

/// Returns a unique place below 64 for a number that is all ones from its highest bit on. The factor is a de
/// Bruijn sequence.
const fn place(ones: u64) -> usize {
    const FACTOR: u64 = 0x03f7_9d71_b4cb_0a89;
    (ones.wrapping_mul(FACTOR) >> 58) as usize
}

/// Highest bits by [`place`].
static EXPONENTS: [u8; 64] = {
    let mut exponents = [0; 64];
    let mut exponent = 0;
    while exponent < 64 {
        exponents[place(u64::MAX >> (63 - exponent))] = exponent as u8;
        exponent += 1;
    }
    exponents
};

#[cfg(test)]
mod tests {
    use super::{BLOCK, Layout, RUNQUEUE, exponent_of};

    /// Layouts in use, and two others.
    const LAYOUTS: [Layout; 4] =
        [RUNQUEUE, BLOCK, Layout { sub_bits: 1, buckets: 64 }, Layout { sub_bits: 7, buckets: 1024 }];

    /// Values of every bit length, dense at the edges.
    fn values() -> impl Iterator<Item = u64> {
        (0..64).flat_map(|bits| {
            let base = 1_u64 << bits;
            let step = (base >> 7).max(1);
            (0..128).map(move |k| base.wrapping_add(step.wrapping_mul(k))).chain([base - 1])
        })
    }

    #[test]
    fn an_exponent_is_the_place_of_the_highest_bit() {
        for value in values().filter(|&value| value != 0) {
            assert_eq!(exponent_of(value), value.ilog2(), "{value}");
        }
    }

    #[test]
    fn a_value_lies_in_its_bucket() {
        for layout in LAYOUTS {
            for value in values() {
                let bucket = layout.bucket_of(value);
                let bounds = layout.lower_bound(bucket)..=layout.upper_bound(bucket);
                assert!(bounds.contains(&value), "{value} in {bucket} of {layout:?}");
            }
        }
    }

    #[test]
    fn buckets_follow_each_other_without_a_hole() {
        for layout in LAYOUTS {
            for bucket in 0..layout.buckets as u32 - 1 {
                let (low, high) = (layout.lower_bound(bucket), layout.upper_bound(bucket));
                assert_eq!(high + 1, layout.lower_bound(bucket + 1));
                assert_eq!([low, high].map(|value| layout.bucket_of(value)), [bucket; 2]);
            }
        }
    }

    #[test]
    fn a_bucket_is_at_most_its_part_of_a_power_of_two_wide() {
        for layout in LAYOUTS {
            for bucket in 1_u32 << layout.sub_bits..layout.buckets as u32 - 1 {
                let (low, high) = (layout.lower_bound(bucket), layout.upper_bound(bucket));
                assert!((high - low + 1) << layout.sub_bits <= low, "bucket {bucket} of {layout:?}");
            }
        }
    }

    #[test]
    fn the_last_bucket_takes_everything_above_what_a_wait_usually_is() {
        for (layout, starts_ns) in [(RUNQUEUE, 15_000_000_000), (BLOCK, 30_000_000_000)] {
            let last = layout.buckets as u32 - 1;
            assert_eq!(layout.bucket_of(u64::MAX), last);
            assert!(layout.lower_bound(last) > starts_ns);
        }
    }
}
