//! CPU-time accounting: where the time of all CPUs went, and how much of it went nowhere that is known.

use super::value::share;
use crate::{
    drain::TasksHeader,
    machine::cpu::Cpu,
    model::{CpuCounts, CpuTime, Interval},
};

/// Where the time of all CPUs went, in ns. The parts and `rest_ns` are `capacity_ns`; a part that is `None` is in that of whoever was
/// interrupted, because the kernel leaves it there.
#[derive(Clone, Debug, PartialEq)]
pub struct Books {
    /// Time from the first reading of each CPU to the last.
    pub capacity_ns: u64,
    /// Tasks of all owners.
    pub owners_ns: u64,
    /// The idle tasks.
    pub idle_ns: u64,
    /// The scheduler between two tasks, as it balances load. Older recordings have it in `rest_ns`.
    pub scheduler_ns: u64,
    /// What running tasks had not been given yet at the end, less what they had not at the begin.
    pub pending_ns: i64,
    /// Interrupt handlers.
    pub interrupts_ns: Option<u64>,
    /// What the hypervisor took.
    pub stolen_ns: Option<u64>,
    /// CPUs that were offline for a part of an interval. One that is offline when it is to be read has no time in it at all.
    pub uncovered_ns: u64,
    /// The rest: not attributed. Below 0 if the parts are more than there was.
    pub rest_ns: i64,
    /// What the hypervisor took, as the kernel tells it, to 10 ms a CPU; only of whole runs. Not every kernel takes it from tasks.
    pub told_stolen_ns: Option<u64>,
    /// Each CPU's; none in older recordings.
    pub cpus: Vec<CpuBooks>,
}

/// Where the time of one CPU went, in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuBooks {
    /// Which.
    pub cpu: Cpu,
    /// By the scheduler's clock.
    pub time: CpuTime,
}

impl Books {
    /// Those of an interval in which everything was counted; `None` where nothing tells how long CPUs were idle.
    pub(super) fn of(header: &TasksHeader, interval: &Interval) -> Option<Self> {
        let told_stolen_ns = interval.all_cpus().times.map(|times| times.stolen_ns);
        let books = |(&cpu, counts): (&Cpu, &CpuCounts)| counts.time.map(|time| CpuBooks { cpu, time });
        let cpus: Vec<CpuBooks> = interval.cpus.iter().filter_map(books).collect();
        match cpus.iter().map(|books| books.time).reduce(|sum, time| sum.plus(&time)) {
            Some(all) => Some(Self {
                stolen_ns: header.excludes_steal.then(|| stolen_ns(&all)).flatten(),
                told_stolen_ns,
                ..Self::by_scheduler(&all, cpus)
            }),
            None => Self::by_ticks(interval),
        }
    }

    fn by_scheduler(all: &CpuTime, cpus: Vec<CpuBooks>) -> Self {
        Self {
            capacity_ns: all.wall_ns,
            owners_ns: all.owners_ns,
            idle_ns: all.idle_ns,
            scheduler_ns: all.between_ns,
            pending_ns: all.pending_ns,
            interrupts_ns: all.interrupts_ns,
            stolen_ns: None,
            uncovered_ns: all.uncovered_ns,
            rest_ns: all.rest_ns(),
            told_stolen_ns: None,
            cpus,
        }
    }

    /// From the kernel's own figures of a whole run, which are exact to 10 ms a CPU.
    fn by_ticks(interval: &Interval) -> Option<Self> {
        let kernel = interval.all_cpus().times?;
        let capacity_ns = interval.capacity_ns();
        let owners = interval.owners.values().map(|counts| counts.cpu_time_ns);
        let owners_ns = owners.fold(0, u64::saturating_add);
        let parts = [owners_ns, kernel.idle_ns, kernel.interrupts_ns, kernel.stolen_ns];
        let known_ns = parts.into_iter().fold(0, u64::saturating_add);
        let signed = |nanoseconds: u64| i64::try_from(nanoseconds).unwrap_or(i64::MAX);
        Some(Self {
            capacity_ns,
            owners_ns,
            idle_ns: kernel.idle_ns,
            scheduler_ns: 0,
            pending_ns: 0,
            interrupts_ns: Some(kernel.interrupts_ns),
            stolen_ns: Some(kernel.stolen_ns),
            uncovered_ns: 0,
            rest_ns: signed(capacity_ns).saturating_sub(signed(known_ns)),
            told_stolen_ns: Some(kernel.stolen_ns),
            cpus: Vec::new(),
        })
    }

    /// Closing error: the share of the CPUs' time that is not attributed, or attributed twice (0 to 1), of the CPU where it is largest.
    pub fn closing_error(&self) -> f64 {
        let of = |rest_ns: i64, capacity_ns: u64| match capacity_ns {
            0 => 0.0,
            _ => share(rest_ns.unsigned_abs(), capacity_ns),
        };
        let cpus = self.cpus.iter().map(|books| of(books.time.rest_ns(), books.time.wall_ns));
        cpus.fold(of(self.rest_ns, self.capacity_ns), f64::max)
    }
}

/// What the hypervisor took, of what the kernel leaves out; `None` where that cannot be read.
fn stolen_ns(time: &CpuTime) -> Option<u64> {
    Some(time.excluded_ns?.saturating_sub(time.interrupts_ns.unwrap_or(0)))
}
