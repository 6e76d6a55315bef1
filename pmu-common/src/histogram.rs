//! Log-linear buckets of waits: eight per power of two, so a value is known to ±6.25 %.

use crate::log_linear;

/// Number of buckets; the last also holds everything above.
pub const BUCKETS: usize = 256;
/// Buckets in a group: a word of 64 bits says which groups hold anything.
pub const GROUP_BUCKETS: usize = BUCKETS / 64;

const SUB_BITS: u32 = 3;

/// A histogram of one owner on one CPU. Buckets wrap at 2³² and are subtracted wrapping.
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
    fn the_last_bucket_takes_everything_above() {
        assert_eq!(bucket_of(u64::MAX), BUCKETS as u32 - 1);
        assert!(lower_bound(BUCKETS as u32 - 1) > 15_000_000_000, "17 s fit");
    }
}
