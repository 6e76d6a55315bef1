//! Cgroups that become targets while counting goes on.

use super::TasksSession;
use crate::machine::cgroup::{Cgroup, CgroupId};

impl TasksSession {
    /// Cgroups that are not targets and were made since the last call, and when, in ns of CLOCK_MONOTONIC; empty where no names are
    /// followed.
    pub(in crate::session) fn take_others(&mut self) -> Vec<(Cgroup, u64)> {
        std::mem::take(&mut self.ring_reader.others)
    }

    /// Makes a cgroup a target, and then those below it, from when on what is made there is one, too. How many of them there is no room
    /// for. The same call again finds what programs judged while the first one was on its way.
    pub(in crate::session) fn adopt(&mut self, cgroup: &Cgroup, below: impl FnOnce() -> Vec<Cgroup>) -> u64 {
        let maps = &mut self.object.maps;
        let mut adopt = |Cgroup { path, id }: Cgroup| {
            self.owners.learn_path(id.0, path);
            u64::from(maps.adopt_cgroup(id.0).is_err())
        };
        let mut refused = adopt(cgroup.clone());
        refused += below().into_iter().map(adopt).sum::<u64>();
        if self.counted != 0 {
            self.count(self.counted + 1);
        }
        refused
    }

    /// Takes that so many cgroups that a name means, or may mean, are no targets.
    pub(in crate::session) const fn lose_targets(&mut self, count: u64) {
        self.lost_targets += count;
    }

    /// Takes a target back that was gone before it was one.
    pub(in crate::session) fn forget(&mut self, cgroup: CgroupId) {
        self.object.maps.forget_cgroup(cgroup.0);
    }
}
