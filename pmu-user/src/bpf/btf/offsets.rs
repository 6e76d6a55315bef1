//! Offsets of the fields that programs read.

use pmu_common::config::{ABSENT, Offsets};

use super::{Btf, BtfError};

impl Btf {
    /// Returns all offsets that the programs need.
    ///
    /// # Errors
    ///
    /// A required field is missing. Optional ones become [`ABSENT`].
    pub fn offsets(&self) -> Result<Offsets, BtfError> {
        let need = |name: &str, path: &str| self.needed(name, path);
        let want = |name: &str, path: &str| self.offset(name, path).unwrap_or(ABSENT);
        let first = |name: &str, paths: [&str; 2]| self.first(name, paths).unwrap_or(ABSENT);
        Ok(Offsets {
            task_pid: need("task_struct", "pid")?,
            task_tgid: need("task_struct", "tgid")?,
            task_comm: need("task_struct", "comm")?,
            task_mm: want("task_struct", "mm"),
            mm_exe_file: want("mm_struct", "exe_file"),
            file_dentry: want("file", "f_path.dentry"),
            dentry_name: want("dentry", "d_name.name"),
            task_group_leader: need("task_struct", "group_leader")?,
            task_real_parent: need("task_struct", "real_parent")?,
            task_start_boottime: need("task_struct", "start_boottime")?,
            task_signal: need("task_struct", "signal")?,
            signal_live: need("signal_struct", "live")?,
            task_sum_exec: need("task_struct", "se.sum_exec_runtime")?,
            task_nvcsw: need("task_struct", "nvcsw")?,
            task_nivcsw: need("task_struct", "nivcsw")?,
            task_min_flt: need("task_struct", "min_flt")?,
            task_maj_flt: need("task_struct", "maj_flt")?,
            task_nr_migrations: need("task_struct", "se.nr_migrations")?,
            task_cgroups: need("task_struct", "cgroups")?,
            css_set_dfl_cgrp: need("css_set", "dfl_cgrp")?,
            cgroup_kn: need("cgroup", "kn")?,
            cgroup_root: need("cgroup", "root")?,
            cgroup_parent: need("cgroup", "self.parent")?,
            cgroup_root_hierarchy: need("cgroup_root", "hierarchy_id")?,
            kernfs_node_id: need("kernfs_node", "id")?,
            hrtimer_expires: need("hrtimer", "node.expires")?,
            hrtimer_function: need("hrtimer", "function")?,
            task_cfs_rq: want("task_struct", "se.cfs_rq"),
            cfs_rq_rq: want("cfs_rq", "rq"),
            rq_steal: self.steal().unwrap_or(ABSENT),
            hrtimer_base: want("hrtimer", "base"),
            clock_base_cpu_base: want("hrtimer_clock_base", "cpu_base"),
            irq_regs: self.interrupted_registers().unwrap_or(ABSENT),
            regs_mode: self.mode().unwrap_or(ABSENT),
            regs_call: first("pt_regs", ["orig_ax", "syscallno"]),
            task_state: first("task_struct", ["__state", "state"]),
            task_on_cpu: want("task_struct", "on_cpu"),
            task_iowait_bit: self.bit_offset("task_struct", "in_iowait").unwrap_or(ABSENT),
            task_cpu: first("task_struct", ["cpu", "thread_info.cpu"]),
            regs_second: self.argument("si", 1).unwrap_or(ABSENT),
            task_throttled: want("task_struct", "throttled"),
            cfs_rq_throttled: first("cfs_rq", ["throttled_clock_self_time", "throttled_clock_task_time"]),
            cfs_rq_throttle_count: want("cfs_rq", "throttle_count"),
            task_exec_start: need("task_struct", "se.exec_start")?,
            rq_clock: want("rq", "clock"),
            rq_clock_task: want("rq", "clock_task"),
            rq_interrupts: want("rq", "prev_irq_time"),
            rq_excluded_steal: want("rq", "prev_steal_time_rq"),
            regs_third: self.argument("dx", 2).unwrap_or(ABSENT),
            cfs_rq_throttled_since: first("cfs_rq", ["throttled_clock_self", "throttled_clock_task"]),
            rq_throttled_clock: self.throttled_clock().unwrap_or(ABSENT),
            task_group_cfs_rq: want("task_group", "cfs_rq"),
            rq_cpu: want("rq", "cpu"),
            reserved: 0,
        })
    }

    /// Returns the offset of a required field.
    fn needed(&self, name: &str, path: &str) -> Result<u32, BtfError> {
        self.offset(name, path).ok_or_else(|| BtfError::NoField(format!("{name}.{path}")))
    }

    /// Returns the offset of a field with different names in different kernels: the first that exists.
    fn first(&self, name: &str, paths: [&str; 2]) -> Option<u32> {
        paths.iter().find_map(|path| self.offset(name, path))
    }

    /// Returns the clock that throttling is timed by: since Linux 6.6 the one that `cpu.stat` uses, before
    /// that of tasks.
    fn throttled_clock(&self) -> Option<u32> {
        let is_whole = self.offset("cfs_rq", "throttled_clock_self").is_some();
        self.offset("rq", if is_whole { "clock" } else { "clock_task" })
    }

    /// Returns an argument of the system call that a task is in: the register with this name on x86-64, with
    /// this number on AArch64.
    fn argument(&self, register: &str, number: u32) -> Option<u32> {
        let numbered = || self.offset("pt_regs", "regs").map(|first| first + 8 * number);
        self.offset("pt_regs", register).or_else(numbered)
    }

    /// Returns the time that the hypervisor took from a CPU. The first field exists only with
    /// CONFIG_PARAVIRT_TIME_ACCOUNTING, which Debian leaves out. The second is updated at the CPU's ticks
    /// (kernel/sched/cputime.c, `steal_account_process_time`), which is soon enough.
    pub(super) fn steal(&self) -> Option<u32> {
        self.first("rq", ["prev_steal_time_rq", "prev_steal_time"])
    }
}
