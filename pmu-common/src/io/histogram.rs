//! Log-linear buckets of I/O latencies: sixteen per power of two, so a bucket is at most 6.25 % of its values wide. The
//! same on both sides.

/// Number of buckets; the last also holds everything above, which starts at 33 s of nanoseconds.
pub const BUCKETS: usize = 512;
/// Buckets in a group: a word of 64 bits says which groups hold anything.
pub const GROUP_BUCKETS: usize = BUCKETS / 64;

/// Bits of a value, below its highest, that tell buckets apart.
const SUB_BITS: u32 = 4;
const SUB_BUCKETS: u32 = 1 << SUB_BITS;

/// A histogram of one slot and lane. Buckets wrap at 2³² and are subtracted wrapping.
pub type Buckets = [u32; BUCKETS];

/// Bucket of `value`.
#[must_use]
#[inline(always)]
pub const fn bucket_of(value: u64) -> u32 {
    if value < SUB_BUCKETS as u64 {
        return value as u32;
    }
    let exponent = 63 - value.leading_zeros();
    let sub = (value >> (exponent - SUB_BITS)) as u32 & (SUB_BUCKETS - 1);
    let index = ((exponent - SUB_BITS + 1) << SUB_BITS) | sub;
    if index < BUCKETS as u32 { index } else { BUCKETS as u32 - 1 }
}

/// Smallest value of a bucket. Buckets above the last start where it ends.
#[must_use]
pub const fn lower_bound(bucket: u32) -> u64 {
    if bucket < SUB_BUCKETS {
        return bucket as u64;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    ((SUB_BUCKETS + (bucket & (SUB_BUCKETS - 1))) as u64) << shift
}

/// Largest value of a bucket; of the last, every value above.
#[must_use]
pub const fn upper_bound(bucket: u32) -> u64 {
    if bucket + 1 < BUCKETS as u32 { lower_bound(bucket + 1) - 1 } else { u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, bucket_of, lower_bound, upper_bound};

    /// Values of every bit length, dense at the edges.
    fn values() -> impl Iterator<Item = u64> {
        (0..64).flat_map(|bits| {
            let base = 1_u64 << bits;
            let step = (base >> 7).max(1);
            (0..128).map(move |k| base.wrapping_add(step.wrapping_mul(k))).chain([base - 1])
        })
    }

    #[test]
    fn a_value_lies_in_its_bucket() {
        for value in values() {
            let bucket = bucket_of(value);
            assert!(lower_bound(bucket) <= value && value <= upper_bound(bucket), "{value} in {bucket}");
        }
    }

    #[test]
    fn buckets_follow_each_other_without_a_hole() {
        for bucket in 0..BUCKETS as u32 - 1 {
            assert_eq!(upper_bound(bucket) + 1, lower_bound(bucket + 1));
            assert_eq!(bucket_of(lower_bound(bucket)), bucket);
            assert_eq!(bucket_of(upper_bound(bucket)), bucket);
        }
    }

    #[test]
    fn a_bucket_is_at_most_a_sixteenth_wide() {
        for bucket in 16..BUCKETS as u32 - 1 {
            let width = upper_bound(bucket) - lower_bound(bucket) + 1;
            assert!(width * 16 <= lower_bound(bucket), "bucket {bucket}");
        }
    }

    #[test]
    fn the_last_bucket_takes_everything_above_half_a_minute() {
        assert_eq!(bucket_of(u64::MAX), BUCKETS as u32 - 1);
        assert!(lower_bound(BUCKETS as u32 - 1) > 30_000_000_000);
    }
}
