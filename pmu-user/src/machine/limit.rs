//! Limits of v2 cgroups, and their usage (Documentation/admin-guide/cgroup-v2.rst). A value without a limit
//! or without a controller is absent.

use std::fs;

use serde::{Deserialize, Serialize};

use super::cgroup::{Cgroup, Layout};
use crate::named::named;

named! {
    /// Value in a cgroup's files.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Limit {
        MemoryCurrent = "memory.current", "Memory in use, in bytes.";
        MemoryHigh = "memory.high", "Memory above which its tasks are slowed down, in bytes.";
        MemoryMax = "memory.max", "The most memory, in bytes.";
        HighEvents = "memory.events high", "Times that it was above `memory.high`.";
        MaxEvents = "memory.events max", "Times that it was about to be above `memory.max`.";
        OomKills = "memory.events oom_kill", "Processes that the kernel ended for it.";
        PidsCurrent = "pids.current", "Tasks.";
        PidsMax = "pids.max", "The most tasks.";
        PidsMaxEvents = "pids.events max", "Forks that failed for it.";
        CpuWeight = "cpu.weight", "Its share of the CPU time beside its neighbours; 100 unless it was changed.";
        Cpus = "cpuset.cpus.effective", "CPUs on which its tasks may run.";
    }
}

/// Values in a cgroup's files, in order.
pub type Limits = Vec<(Limit, u64)>;

impl Limit {
    /// Returns whether the value counts events, so that its differences are meaningful.
    pub const fn is_event(self) -> bool {
        matches!(self, Self::HighEvents | Self::MaxEvents | Self::OomKills | Self::PidsMaxEvents)
    }

    /// Parses the number in the text of its file. Returns `None` for `max`, which is no limit.
    fn parse(self, text: &str) -> Option<u64> {
        match self.name().split_once(' ') {
            Some((_, event)) => {
                let mut counts = text.lines().filter_map(|line| line.strip_prefix(event)?.strip_prefix(' '));
                counts.next()?.parse().ok()
            }
            None if self == Self::Cpus => cpus(text.trim()),
            None => text.trim().parse().ok(),
        }
    }
}

/// Returns the number of CPUs in a list: `0-3,8`.
fn cpus(list: &str) -> Option<u64> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    list.split(',').map(range).sum()
}

impl Layout {
    /// Returns the limits of a cgroup and their usage. Returns none if the cgroup is gone.
    pub fn limits(&self, cgroup: &Cgroup) -> Limits {
        let Some(folder) = self.folder(&cgroup.path) else { return Limits::new() };
        let value = |limit: Limit| {
            let file = limit.name().split(' ').next()?;
            Some((limit, limit.parse(&fs::read_to_string(folder.join(file)).ok()?)?))
        };
        Limit::ALL.into_iter().filter_map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Limit;
    use crate::{
        machine::{
            cgroup::{Cgroup, CgroupId, Layout},
            testing::Tree,
        },
        untrusted::Untrusted,
    };

    #[test]
    fn a_limit_is_what_its_file_says_and_no_limit_is_not_there() {
        let tree = Tree::new(&[
            ("web/memory.current", "4096\n"),
            ("web/memory.high", "max\n"),
            ("web/memory.max", "8192\n"),
            ("web/memory.events", "low 0\nhigh 3\nmax 2\noom 1\noom_kill 1\noom_group_kill 0\n"),
            ("web/cpuset.cpus.effective", "0-3,8\n"),
        ]);
        let layout = Layout { v2: Some(tree.root.clone()), ..Layout::default() };
        let limits = layout.limits(&Cgroup { path: Untrusted::from("/web"), id: CgroupId(7) });
        let expected = [
            (Limit::MemoryCurrent, 4096),
            (Limit::MemoryMax, 8192),
            (Limit::HighEvents, 3),
            (Limit::MaxEvents, 2),
            (Limit::OomKills, 1),
            (Limit::Cpus, 5),
        ];
        assert_eq!(limits, expected);
    }
}
