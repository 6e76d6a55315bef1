//! Limits of cgroups, as their files say.

use std::collections::BTreeMap;

use super::value::{Known, Value};
use crate::{
    drain::Owner,
    machine::limit::Limit,
    model::Interval,
    table::metric::{self, Metric},
};

/// What a cgroup's files say.
#[derive(Clone, Debug, PartialEq)]
pub struct Limited {
    /// Which.
    pub owner: Owner,
    /// In the order of the catalogue.
    pub values: Vec<(Metric, Value)>,
}

impl Limited {
    /// All of an interval.
    pub(super) fn of(interval: &Interval) -> Vec<Self> {
        let report = |(owner, limits): (&Owner, &BTreeMap<Limit, u64>)| Self {
            owner: owner.clone(),
            values: limits
                .iter()
                .map(|(&limit, &value)| (metric(limit), Value::exact(value as f64)))
                .collect(),
        };
        interval.limits.iter().map(report).collect()
    }

    /// A number, if the cgroup has it.
    pub fn value(&self, of: &Metric) -> Option<&Known> {
        self.values.iter().find(|(metric, _)| metric == of)?.1.known()
    }
}

const fn metric(limit: Limit) -> Metric {
    match limit {
        Limit::MemoryCurrent => metric::MEMORY_CURRENT,
        Limit::MemoryHigh => metric::MEMORY_HIGH,
        Limit::MemoryMax => metric::MEMORY_MAX,
        Limit::HighEvents => metric::MEMORY_HIGH_EVENTS,
        Limit::MaxEvents => metric::MEMORY_MAX_EVENTS,
        Limit::OomKills => metric::MEMORY_OOM_KILLS,
        Limit::PidsCurrent => metric::PIDS_CURRENT,
        Limit::PidsMax => metric::PIDS_MAX,
        Limit::PidsMaxEvents => metric::PIDS_MAX_EVENTS,
        Limit::CpuWeight => metric::CPU_WEIGHT,
        Limit::Cpus => metric::CPUSET_CPUS,
    }
}
