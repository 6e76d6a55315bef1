//! The checkpoint of a run: the last reading of every row in one drain. A recording can begin with it while
//! counting goes on. Data of a single tick (samples, gaps, slices) and data of a whole run (CPU times,
//! limits) are not in it.

mod io;
mod tasks;

use std::collections::BTreeMap;

use self::{io::IoRows, tasks::TasksRows};
use super::{CgroupName, Drain, Followed};
use crate::{machine::container::Identity, untrusted::Untrusted};

/// Cgroup names kept before those that no row refers to are dropped.
const CGROUPS_MAX: usize = 16_384;

/// The last reading of every row of a run.
#[derive(Debug, Default)]
pub struct Checkpoint {
    tasks: Option<TasksRows>,
    io: Option<IoRows>,
    /// Identities of cgroups, by path.
    cgroups: BTreeMap<Untrusted, Identity>,
    /// Cgroups that became targets, by path.
    followed: BTreeMap<Untrusted, Followed>,
}

impl Checkpoint {
    /// Takes the rows of a drain. Counts without owners are in no checkpoint, because each reading of them is
    /// complete.
    pub fn take(&mut self, drain: &Drain) {
        if let Some(drain) = &drain.tasks {
            self.tasks.get_or_insert_default().take(drain);
        }
        if let Some(drain) = &drain.io {
            self.io.get_or_insert_default().take(drain);
        }
        let told = drain.cgroups.iter().map(|told| (told.path.clone(), told.identity.clone()));
        self.cgroups.extend(told);
        let path = |followed: &Followed| followed.cgroup.path.clone();
        self.followed.extend(drain.followed.iter().map(|followed| (path(followed), followed.clone())));
    }

    /// Returns the last reading of every row, as a drain. If there are many cgroup names, drops those that no
    /// row refers to.
    pub fn drain(&mut self) -> Drain {
        let tasks = self.tasks.as_mut().map(TasksRows::drain);
        let io = self.io.as_mut().map(IoRows::drain);
        if self.cgroups.len().max(self.followed.len()) > CGROUPS_MAX {
            let of_tasks = self.tasks.iter().flat_map(TasksRows::cgroups);
            let told: std::collections::BTreeSet<&Untrusted> =
                of_tasks.chain(self.io.iter().flat_map(IoRows::cgroups)).collect();
            self.cgroups.retain(|path, _| told.contains(path));
            self.followed.retain(|path, _| told.contains(path));
        }
        let named = |(path, identity): (&Untrusted, &Identity)| CgroupName {
            path: path.clone(),
            identity: identity.clone(),
        };
        Drain {
            tasks,
            io,
            counts: None,
            cgroups: self.cgroups.iter().map(named).collect(),
            followed: self.followed.values().cloned().collect(),
        }
    }
}
