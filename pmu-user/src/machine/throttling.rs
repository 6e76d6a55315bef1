//! What limits of CPU time (`cpu.max`) did to cgroups: `cpu.stat` of the v2 hierarchy (Documentation/admin-guide/cgroup-v2.rst, CPU).

use std::fs;

use serde::{Deserialize, Serialize};

use super::cgroup::{Cgroup, Layout};

/// What a cgroup's limit did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttling {
    /// Periods of the limit in which the cgroup had something to run.
    pub periods: u64,
    /// Those in which the limit was used up.
    pub throttled: u64,
    /// Time that its tasks could not run for it, of all CPUs together, in ns.
    pub time_ns: u64,
}

impl Throttling {
    /// What was added since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(earlier.periods),
            throttled: self.throttled.saturating_sub(earlier.throttled),
            time_ns: self.time_ns.saturating_sub(earlier.time_ns),
        }
    }

    /// Both together.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            periods: self.periods.saturating_add(other.periods),
            throttled: self.throttled.saturating_add(other.throttled),
            time_ns: self.time_ns.saturating_add(other.time_ns),
        }
    }

    /// `None` if it never had a limit.
    fn parse(stat: &str) -> Option<Self> {
        let number = |name: &str| {
            let mut lines = stat.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            lines.next()?.parse::<u64>().ok()
        };
        let periods = number("nr_periods").filter(|periods| *periods > 0)?;
        let time_ns = number("throttled_usec")?.saturating_mul(1000);
        Some(Self { periods, throttled: number("nr_throttled")?, time_ns })
    }
}

impl Layout {
    /// What its limit did to a cgroup so far; `None` if it never had one, or is gone.
    pub fn throttling(&self, cgroup: &Cgroup) -> Option<Throttling> {
        let folder = self.folder(&cgroup.path)?;
        Throttling::parse(&fs::read_to_string(folder.join("cpu.stat")).ok()?)
    }

    /// Can cgroups of the v2 hierarchy have limits of CPU time?
    pub fn limits_cpu_time(&self) -> bool {
        let controllers =
            self.v2.as_ref().and_then(|mount| fs::read_to_string(mount.join("cgroup.controllers")).ok());
        controllers.is_some_and(|controllers| controllers.split_whitespace().any(|one| one == "cpu"))
    }
}

#[cfg(test)]
mod tests {
    use super::Throttling;

    #[test]
    fn a_cgroup_with_a_limit_says_how_often_it_was_used_up() {
        let stat = "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_periods 40\nnr_throttled 10\nthrottled_usec 2500\n\
                    nr_bursts 0\nburst_usec 0\n";
        let known = Throttling { periods: 40, throttled: 10, time_ns: 2_500_000 };
        assert_eq!(Throttling::parse(stat), Some(known));
        assert_eq!(Throttling::parse("usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"), None);
        assert_eq!(Throttling::parse("usage_usec 9\n"), None, "without the controller");
        let earlier = Throttling { periods: 30, throttled: 10, time_ns: 500_000 };
        let since = known.since(&earlier);
        assert_eq!(since, Throttling { periods: 10, throttled: 0, time_ns: 2_000_000 });
        assert_eq!(since.plus(&earlier), known);
    }
}
