//! Users of a device: processes that drive it directly, network namespaces of its interfaces, mounts of its
//! disks.
//!
//! All traffic of a device that one process or one cgroup uses exclusively is attributed to it. Other traffic
//! goes through the kernel for any process, and has to be apportioned.

mod evidence;

use std::{collections::BTreeSet, path::Path};

use serde::{Deserialize, Serialize};

use self::evidence::Evidence;
use super::{Platform, bdf::Bdf, process};
use crate::{
    machine::stat::born_ns,
    untrusted::{Untrusted, exact},
};

/// A process that uses a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct User {
    /// Process id of the user.
    pub pid: u32,
    /// Start time in ns since boot, to 10 ms, if the process has the device exclusively. 0 where it is not
    /// known, as in older recordings.
    #[serde(default)]
    pub born_ns: u64,
    /// Name of the process.
    #[serde(with = "exact")]
    pub name: Untrusted,
    /// Cgroup of the process: in the v2 hierarchy, or else in the first v1 one.
    #[serde(with = "exact")]
    pub cgroup: Untrusted,
    /// Path by which it uses the device: an open file, an interface, a mount point.
    #[serde(with = "exact")]
    pub through: Untrusted,
}

impl User {
    /// Returns whether the process is in `cgroup`, or below it.
    pub fn is_within(&self, cgroup: &[u8]) -> bool {
        match self.cgroup.as_bytes().strip_prefix(cgroup) {
            Some(rest) => cgroup.ends_with(b"/") || rest.is_empty() || rest.starts_with(b"/"),
            None => false,
        }
    }
}

/// Ownership of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ownership {
    /// Used by one process or one cgroup: every byte that the device moves is theirs.
    Exclusive {
        /// Process id, if there is a single process.
        pid: Option<u32>,
        /// Cgroup that contains all of the users.
        #[serde(with = "exact")]
        cgroup: Untrusted,
        /// Processes that use the device.
        users: Vec<User>,
    },
    /// Used by several, or by the kernel for any process.
    Shared {
        /// Processes that use the device directly.
        users: Vec<User>,
        /// Reason why the device is shared.
        why: String,
    },
    /// No user was found: no process drives the device, nothing of it is mounted or swapped to, and no
    /// interface of it is up. A file system that hides its disks (ZFS) has the same appearance.
    None,
    /// The users could not be determined.
    Unknown(String),
}

impl Ownership {
    /// Returns whether every byte that the device moves is that of a process in `cgroup`, or below it.
    pub fn is_within(&self, cgroup: &[u8]) -> bool {
        let Self::Exclusive { users, .. } = self else { return false };
        users.iter().all(|user| user.is_within(cgroup))
    }

    /// Returns the cgroup that uses the device exclusively.
    pub const fn cgroup(&self) -> Option<&Untrusted> {
        match self {
            Self::Exclusive { cgroup, .. } => Some(cgroup),
            Self::Shared { .. } | Self::None | Self::Unknown(_) => None,
        }
    }

    /// Returns the processes known to use the device directly.
    pub fn users(&self) -> &[User] {
        match self {
            Self::Exclusive { users, .. } | Self::Shared { users, .. } => users,
            Self::None | Self::Unknown(_) => &[],
        }
    }

    /// Returns whether every byte that the device moves is that of this process.
    pub fn is_of(&self, process: u32) -> bool {
        matches!(self, Self::Exclusive { pid: Some(pid), .. } if *pid == process)
    }
}

/// Returns the ownership of several devices together: those behind one root port, which hardware counts as
/// one.
pub fn together<'a>(devices: impl IntoIterator<Item = &'a Ownership>) -> Ownership {
    let mut evidence = Evidence::default();
    for device in devices {
        match device {
            Ownership::Unknown(why) => return Ownership::Unknown(why.clone()),
            Ownership::Exclusive { users, .. } => evidence.users.extend(users.iter().cloned()),
            Ownership::Shared { users, why } => {
                evidence.users.extend(users.iter().cloned());
                evidence.kernel = evidence.kernel.or_else(|| Some(why.clone()));
            }
            Ownership::None => {}
        }
    }
    ownership(evidence, 0)
}

/// Returns the ownership of each device that moves data, by address. Processes that exit during the read are
/// left out. Without CAP_SYS_PTRACE the processes of other users cannot be inspected, and no device is
/// exclusive.
pub fn read(root: &Path, platform: &Platform) -> Vec<(Bdf, Ownership)> {
    let processes = process::all(root);
    let mut found = evidence::of(root, platform, &processes.seen);
    let ends = platform.ports.iter().flat_map(|port| &port.devices);
    let owned = |bdf: &Bdf| {
        let mut owned = ownership(found.remove(bdf).unwrap_or_default(), processes.hidden);
        // The start time is read for these processes only: there are few.
        if let Ownership::Exclusive { pid: Some(pid), users, .. } = &mut owned {
            let born_ns = born_ns(root, *pid).unwrap_or(0);
            users.iter_mut().for_each(|user| user.born_ns = born_ns);
        }
        (*bdf, owned)
    };
    ends.map(owned).collect()
}

fn ownership(evidence: Evidence, hidden: usize) -> Ownership {
    let users: Vec<User> = evidence.users.into_iter().collect();
    if let Some(why) = evidence.kernel {
        return Ownership::Shared { users, why };
    }
    if hidden > 0 {
        let processes = if hidden == 1 { "a process" } else { &format!("{hidden} processes") };
        return Ownership::Unknown(format!("{processes} may not be looked into; run as root"));
    }
    let pids: BTreeSet<u32> = users.iter().map(|user| user.pid).collect();
    let cgroups: BTreeSet<Untrusted> = users.iter().map(|user| user.cgroup.clone()).collect();
    match (pids.first(), cgroups.first()) {
        (Some(pid), Some(cgroup)) if cgroups.len() == 1 => {
            Ownership::Exclusive { pid: (pids.len() == 1).then_some(*pid), cgroup: cgroup.clone(), users }
        }
        (Some(_), _) => Ownership::Shared { users, why: format!("{} cgroups use it", cgroups.len()) },
        (None, _) => Ownership::None,
    }
}

#[cfg(test)]
mod tests;
