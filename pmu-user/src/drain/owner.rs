//! Owners of counts, and the slots in which they were counted.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
};

use pmu_common::{config::OUTSIDE, owner::start_tick};
use serde::{Deserialize, Serialize};

use crate::{
    machine::container::Identity,
    untrusted::{Untrusted, exact},
};

/// A slot in one of its lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SlotId {
    /// Index of the slot.
    pub slot: u32,
    /// Number of earlier uses of the slot.
    pub generation: u32,
}

/// Owner that counts in a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRow {
    /// Slot of the owner.
    pub slot: SlotId,
    /// The counted owner.
    pub owner: Owner,
    /// End of the owner, in ns since counting started.
    pub ended_ns: Option<u64>,
}

/// Owner of counts. Two owners are equal if they have the same [`OwnerKey`], regardless of their names.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The owners beyond the limit, together.
    Other,
    /// A single process.
    Process {
        /// Process id: see [`Id::of`].
        pid: u32,
        /// Start time, which distinguishes two processes with one id (CLOCK_BOOTTIME ns; CLOCK_MONOTONIC in
        /// older recordings).
        born_ns: u64,
        /// `comm` of its first thread.
        #[serde(with = "exact")]
        name: Untrusted,
    },
    /// Processes of one name that have ended, together.
    Ended {
        /// `comm` of their first threads.
        #[serde(with = "exact")]
        name: Untrusted,
        /// Number of these processes.
        processes: u64,
    },
    /// A single thread.
    Thread {
        /// Thread id: see [`Id::of`].
        tid: u32,
        /// Id of its process.
        pid: u32,
        /// Start time, as of a process.
        born_ns: u64,
        /// `comm` of the thread.
        #[serde(with = "exact")]
        name: Untrusted,
    },
    /// Processes whose first threads have this `comm`.
    Comm {
        /// `comm` of the first threads.
        #[serde(with = "exact")]
        name: Untrusted,
    },
    /// Processes of executable files with one name.
    Exe {
        /// Name of the file, at most 63 bytes; `comm` if there is none.
        #[serde(with = "exact")]
        name: Untrusted,
    },
    /// A v2 cgroup.
    Cgroup {
        /// Id of the cgroup; 0 if it is not known.
        id: u64,
        /// Path from the root of the hierarchy.
        #[serde(with = "exact")]
        path: Untrusted,
        /// Identity, as far as runtimes report it. No row of a recording has it: the recording keeps all of
        /// them by path ([`CgroupName`]).
        #[serde(skip)]
        identity: Option<Box<Identity>>,
    },
    /// Processes of one program, together, ended or not. In reports alone, in no row of a recording.
    Program {
        /// `comm` of their first threads.
        #[serde(with = "exact")]
        name: Untrusted,
        /// Number of these processes.
        processes: u64,
    },
}

/// Path and identity of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupName {
    /// Path from the root of the hierarchy.
    #[serde(with = "exact")]
    pub path: Untrusted,
    /// Identity of the cgroup.
    pub identity: Identity,
}

/// Key that identifies an owner in every source, independent of its name. A process may execute another
/// program, and a cgroup may be renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OwnerKey<'a> {
    /// The owners beyond the limit, together.
    Other,
    /// A process, by its id and the tick in which it began. /proc reports no finer time.
    Process(u32, u32),
    /// Processes of one name that have ended.
    Ended(&'a Untrusted),
    /// A thread, by its id and the tick in which it began.
    Thread(u32, u32),
    /// Processes of one name.
    Comm(&'a Untrusted),
    /// Processes of executable files with one name.
    Exe(&'a Untrusted),
    /// A cgroup, by its id.
    Cgroup(u64),
    /// A cgroup of which only the path is known.
    CgroupAt(&'a Untrusted),
    /// Processes of one program, together.
    Program(&'a Untrusted),
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Owner {}

impl PartialOrd for Owner {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Owner {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Owner {
    /// Returns a cgroup without an identity.
    #[must_use]
    pub const fn cgroup(id: u64, path: Untrusted) -> Self {
        Self::Cgroup { id, path, identity: None }
    }

    /// Returns the number of the cgroup among those of its name in a report, from 1; 0 for other owners.
    #[must_use]
    pub fn generation(&self) -> u32 {
        match self {
            Self::Cgroup { identity: Some(identity), .. } => identity.generation,
            _ => 0,
        }
    }

    /// Returns the key that identifies the owner regardless of its name.
    #[must_use]
    pub const fn key(&self) -> OwnerKey<'_> {
        match self {
            Self::Other => OwnerKey::Other,
            Self::Process { pid, born_ns, .. } => OwnerKey::Process(*pid, start_tick(*born_ns)),
            Self::Ended { name, .. } => OwnerKey::Ended(name),
            Self::Thread { tid, born_ns, .. } => OwnerKey::Thread(*tid, start_tick(*born_ns)),
            Self::Comm { name } => OwnerKey::Comm(name),
            Self::Exe { name } => OwnerKey::Exe(name),
            Self::Cgroup { id: 0, path, .. } => OwnerKey::CgroupAt(path),
            Self::Cgroup { id, .. } => OwnerKey::Cgroup(*id),
            Self::Program { name, .. } => OwnerKey::Program(name),
        }
    }

    /// Returns whether the owner may stand for several processes, which share a name.
    #[must_use]
    pub const fn is_of_many(&self) -> bool {
        matches!(self, Self::Comm { .. } | Self::Exe { .. })
    }

    /// Returns the owner's name in a sentence, escaped for a terminal.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self {
            Self::Other => "other".to_owned(),
            Self::Process { pid, name, .. } => format!("{} ({})", name.terminal(), Id::of(*pid)),
            Self::Ended { name, processes } | Self::Program { name, processes } => {
                format!("{} × {processes}", name.terminal())
            }
            Self::Thread { tid, name, .. } => format!("{} ({})", name.terminal(), Id::of(*tid)),
            Self::Comm { name } | Self::Exe { name } => name.terminal().into_owned(),
            Self::Cgroup { path, identity, .. } => {
                let called = identity.as_ref().and_then(|identity| identity.in_words());
                let called = called.unwrap_or_else(|| path.terminal().into_owned());
                match self.generation() {
                    0 | 1 => called,
                    later => format!("{called} #{later}"),
                }
            }
        }
    }
}

/// Number of a process or thread, as rows keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    /// Id in the PID namespace of the collector.
    Here(u32),
    /// Id in the first PID namespace, the host's, if there is none in the collector's.
    Outside(u32),
}

impl Id {
    /// Returns the meaning of a row's number.
    #[must_use]
    pub const fn of(number: u32) -> Self {
        if number & OUTSIDE == 0 { Self::Here(number) } else { Self::Outside(number & !OUTSIDE) }
    }

    /// Returns the id in the PID namespace of the collector, if there is one.
    #[must_use]
    pub const fn here(self) -> Option<u32> {
        match self {
            Self::Here(id) => Some(id),
            Self::Outside(_) => None,
        }
    }

    /// Returns the host's id, if there is no other.
    #[must_use]
    pub const fn outside(self) -> Option<u32> {
        match self {
            Self::Here(_) => None,
            Self::Outside(id) => Some(id),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(id) => write!(into, "{id}"),
            Self::Outside(id) => write!(into, "host {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use pmu_common::{config::OUTSIDE, owner::START_TICK_NS};

    use super::{Id, Owner};
    use crate::untrusted::Untrusted;

    #[test]
    fn a_name_is_no_part_of_who_somebody_is() {
        let process = |pid, born_ns, name: &str| Owner::Process { pid, born_ns, name: name.into() };
        // /proc and the requests of `io` have the tick only.
        assert_eq!(process(7, 5 * START_TICK_NS + 9, "sh"), process(7, 5 * START_TICK_NS, "dd"));
        assert_ne!(process(7, 5 * START_TICK_NS, "sh"), process(7, 6 * START_TICK_NS, "sh"));
        assert_ne!(process(7, 0, "sh"), process(8, 0, "sh"));
        let thread = |pid| Owner::Thread { tid: 9, pid, born_ns: 0, name: Untrusted::default() };
        assert_eq!(thread(0), thread(7));
        let cgroup = |id, path: &str| Owner::cgroup(id, path.into());
        assert_eq!(cgroup(3, "/a"), cgroup(3, "/b"));
        assert_ne!(cgroup(0, "/a"), cgroup(0, "/b"));
        let ended = |name: &str, processes| Owner::Ended { name: name.into(), processes };
        assert_eq!(ended("sh", 1), ended("sh", 2));
        assert_ne!(ended("sh", 1), ended("dd", 1));
    }

    #[test]
    fn an_id_from_outside_is_no_id_of_this_namespace() {
        assert_eq!((Id::of(7).here(), Id::of(7).outside()), (Some(7), None));
        let outside = Id::of(OUTSIDE | 7);
        assert_eq!((outside.here(), outside.outside()), (None, Some(7)));
        assert_eq!((Id::of(7).to_string(), outside.to_string()), ("7".to_owned(), "host 7".to_owned()));
    }
}
