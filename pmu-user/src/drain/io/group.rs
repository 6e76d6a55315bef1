//! Groups of threads whose memory traffic the processor counts, as resctrl showed them at one moment.

use serde::{Deserialize, Serialize};

use crate::{
    drain::{Absent, Owner},
    machine::io::resctrl::MonitoringGroup,
};

/// All groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    /// When they were read, in ns since counting started.
    pub at_ns: u64,
    /// Each with what was counted since it was made.
    pub rows: Vec<GroupRow>,
    /// Targets whose threads are not all in groups of their own, and so have no number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<Absent>,
}

/// A group and whose its threads are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRow {
    /// The group.
    pub group: MonitoringGroup,
    /// Whose all of its threads were then; those in its monitoring groups are theirs.
    pub whose: GroupOwner,
}

/// Whose a group's count is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupOwner {
    /// These: one, or a cgroup and some that it is below. All that they have counts in groups of theirs.
    Of(Vec<Owner>),
    /// Nobody's in particular, and why.
    Nobody(String),
    /// That of some who were not asked for.
    Outsider,
    /// No thread was in it.
    Empty,
}
