//! Names of maps and programs, as in the object files. `tests/contract.rs` checks them against the built
//! objects.

/// Names of the maps.
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
    /// [`crate::histogram::RunqueueBuckets`] by slot and CPU.
    pub const LATENCIES: &str = "LATENCIES";
    /// [`crate::changed::Changed`] by CPU.
    pub const CHANGED: &str = "CHANGED";
    /// [`crate::culprit::Culprits`] by CPU.
    pub const CULPRITS: &str = "CULPRITS";
    /// [`crate::off_cpu::OffCpu`] by slot and CPU, of waits that are over.
    pub const OFF_CPU: &str = "OFF_CPU";
    /// [`crate::off_cpu::OffCpu`] by slot, of waits that still last.
    pub const WAITING: &str = "WAITING";
    /// [`crate::interrupt::Interrupts`] by CPU.
    pub const INTERRUPTS: &str = "INTERRUPTS";
    /// [`crate::interrupt::Interrupted`] by slot and CPU.
    pub const INTERRUPTED: &str = "INTERRUPTED";
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
    /// Targets by process, thread or cgroup id, or by [`crate::target::PathKey`].
    pub const TARGETS: &str = "TARGETS";
    /// [`crate::moves::Moves`] by process id.
    pub const MOVES: &str = "MOVES";
    /// Late timers that wait for the steal clock, per CPU.
    pub const LATE: &str = "LATE";
    /// Buffer that a stack is read into, per CPU.
    pub const SCRATCH: &str = "SCRATCH";
    /// Buffer that a user stack is copied into, per CPU.
    pub const COPIES: &str = "COPIES";
    /// Buffer for the stack of a blocking task, and the number of stacks taken, per CPU.
    pub const OFF_CPU_STACKS: &str = "OFF_CPU_STACKS";
    /// The ring buffer.
    pub const RING: &str = "RING";
    /// [`crate::throttling::Throttled`] by address of the run queue.
    pub const THROTTLED: &str = "THROTTLED";
    /// Number of times that a run queue was throttled.
    pub const THROTTLES: &str = "THROTTLES";
    /// Ring buffer of aya-log.
    pub const LOGS: &str = "AYA_LOGS";

    /// Maps that both objects have.
    pub const BOTH: [&str; 29] = [
        CONTROL,
        CPUS,
        CPU_SAMPLES,
        OWNERS,
        COUNTS,
        LATENCIES,
        CHANGED,
        CULPRITS,
        OFF_CPU,
        WAITING,
        INTERRUPTS,
        INTERRUPTED,
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
        COPIES,
        OFF_CPU_STACKS,
        THROTTLED,
        THROTTLES,
        RING,
        LOGS,
    ];
}

/// Names of the programs.
pub mod program {
    /// Program on `sched_switch`.
    pub const SWITCH: &str = "switch";
    /// Program on `sched_wakeup`.
    pub const WAKE: &str = "wake";
    /// Program on `sched_wakeup_new`.
    pub const WAKE_NEW: &str = "wake_new";
    /// Program on `sched_process_fork`.
    pub const FORK: &str = "fork";
    /// Program on `sched_process_exec`.
    pub const EXEC: &str = "exec";
    /// Program on `sched_prepare_exec` (Linux 6.10): where a launched command starts to count.
    pub const RELEASE: &str = "release";
    /// Program on `task_rename`, where threads or their names own the counts.
    pub const RENAME: &str = "rename";
    /// Program on `sched_process_exit`.
    pub const EXIT: &str = "exit";
    /// Program on `sched_process_free`, which drops the state of the task; only in the object by address.
    pub const FREE: &str = "free";
    /// Program on `cgroup_mkdir`.
    pub const CGROUP_CREATE: &str = "cgroup_create";
    /// Program on `cgroup_rmdir`.
    pub const CGROUP_REMOVE: &str = "cgroup_remove";
    /// Program on `cgroup_attach_task`.
    pub const CGROUP_MOVE: &str = "cgroup_move";
    /// Program on `hrtimer_expire_entry`.
    pub const TIMER: &str = "timer";
    /// Programs on a sampling event's overflow, by the event's place in the plan.
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
    /// Programs on a sampled tracepoint, by the event's place in the plan.
    pub const TRACEPOINT_SAMPLES: [&str; crate::sample::EVENTS_MAX] = [
        "hit", "hit_1", "hit_2", "hit_3", "hit_4", "hit_5", "hit_6", "hit_7", "hit_8", "hit_9", "hit_10",
        "hit_11", "hit_12", "hit_13", "hit_14", "hit_15",
    ];
    /// Program that runs on each CPU before a drain.
    pub const FLUSH: &str = "flush";
    /// Program that runs once over every task before counting starts; only in the object by type.
    pub const SEED: &str = "seed";
    /// Program that runs over every task at a drain where time off the CPU counts; only in the object by
    /// type.
    pub const WAITS: &str = "waits";

    /// Programs with the functions where the kernel throttles and unthrottles a run queue, for kernels that
    /// do not time it. They are attached in this order: a start without an end would stay open.
    pub const THROTTLING: [(&str, &str); 2] =
        [(UNTHROTTLE, "tg_unthrottle_up"), (THROTTLE, "tg_throttle_down")];
    /// Program on `tg_throttle_down`.
    pub const THROTTLE: &str = "throttle";
    /// Program on `tg_unthrottle_up`.
    pub const UNTHROTTLE: &str = "unthrottle";

    /// Programs with the tracepoints where interrupt handlers end and begin: those of lines and softirqs, and
    /// of x86's vectors, which other architectures do not have. They are attached in this order: a start
    /// without an observed end would stay open.
    pub const INTERRUPTS: [(&str, &str); 14] = [
        ("line_end", "irq_handler_exit"),
        ("line_begin", "irq_handler_entry"),
        ("softirq_end", "softirq_exit"),
        ("softirq_begin", "softirq_entry"),
        ("local_timer_end", "local_timer_exit"),
        ("local_timer_begin", "local_timer_entry"),
        ("reschedule_end", "reschedule_exit"),
        ("reschedule_begin", "reschedule_entry"),
        ("call_end", "call_function_exit"),
        ("call_begin", "call_function_entry"),
        ("call_single_end", "call_function_single_exit"),
        ("call_single_begin", "call_function_single_entry"),
        ("irq_work_end", "irq_work_exit"),
        ("irq_work_begin", "irq_work_entry"),
    ];
    /// Number of them on tracepoints of every kernel.
    pub const INTERRUPTS_ANYWHERE: usize = 4;

    /// Returns the event number of a program in [`SAMPLES`] or [`TRACEPOINT_SAMPLES`].
    #[must_use]
    pub fn event_of(program: &str) -> Option<usize> {
        let position = |names: &[&str]| names.iter().position(|name| *name == program);
        position(&SAMPLES).or_else(|| position(&TRACEPOINT_SAMPLES))
    }

    /// Programs that both objects have, besides [`SAMPLES`] and [`TRACEPOINT_SAMPLES`].
    pub const BOTH: [&str; 13] = [
        SWITCH,
        WAKE,
        WAKE_NEW,
        FORK,
        EXEC,
        RELEASE,
        RENAME,
        EXIT,
        CGROUP_CREATE,
        CGROUP_REMOVE,
        CGROUP_MOVE,
        TIMER,
        FLUSH,
    ];
}

/// Maps and programs of the objects for I/O.
pub mod io {
    /// Names of the maps.
    pub mod map {
        /// [`crate::io::IoCpu`] by CPU.
        pub const CPUS: &str = "IO_CPUS";
        /// [`crate::io::Recent`] by CPU and place.
        pub const RECENT: &str = "IO_RECENT";
        /// Targets by process or cgroup id, or by [`crate::target::PathKey`].
        pub const TARGETS: &str = "IO_TARGETS";
        /// [`crate::io::block::InFlight`] by hash of the request.
        pub const IN_FLIGHT: &str = "IN_FLIGHT";
        /// [`crate::io::block::InFlight::at_ns`] of the last request that ended, by the same place.
        pub const IN_FLIGHT_ENDED: &str = "IN_FLIGHT_ENDED";
        /// [`crate::io::IoOwner`] by slot, of block requests.
        pub const BLOCK_OWNERS: &str = "BLOCK_OWNERS";
        /// [`crate::io::block::BlockCount`] by slot and CPU.
        pub const BLOCK_COUNTS: &str = "BLOCK_COUNTS";
        /// [`crate::histogram::BlockBuckets`] by slot, lane and kind of latency.
        pub const BLOCK_LATENCIES: &str = "BLOCK_LATENCIES";
        /// Slot by [`crate::io::IoKey`], of block requests.
        pub const BLOCK_SLOT_OF: &str = "BLOCK_SLOT_OF";
        /// Free slots of block requests, lowest on top.
        pub const BLOCK_FREE: &str = "BLOCK_FREE";
        /// [`crate::io::IoOwner`] by slot, of packets.
        pub const NET_OWNERS: &str = "NET_OWNERS";
        /// [`crate::io::net::NetCount`] by slot and CPU.
        pub const NET_COUNTS: &str = "NET_COUNTS";
        /// Slot by [`crate::io::IoKey`], of packets.
        pub const NET_SLOT_OF: &str = "NET_SLOT_OF";
        /// Free slots of packets, lowest on top.
        pub const NET_FREE: &str = "NET_FREE";
        /// Words of bios that limits check ([`crate::io::throttle`]), by bio.
        pub const HELD: &str = "HELD";
        /// Number of bios that passed a limit.
        pub const LIMITED: &str = "LIMITED";

        /// All maps: both objects have the same.
        pub const ALL: [&str; 16] = [
            CPUS,
            RECENT,
            TARGETS,
            IN_FLIGHT,
            IN_FLIGHT_ENDED,
            BLOCK_OWNERS,
            BLOCK_COUNTS,
            BLOCK_LATENCIES,
            BLOCK_SLOT_OF,
            BLOCK_FREE,
            NET_OWNERS,
            NET_COUNTS,
            NET_SLOT_OF,
            NET_FREE,
            HELD,
            LIMITED,
        ];
    }

    /// Names of the programs.
    pub mod program {
        /// Program on `block_rq_insert`.
        pub const INSERT: &str = "block_insert";
        /// Program on `block_rq_issue`.
        pub const ISSUE: &str = "block_issue";
        /// Program on `block_rq_requeue`.
        pub const REQUEUE: &str = "block_requeue";
        /// Program on `block_rq_merge`.
        pub const MERGE: &str = "block_merge";
        /// Program on `block_rq_complete`.
        pub const COMPLETE: &str = "block_complete";
        /// Program on `block_bio_queue`, where there are devices that take no requests.
        pub const BIO_QUEUE: &str = "bio_queue";
        /// Program on `block_bio_complete`, where there are such devices.
        pub const BIO_COMPLETE: &str = "bio_complete";
        /// Program on the function that checks a bio's limit, where a cgroup has one: see [`LIMITS`].
        pub const BIO_LIMIT: &str = "bio_limit";
        /// Program on `block_bio_queue`, where a cgroup has such a limit: the bio continues.
        pub const BIO_GO: &str = "bio_go";
        /// Functions that check limits: since Linux 5.19, and before.
        pub const LIMITS: [&str; 2] = ["__blk_throtl_bio", "blk_throtl_bio"];
        /// Program on `cgroup_mkdir`, where cgroups are targets.
        pub const CGROUP_CREATE: &str = "io_cgroup_create";
        /// Program on `cgroup_rmdir`, where cgroups are targets.
        pub const CGROUP_REMOVE: &str = "io_cgroup_remove";
        /// Program on every packet that a socket receives.
        pub const RECEIVE: &str = "net_receive";
        /// Program on every packet that a socket sends.
        pub const SEND: &str = "net_send";

        /// All programs: both objects have the same.
        pub const ALL: [&str; 13] = [
            INSERT,
            ISSUE,
            REQUEUE,
            MERGE,
            BIO_LIMIT,
            BIO_GO,
            COMPLETE,
            BIO_QUEUE,
            BIO_COMPLETE,
            CGROUP_CREATE,
            CGROUP_REMOVE,
            RECEIVE,
            SEND,
        ];
    }
}

/// Read-only configuration, a [`crate::config::Config`]; in the objects for I/O, a
/// [`crate::io::config::IoConfig`].
pub const CONFIG: &str = "CONFIG";
/// Level of aya-log, a `u8`: 0 is off.
pub const LOG_LEVEL: &str = "AYA_LOG_LEVEL";
