//! Packets of sockets: one row per interface and owner, as the programs counted them since counting started.

use pmu_common::io::net::NetCount;
use serde::{Deserialize, Serialize};

use crate::{
    drain::words,
    machine::cgroup::CgroupId,
    untrusted::{Untrusted, exact},
};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Interface {
    /// Inode of its network namespace (`/proc/PID/ns/net`); 0 where the kernel has no namespaces.
    pub namespace: u32,
    /// Index of the interface in that namespace.
    pub index: u32,
    /// Name of the interface when it was first seen.
    #[serde(with = "exact")]
    pub name: Untrusted,
}

/// Owner of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetOwner {
    /// The cgroup that the socket's task was in when it made the socket.
    Cgroup(CgroupId),
    /// No socket, or a socket without a cgroup.
    Nobody,
    /// Cgroups outside the targets.
    Outsider,
    /// Cgroups beyond the limit.
    Many,
}

impl NetOwner {
    /// Returns the id of the cgroup that owns the packets, if a cgroup does.
    #[must_use]
    pub const fn cgroup(self) -> Option<u64> {
        match self {
            Self::Cgroup(id) => Some(id.0),
            Self::Nobody | Self::Outsider | Self::Many => None,
        }
    }
}

/// Packets of one interface and owner, summed over CPUs.
///
/// Bytes count from the IP header on. Packets without a socket, forwarded packets above all, are in no row.
/// Neither are Ethernet headers. The kernel's own counters of the interface include everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetRow {
    /// Interface of the packets.
    pub interface: Interface,
    /// Owner of the packets.
    pub owner: NetOwner,
    /// Packets and bytes by direction and protocol. A packet that the kernel splits or joins for the device
    /// counts as one.
    #[serde(with = "words")]
    pub count: NetCount,
}

/// Returns the sum of the counts of two CPUs, or of two rows of one owner. The counts wrap.
#[must_use]
pub fn sum(left: &NetCount, right: &NetCount) -> NetCount {
    let add = |left: [[u64; 3]; 2], right: [[u64; 3]; 2]| {
        [0, 1].map(|way| [0, 1, 2].map(|kind| left[way][kind].wrapping_add(right[way][kind])))
    };
    NetCount {
        packets: add(left.packets, right.packets),
        bytes: add(left.bytes, right.bytes),
        reserved: [0; 4],
    }
}
