//! Limits of cgroups, as their files report them.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    io::Subject,
    value::{Known, Value},
};
use crate::{
    drain::{Owner, io::block::Operation},
    machine::{
        io_limit::{IoLimit, IoLimitKind},
        limit::Limit,
    },
    model::Interval,
    table::metric::{self, Metric},
};

/// Limits and usage in a cgroup's files.
#[derive(Clone, Debug, PartialEq)]
pub struct Limited {
    /// Cgroup with the limits.
    pub owner: Owner,
    /// Values in the order of the catalogue.
    pub values: Vec<(Metric, Value)>,
    /// Limits of its I/O.
    pub io: Vec<IoLimited>,
}

/// Limit of I/O at a block device.
#[derive(Clone, Debug, PartialEq)]
pub struct IoLimited {
    /// Device and operation that the limit covers.
    pub subject: Subject,
    /// Metric of the limit.
    pub metric: Metric,
    /// Maximum in the metric's unit.
    pub value: Value,
    /// Limit as it is set.
    pub limit: IoLimit,
}

impl Limited {
    /// Returns the limits of all cgroups in an interval.
    pub(super) fn of(interval: &Interval) -> Vec<Self> {
        let owners: BTreeSet<&Owner> = interval.limits.keys().chain(interval.io_limits.keys()).collect();
        let report = |owner: &Owner| Self {
            owner: owner.clone(),
            values: values(interval.limits.get(owner)),
            io: interval.io_limits.get(owner).into_iter().flatten().map(IoLimited::of).collect(),
        };
        owners.into_iter().map(report).collect()
    }

    /// Returns a number, if the cgroup has it.
    pub fn value(&self, of: &Metric) -> Option<&Known> {
        self.values.iter().find(|(metric, _)| metric == of)?.1.known()
    }
}

fn values(limits: Option<&BTreeMap<Limit, u64>>) -> Vec<(Metric, Value)> {
    let value = |(&limit, &value): (&Limit, &u64)| (metric(limit), Value::exact(value as f64));
    limits.into_iter().flatten().map(value).collect()
}

impl IoLimited {
    fn of(limit: &IoLimit) -> Self {
        let (metric, operation, factor) = match limit.kind {
            IoLimitKind::ReadBytes => (metric::IO_MAX_RBPS, Operation::Read, 1e-6),
            IoLimitKind::WriteBytes => (metric::IO_MAX_WBPS, Operation::Write, 1e-6),
            IoLimitKind::ReadRequests => (metric::IO_MAX_RIOPS, Operation::Read, 1.0),
            IoLimitKind::WriteRequests => (metric::IO_MAX_WIOPS, Operation::Write, 1.0),
        };
        Self {
            subject: Subject::Disk(limit.name.clone(), operation.name()),
            metric,
            value: Value::exact(limit.most as f64 * factor),
            limit: limit.clone(),
        }
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
