//! Cgroups that a limit of CPU time throttled, as the kernel accounts it.

use super::value::Value;
use crate::{
    drain::Owner,
    machine::throttling::{CpuLimit, Throttling},
    model::Interval,
};

/// Effect of its CPU limit on a cgroup.
#[derive(Clone, Debug, PartialEq)]
pub struct Throttled {
    /// Cgroup with the limit.
    pub owner: Owner,
    /// Number of periods of the limit in which it had something to run.
    pub periods: u64,
    /// Share of them in which the limit was used up, in per cent.
    pub share: Value,
    /// Time that its tasks could not run because of the limit, of all CPUs together, in ns.
    pub time: Value,
    /// Limit of CPU time; `None` where it is not known.
    pub limit: Option<CpuLimit>,
}

impl Throttled {
    /// Returns the throttled cgroups of an interval, those that lost most time first.
    pub(super) fn of(interval: &Interval) -> Vec<Self> {
        let mut all: Vec<_> = interval.throttling.iter().filter(|(_, limit)| limit.periods > 0).collect();
        all.sort_by_key(|(owner, limit)| (std::cmp::Reverse(limit.time_ns), *owner));
        let report = |(owner, limit): (&Owner, &Throttling)| Self {
            owner: owner.clone(),
            periods: limit.periods,
            share: Value::exact(100.0 * limit.throttled as f64 / limit.periods as f64),
            time: Value::counted(limit.time_ns, 1.0),
            limit: limit.limit,
        };
        all.into_iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Throttled, Throttling, Value};
    use crate::{
        drain::{Owner, TasksDrain, ThrottlingRow},
        machine::cpu::{Cpu, Times},
        model::{Interval, Ledger},
        untrusted::Untrusted,
    };

    fn drain(at_ns: u64, rows: &[(u64, [u64; 3])]) -> TasksDrain {
        let row = |&(id, [periods, throttled, time_ns]): &(u64, [u64; 3])| ThrottlingRow {
            owner: Owner::cgroup(id, Untrusted::from(format!("/{id}"))),
            so_far: Throttling { periods, throttled, time_ns, limit: None },
        };
        let throttling = rows.iter().map(row).collect();
        TasksDrain { at_ns, times: vec![(Cpu(0), Times::default())], throttling, ..TasksDrain::default() }
    }

    #[test]
    fn what_limits_did_before_the_run_is_not_its_own() {
        let mut ledger = Ledger::new();
        let mut whole = Interval::default();
        let between = TasksDrain { throttling: Vec::new(), ..drain(1, &[]) };
        let drains = [
            drain(0, &[(1, [1000, 900, 7_000_000]), (2, [50, 0, 0])]),
            between,
            // The third cgroup is new, the second did nothing.
            drain(2, &[(1, [1040, 910, 9_000_000]), (2, [50, 0, 0]), (3, [10, 10, 5_000_000])]),
        ];
        drains.iter().for_each(|drain| whole.extend(&ledger.advance(drain)));
        let limits = Throttled::of(&whole);
        let said: Vec<_> = limits.iter().map(|limit| (limit.periods, &limit.share, &limit.time)).collect();
        let (all, quarter) = (Value::exact(100.0), Value::exact(25.0));
        let times = [Value::counted(5_000_000, 1.0), Value::counted(2_000_000, 1.0)];
        assert_eq!(said, [(10, &all, &times[0]), (40, &quarter, &times[1])]);
    }
}
