//! Log-linear buckets: eight per power of two, so a value is known to ±6.25 %. The same on both sides.

/// Number of buckets; the last also holds everything above.
pub const BUCKETS: usize = 256;
/// Buckets in a group: a word of 64 bits says which groups hold anything.
pub const GROUP_BUCKETS: usize = BUCKETS / 64;

/// A histogram of one owner on one CPU. Buckets wrap at 2³² and are subtracted wrapping.
pub type Buckets = [u32; BUCKETS];

/// Bucket of `value`.
#[must_use]
#[inline(always)]
pub const fn bucket_of(value: u64) -> u32 {
    if value < 8 {
        return value as u32;
    }
    let exponent = 63 - value.leading_zeros();
    let index = ((exponent - 2) << 3) | ((value >> (exponent - 3)) as u32 & 7);
    if index < BUCKETS as u32 { index } else { BUCKETS as u32 - 1 }
}

/// Smallest value of a bucket. Buckets above the last start where it ends.
#[must_use]
pub const fn lower_bound(bucket: u32) -> u64 {
    if bucket < 8 {
        return bucket as u64;
    }
    let exponent = (bucket >> 3) + 2;
    (8 + (bucket & 7) as u64) << (exponent - 3)
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
            let step = (base >> 6).max(1);
            (0..64).map(move |k| base.wrapping_add(step.wrapping_mul(k))).chain([base - 1])
        })
    }

    #[test]
    fn a_value_lies_in_its_bucket() {
        for value in values() {
            let bucket = bucket_of(value);
            assert!(
                lower_bound(bucket) <= value && value <= upper_bound(bucket),
                "{value} in bucket {bucket}"
            );
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
    fn a_bucket_is_at_most_an_eighth_wide() {
        for bucket in 8..BUCKETS as u32 - 1 {
            let width = upper_bound(bucket) - lower_bound(bucket) + 1;
            assert!(width * 8 <= lower_bound(bucket), "bucket {bucket}");
        }
    }

    #[test]
    fn the_last_bucket_takes_everything_above() {
        assert_eq!(bucket_of(u64::MAX), BUCKETS as u32 - 1);
        assert!(lower_bound(BUCKETS as u32 - 1) > 15_000_000_000, "17 s fit");
    }
}
