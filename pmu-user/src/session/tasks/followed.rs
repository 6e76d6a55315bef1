//! Cgroups that become targets during counting.

use super::TasksSession;
use crate::machine::cgroup::{Cgroup, CgroupId};

impl TasksSession {
    /// Returns the cgroups that are not targets and were created since the last call, with the time of
    /// creation in ns of CLOCK_MONOTONIC. Empty if no names are followed.
    pub(in crate::session) fn take_others(&mut self) -> Vec<(Cgroup, u64)> {
        std::mem::take(&mut self.ring_reader.others)
    }

    /// Makes a cgroup a target, and then those below it. From then on, cgroups created there are targets,
    /// too. Returns the number of cgroups for which there is no room. The same call again covers cgroups that
    /// programs judged during the first one.
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

    /// Records that this many cgroups that match, or may match, a name are not targets.
    pub(in crate::session) const fn lose_targets(&mut self, count: u64) {
        self.lost_targets += count;
    }

    /// Removes a target that was gone before it was one.
    pub(in crate::session) fn forget(&mut self, cgroup: CgroupId) {
        self.object.maps.forget_cgroup(cgroup.0);
    }
}
