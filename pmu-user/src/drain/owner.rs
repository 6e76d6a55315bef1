//! Whom counts belong to, and in which slot they were counted.

use serde::{Deserialize, Serialize};

use super::Id;
use crate::untrusted::{Untrusted, exact};

/// A slot in one of its lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SlotId {
    /// Index of the slot.
    pub slot: u32,
    /// How often it had been used before.
    pub generation: u32,
}

/// Who counts in a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRow {
    /// The slot.
    pub slot: SlotId,
    /// Who.
    pub owner: Owner,
    /// When it ended, in ns since counting started.
    pub ended_ns: Option<u64>,
}

/// Whom counts belong to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// All owners beyond the limit.
    Other,
    /// A process.
    Process {
        /// Process id: see [`Id::of`].
        pid: u32,
        /// Start time, which tells two processes of one id apart (CLOCK_MONOTONIC ns).
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
        /// How many they are.
        processes: u64,
    },
    /// A thread.
    Thread {
        /// Thread id: see [`Id::of`].
        tid: u32,
        /// Its process's id.
        pid: u32,
        /// Start time (CLOCK_MONOTONIC ns).
        born_ns: u64,
        /// Its `comm`.
        #[serde(with = "exact")]
        name: Untrusted,
    },
    /// Processes whose first threads have this `comm`.
    Comm {
        /// It.
        #[serde(with = "exact")]
        name: Untrusted,
    },
    /// Processes of executable files of one name.
    Exe {
        /// It, of 63 bytes at most; `comm` where there is none.
        #[serde(with = "exact")]
        name: Untrusted,
    },
    /// A v2 cgroup.
    Cgroup {
        /// Id.
        id: u64,
        /// Path from the hierarchy's root.
        #[serde(with = "exact")]
        path: Untrusted,
    },
}

impl Owner {
    /// May processes that are told apart otherwise be one owner, known by a name?
    #[must_use]
    pub const fn is_of_many(&self) -> bool {
        matches!(self, Self::Comm { .. } | Self::Exe { .. })
    }

    /// What a sentence calls it, escaped for a terminal.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self {
            Self::Other => "other".to_owned(),
            Self::Process { pid, name, .. } => format!("{} ({})", name.terminal(), Id::of(*pid)),
            Self::Ended { name, processes } => format!("{} × {processes}", name.terminal()),
            Self::Thread { tid, name, .. } => format!("{} ({})", name.terminal(), Id::of(*tid)),
            Self::Comm { name } | Self::Exe { name } => name.terminal().into_owned(),
            Self::Cgroup { path, .. } => path.terminal().into_owned(),
        }
    }
}
