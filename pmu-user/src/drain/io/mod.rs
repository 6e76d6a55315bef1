//! Readings of one tick of `pmbpf io`: counts of uncore PMUs by slice, block requests and packets by owner,
//! memory traffic by group. Plain rows that the consumer adds up.

pub mod block;
pub mod group;
pub mod net;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod traffic;

use serde::{Deserialize, Serialize};

use self::{block::DeviceNumber, group::Groups, traffic::Traffic};
use super::{Absent, Cost, Owner, ProgramRow};
use crate::{
    machine::{
        disk::InUse,
        io::{Platform, bdf::Bdf, owner::Ownership},
        network::{InterfaceCount, TcpCount},
    },
    plan::io::IoPlan,
    untrusted::{Untrusted, exact},
};

/// Facts that are known before the first drain of I/O.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IoHeader {
    /// The host's I/O platform.
    pub platform: Platform,
    /// Plan of what was opened.
    pub plan: IoPlan,
}

/// Readings of I/O in one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IoDrain {
    /// Time of the reading, in ns since counting started.
    pub at_ns: u64,
    /// Counts of uncore PMUs in slices that ended since the last drain.
    #[serde(default, rename = "boxes", skip_serializing_if = "Vec::is_empty")]
    pub uncore: Vec<UncoreSlice>,
    /// Block requests and packets since counting started, as far as they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// The kernel's own counts of disks, interfaces and TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelCounts>,
    /// Memory traffic of CPUs by group, where resctrl reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Groups>,
    /// Cgroups that are new in the traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Named>,
    /// Disks that are new in the traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<NamedDisk>,
    /// Devices with an exclusive owner, and that owner; only in the first drain and the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owned: Vec<(Bdf, Ownership)>,
    /// Devices that have gone since counting started; only in the last drain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<Absent>,
    /// Cost of the programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramRow>,
    /// Cost of this process so far.
    pub cost: Cost,
    /// Losses so far, by reason.
    pub losses: Vec<(String, u64)>,
}

/// The kernel's own counts of disks, interfaces and TCP up to a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCounts {
    /// Time of the reading, in ns since counting started.
    pub at_ns: u64,
    /// Block devices, partitions excepted.
    pub disks: Vec<DiskCount>,
    /// Network namespaces: the host's, and those of targets.
    pub networks: Vec<NetworkCount>,
}

/// Usage of a block device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCount {
    /// Number of the device.
    pub device: DeviceNumber,
    /// Name of the device.
    #[serde(with = "exact")]
    pub name: Untrusted,
    /// Usage since the device came up.
    pub in_use: InUse,
}

/// Interfaces and TCP of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkCount {
    /// Target that is in the namespace; `None` for the namespace that pmbpf is in.
    pub owner: Option<Owner>,
    /// Counts of the interfaces.
    pub interfaces: Vec<InterfaceCount>,
    /// Counts of TCP.
    pub tcp: TcpCount,
}

/// Name of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Id of the cgroup.
    pub cgroup: u64,
    /// Path from the root of the hierarchy.
    #[serde(with = "exact")]
    pub path: Untrusted,
}

/// Name of a block device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedDisk {
    /// Number of the device.
    pub device: DeviceNumber,
    /// Name of the device.
    #[serde(with = "exact")]
    pub name: Untrusted,
}

/// Counts of one uncore PMU in one slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncoreSlice {
    /// Index of the kind of uncore PMU in the plan.
    pub kind: u32,
    /// Index of the uncore PMU within the kind.
    pub at: u32,
    /// Number of the slice since counting started. Slices of different kinds are independent.
    pub slice: u64,
    /// Index of the active group within the kind.
    pub group: u32,
    /// End of the slice, in ns since counting started.
    pub ended_ns: u64,
    /// Counts of the group's events.
    pub counts: Vec<u64>,
    /// Time for which the group was enabled, in ns.
    pub enabled_ns: u64,
    /// Time for which the group was running on counters, in ns. It is less if another user had the counters.
    pub running_ns: u64,
}
