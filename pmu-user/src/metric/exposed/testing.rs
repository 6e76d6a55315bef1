//! Host for tests, on which cgroups start, use CPUs and end as a test requires.

use std::collections::BTreeMap;

use pmu_common::histogram::RUNQUEUE;

use super::{Bounds, Exposed};
use crate::{
    drain::{Header, Owner, OwnerRow, SlotId, TasksDrain, TasksHeader},
    machine::Machine,
    metric::{
        Report, TasksReport,
        testing::{Random, header, machine},
    },
    model::{Counts, CpuCounts, Interval, Ledger, histogram::Histogram},
    plan::{
        Target,
        request::{By, Descend},
    },
};

/// Length of an interval, in ns.
pub(crate) const INTERVAL_NS: u64 = 5_000_000_000;

/// Activity of a cgroup in an interval.
#[derive(Clone, Debug)]
pub(crate) struct Did {
    pub(crate) owner: Owner,
    pub(crate) cpu_ns: u64,
    /// Number of waits for a CPU, and length of each in ns.
    pub(crate) waits: (u32, u64),
    pub(crate) ends: bool,
}

pub(crate) fn cgroup(id: u64, path: &str) -> Owner {
    Owner::cgroup(id, path.into())
}

pub(crate) fn did(owner: Owner, cpu_ns: u64) -> Did {
    Did { owner, cpu_ns, waits: (3, 50_000), ends: false }
}

/// Cgroups that start and end at random, some of them again under an earlier name.
pub(crate) struct Lives {
    pub(crate) random: Random,
    /// Live cgroups, with the maximum CPU time of each in an interval, in ns.
    alive: Vec<(Owner, f64)>,
    next: u64,
}

impl Lives {
    pub(crate) const fn new(random: Random) -> Self {
        Self { random, alive: Vec::new(), next: 1 }
    }

    /// Returns the activity of the live cgroups in the next interval.
    pub(crate) fn interval(&mut self) -> Vec<Did> {
        let Self { random, alive, next } = self;
        while random.uniform() < 0.4 {
            let name = if random.uniform() < 0.3 { random.below(20) as u64 } else { *next };
            alive.push((cgroup(*next, &format!("/c{name}")), random.magnitude(1e3, 2e9)));
            *next += 1;
        }
        let mut all = Vec::new();
        alive.retain(|(owner, most)| {
            let (cpu_ns, waits) = (random.between(0.0, *most) as u64, random.below(9) as u32);
            let ends = random.uniform() < 0.05;
            all.push(Did { owner: owner.clone(), cpu_ns, waits: (waits, 70_000), ends });
            !ends
        });
        all
    }
}

pub(crate) struct World {
    machine: Machine,
    header: TasksHeader,
    ledger: Ledger,
    at_ns: u64,
    slots: u32,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut header = header(Target::System);
        (header.plan.by, header.plan.descend) = (By::Cgroup, Descend::No);
        header.plan.sampling.clear();
        Self { machine: machine(), header, ledger: Ledger::new(), at_ns: 0, slots: 0 }
    }

    /// Returns the header of the run.
    pub(crate) fn header(&self) -> Header {
        self.header.clone().into()
    }

    /// Returns an empty state for this world.
    pub(crate) fn exposed(&self, bounds: Bounds) -> Exposed {
        Exposed::new(&self.header(), bounds)
    }

    /// Returns the report of the next interval.
    pub(crate) fn interval(&mut self, did: &[Did]) -> Report {
        self.at_ns += INTERVAL_NS;
        let owners = did.iter().map(|did| {
            self.slots += 1;
            let slot = SlotId { slot: self.slots, generation: 0 };
            OwnerRow { slot, owner: did.owner.clone(), ended_ns: did.ends.then_some(self.at_ns) }
        });
        let drain = TasksDrain { at_ns: self.at_ns, owners: owners.collect(), ..TasksDrain::default() };
        let advanced = self.ledger.advance(&drain);
        let indices: BTreeMap<Owner, _> =
            self.ledger.owners().map(|(index, owner)| (owner.clone(), index)).collect();
        let mut interval = Interval {
            from_ns: self.at_ns - INTERVAL_NS,
            to_ns: self.at_ns,
            ended: advanced.ended,
            cpus: [(crate::machine::cpu::Cpu(0), CpuCounts::default())].into(),
            ..Interval::default()
        };
        for did in did {
            let (count, each_ns) = did.waits;
            let bucket = RUNQUEUE.bucket_of(each_ns) as u16;
            let counted: &[(u16, u32)] = if count == 0 { &[] } else { &[(bucket, count)] };
            let counts = Counts {
                cpu_time_ns: did.cpu_ns,
                voluntary_switches: u64::from(count),
                waits: Histogram::between(RUNQUEUE, &[], counted),
                wait_ns: u64::from(count) * each_ns,
                wait_max_ns: (each_ns, each_ns),
                ..Counts::default()
            };
            interval.owners.entry(indices[&did.owner]).or_default().merge(&counts);
        }
        let tasks = TasksReport::new(&self.machine, &self.header, &self.ledger, &interval, &[]);
        Report { tasks: Some(tasks), ..Report::default() }
    }
}
