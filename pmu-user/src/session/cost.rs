//! Cost of pmbpf itself.

mod readings;

use std::{
    fs::File,
    os::fd::OwnedFd,
    sync::LazyLock,
    time::{Duration, Instant},
};

use pmu_common::name::program;

pub(super) use self::readings::Readings;
use crate::{
    bpf::{Object, measure_costs},
    drain::{COST_WINDOW_NS, Cost, CpuRow, ProgramRow},
    file::reread_at_once,
    machine::{duration_ns, own_cpu_ns},
};

/// Duration for which the programs are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The first second; the rest is extrapolated.
    Window,
    /// As long as they run.
    Always,
}

/// Meter of the cost of the programs and of this process.
#[derive(Debug)]
pub(super) struct Meter {
    statistics: Option<OwnedFd>,
    until: Option<Instant>,
    /// Cost of the programs when the window was over.
    measured: Option<Vec<(String, u64, u64)>>,
    readings: Readings,
    so_far: Cost,
}

impl Meter {
    pub(super) fn start(object: &Object, measure: Measure, startup: Duration) -> Self {
        let until =
            (measure == Measure::Window).then(|| Instant::now() + Duration::from_nanos(COST_WINDOW_NS));
        let so_far = Cost {
            startup_ns: duration_ns(startup),
            map_bytes: object.loaded.map_bytes(),
            ..Cost::default()
        };
        Self { statistics: measure_costs().ok(), until, measured: None, readings: Readings::begin(), so_far }
    }

    /// Records that a drain took this long.
    pub(super) fn refreshed(&mut self, took: Duration) {
        self.so_far.drained(took);
    }

    /// Returns the time at which the programs' costs are to be read between two drains.
    pub(super) fn due(&self) -> Option<Instant> {
        self.statistics.as_ref().and_then(|_| self.readings.due())
    }

    /// Reads the programs' costs, if that is due.
    pub(super) fn read(&mut self, object: &Object) {
        if self.due().is_some_and(|due| due <= Instant::now()) {
            self.readings.add(&object.loaded.program_costs());
        }
    }

    /// Returns the cost of every program so far. The number of runs of some programs is known without
    /// measuring: `handled` returns it for those on interrupt handlers.
    pub(super) fn programs(
        &mut self,
        object: &Object,
        cpus: &[CpuRow],
        handled: impl Fn(&str) -> Option<u64>,
    ) -> Vec<ProgramRow> {
        let costs = match &self.measured {
            Some(costs) => costs.clone(),
            None => {
                let costs = object.loaded.program_costs();
                self.readings.add(&costs);
                costs
            }
        };
        let over = self.until.is_some_and(|until| Instant::now() >= until);
        if over && self.statistics.take().is_some() {
            self.measured = Some(costs.clone());
        }
        let always = self.until.is_none();
        let row = |(name, measured_runs, measured_ns): (String, u64, u64)| {
            let event = program::event_of(&name);
            let runs = match (name.as_str(), event) {
                (program::SWITCH, _) => Some(cpus.iter().map(|row| row.count.switches).sum()),
                (_, Some(event)) => Some(runs(cpus, event)),
                _ => always.then_some(measured_runs).or_else(|| handled(&name)),
            };
            let undisturbed = self.readings.undisturbed(&name);
            ProgramRow { name, measured_runs, measured_ns, runs, undisturbed }
        };
        costs.into_iter().map(row).filter(|row| row.measured_runs > 0 || row.runs > Some(0)).collect()
    }

    /// Returns the cost of this process so far.
    pub(super) fn process(&self) -> Cost {
        process_cost(self.so_far)
    }
}

/// Returns the cost of this process so far: `so_far` with the kernel's values of CPU time and memory.
pub(super) fn process_cost(so_far: Cost) -> Cost {
    // Open once: opening and reading it to its end took eleven system calls a drain.
    static STATUS: LazyLock<Option<File>> = LazyLock::new(|| File::open("/proc/self/status").ok());
    let status = STATUS.as_ref().and_then(|file| reread_at_once(file).ok()).unwrap_or_default();
    let status = str::from_utf8(&status).unwrap_or_default();
    let kilobytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    Cost {
        cpu_ns: own_cpu_ns(),
        resident_bytes: kilobytes("VmRSS:"),
        resident_max_bytes: kilobytes("VmHWM:"),
        ..so_far
    }
}

/// Returns the number of runs of a sampling event's program on all CPUs: one per sample, or one per hit of a
/// tracepoint.
fn runs(cpus: &[CpuRow], event: usize) -> u64 {
    let rows = cpus.iter().filter_map(|row| row.samples.get(event));
    rows.map(|row| row.samples * row.hits_period.max(1) + row.hits).sum()
}
