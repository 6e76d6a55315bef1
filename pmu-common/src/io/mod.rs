//! Counts of block requests and network packets, by owner.
//!
//! The state of a request is kept in a table of requests in flight, by the request's address. The request is
//! accounted once, when it completes, in the row of its device, operation and owner on the CPU that it
//! completes on.

pub mod block;
pub mod config;
pub mod loss;
pub mod net;
pub mod throttle;

use crate::wire;

/// Bytes of a network interface's name (`IFNAMSIZ`).
pub const NAME_BYTES: usize = 16;

/// [`IoCpu::busy`]: accounting of requests.
pub const REQUESTS: usize = 0;
/// [`IoCpu::busy`]: accounting of bios.
pub const BIOS: usize = 1;

/// Slot of everything without a separate row, of any device.
pub const SLOT_OTHER: u32 = 0;

wire! {
    /// Key of a row: a device, an operation on it, and an owner.
    pub struct IoKey {
        /// Device word. For a block device see [`block::device_word`], for a network interface
        /// [`net::device_word`].
        pub device: u64,
        /// Id of the cgroup, or the process (see [`block::process`]); 0 where the [`Basis`](block) in the
        /// device word gives none.
        pub owner: u64,
    }

    /// One row of `BLOCK_OWNERS` or `NET_OWNERS`, by slot.
    pub struct IoOwner {
        /// Identity of the owner. `key.device` is 0 while the slot is free: no block device has number 0 and
        /// no interface address 0.
        pub key: IoKey,
        /// Network interface: index in its namespace.
        pub interface: u32,
        /// Network interface: inode of its namespace, 0 if it is not known.
        pub namespace: u32,
        /// Network interface: name when it was first seen, zero-terminated if shorter.
        pub name: [u8; NAME_BYTES],
    }

    /// One row of the map `IO_RECENT`, by CPU and [`recent_place`]: the slot of a recent lookup.
    pub struct Recent {
        /// Key that was looked up.
        pub key: IoKey,
        /// Slot that was found.
        pub slot: u32,
        /// Checksum of the row; see [`Recent::sealed`].
        pub seal: u32,
        /// Keeps a row at half a cache line.
        pub reserved: u64,
    }

    /// One row of the map `IO_CPUS`, by CPU.
    pub struct IoCpu {
        /// 1 while the program that accounts requests, or bios, runs here: see `complete`.
        pub busy: [u64; 2],
        /// Losses by reason (see [`loss`]). Added to in single instructions.
        pub losses: [u64; loss::REASONS],
        /// Keeps a row at a cache line.
        pub reserved: [u64; 1],
    }
}

/// Rows of `IO_RECENT` per CPU; a power of two.
pub const RECENT: u32 = 8;

/// Returns the row of its CPU that a key has in `IO_RECENT`.
#[must_use]
#[inline(always)]
pub const fn recent_place(key: &IoKey) -> u32 {
    // Operation, minor number and the low bits of the owner differ most.
    ((key.device >> 32) as u32 ^ key.device as u32 ^ key.owner as u32) & (RECENT - 1)
}

impl Recent {
    /// Returns the row of a slot that was looked up. Programs that interrupt each other on a CPU may write
    /// one row. The seal of a mixture is wrong.
    #[must_use]
    #[inline(always)]
    pub const fn sealed(key: IoKey, slot: u32) -> Self {
        Self { key, slot, seal: Self::seal_of(&key, slot), reserved: 0 }
    }

    /// Returns the slot, if the row is whole and for this key.
    #[must_use]
    #[inline(always)]
    pub const fn slot_for(&self, key: &IoKey) -> Option<u32> {
        let ours = self.key.device == key.device && self.key.owner == key.owner;
        if ours && self.seal == Self::seal_of(key, self.slot) { Some(self.slot) } else { None }
    }

    #[inline(always)]
    const fn seal_of(key: &IoKey, slot: u32) -> u32 {
        let mixed = key.device.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key.owner;
        // Never 0: an untouched row is not for any key.
        (mixed as u32 ^ (mixed >> 32) as u32 ^ slot.wrapping_mul(0x9e37_79b1)) | 1
    }
}

const _: () = assert!(size_of::<IoCpu>().is_multiple_of(64), "rows of two CPUs must not share a cache line");

#[cfg(test)]
mod tests {
    use super::{IoKey, Recent};

    #[test]
    fn a_slot_is_found_only_for_its_key_and_if_the_row_is_whole() {
        let (ours, theirs) = (IoKey { device: 7 << 20, owner: 41 }, IoKey { device: 7 << 20, owner: 42 });
        let recent = Recent::sealed(ours, 3);
        assert_eq!((recent.slot_for(&ours), recent.slot_for(&theirs)), (Some(3), None));
        assert_eq!(Recent { slot: 4, ..recent }.slot_for(&ours), None);
        assert_eq!(Recent { key: theirs, ..recent }.slot_for(&theirs), None);
        assert_eq!(Recent::ZERO.slot_for(&IoKey::ZERO), None);
    }
}
