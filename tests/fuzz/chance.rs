//! Random numbers, reproducible by file number.

/// SplitMix64 generator state.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(file: u64) -> Self {
        Self(file.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number less than `count`, which is more than 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    pub(crate) fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Flips bits, cuts, doubles and overwrites bytes, at up to four places.
    pub(crate) fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = *self.one(b"\0\xff-9\"[]{}\\\x1b\x7f"),
                2 => bytes.truncate(at),
                3 => {
                    let end = (at + 1 + self.below(64)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
                _ => {
                    let end = (at + 8).min(bytes.len());
                    let word = self.one(&[0, 1, u64::MAX, 1 << 31, 1 << 63]).to_le_bytes();
                    bytes[at..end].copy_from_slice(&word[..end - at]);
                }
            }
        }
    }
}
