//! Metrics of tasks, which need no PMU.

use super::{Family, Metric};
use crate::table::unit::Unit;

/// `cpu_time`.
pub const CPU_TIME: Metric = Metric::new(
    "cpu_time",
    Unit::Ns,
    Family::Cpu,
    None,
    "Time the owner's tasks were on a CPU, as the scheduler accounts it: without stolen time.",
);
/// `context_switches`.
pub const CONTEXT_SWITCHES: Metric = Metric::new(
    "context_switches",
    Unit::Switches,
    Family::Cpu,
    None,
    "Times a task of the owner gave up a CPU, because it waited or was preempted.",
);
/// `voluntary_switches`.
pub const VOLUNTARY_SWITCHES: Metric = Metric::new(
    "voluntary_switches",
    Unit::Switches,
    Family::Cpu,
    Some("context_switches"),
    "Times a task gave up its CPU because it had to wait.",
);
/// `involuntary_switches`.
pub const INVOLUNTARY_SWITCHES: Metric = Metric::new(
    "involuntary_switches",
    Unit::Switches,
    Family::Cpu,
    Some("context_switches"),
    "Times a task lost its CPU to another although it could have gone on.",
);
/// `migrations`.
pub const MIGRATIONS: Metric = Metric::new(
    "migrations",
    Unit::Migrations,
    Family::Cpu,
    None,
    "Times a task was moved to another CPU, where its caches are cold.",
);
/// `minor_faults`.
pub const MINOR_FAULTS: Metric = Metric::new(
    "minor_faults",
    Unit::Faults,
    Family::Cpu,
    None,
    "Page faults that were resolved without I/O.",
);
/// `major_faults`.
pub const MAJOR_FAULTS: Metric =
    Metric::new("major_faults", Unit::Faults, Family::Cpu, None, "Page faults that waited for I/O.");
/// `samples`.
pub const SAMPLES: Metric = Metric::new(
    "samples",
    Unit::Samples,
    Family::Samples,
    None,
    "Samples that hit the owner, in user and kernel mode.",
);
/// `user_samples`.
pub const USER_SAMPLES: Metric = Metric::new(
    "user_samples",
    Unit::Samples,
    Family::Samples,
    Some("samples"),
    "Samples that hit the owner in user mode.",
);
/// `kernel_samples`.
pub const KERNEL_SAMPLES: Metric = Metric::new(
    "kernel_samples",
    Unit::Samples,
    Family::Samples,
    Some("samples"),
    "Samples that hit the owner in kernel mode.",
);
/// `blind_time`.
pub const BLIND_TIME: Metric = Metric::new(
    "blind_time",
    Unit::Ns,
    Family::Blind,
    None,
    "Time during which interrupts were masked while the owner ran, so that no timer sample could be taken, estimated from how many ticks came late.",
);
/// `runqueue_latency`.
pub const RUNQUEUE_LATENCY: Metric = Metric::new(
    "runqueue_latency",
    Unit::Ns,
    Family::Latency,
    None,
    "Time a task could run but had no CPU, from its wake-up or preemption until it ran.",
);

/// All of them, in the order of reports.
pub const TASKS: [Metric; 12] = [
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
