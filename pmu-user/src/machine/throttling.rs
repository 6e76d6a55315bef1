//! Effects of CPU bandwidth limits on cgroups: `cpu.stat` and `cpu.max` of the v2 hierarchy
//! (Documentation/admin-guide/cgroup-v2.rst, CPU), or `cpu.stat` and `cpu.cfs_quota_us` where a v1 hierarchy
//! has the controller (Documentation/scheduler/sched-bwc.rst).

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use super::cgroup::{Cgroup, CgroupId, Layout};
use crate::untrusted::Untrusted;

/// Name of the v1 controller.
const CPU: &str = "cpu";

/// Effects of a cgroup's limit so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttling {
    /// Periods of the limit in which the cgroup had runnable tasks.
    pub periods: u64,
    /// Periods in which the limit was used up.
    pub throttled: u64,
    /// Time that its tasks were throttled, of all CPUs together, in ns.
    pub time_ns: u64,
    /// Limit itself. `None` where it was removed, and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<CpuLimit>,
}

/// A CPU bandwidth limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLimit {
    /// CPU time per period, in ns.
    pub quota_ns: u64,
    /// Length of a period in ns.
    pub period_ns: u64,
    /// The limit is of a v1 hierarchy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub v1: bool,
}

impl CpuLimit {
    /// Returns the names of the files that hold the quota and the period.
    #[must_use]
    pub const fn files(&self) -> [&'static str; 2] {
        if self.v1 { ["cpu.cfs_quota_us", "cpu.cfs_period_us"] } else { ["cpu.max", "cpu.max.period"] }
    }

    /// Parses `cpu.max`. Returns `None` for `max`: there is no limit.
    fn of_v2(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (quota, period) = (words.next()?, words.next()?);
        Some(Self { quota_ns: from_us(quota)?, period_ns: from_us(period)?, v1: false })
    }

    /// Parses `cpu.cfs_quota_us` and `cpu.cfs_period_us`. Returns `None` for -1: there is no limit.
    fn of_v1(quota: &str, period: &str) -> Option<Self> {
        Some(Self { quota_ns: from_us(quota)?, period_ns: from_us(period)?, v1: true })
    }
}

fn from_us(text: &str) -> Option<u64> {
    text.trim().parse::<u64>().ok()?.checked_mul(1000)
}

impl Throttling {
    /// Returns the difference since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(earlier.periods),
            throttled: self.throttled.saturating_sub(earlier.throttled),
            time_ns: self.time_ns.saturating_sub(earlier.time_ns),
            limit: self.limit,
        }
    }

    /// Returns the sum of both, with the limit of the later one.
    #[must_use]
    pub const fn plus(&self, later: &Self) -> Self {
        Self {
            periods: self.periods.saturating_add(later.periods),
            throttled: self.throttled.saturating_add(later.throttled),
            time_ns: self.time_ns.saturating_add(later.time_ns),
            limit: if later.limit.is_some() { later.limit } else { self.limit },
        }
    }

    /// Parses `cpu.stat`. Returns `None` if the cgroup never had a limit.
    fn parse(stat: &str) -> Option<Self> {
        let number = |name: &str| {
            let mut lines = stat.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            lines.next()?.parse::<u64>().ok()
        };
        let periods = number("nr_periods").filter(|periods| *periods > 0)?;
        // A v1 hierarchy reports ns.
        let time_ns = number("throttled_time")
            .or_else(|| number("throttled_usec").map(|time_us| time_us.saturating_mul(1000)))?;
        Some(Self { periods, throttled: number("nr_throttled")?, time_ns, limit: None })
    }
}

impl Layout {
    /// Returns the effects of a cgroup's limit so far. Returns `None` if it never had one, or is gone.
    pub fn throttling(&self, cgroup: &Cgroup) -> Option<Throttling> {
        let folder = self.folder(&cgroup.path)?;
        let so_far = Throttling::parse(&text(&folder, "cpu.stat")?)?;
        let limit = text(&folder, "cpu.max").and_then(|limit| CpuLimit::of_v2(&limit));
        Some(Throttling { limit, ..so_far })
    }

    /// Returns the same for a cgroup of the v1 hierarchy that has the controller.
    pub fn throttling_v1(&self, path: &Untrusted) -> Option<Throttling> {
        let folder = self.folder_of(Some(CPU), path)?;
        let so_far = Throttling::parse(&text(&folder, "cpu.stat")?)?;
        let (quota, period) = (text(&folder, "cpu.cfs_quota_us"), text(&folder, "cpu.cfs_period_us"));
        let limit = quota.zip(period).and_then(|(quota, period)| CpuLimit::of_v1(&quota, &period));
        Some(Throttling { limit, ..so_far })
    }

    /// Returns whether cgroups of the v2 hierarchy can have CPU bandwidth limits.
    pub fn limits_cpu_time(&self) -> bool {
        let controllers =
            self.v2.as_ref().and_then(|mount| fs::read_to_string(mount.join("cgroup.controllers")).ok());
        controllers.is_some_and(|controllers| controllers.split_whitespace().any(|one| one == CPU))
    }

    /// Returns whether cgroups of a v1 hierarchy can have CPU bandwidth limits.
    pub fn limits_cpu_time_v1(&self) -> bool {
        self.v1_mount(CPU).is_some()
    }

    /// Returns the path of a process's cgroup in the v1 hierarchy with the CPU controller. `root` is the
    /// folder that contains /proc.
    pub fn cpu_path_of(&self, root: &Path, process: &str) -> Option<Untrusted> {
        self.v1_mount(CPU)?;
        let text = fs::read(root.join(format!("proc/{process}/cgroup"))).ok()?;
        v1_path(&text, CPU)
    }

    /// Returns whether this cgroup exists in the v1 hierarchy with the CPU controller.
    pub fn has_cpu_path(&self, path: &Untrusted) -> bool {
        self.folder_of(Some(CPU), path).is_some_and(|folder| folder.is_dir())
    }

    /// Returns the paths of at most `most` cgroups in that hierarchy: the one at `path` and those below it,
    /// parents first.
    pub fn cpu_paths(&self, path: &Untrusted, most: usize) -> Vec<Untrusted> {
        let Some(mount) = self.v1_mount(CPU) else { return Vec::new() };
        let v1 = Self { v2: Some(mount.to_owned()), ..Self::default() };
        let all = v1.list(path).unwrap_or_default();
        all.into_iter().take(most).map(|cgroup| cgroup.path).collect()
    }

    /// Returns the id of the v2 cgroup at the same path, because runtimes give a container the same path in
    /// every hierarchy. Returns 0 where there is none.
    pub fn id_at(&self, path: &Untrusted) -> u64 {
        self.at(path).map_or(0, |Cgroup { id: CgroupId(id), .. }| id)
    }
}

/// Returns the path in the v1 hierarchy of a controller, from the text of /proc/PID/cgroup
/// (`4:cpu,cpuacct:/web`).
pub(super) fn v1_path(text: &[u8], controller: &str) -> Option<Untrusted> {
    let path = |line: &[u8]| {
        let mut fields = line.splitn(3, |&byte| byte == b':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let mut names = controllers.split(|&byte| byte == b',');
        names.any(|name| name == controller.as_bytes()).then(|| Untrusted::new(path))
    };
    text.split(|&byte| byte == b'\n').find_map(path)
}

fn text(folder: &Path, file: &str) -> Option<String> {
    fs::read_to_string(folder.join(file)).ok()
}

#[cfg(test)]
mod tests {
    use super::{CpuLimit, Throttling, v1_path};
    use crate::{
        machine::{
            cgroup::{Cgroup, CgroupId, Layout},
            testing::Tree,
        },
        untrusted::Untrusted,
    };

    #[test]
    fn a_cgroup_with_a_limit_says_how_often_it_was_used_up() {
        let stat = "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_periods 40\nnr_throttled 10\nthrottled_usec 2500\n\
                    nr_bursts 0\nburst_usec 0\n";
        let known = Throttling { periods: 40, throttled: 10, time_ns: 2_500_000, limit: None };
        assert_eq!(Throttling::parse(stat), Some(known));
        assert_eq!(Throttling::parse("usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"), None);
        assert_eq!(Throttling::parse("usage_usec 9\n"), None, "without the controller");
        let earlier = Throttling { periods: 30, throttled: 10, time_ns: 500_000, limit: None };
        let since = known.since(&earlier);
        assert_eq!(since, Throttling { periods: 10, throttled: 0, time_ns: 2_000_000, limit: None });
        assert_eq!(since.plus(&earlier), known);
    }

    #[test]
    fn a_v1_hierarchy_says_the_same_in_nanoseconds() {
        let stat = "nr_periods 59\nnr_throttled 50\nthrottled_time 3170000000\nnr_bursts 0\nburst_time 0\n";
        let known = Throttling { periods: 59, throttled: 50, time_ns: 3_170_000_000, limit: None };
        assert_eq!(Throttling::parse(stat), Some(known));
    }

    #[test]
    fn a_limit_is_what_its_files_say_in_either_hierarchy() {
        let stat = "nr_periods 4\nnr_throttled 1\nthrottled_time 7000\n";
        let tree = Tree::new(&[
            ("v1/web/cpu.stat", stat),
            ("v1/web/cpu.cfs_quota_us", "20000\n"),
            ("v1/web/cpu.cfs_period_us", "100000\n"),
            ("v1/free/cpu.stat", stat),
            ("v1/free/cpu.cfs_quota_us", "-1\n"),
            ("v1/free/cpu.cfs_period_us", "100000\n"),
            ("v2/web/cpu.stat", "nr_periods 4\nnr_throttled 1\nthrottled_usec 7\n"),
            ("v2/web/cpu.max", "50000 100000\n"),
        ]);
        let layout = Layout {
            v2: Some(tree.root.join("v2")),
            controllers: vec![("cpu", tree.root.join("v1"))],
            ..Layout::default()
        };
        let limit = |path: &str| layout.throttling_v1(&Untrusted::from(path)).map(|so_far| so_far.limit);
        let quota = |quota_ns, v1| Some(CpuLimit { quota_ns, period_ns: 100_000_000, v1 });
        assert_eq!(
            [limit("/web"), limit("/free"), limit("/none"), limit("/../v1/web")],
            [Some(quota(20_000_000, true)), Some(None), None, None]
        );
        let web = Cgroup { path: Untrusted::from("/web"), id: CgroupId(1) };
        let so_far = layout.throttling(&web).unwrap();
        assert_eq!((so_far.time_ns, so_far.limit), (7000, quota(50_000_000, false)));
        let paths = layout.cpu_paths(&Untrusted::from("/"), 9);
        assert_eq!((paths.len(), layout.has_cpu_path(&Untrusted::from("/web"))), (3, true));
    }

    #[test]
    fn a_process_is_in_the_hierarchy_whose_controllers_have_that_name() {
        let text = b"5:cpuset:/a\n4:cpuacct,cpu:/web:1\n0::/b\n";
        assert_eq!(v1_path(text, "cpu"), Some(Untrusted::from("/web:1")));
        assert_eq!(v1_path(text, "blkio"), None);
    }
}
