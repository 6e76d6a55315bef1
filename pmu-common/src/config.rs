//! Configuration that the loader passes to the programs before they are loaded. It lies in read-only memory
//! with values known to the verifier, so a branch on it costs nothing at run time.

use crate::wire;

/// [`Config::by`]: counts belong to processes.
pub const BY_PROCESS: u32 = 0;
/// [`Config::by`]: counts belong to cgroups (v2), to the leaf. Parents are summed in user space.
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

/// [`Config::unwind`]: user stacks are unwound by frame pointers alone.
pub const UNWIND_OFF: u32 = 0;
/// [`Config::unwind`]: samples in user mode carry a copy of the user stack.
pub const UNWIND_USER_MODE: u32 = 1;
/// [`Config::unwind`]: samples in kernel mode carry one, too.
pub const UNWIND_ALL: u32 = 2;

/// [`Config::off_cpu`]: stacks of blocking tasks are taken, too.
pub const OFF_CPU_STACKS: u32 = 2;

/// [`Config::finds_futexes`]: a task that waits for a futex can be frozen, and its state shows it (Linux 6.1,
/// `TASK_FREEZABLE`).
pub const FUTEXES_FREEZE: u32 = 2;

/// Offset of a field that this kernel does not have.
pub const ABSENT: u32 = u32::MAX;

/// Value in `TARGETS`: the target counts from the moment it executes another program.
pub const TARGET_FROM_EXEC: u32 = 1;

/// Bit that marks a process or thread without an id in the collector's PID namespace. The other bits are its
/// id in the first namespace (ids end at 2²², `PID_MAX_LIMIT` in include/linux/threads.h).
pub const OUTSIDE: u32 = 1 << 31;

/// [`Config::names`]: a process keeps its slot, whatever its name and its executable file.
pub const KEEPS_SLOT: u32 = 0;
/// [`Config::names`]: a process becomes another owner when its first thread changes its name.
pub const OWNER_IS_COMM: u32 = 1;
/// [`Config::names`]: processes are named by their executable files. A process becomes another owner when it
/// executes another file.
pub const OWNER_IS_EXE: u32 = 2;

wire! {
    /// PID namespace of the reported ids, and the offsets of a task's id in it. Offsets are in bytes.
    pub struct PidNamespace {
        /// `ns_common.inum`; 0: the first namespace, with the ids in the task struct.
        pub inode: u32,
        /// Number of levels below the first namespace.
        pub level: u32,
        /// Offset of `task_struct.thread_pid`.
        pub task_pid: u32,
        /// Offset of `pid.level`.
        pub pid_level: u32,
        /// Offset of `pid.numbers[level].nr`.
        pub pid_number: u32,
        /// Offset of `pid.numbers[level].ns`.
        pub pid_namespace: u32,
        /// Offset of `pid_namespace.ns.inum`.
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
        /// A timer later than this is recorded as a separate gap.
        pub gap_min_ns: u64,
        /// 1: `hrtimer_expire_entry` passes the time itself (Linux 7.2), not a pointer to it.
        pub timer_now_by_value: u32,
        /// 1: a sample may allocate a slot for its owner. It may not in an NMI before Linux 5.11: the
        /// interrupted program may hold the lock of the hash bucket.
        pub sample_inserts: u32,
        /// Descriptors of counters per CPU, those of running times included (see [`crate::turn`]). 0: nothing
        /// is counted per owner.
        pub counters: u32,
        /// [`KEEPS_SLOT`], [`OWNER_IS_COMM`] or [`OWNER_IS_EXE`].
        pub names: u32,
        /// [`UNWIND_OFF`], [`UNWIND_USER_MODE`] or [`UNWIND_ALL`].
        pub unwind: u32,
        /// 1: waits for a CPU are charged to the owner that had it.
        pub culprits: u32,
        /// Number of sampling events: the stride of rows that exist per event; at least 1.
        pub sampling_events: u32,
        /// Sampling event that is a clock, with evenly spaced samples.
        pub clock_event: u32,
        /// 1: time off the CPU counts; or [`OFF_CPU_STACKS`].
        pub off_cpu: u32,
        /// 1, or [`FUTEXES_FREEZE`]: the system call that a task is in is known. Waits for futexes are then
        /// distinct from other sleep, and those for locks are counted.
        pub finds_futexes: u32,
        /// 1: new cgroups that are not targets are reported to user space, which may make them targets.
        pub follows: u32,
        /// 1: interrupt handlers are timed.
        pub interrupts: u32,
        /// 1: programs on kernel functions time the throttling of run queues, because the kernel does not.
        pub times_throttling: u32,
        /// Length of an epoch of hot addresses, as a power of two in ns (see [`crate::sample::hot_epoch`]).
        pub hot_epoch_shift: u32,
        /// Offsets of the fields in this kernel.
        pub offsets: Offsets,
        /// PID namespace of the reported ids.
        pub pids: PidNamespace,
    }

    /// Byte offsets of kernel fields, from the running kernel's BTF; [`ABSENT`] where a kernel has no such
    /// field.
    pub struct Offsets {
        /// `task_struct.pid`: the thread.
        pub task_pid: u32,
        /// `task_struct.tgid`: the process.
        pub task_tgid: u32,
        /// Offset of `task_struct.comm`.
        pub task_comm: u32,
        /// Offset of `task_struct.mm`.
        pub task_mm: u32,
        /// Offset of `mm_struct.exe_file`.
        pub mm_exe_file: u32,
        /// Offset of `file.f_path.dentry`.
        pub file_dentry: u32,
        /// Offset of `dentry.d_name.name`.
        pub dentry_name: u32,
        /// Offset of `task_struct.group_leader`.
        pub task_group_leader: u32,
        /// Offset of `task_struct.real_parent`.
        pub task_real_parent: u32,
        /// `task_struct.start_boottime` (ns, CLOCK_BOOTTIME), as in /proc.
        pub task_start_boottime: u32,
        /// Offset of `task_struct.signal`.
        pub task_signal: u32,
        /// `signal_struct.live`: threads of the process that have not exited.
        pub signal_live: u32,
        /// Offset of `task_struct.se.sum_exec_runtime` (ns).
        pub task_sum_exec: u32,
        /// Offset of `task_struct.nvcsw`.
        pub task_nvcsw: u32,
        /// Offset of `task_struct.nivcsw`.
        pub task_nivcsw: u32,
        /// Offset of `task_struct.min_flt`.
        pub task_min_flt: u32,
        /// Offset of `task_struct.maj_flt`.
        pub task_maj_flt: u32,
        /// Offset of `task_struct.se.nr_migrations`.
        pub task_nr_migrations: u32,
        /// Offset of `task_struct.cgroups`.
        pub task_cgroups: u32,
        /// `css_set.dfl_cgrp`: the task's cgroup in the v2 hierarchy.
        pub css_set_dfl_cgrp: u32,
        /// Offset of `cgroup.kn`.
        pub cgroup_kn: u32,
        /// Offset of `cgroup.root`.
        pub cgroup_root: u32,
        /// `cgroup.self.parent`; `self` is the first member, so this is the parent cgroup.
        pub cgroup_parent: u32,
        /// `cgroup_root.hierarchy_id`: 0 for v2.
        pub cgroup_root_hierarchy: u32,
        /// Offset of `kernfs_node.id`.
        pub kernfs_node_id: u32,
        /// `hrtimer.node.expires` (ns, the timer's own clock).
        pub hrtimer_expires: u32,
        /// Offset of `hrtimer.function`.
        pub hrtimer_function: u32,
        /// `task_struct.se.cfs_rq`; absent without fair group scheduling.
        pub task_cfs_rq: u32,
        /// `cfs_rq.rq`; absent without fair group scheduling.
        pub cfs_rq_rq: u32,
        /// `rq.prev_steal_time_rq` or `rq.prev_steal_time` (ns); absent without paravirtual clocks.
        pub rq_steal: u32,
        /// Offset of `hrtimer.base`.
        pub hrtimer_base: u32,
        /// `hrtimer_clock_base.cpu_base`: the `hrtimer_bases` of the CPU.
        pub clock_base_cpu_base: u32,
        /// Distance from a CPU's `hrtimer_bases` to its `__irq_regs`, modulo 2³². Both are per CPU.
        pub irq_regs: u32,
        /// `pt_regs.cs` or `pt_regs.pstate`, which distinguishes user mode from kernel mode.
        pub regs_mode: u32,
        /// `pt_regs.orig_ax` or `pt_regs.syscallno`: the system call that a task is in.
        pub regs_call: u32,
        /// `task_struct.__state` (Linux 5.14) or `task_struct.state`.
        pub task_state: u32,
        /// `task_struct.on_cpu`; absent without SMP.
        pub task_on_cpu: u32,
        /// `task_struct.in_iowait`, in bits.
        pub task_iowait_bit: u32,
        /// `task_struct.thread_info.cpu`, or before Linux 5.16 on some architectures `task_struct.cpu`;
        /// absent without SMP.
        pub task_cpu: u32,
        /// Second argument of that system call: `pt_regs.si` or `pt_regs.regs[1]`.
        pub regs_second: u32,
        /// `task_struct.throttled` (Linux 6.18): a limit of CPU time keeps the task off its run queue.
        /// Before, all tasks on a run queue are throttled with it.
        pub task_throttled: u32,
        /// `cfs_rq.throttled_clock_self_time` (ns, Linux 6.6) or `cfs_rq.throttled_clock_task_time` (ns, some
        /// before 5.19); absent otherwise, and without CONFIG_CFS_BANDWIDTH.
        pub cfs_rq_throttled: u32,
        /// `cfs_rq.throttle_count`: not 0 while it is throttled.
        pub cfs_rq_throttle_count: u32,
        /// `task_struct.se.exec_start`: up to when `sum_exec_runtime` is accounted, by the run queue's task
        /// clock.
        pub task_exec_start: u32,
        /// Offset of `rq.clock` (ns).
        pub rq_clock: u32,
        /// `rq.clock_task` (ns): without interrupt handlers and stolen time, where the kernel leaves them
        /// out.
        pub rq_clock_task: u32,
        /// `rq.prev_irq_time` (ns); absent without CONFIG_IRQ_TIME_ACCOUNTING.
        pub rq_interrupts: u32,
        /// `rq.prev_steal_time_rq` (ns); absent without CONFIG_PARAVIRT_TIME_ACCOUNTING.
        pub rq_excluded_steal: u32,
        /// Third argument of the system call that a task is in: `pt_regs.dx` or `pt_regs.regs[2]`.
        pub regs_third: u32,
        /// `cfs_rq.throttled_clock_self` or `cfs_rq.throttled_clock_task` (ns): start of the present
        /// throttled time.
        pub cfs_rq_throttled_since: u32,
        /// Clock of the run queue that both are read from: [`Offsets::rq_clock`] or
        /// [`Offsets::rq_clock_task`].
        pub rq_throttled_clock: u32,
        /// `task_group.cfs_rq`: one for each CPU. Absent without CONFIG_CFS_BANDWIDTH.
        pub task_group_cfs_rq: u32,
        /// `rq.cpu`; absent without SMP.
        pub rq_cpu: u32,
        /// Keeps the size a multiple of 8 bytes.
        pub reserved: u32,
    }
}
