//! Keys of targets: the id of a process, thread or cgroup, or the path of a cgroup that may be created again.

/// Bit that keys of paths have and ids do not. Ids of cgroups are inode numbers with a generation of 32 bits.
const OF_PATH: u64 = 1 << 63;

/// Key of a path, built byte by byte: FNV-1a with 64 bits (Fowler, Noll and Vo).
#[derive(Clone, Copy, Debug)]
pub struct PathKey(u64);

impl PathKey {
    /// Key of an empty path.
    pub const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    /// Returns the key with one byte more.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, byte: u8) -> Self {
        Self((self.0 ^ byte as u64).wrapping_mul(0x100_0000_01b3))
    }

    /// Returns the key among targets.
    #[inline(always)]
    #[must_use]
    pub const fn key(self) -> u64 {
        self.0 | OF_PATH
    }

    /// Returns the key of a cgroup's path, as the kernel reports it.
    #[must_use]
    pub fn of(path: &[u8]) -> u64 {
        path.iter().fold(Self::EMPTY, |key, &byte| key.with(byte)).key()
    }
}

#[cfg(test)]
mod tests {
    use super::PathKey;

    #[test]
    fn keys_are_those_of_the_published_vectors_and_no_ids() {
        // draft-eastlake-fnv, test vectors of FNV-1a with 64 bits.
        let foobar = b"foobar".iter().fold(PathKey::EMPTY, |key, &byte| key.with(byte));
        assert_eq!(foobar.0, 0x8594_4171_f739_67e8);
        assert_eq!(PathKey::of(b"foobar") >> 63, 1);
        assert_ne!(PathKey::of(b"/a"), PathKey::of(b"/b"));
    }
}
