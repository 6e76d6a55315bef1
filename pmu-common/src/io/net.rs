//! Packets of sockets, by direction and protocol.

use crate::wire;

/// Direction: from the network to a socket.
pub const RECEIVED: usize = 0;
/// Direction: from a socket to the network.
pub const SENT: usize = 1;
/// Number of directions.
pub const DIRECTIONS: usize = 2;

/// The protocol TCP.
pub const TCP: usize = 0;
/// The protocol UDP.
pub const UDP: usize = 1;
/// All other protocols, IPv6 packets with extension headers included.
pub const OTHER: usize = 2;
/// Number of protocols that are distinguished.
pub const PROTOCOLS: usize = 3;

/// [`super::IoKey::owner`]: packets of no socket, or of one with an unknown cgroup.
pub const OWNER_NONE: u64 = 0;
/// [`super::IoKey::owner`]: packets of cgroups that are not targets.
pub const OWNER_OUTSIDER: u64 = u64::MAX;
/// [`super::IoKey::owner`]: packets of cgroups beyond the limit.
pub const OWNER_MANY: u64 = u64::MAX - 1;

wire! {
    /// Packets of one interface and owner on one CPU. Every number is added to in a single instruction,
    /// because a received packet interrupts one that is sent.
    pub struct NetCount {
        /// Packets, by direction and protocol. One that the kernel splits or joins for the device is one
        /// packet.
        pub packets: [[u64; PROTOCOLS]; DIRECTIONS],
        /// Bytes from the IP header on.
        pub bytes: [[u64; PROTOCOLS]; DIRECTIONS],
        /// Keeps a row at two cache lines.
        pub reserved: [u64; 4],
    }
}

const _: () =
    assert!(size_of::<NetCount>().is_multiple_of(64), "rows of two CPUs must not share a cache line");

/// Returns [`super::IoKey::device`] of an interface: the address of its struct, of which 48 bits are
/// significant, and its index. An interface that reuses an address has another index, or its packets have
/// another owner.
#[must_use]
#[inline(always)]
pub const fn device_word(address: u64, index: u32) -> u64 {
    address & 0xffff_ffff_ffff | (index as u64) << 48
}

/// Returns the protocol by its number in the IP header.
#[must_use]
#[inline(always)]
pub const fn protocol(number: u8) -> usize {
    match number {
        6 => TCP,
        17 => UDP,
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::{OTHER, TCP, UDP, device_word, protocol};

    #[test]
    fn two_interfaces_at_one_address_differ_by_their_index() {
        assert_ne!(device_word(0xffff_8880_0000_1000, 2), device_word(0xffff_8880_0000_1000, 3));
        assert_ne!(device_word(0xffff_8880_0000_1000, 2), device_word(0xffff_8880_0000_2000, 2));
    }

    #[test]
    fn a_protocol_is_known_by_its_number() {
        assert_eq!([6, 17, 1, 58].map(protocol), [TCP, UDP, OTHER, OTHER]);
    }
}
