//! Who uses a device: processes that drive it by themselves, network namespaces its interfaces are in, mounts of its disks.
//!
//! A device that one process, or one cgroup, has for itself needs no guess: all its traffic is theirs. Everything else goes
//! through the kernel for whoever asks, and has to be apportioned.

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
    /// Its id.
    pub pid: u32,
    /// When it began, in ns since the host did, to 10 ms, if nobody else has the device; 0 where that is not known, as in older
    /// recordings.
    #[serde(default)]
    pub born_ns: u64,
    /// Its name.
    #[serde(with = "exact")]
    pub name: Untrusted,
    /// Its cgroup: in the v2 hierarchy, or else in the first v1 one.
    #[serde(with = "exact")]
    pub cgroup: Untrusted,
    /// What it uses the device through: a file it has open, an interface, a mount point.
    #[serde(with = "exact")]
    pub through: Untrusted,
}

impl User {
    /// Is it in `cgroup`, or below it?
    pub fn is_within(&self, cgroup: &[u8]) -> bool {
        match self.cgroup.as_bytes().strip_prefix(cgroup) {
            Some(rest) => cgroup.ends_with(b"/") || rest.is_empty() || rest.starts_with(b"/"),
            None => false,
        }
    }
}

/// Whose a device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ownership {
    /// One process's, or one cgroup's: every byte it moves is theirs.
    Exclusive {
        /// The process, if it is one.
        pid: Option<u32>,
        /// The cgroup that all of them are in.
        #[serde(with = "exact")]
        cgroup: Untrusted,
        /// All of them.
        users: Vec<User>,
    },
    /// Several have it, or the kernel has it for whoever asks.
    Shared {
        /// Those that have it by themselves.
        users: Vec<User>,
        /// What makes it shared.
        why: String,
    },
    /// No user was found: no process drives it, nothing of it is mounted or swapped to, and no interface of it is up for
    /// use. A file system that hides its disks (ZFS) looks like this, too.
    None,
    /// It could not be found out.
    Unknown(String),
}

impl Ownership {
    /// Is every byte that the device moves that of a process in `cgroup`, or below it?
    pub fn is_within(&self, cgroup: &[u8]) -> bool {
        let Self::Exclusive { users, .. } = self else { return false };
        users.iter().all(|user| user.is_within(cgroup))
    }

    /// The cgroup whose every byte is.
    pub const fn cgroup(&self) -> Option<&Untrusted> {
        match self {
            Self::Exclusive { cgroup, .. } => Some(cgroup),
            Self::Shared { .. } | Self::None | Self::Unknown(_) => None,
        }
    }

    /// Processes that are known to use the device by themselves.
    pub fn users(&self) -> &[User] {
        match self {
            Self::Exclusive { users, .. } | Self::Shared { users, .. } => users,
            Self::None | Self::Unknown(_) => &[],
        }
    }

    /// Is every byte that of this process?
    pub fn is_of(&self, process: u32) -> bool {
        matches!(self, Self::Exclusive { pid: Some(pid), .. } if *pid == process)
    }
}

/// Whose several devices are together: those behind one root port, which hardware counts as one.
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

/// Who uses each device that moves data, by address. Processes that vanish meanwhile are left out. Without
/// CAP_SYS_PTRACE those of other users cannot be looked into: then nobody is exclusive.
pub fn read(root: &Path, platform: &Platform) -> Vec<(Bdf, Ownership)> {
    let processes = process::all(root);
    let mut found = evidence::of(root, platform, &processes.seen);
    let ends = platform.ports.iter().flat_map(|port| &port.devices);
    let owned = |bdf: &Bdf| {
        let mut owned = ownership(found.remove(bdf).unwrap_or_default(), processes.hidden);
        // Of all processes only these are asked for: there are few.
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
