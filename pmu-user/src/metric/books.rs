//! CPU-time accounting: distribution of the time of all CPUs, and the part that is not attributed.

use super::value::share;
use crate::{
    drain::TasksHeader,
    machine::cpu::{Cpu, Times},
    model::{CpuCounts, CpuTime, Interval},
};

/// Distribution of the time of all CPUs, in ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Books {
    /// Time of all CPUs together, from the first reading of each to the last.
    pub time: CpuTime,
    /// Part of the time left out of the tasks that the hypervisor took; `None` where the kernel includes it
    /// in the interrupted task's time.
    pub stolen_ns: Option<u64>,
    /// Stolen time as reported by the kernel, to 10 ms a CPU; only for whole runs. Not every kernel subtracts
    /// it from tasks.
    pub told_stolen_ns: Option<u64>,
    /// Distribution for each CPU; empty in older recordings.
    pub cpus: Vec<CpuBooks>,
}

/// Distribution of the time of one CPU, in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuBooks {
    /// CPU of this row.
    pub cpu: Cpu,
    /// Distribution by the scheduler's clock.
    pub time: CpuTime,
}

impl Books {
    /// Returns the accounting of an interval in which everything was counted; `None` where idle time is not
    /// known.
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

    /// Returns the closing error: the share of a CPU's time that is not attributed, or attributed twice (0 to
    /// 1), of the CPU where it is largest.
    pub fn closing_error(&self) -> f64 {
        let of = |time: &CpuTime| match time.wall_ns {
            0 => 0.0,
            wall_ns => share(time.rest_ns().unsigned_abs(), wall_ns),
        };
        self.cpus.iter().map(|books| of(&books.time)).fold(of(&self.time), f64::max)
    }
}

/// Returns the accounting from the kernel's own figures of a whole run, which are exact to 10 ms a CPU.
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
