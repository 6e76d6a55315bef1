//! Names of maps and programs, as the object files have them. `tests/contract.rs` holds them against the built objects.

/// Maps.
pub mod map {
    /// [`crate::cpu::Control`], one row.
    pub const CONTROL: &str = "CONTROL";
    /// [`crate::cpu::CpuCount`] by CPU.
    pub const CPUS: &str = "CPUS";
    /// [`crate::cpu::CpuSamples`] by CPU and event.
    pub const CPU_SAMPLES: &str = "CPU_SAMPLES";
    /// [`crate::owner::Owner`] by slot.
    pub const OWNERS: &str = "OWNERS";
    /// [`crate::count::Count`] by slot and CPU.
    pub const COUNTS: &str = "COUNTS";
    /// [`crate::histogram::Buckets`] by slot and CPU.
    pub const LATENCIES: &str = "LATENCIES";
    /// [`crate::sample::SampleCount`] by slot, CPU and event.
    pub const SAMPLES: &str = "SAMPLES";
    /// Descriptors of events, those of a CPU together.
    pub const COUNTERS: &str = "COUNTERS";
    /// [`crate::turn::Turn`] by CPU.
    pub const TURNS: &str = "TURNS";
    /// [`crate::turn::Slice`] by slot, CPU and parity of the slice.
    pub const SLICES: &str = "SLICES";
    /// [`crate::sample::Hot`]: two tables per CPU.
    pub const HOT: &str = "HOT";
    /// [`crate::count::TaskState`] in the task itself; only in the object by type.
    pub const TASKS: &str = "TASKS";
    /// [`crate::count::TaskState`] by address of the task; only in the object by address.
    pub const TASKS_BY_ADDRESS: &str = "TASKS_BY_ADDRESS";
    /// Slot by [`crate::owner::OwnerKey`].
    pub const SLOT_OF: &str = "SLOT_OF";
    /// Free slots, lowest on top.
    pub const FREE_SLOTS: &str = "FREE_SLOTS";
    /// Targets by process, thread or cgroup id.
    pub const TARGETS: &str = "TARGETS";
    /// Time of the last move to another cgroup (CLOCK_MONOTONIC ns) by process id.
    pub const MOVES: &str = "MOVES";
    /// Late timers waiting for the steal clock, per CPU.
    pub const LATE: &str = "LATE";
    /// Room to read a stack into, per CPU.
    pub const SCRATCH: &str = "SCRATCH";
    /// The ring buffer.
    pub const RING: &str = "RING";
    /// aya-log's ring buffer.
    pub const LOGS: &str = "AYA_LOGS";

    /// Those that both objects have.
    pub const BOTH: [&str; 19] = [
        CONTROL,
        CPUS,
        CPU_SAMPLES,
        OWNERS,
        COUNTS,
        LATENCIES,
        SAMPLES,
        COUNTERS,
        TURNS,
        SLICES,
        HOT,
        SLOT_OF,
        FREE_SLOTS,
        TARGETS,
        MOVES,
        LATE,
        SCRATCH,
        RING,
        LOGS,
    ];
}

/// Programs.
pub mod program {
    /// On `sched_switch`.
    pub const SWITCH: &str = "switch";
    /// On `sched_wakeup`.
    pub const WAKE: &str = "wake";
    /// On `sched_wakeup_new`.
    pub const WAKE_NEW: &str = "wake_new";
    /// On `sched_process_fork`.
    pub const FORK: &str = "fork";
    /// On `sched_process_exec`.
    pub const EXEC: &str = "exec";
    /// On `sched_prepare_exec` (Linux 6.10): where a launched command starts to count.
    pub const RELEASE: &str = "release";
    /// On `sched_process_exit`.
    pub const EXIT: &str = "exit";
    /// On `sched_process_free`, to forget the task; only in the object by address.
    pub const FREE: &str = "free";
    /// On `cgroup_mkdir`.
    pub const CGROUP_CREATE: &str = "cgroup_create";
    /// On `cgroup_rmdir`.
    pub const CGROUP_REMOVE: &str = "cgroup_remove";
    /// On `cgroup_attach_task`.
    pub const CGROUP_MOVE: &str = "cgroup_move";
    /// On `hrtimer_expire_entry`.
    pub const TIMER: &str = "timer";
    /// On a sampling event's overflow, by the event's place in the plan.
    pub const SAMPLES: [&str; crate::sample::EVENTS_MAX] = [
        "sample",
        "sample_1",
        "sample_2",
        "sample_3",
        "sample_4",
        "sample_5",
        "sample_6",
        "sample_7",
        "sample_8",
        "sample_9",
        "sample_10",
        "sample_11",
        "sample_12",
        "sample_13",
        "sample_14",
        "sample_15",
    ];
    /// Run on each CPU before a drain.
    pub const FLUSH: &str = "flush";
    /// Run once over every task before counting starts; only in the object by type.
    pub const PRIME: &str = "prime";

    /// Those that both objects have, besides [`SAMPLES`].
    pub const BOTH: [&str; 12] = [
        SWITCH,
        WAKE,
        WAKE_NEW,
        FORK,
        EXEC,
        RELEASE,
        EXIT,
        CGROUP_CREATE,
        CGROUP_REMOVE,
        CGROUP_MOVE,
        TIMER,
        FLUSH,
    ];
}

/// The read-only configuration, a [`crate::config::Config`].
pub const CONFIG: &str = "CONFIG";
/// aya-log's level, a `u8`: 0 is off.
pub const LOG_LEVEL: &str = "AYA_LOG_LEVEL";
