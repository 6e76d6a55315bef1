//! Log-linear buckets of I/O latencies: sixteen per power of two, so a bucket is at most 6.25 % of its values wide.

use crate::log_linear;

/// Number of buckets; the last also holds everything above, which starts at 33 s of nanoseconds.
pub const BUCKETS: usize = 512;
/// Buckets in a group: a word of 64 bits says which groups hold anything.
pub const GROUP_BUCKETS: usize = BUCKETS / 64;

/// Bits of a value, below its highest, that tell buckets apart.
const SUB_BITS: u32 = 4;

/// A histogram of one slot and lane. Buckets wrap at 2³² and are subtracted wrapping.
pub type Buckets = [u32; BUCKETS];

/// Bucket of `value`.
#[must_use]
#[inline(always)]
pub const fn bucket_of(value: u64) -> u32 {
    log_linear::bucket_of(value, SUB_BITS, BUCKETS)
}

/// Smallest value of a bucket. Buckets above the last start where it ends.
#[must_use]
pub const fn lower_bound(bucket: u32) -> u64 {
    log_linear::lower_bound(bucket, SUB_BITS)
}

/// Largest value of a bucket; of the last, every value above.
#[must_use]
pub const fn upper_bound(bucket: u32) -> u64 {
    log_linear::upper_bound(bucket, SUB_BITS, BUCKETS)
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, bucket_of, lower_bound};

    #[test]
    fn the_last_bucket_takes_everything_above_half_a_minute() {
        assert_eq!(bucket_of(u64::MAX), BUCKETS as u32 - 1);
        assert!(lower_bound(BUCKETS as u32 - 1) > 30_000_000_000);
    }
}
