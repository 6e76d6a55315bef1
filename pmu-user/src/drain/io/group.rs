//! Monitoring groups of threads, with the memory traffic that the processor counts, as read from resctrl at
//! one moment.

use serde::{Deserialize, Serialize};

use crate::{
    drain::{Absent, Owner},
    machine::io::resctrl::MonitoringGroup,
};

/// Monitoring groups at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    /// Time of the reading, in ns since counting started.
    pub at_ns: u64,
    /// Groups, each with its count since it was made.
    pub rows: Vec<GroupRow>,
    /// Targets without a number, because not all of their threads are in groups of theirs alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<Absent>,
}

/// A group with the owner of its threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRow {
    /// The monitoring group.
    pub group: MonitoringGroup,
    /// Owner of all threads that were in the group then, without those in monitoring groups inside it.
    pub whose: GroupOwner,
}

/// Owner of a group's count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupOwner {
    /// One owner, or a cgroup and cgroups above it. All of their threads are in groups of theirs.
    Of(Vec<Owner>),
    /// No single owner, with the reason.
    Nobody(String),
    /// Owners outside the targets.
    Outsider,
    /// Group without threads.
    Empty,
}
