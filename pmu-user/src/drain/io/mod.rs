//! What one tick of `pmbpf io` read: counts of uncore PMUs by slice, block requests and packets by owner, memory traffic by group.
//! Plain rows, for whoever adds them up.

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

/// What is known before the first drain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IoHeader {
    /// What stands on the host's I/O side.
    pub platform: Platform,
    /// What was opened.
    pub plan: IoPlan,
}

/// What one tick read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IoDrain {
    /// When, in ns since counting started.
    pub at_ns: u64,
    /// What uncore PMUs counted in slices that ended since the last drain.
    #[serde(default, rename = "boxes", skip_serializing_if = "Vec::is_empty")]
    pub uncore: Vec<UncoreSlice>,
    /// Block requests and packets since counting started, as far as they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// What the kernel itself counts of disks, interfaces and TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelCounts>,
    /// Memory traffic of CPUs by group, where resctrl tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Groups>,
    /// Cgroups that are new in its traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Named>,
    /// Disks that are new in its traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<NamedDisk>,
    /// Who has which device for himself; only in the first drain and the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owned: Vec<(Bdf, Ownership)>,
    /// Devices that were there when counting started and are not any more; only in the last drain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<Absent>,
    /// What the programs cost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramRow>,
    /// What this process cost so far.
    pub cost: Cost,
    /// What could not be kept, by reason, so far.
    pub losses: Vec<(String, u64)>,
}

/// What the kernel itself counted of disks, interfaces and TCP until a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCounts {
    /// When it was read, in ns since counting started.
    pub at_ns: u64,
    /// Block devices, partitions excepted.
    pub disks: Vec<DiskCount>,
    /// Network namespaces: the host's, and those of targets.
    pub networks: Vec<NetworkCount>,
}

/// How a block device was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCount {
    /// Its number.
    pub device: DeviceNumber,
    /// Its name.
    #[serde(with = "exact")]
    pub name: Untrusted,
    /// Since it came up.
    pub in_use: InUse,
}

/// Interfaces and TCP of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkCount {
    /// The target that is in it; `None` is the namespace that pmbpf is in.
    pub owner: Option<Owner>,
    /// Interfaces.
    pub interfaces: Vec<InterfaceCount>,
    /// TCP.
    pub tcp: TcpCount,
}

/// What a cgroup is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Its id.
    pub cgroup: u64,
    /// Its path from the hierarchy's root.
    #[serde(with = "exact")]
    pub path: Untrusted,
}

/// What a block device is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedDisk {
    /// Its number.
    pub device: DeviceNumber,
    /// Its name.
    #[serde(with = "exact")]
    pub name: Untrusted,
}

/// What one uncore PMU counted in one slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncoreSlice {
    /// Which of the plan's kinds of uncore PMUs.
    pub kind: u32,
    /// Which uncore PMU of that kind.
    pub at: u32,
    /// Number of the slice since counting started; slices of different kinds have nothing to do with each other.
    pub slice: u64,
    /// Which of the kind's groups was active.
    pub group: u32,
    /// When the slice ended, in ns since counting started.
    pub ended_ns: u64,
    /// Counts of the group's events.
    pub counts: Vec<u64>,
    /// Time for which the group was active, in ns.
    pub enabled_ns: u64,
    /// Time of that during which it was on counters, in ns. Less if someone else had them.
    pub running_ns: u64,
}
