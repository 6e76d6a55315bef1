//! What the loader tells the programs before they are loaded. It lies in read-only memory that the verifier knows,
//! so a branch on it costs nothing at run time.

use crate::wire;

/// [`Config::by`]: counts belong to processes.
pub const BY_PROCESS: u32 = 0;
/// [`Config::by`]: counts belong to cgroups (v2), to the leaf; parents are summed in user space.
pub const BY_CGROUP: u32 = 1;
/// [`Config::by`]: counts belong to threads.
pub const BY_THREAD: u32 = 2;

/// [`Config::filter`]: every task counts.
pub const FILTER_NONE: u32 = 0;
/// [`Config::filter`]: only the processes of the map `TARGETS` count.
pub const FILTER_PROCESSES: u32 = 1;
/// [`Config::filter`]: only the threads of the map `TARGETS` count.
pub const FILTER_THREADS: u32 = 2;
/// [`Config::filter`]: only tasks in the cgroups of the map `TARGETS` count.
pub const FILTER_CGROUPS: u32 = 3;

/// [`Config::unwind`]: user stacks are followed by their frame pointers alone.
pub const UNWIND_OFF: u32 = 0;
/// [`Config::unwind`]: samples in user mode carry a copy of the user stack.
pub const UNWIND_USER_MODE: u32 = 1;
/// [`Config::unwind`]: samples in the kernel do so, too.
pub const UNWIND_ALL: u32 = 2;

/// [`Config::off_cpu`]: stacks of tasks that block are taken, too.
pub const OFF_CPU_STACKS: u32 = 2;

/// [`Config::finds_futexes`]: a task that waits for a futex can be frozen, and its state says so (Linux 6.1, `TASK_FREEZABLE`).
pub const FUTEXES_FREEZE: u32 = 2;

/// An offset that this kernel does not have.
pub const ABSENT: u32 = u32::MAX;

/// Value in `TARGETS`: count the target from the moment it executes another program.
pub const TARGET_FROM_EXEC: u32 = 1;

/// Bit of a process's or thread's id that has none in the collector's PID namespace: the rest is its id in the first one
/// (ids end at 2²², `PID_MAX_LIMIT` in include/linux/threads.h).
pub const OUTSIDE: u32 = 1 << 31;

/// [`Config::names`]: a process keeps its slot, whatever it is called and executes.
pub const KEEPS_SLOT: u32 = 0;
/// [`Config::names`]: a process is another owner from when its first thread has another name.
pub const OWNER_IS_COMM: u32 = 1;
/// [`Config::names`]: processes are named by their executable files, and are another owner from when they execute another one.
pub const OWNER_IS_EXE: u32 = 2;

wire! {
    /// The PID namespace whose ids the programs give, and where a task's id in it is. Offsets are in bytes.
    pub struct PidNamespace {
        /// `ns_common.inum`; 0: the first namespace, whose ids are those in the task struct.
        pub inode: u32,
        /// How far below the first namespace it is.
        pub level: u32,
        /// `task_struct.thread_pid`.
        pub task_pid: u32,
        /// `pid.level`.
        pub pid_level: u32,
        /// `pid.numbers[level].nr`.
        pub pid_number: u32,
        /// `pid.numbers[level].ns`.
        pub pid_namespace: u32,
        /// `pid_namespace.ns.inum`.
        pub namespace_inode: u32,
        /// Keeps the size a multiple of 8 bytes.
        pub reserved: u32,
    }

    /// Read-only globals of the programs.
    pub struct Config {
        /// Number of possible CPUs: the stride of rows that exist per CPU.
        pub cpus: u32,
        /// Number of owner slots, slot 0 (all owners beyond the limit) included.
        pub slots: u32,
        /// [`BY_PROCESS`], [`BY_CGROUP`] or [`BY_THREAD`].
        pub by: u32,
        /// [`FILTER_NONE`], [`FILTER_PROCESSES`], [`FILTER_THREADS`] or [`FILTER_CGROUPS`].
        pub filter: u32,
        /// 1: children of a target process are targets too.
        pub inherit: u32,
        /// 1: cgroups below a target cgroup are targets too.
        pub descend: u32,
        /// Entries of one hot-address table, minus one (a power of two, minus one).
        pub hot_mask: u32,
        /// 1: samples carry their kernel and user stack.
        pub stacks: u32,
        /// Length of one sampling period in ns of the event [`Config::clock_event`]; 0 if none is a clock.
        pub sample_period_ns: u64,
        /// Length of the kernel's tick in ns.
        pub tick_period_ns: u64,
        /// A timer later than this counts as late.
        pub late_min_ns: u64,
        /// A timer later than this is recorded as a gap of its own.
        pub gap_min_ns: u64,
        /// 1: `hrtimer_expire_entry` passes the time itself (Linux 7.2), not a pointer to it.
        pub timer_now_by_value: u32,
        /// 1: a sample may give its owner a slot. Not in an NMI before Linux 5.11: the lock of a hash's bucket may be held
        /// by the program it interrupted.
        pub sample_inserts: u32,
        /// Descriptors of counters per CPU, those of running times included (see [`crate::turn`]); 0: nothing is counted
        /// per owner.
        pub counters: u32,
        /// [`KEEPS_SLOT`], [`OWNER_IS_COMM`] or [`OWNER_IS_EXE`].
        pub names: u32,
        /// [`UNWIND_OFF`], [`UNWIND_USER_MODE`] or [`UNWIND_ALL`].
        pub unwind: u32,
        /// 1: waits for a CPU are charged to whoever had it.
        pub culprits: u32,
        /// Number of sampling events: the stride of rows that exist per event; at least 1.
        pub sampling_events: u32,
        /// Which of them is a clock, whose samples are evenly spaced.
        pub clock_event: u32,
        /// 1: time off the CPU counts; or [`OFF_CPU_STACKS`].
        pub off_cpu: u32,
        /// 1, or [`FUTEXES_FREEZE`]: the system call that a task is in is known, so waits for futexes are distinct from other sleep, and those
        /// for locks are counted.
        pub finds_futexes: u32,
        /// 1: user space is told of new cgroups that are no targets, and may make them some.
        pub follows: u32,
        /// 1: interrupt handlers are timed.
        pub interrupts: u32,
        /// 1: programs on the kernel's functions time when run queues are throttled, because the kernel does not.
        pub times_throttling: u32,
        /// Length of an epoch of hot addresses, as a power of two in ns (see [`crate::sample::hot_epoch`]).
        pub hot_epoch_shift: u32,
        /// Where the fields are in this kernel.
        pub offsets: Offsets,
        /// Whose ids are told.
        pub pids: PidNamespace,
    }

    /// Byte offsets of kernel fields, from the running kernel's BTF; [`ABSENT`] where a kernel has no such field.
    pub struct Offsets {
        /// `task_struct.pid`: the thread.
        pub task_pid: u32,
        /// `task_struct.tgid`: the process.
        pub task_tgid: u32,
        /// `task_struct.comm`.
        pub task_comm: u32,
        /// `task_struct.mm`.
        pub task_mm: u32,
        /// `mm_struct.exe_file`.
        pub mm_exe_file: u32,
        /// `file.f_path.dentry`.
        pub file_dentry: u32,
        /// `dentry.d_name.name`.
        pub dentry_name: u32,
        /// `task_struct.group_leader`.
        pub task_group_leader: u32,
        /// `task_struct.real_parent`.
        pub task_real_parent: u32,
        /// `task_struct.start_boottime` (ns, CLOCK_BOOTTIME), as /proc tells it.
        pub task_start_boottime: u32,
        /// `task_struct.signal`.
        pub task_signal: u32,
        /// `signal_struct.live`: threads of the process that have not exited.
        pub signal_live: u32,
        /// `task_struct.se.sum_exec_runtime` (ns).
        pub task_sum_exec: u32,
        /// `task_struct.nvcsw`.
        pub task_nvcsw: u32,
        /// `task_struct.nivcsw`.
        pub task_nivcsw: u32,
        /// `task_struct.min_flt`.
        pub task_min_flt: u32,
        /// `task_struct.maj_flt`.
        pub task_maj_flt: u32,
        /// `task_struct.se.nr_migrations`.
        pub task_nr_migrations: u32,
        /// `task_struct.cgroups`.
        pub task_cgroups: u32,
        /// `css_set.dfl_cgrp`: the task's cgroup in the v2 hierarchy.
        pub css_set_dfl_cgrp: u32,
        /// `cgroup.kn`.
        pub cgroup_kn: u32,
        /// `cgroup.root`.
        pub cgroup_root: u32,
        /// `cgroup.self.parent`; `self` is the first member, so this is the parent cgroup.
        pub cgroup_parent: u32,
        /// `cgroup_root.hierarchy_id`: 0 for v2.
        pub cgroup_root_hierarchy: u32,
        /// `kernfs_node.id`.
        pub kernfs_node_id: u32,
        /// `hrtimer.node.expires` (ns, the timer's own clock).
        pub hrtimer_expires: u32,
        /// `hrtimer.function`.
        pub hrtimer_function: u32,
        /// `task_struct.se.cfs_rq`; absent without fair group scheduling.
        pub task_cfs_rq: u32,
        /// `cfs_rq.rq`; absent without fair group scheduling.
        pub cfs_rq_rq: u32,
        /// `rq.prev_steal_time_rq` or `rq.prev_steal_time` (ns); absent without paravirtual clocks.
        pub rq_steal: u32,
        /// `hrtimer.base`.
        pub hrtimer_base: u32,
        /// `hrtimer_clock_base.cpu_base`: the CPU's own `hrtimer_bases`.
        pub clock_base_cpu_base: u32,
        /// From a CPU's own `hrtimer_bases` to its own `__irq_regs`, modulo 2³²: both are per CPU.
        pub irq_regs: u32,
        /// `pt_regs.cs` or `pt_regs.pstate`, which tells user code from the kernel's.
        pub regs_mode: u32,
        /// `pt_regs.orig_ax` or `pt_regs.syscallno`: the system call that a task is in.
        pub regs_call: u32,
        /// `task_struct.__state` (Linux 5.14) or `task_struct.state`.
        pub task_state: u32,
        /// `task_struct.on_cpu`; absent without SMP.
        pub task_on_cpu: u32,
        /// `task_struct.in_iowait`, in bits.
        pub task_iowait_bit: u32,
        /// `task_struct.thread_info.cpu`, or before Linux 5.16 on some architectures `task_struct.cpu`; absent without SMP.
        pub task_cpu: u32,
        /// Second argument of that system call: `pt_regs.si` or `pt_regs.regs[1]`.
        pub regs_second: u32,
        /// `task_struct.throttled` (Linux 6.18): a limit of CPU time keeps the task off its run queue. Before, all that is on a run queue is
        /// throttled with it.
        pub task_throttled: u32,
        /// `cfs_rq.throttled_clock_self_time` (ns, Linux 6.6) or `cfs_rq.throttled_clock_task_time` (ns, some before 5.19); absent
        /// otherwise, and without CONFIG_CFS_BANDWIDTH.
        pub cfs_rq_throttled: u32,
        /// `cfs_rq.throttle_count`: not 0 while it is throttled.
        pub cfs_rq_throttle_count: u32,
        /// `task_struct.se.exec_start`: up to when `sum_exec_runtime` is accounted, by the run queue's task clock.
        pub task_exec_start: u32,
        /// `rq.clock` (ns).
        pub rq_clock: u32,
        /// `rq.clock_task` (ns): without interrupt handlers and stolen time, where the kernel leaves them out.
        pub rq_clock_task: u32,
        /// `rq.prev_irq_time` (ns); absent without CONFIG_IRQ_TIME_ACCOUNTING.
        pub rq_interrupts: u32,
        /// `rq.prev_steal_time_rq` (ns); absent without CONFIG_PARAVIRT_TIME_ACCOUNTING.
        pub rq_excluded_steal: u32,
        /// Third argument of the system call that a task is in: `pt_regs.dx` or `pt_regs.regs[2]`.
        pub regs_third: u32,
        /// `cfs_rq.throttled_clock_self` or `cfs_rq.throttled_clock_task` (ns): since when it is throttled, while it is.
        pub cfs_rq_throttled_since: u32,
        /// The run queue's clock that both are read from: [`Offsets::rq_clock`] or [`Offsets::rq_clock_task`].
        pub rq_throttled_clock: u32,
        /// `task_group.cfs_rq`: of each CPU one; absent without CONFIG_CFS_BANDWIDTH.
        pub task_group_cfs_rq: u32,
        /// `rq.cpu`; absent without SMP.
        pub rq_cpu: u32,
        /// Keeps the size a multiple of 8 bytes.
        pub reserved: u32,
    }
}
