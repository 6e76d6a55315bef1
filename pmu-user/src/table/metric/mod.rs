//! The metrics that need no PMU. A name, once given, is never used for anything else.

use super::unit::Unit;

/// A metric that can be reported per owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in every output.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// What it says, in one sentence.
    pub says: &'static str,
}

/// Time on a CPU.
pub const CPU_TIME: Metric = Metric {
    name: "cpu_time",
    unit: Unit::Ns,
    says: "Time the owner's tasks were on a CPU, as the scheduler accounts it: without stolen time.",
};
/// All context switches.
pub const CONTEXT_SWITCHES: Metric = Metric {
    name: "context_switches",
    unit: Unit::Switches,
    says: "Times a task of the owner gave up a CPU, because it waited or was preempted.",
};
/// Voluntary context switches.
pub const VOLUNTARY_SWITCHES: Metric = Metric {
    name: "voluntary_switches",
    unit: Unit::Switches,
    says: "Times a task gave up its CPU because it had to wait.",
};
/// Involuntary context switches.
pub const INVOLUNTARY_SWITCHES: Metric = Metric {
    name: "involuntary_switches",
    unit: Unit::Switches,
    says: "Times a task lost its CPU to another although it could have gone on.",
};
/// Moves to another CPU.
pub const MIGRATIONS: Metric = Metric {
    name: "migrations",
    unit: Unit::Migrations,
    says: "Times a task was moved to another CPU, where its caches are cold.",
};
/// Page faults without I/O.
pub const MINOR_FAULTS: Metric =
    Metric { name: "minor_faults", unit: Unit::Faults, says: "Page faults that were resolved without I/O." };
/// Page faults with I/O.
pub const MAJOR_FAULTS: Metric =
    Metric { name: "major_faults", unit: Unit::Faults, says: "Page faults that waited for I/O." };
/// Samples.
pub const SAMPLES: Metric = Metric {
    name: "samples",
    unit: Unit::Samples,
    says: "Samples that hit the owner, in user and kernel mode.",
};
/// Samples in user mode.
pub const USER_SAMPLES: Metric =
    Metric { name: "user_samples", unit: Unit::Samples, says: "Samples that hit the owner in user mode." };
/// Samples in kernel mode.
pub const KERNEL_SAMPLES: Metric = Metric {
    name: "kernel_samples",
    unit: Unit::Samples,
    says: "Samples that hit the owner in kernel mode.",
};
/// Masked time.
pub const BLIND_TIME: Metric = Metric {
    name: "blind_time",
    unit: Unit::Ns,
    says: "Time during which interrupts were masked while the owner ran, so that no timer sample could be taken, \
           estimated from how many ticks came late.",
};
/// Time between being able to run and running.
pub const RUNQUEUE_LATENCY: Metric = Metric {
    name: "runqueue_latency",
    unit: Unit::Ns,
    says: "Time a task could run but had no CPU, from its wake-up or preemption until it ran.",
};

/// All metrics, in the order of reports.
pub const ALL: [Metric; 12] = [
    CPU_TIME,
    CONTEXT_SWITCHES,
    VOLUNTARY_SWITCHES,
    INVOLUNTARY_SWITCHES,
    MIGRATIONS,
    MINOR_FAULTS,
    MAJOR_FAULTS,
    SAMPLES,
    USER_SAMPLES,
    KERNEL_SAMPLES,
    BLIND_TIME,
    RUNQUEUE_LATENCY,
];

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn a_name_is_used_once() {
        let mut names: Vec<&str> = ALL.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
