//! What pmbpf itself costs.

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

/// For how long are the programs measured?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The first second; the rest is extrapolated.
    Window,
    /// As long as they run.
    Always,
}

/// Measures the programs and this process.
#[derive(Debug)]
pub(super) struct Meter {
    statistics: Option<OwnedFd>,
    until: Option<Instant>,
    /// What the programs had cost when the window was over.
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

    /// A drain took this long.
    pub(super) fn refreshed(&mut self, took: Duration) {
        self.so_far.drained(took);
    }

    /// When the programs' costs are to be read between two drains.
    pub(super) fn due(&self) -> Option<Instant> {
        self.statistics.as_ref().and_then(|_| self.readings.due())
    }

    /// Reads the programs' costs, if that is due.
    pub(super) fn read(&mut self, object: &Object) {
        if self.due().is_some_and(|due| due <= Instant::now()) {
            self.readings.add(&object.loaded.program_costs());
        }
    }

    /// What every program has cost so far. How often some of them ran is known without measuring: `handled` tells it of those on interrupt
    /// handlers.
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

    /// What this process has cost so far.
    pub(super) fn process(&self) -> Cost {
        process_cost(self.so_far)
    }
}

/// What this process has cost so far: `so_far` with CPU time and memory as the kernel has them.
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

/// How often the program of a sampling event ran on all CPUs: at every sample, or at every hit of a tracepoint.
fn runs(cpus: &[CpuRow], event: usize) -> u64 {
    let rows = cpus.iter().filter_map(|row| row.samples.get(event));
    rows.map(|row| row.samples * row.hits_period.max(1) + row.hits).sum()
}
