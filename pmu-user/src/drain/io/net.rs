//! Packets of sockets: one row an interface and owner, as the programs counted them since counting started.

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
    /// Its index there.
    pub index: u32,
    /// Its name when it was first seen.
    #[serde(with = "exact")]
    pub name: Untrusted,
}

/// Whose packets they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetOwner {
    /// The cgroup that the socket's task was in when it made the socket.
    Cgroup(CgroupId),
    /// No socket, or one without a cgroup.
    Nobody,
    /// Cgroups that were not asked for.
    Outsider,
    /// Cgroups beyond the limit.
    Many,
}

impl NetOwner {
    /// The id of the cgroup that they are of, if they are one's.
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
/// Bytes count from the IP header on. What no socket sends or receives, forwarded packets above all, is in no row;
/// neither are Ethernet headers. The kernel's own counters of the interface hold everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetRow {
    /// The interface.
    pub interface: Interface,
    /// Whose.
    pub owner: NetOwner,
    /// Packets and bytes by direction and protocol. A packet that the kernel splits or joins for the device is one.
    #[serde(with = "words")]
    pub count: NetCount,
}

/// Counts of two CPUs, or of two rows of one owner. They wrap.
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
