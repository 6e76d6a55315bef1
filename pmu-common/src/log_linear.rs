//! Log-linear buckets: every power of two is divided into 2^`sub_bits` of the same width, so a bucket is at most that part of its
//! values wide. The same on both sides.

/// Bucket of `value` among `buckets`; the last also holds everything above.
#[must_use]
#[inline(always)]
pub const fn bucket_of(value: u64, sub_bits: u32, buckets: usize) -> u32 {
    let sub_buckets = 1_u32 << sub_bits;
    if value < sub_buckets as u64 {
        return value as u32;
    }
    let exponent = exponent_of(value);
    let sub = (value >> (exponent - sub_bits)) as u32 & (sub_buckets - 1);
    let index = ((exponent - sub_bits + 1) << sub_bits) | sub;
    if index < buckets as u32 { index } else { buckets as u32 - 1 }
}

/// Place of the highest bit of a value that is not 0. BPF has no instruction for it, and what `leading_zeros` becomes
/// there takes some thirty in a row. The branches part values at powers of 16, so they go the same way for most values of
/// one kind; what is left of a value, 1 to 15, looks its bit up in a word.
#[inline(always)]
const fn exponent_of(value: u64) -> u32 {
    /// Two bits for each number below 16.
    const HIGHEST_BIT: u32 = 0xffff_aa50;
    let (mut rest, mut exponent) = (value, 0);
    let mut bits = 32;
    while bits >= 4 {
        if rest >> bits != 0 {
            rest >>= bits;
            exponent += bits;
        }
        bits /= 2;
    }
    exponent + (HIGHEST_BIT >> (2 * rest as u32) & 3)
}

/// Smallest value of a bucket. Buckets above the last start where it ends.
#[must_use]
pub const fn lower_bound(bucket: u32, sub_bits: u32) -> u64 {
    let sub_buckets = 1_u32 << sub_bits;
    if bucket < sub_buckets {
        return bucket as u64;
    }
    ((sub_buckets + (bucket & (sub_buckets - 1))) as u64) << ((bucket >> sub_bits) - 1)
}

/// Largest value of a bucket of `buckets`; of the last, every value above.
#[must_use]
pub const fn upper_bound(bucket: u32, sub_bits: u32, buckets: usize) -> u64 {
    if bucket + 1 < buckets as u32 { lower_bound(bucket + 1, sub_bits) - 1 } else { u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::{bucket_of, exponent_of, lower_bound, upper_bound};

    /// Divisions of a power of two, as bits, and buckets: those in use, and two others.
    const SCALES: [(u32, usize); 4] = [(3, 256), (4, 512), (1, 64), (7, 1024)];

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
        for (bits, buckets) in SCALES {
            for value in values() {
                let bucket = bucket_of(value, bits, buckets);
                let bounds = lower_bound(bucket, bits)..=upper_bound(bucket, bits, buckets);
                assert!(bounds.contains(&value), "{value} in {bucket} of {buckets}");
            }
        }
    }

    #[test]
    fn buckets_follow_each_other_without_a_hole() {
        for (bits, buckets) in SCALES {
            for bucket in 0..buckets as u32 - 1 {
                let (low, high) = (lower_bound(bucket, bits), upper_bound(bucket, bits, buckets));
                assert_eq!(high + 1, lower_bound(bucket + 1, bits));
                assert_eq!([low, high].map(|value| bucket_of(value, bits, buckets)), [bucket; 2]);
            }
        }
    }

    #[test]
    fn a_bucket_is_at_most_its_part_of_a_power_of_two_wide() {
        for (bits, buckets) in SCALES {
            for bucket in 1_u32 << bits..buckets as u32 - 1 {
                let (low, high) = (lower_bound(bucket, bits), upper_bound(bucket, bits, buckets));
                assert!((high - low + 1) << bits <= low, "bucket {bucket} of {buckets}");
            }
        }
    }
}
