//! Cost of pmbpf itself, from the start of counting.

use super::value::{How, Known, Value};
use crate::{
    drain::{COST_WINDOW_NS, Cost, ProgramRow},
    machine::own_cpu_ns,
    model::OwnCost,
};

/// Cost of one BPF program.
#[derive(Clone, Debug)]
pub struct ProgramCost {
    /// Name of the program.
    pub name: String,
    /// Mean time in ns of a run that nothing else interrupted, including the kernel's own measuring (about 40
    /// ns).
    pub ns_per_run: Value,
    /// Number of runs.
    pub runs: Value,
    /// Time of all runs in ns.
    pub total_ns: Value,
    /// Additional time in ns that passed during its runs: interrupts, and stolen time. 0 where that is not
    /// known.
    pub disturbed_ns: f64,
}

/// Cost of pmbpf itself.
#[derive(Clone, Debug)]
pub struct CostReport {
    /// Costs of the programs, most expensive first.
    pub programs: Vec<ProgramCost>,
    /// Time of all programs in ns.
    pub programs_ns: Value,
    /// Additional time in ns that passed during their runs.
    pub disturbed_ns: f64,
    /// Cost of the process, from its start to this reading.
    pub process: Cost,
    /// CPU time of the process at this reading by its own clock, in ns, if it is this process: more follows
    /// until the report is written.
    pub read_at_ns: Option<u64>,
    /// CPU time of the process until counting began, in ns.
    pub startup_cpu_ns: u64,
    /// CPU time of the process while it counted, in ns.
    pub counting_cpu_ns: u64,
    /// Available CPU time during counting, in ns: length times CPUs.
    pub capacity_ns: u64,
}

impl CostReport {
    /// Returns the cost of the programs of one source and of the process, for `length_ns` of counting on
    /// `cpus` CPUs.
    pub fn new(programs: &[ProgramRow], own: OwnCost, length_ns: u64, cpus: usize) -> Self {
        let report = Self {
            programs: programs.iter().map(|row| program(row, length_ns)).collect(),
            programs_ns: Value::counted(0, 1.0),
            disturbed_ns: 0.0,
            process: own.so_far,
            read_at_ns: None,
            startup_cpu_ns: own.startup_cpu_ns(),
            counting_cpu_ns: own.counting_cpu_ns(),
            capacity_ns: length_ns.saturating_mul(cpus as u64),
        };
        report.summed()
    }

    /// Returns the report with the sum of its programs, most expensive first.
    fn summed(mut self) -> Self {
        self.programs.sort_by(|a, b| estimate(&b.total_ns).total_cmp(&estimate(&a.total_ns)));
        let total: f64 = self.programs.iter().map(|program| estimate(&program.total_ns)).sum();
        self.disturbed_ns = self.programs.iter().map(|program| program.disturbed_ns).sum();
        self.programs_ns = match self.programs.is_empty() {
            false => sampled(total, 1.0),
            true if self.process.map_bytes == 0 => Value::Missing("no program was loaded".to_owned()),
            true => Value::Missing(
                "the kernel could not measure the programs (Linux before 5.8, or no rights)".to_owned(),
            ),
        };
        self
    }

    /// Adds the cost of another source of the same run. The process is the same, so its figures in `self`
    /// stay, except for the maps.
    pub fn beside(mut self, other: Self) -> Self {
        self.process.map_bytes = self.process.map_bytes.saturating_add(other.process.map_bytes);
        self.programs.extend(other.programs);
        self.summed()
    }

    /// Returns the CPU time of the process in ns: until now if it is this process, otherwise until its names
    /// were found.
    pub fn cpu_ns(&self) -> u64 {
        let since_ns = self.read_at_ns.map_or(0, |read_at_ns| own_cpu_ns().saturating_sub(read_at_ns));
        self.process.cpu_ns.saturating_add(since_ns)
    }

    /// Returns the CPU time of the process after counting, for names and the report, in ns.
    pub fn ending_cpu_ns(&self) -> u64 {
        self.cpu_ns().saturating_sub(self.startup_cpu_ns).saturating_sub(self.counting_cpu_ns)
    }

    /// Returns the share of `cpu_ns` in the available CPU time (0 to 1); `None` if no CPU time was available.
    pub fn share(&self, cpu_ns: f64) -> Option<f64> {
        (self.capacity_ns > 0).then(|| cpu_ns / self.capacity_ns as f64)
    }
}

/// Returns the cost of a program. The time of its runs is measured for a while. The number of runs is known
/// for all of the time for some programs, and extrapolated from the measured window for the others.
fn program(row: &ProgramRow, length_ns: u64) -> ProgramCost {
    let measured = row.measured_runs as f64;
    let (runs, nanoseconds) = row.undisturbed.unwrap_or((row.measured_runs, row.measured_ns));
    let ns_per_run = Value::ratio(nanoseconds as f64, runs as f64, "it did not run while it was measured");
    let mean = ns_per_run.known().map(|known| known.estimate);
    let window_ns = length_ns.clamp(1, COST_WINDOW_NS) as f64;
    let runs = match row.runs {
        Some(runs) => Value::counted(runs, 1.0),
        None => sampled(measured * length_ns as f64 / window_ns, window_ns / length_ns.max(1) as f64),
    };
    let all = runs.known().map_or(0.0, |known| known.estimate);
    let total_ns = match mean {
        Some(mean) => sampled(mean * all, if all == 0.0 { 1.0 } else { (measured / all).min(1.0) }),
        None => Value::Missing("it did not run while it was measured".to_owned()),
    };
    let disturbed = mean.map_or(0.0, |mean| (row.measured_ns as f64 / measured - mean).max(0.0) * all);
    ProgramCost { name: row.name.clone(), ns_per_run, runs, total_ns, disturbed_ns: disturbed }
}

fn sampled(estimate: f64, coverage: f64) -> Value {
    Value::Known(Known { estimate, low: estimate, high: estimate, coverage, how: How::Sampled })
}

fn estimate(value: &Value) -> f64 {
    value.known().map_or(0.0, |known| known.estimate)
}

#[cfg(test)]
mod tests {
    use super::program;
    use crate::drain::ProgramRow;

    #[test]
    fn what_had_the_cpu_meanwhile_is_beside_the_cost() {
        let row = |undisturbed| ProgramRow {
            name: "switch".to_owned(),
            measured_runs: 1_000,
            measured_ns: 1_100_000,
            runs: Some(10_000),
            undisturbed,
        };
        let cost = |undisturbed| {
            let cost = program(&row(undisturbed), 1);
            (cost.total_ns.known().unwrap().estimate, cost.disturbed_ns)
        };
        assert_eq!(cost(None), (11_000_000.0, 0.0));
        assert_eq!(cost(Some((900, 90_000))), (1_000_000.0, 10_000_000.0));
    }
}
