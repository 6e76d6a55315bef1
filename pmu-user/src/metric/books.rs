//! CPU-time accounting: where the time of all CPUs went, and how much of it went nowhere that is known.

use super::value::share;
use crate::{
    drain::TasksHeader,
    machine::cpu::{Cpu, Times},
    model::{CpuCounts, CpuTime, Interval},
};

/// Where the time of all CPUs went, in ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Books {
    /// All CPUs together, from the first reading of each to the last.
    pub time: CpuTime,
    /// What the hypervisor took, of what is left out of the time of tasks; `None` where the kernel has it in that of whoever was interrupted.
    pub stolen_ns: Option<u64>,
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
        let kernel = interval.all_cpus().times;
        let books = |(&cpu, counts): (&Cpu, &CpuCounts)| counts.time.map(|time| CpuBooks { cpu, time });
        let cpus: Vec<CpuBooks> = interval.cpus.iter().filter_map(books).collect();
        let (time, excludes_steal) =
            match cpus.iter().map(|books| books.time).reduce(|sum, time| sum.plus(&time)) {
                Some(time) => (time, header.excludes_steal),
                None => (by_ticks(interval, kernel?), true),
            };
        let stolen_ns = |excluded_ns: u64| excluded_ns.saturating_sub(time.interrupts_ns.unwrap_or(0));
        Some(Self {
            time,
            stolen_ns: time.excluded_ns.map(stolen_ns).filter(|_| excludes_steal),
            told_stolen_ns: kernel.map(|kernel| kernel.stolen_ns),
            cpus,
        })
    }

    /// Closing error: the share of the CPUs' time that is not attributed, or attributed twice (0 to 1), of the CPU where it is largest.
    pub fn closing_error(&self) -> f64 {
        let of = |time: &CpuTime| match time.wall_ns {
            0 => 0.0,
            wall_ns => share(time.rest_ns().unsigned_abs(), wall_ns),
        };
        self.cpus.iter().map(|books| of(&books.time)).fold(of(&self.time), f64::max)
    }
}

/// From the kernel's own figures of a whole run, which are exact to 10 ms a CPU.
fn by_ticks(interval: &Interval, kernel: Times) -> CpuTime {
    let owners = interval.owners.values().map(|counts| counts.cpu_time_ns);
    CpuTime {
        wall_ns: interval.capacity_ns(),
        owners_ns: owners.fold(0, u64::saturating_add),
        idle_ns: kernel.idle_ns,
        excluded_ns: Some(kernel.interrupts_ns.saturating_add(kernel.stolen_ns)),
        interrupts_ns: Some(kernel.interrupts_ns),
        ..CpuTime::default()
    }
}

#[cfg(test)]
mod tests {
    use super::by_ticks;
    use crate::{
        machine::cpu::{Cpu, Times},
        model::{CpuCounts, Interval},
    };

    #[test]
    fn what_older_recordings_say_by_ticks_adds_up_to_length_times_cpus() {
        let kernel = Times { idle_ns: 600, interrupts_ns: 30, stolen_ns: 20 };
        let cpus = [0, 1].map(|cpu| (Cpu(cpu), CpuCounts::default())).into();
        let time = by_ticks(&Interval { to_ns: 500, cpus, ..Interval::default() }, kernel);
        assert_eq!((time.wall_ns, time.excluded_ns, time.interrupts_ns), (1_000, Some(50), Some(30)));
        assert_eq!(time.rest_ns(), 1_000 - 600 - 30 - 20);
    }
}
