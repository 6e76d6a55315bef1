//! Counts per owner, and how a task's kernel counters are added to its owner's counts.
//!
//! The kernel already counts everything here per task. The switch program reads the task's counters,
//! subtracts their previous values (kept in the task's storage) and adds the difference to the owner's cell.
//! A lost switch event therefore loses no counts: the next one includes them.

use crate::{histogram::RUNQUEUE, wire};

/// [`TaskState::slot`]: the task's owner has not been looked up yet.
pub const SLOT_UNRESOLVED: u32 = u32::MAX;
/// [`TaskState::slot`]: the task is not a target.
pub const SLOT_NONE: u32 = u32::MAX - 1;
/// Slot that counts all owners beyond the limit together.
pub const SLOT_OTHER: u32 = 0;

/// [`TaskState::wait_ns`]: no wait to account.
pub const NO_WAIT: u64 = u64::MAX;

/// [`TaskState::ready_cpu`]: the task was on another CPU's run queue for at least a part of its wait.
pub const MOVED: u32 = u32::MAX;

/// [`TaskState::flags`]: nothing counts until the task executes another program.
pub const WAITS_FOR_EXEC: u32 = 1;
/// [`TaskState::flags`]: user space has been requested to read the address map of the task's process.
pub const ANNOUNCED: u32 = 2;
/// [`TaskState::flags`]: the task is blocked on a lock, since [`TaskState::off_since_ns`].
pub const WAITS_FOR_LOCK: u32 = 4;
/// [`TaskState::flags`]: the task waits on the run queue [`TaskState::throttling_rq`], which a limit of CPU
/// time may hold back.
pub const MAY_BE_THROTTLED: u32 = 8;
/// [`TaskState::flags`]: the task was seen to wait for a lock with priority inheritance.
pub const INHERITS_PRIORITY: u32 = 16;
/// [`TaskState::flags`]: the running task is accounted because its process becomes another owner.
pub const DIVIDES: u32 = 32;

wire! {
    /// Counters of a task, as the kernel keeps them in its task struct.
    pub struct Reading {
        /// `se.sum_exec_runtime`: time on a CPU in ns, up to date at every switch and tick.
        pub cpu_time_ns: u64,
        /// `nvcsw`: switches because the task waited.
        pub voluntary_switches: u64,
        /// `nivcsw`: switches because the task was preempted.
        pub involuntary_switches: u64,
        /// `min_flt`: page faults without I/O.
        pub minor_faults: u64,
        /// `maj_flt`: page faults that waited for I/O.
        pub major_faults: u64,
        /// `se.nr_migrations`: moves to another CPU.
        pub migrations: u64,
    }

    /// State that the programs keep for one task.
    pub struct TaskState {
        /// Counters when they were last accounted.
        pub last: Reading,
        /// Time when the task became able to run (CLOCK_MONOTONIC), 0 once it runs.
        pub ready_ns: u64,
        /// Time that it then waited for a CPU, until that is accounted; else [`NO_WAIT`].
        pub wait_ns: u64,
        /// Id of the cgroup that the counts went to; 0 where owners are not cgroups.
        pub cgroup: u64,
        /// Slot of the owner, [`SLOT_NONE`] or [`SLOT_UNRESOLVED`].
        pub slot: u32,
        /// [`WAITS_FOR_EXEC`], [`ANNOUNCED`], [`WAITS_FOR_LOCK`], [`MAY_BE_THROTTLED`],
        /// [`INHERITS_PRIORITY`], [`DIVIDES`].
        pub flags: u32,
        /// Process id in the collector's PID namespace, where that is not the first: a task that has exited
        /// no longer has one.
        pub process: u32,
        /// Kind of its present or last wait, by [`crate::off_cpu`], until it is able to run.
        pub off_kind: u32,
        /// CPU of the run queue that it was on when it became able to run; [`MOVED`] if it then moved to
        /// another one.
        pub ready_cpu: u32,
        /// Estimated length of its waits, and whether the stack of this one was taken
        /// ([`crate::off_cpu_stack`]).
        pub blocking: u32,
        /// Value of [`crate::cpu::CpuCount::counted`] when its cgroup was last looked up among the targets;
        /// only where names are followed.
        pub asked: u64,
        /// Time when the task left its CPU (CLOCK_MONOTONIC), 0 while it runs. Where time off the CPU does
        /// not count, it is set only for a wait for a lock.
        pub off_since_ns: u64,
        /// Time that it then was blocked, until that is accounted; else [`NO_WAIT`]. Only where time off the
        /// CPU counts.
        pub blocked_ns: u64,
        /// Part of [`TaskState::wait_ns`] during which its cgroup's limit of CPU time held it back.
        pub throttled_ns: u64,
        /// Run queue of its cgroup that it waits on, with [`MAY_BE_THROTTLED`].
        pub throttling_rq: u64,
        /// Throttled time of that run queue when the task became able to run.
        pub throttling_ns: u64,
    }

    /// Counts of one owner on one CPU. Written only by programs that run with interrupts off on that CPU. The
    /// fields that every switch writes are in the first cache line.
    pub struct Count {
        /// Time on the CPU in ns.
        pub cpu_time_ns: u64,
        /// Voluntary context switches.
        pub voluntary_switches: u64,
        /// Involuntary context switches.
        pub involuntary_switches: u64,
        /// Times that a task got a CPU: entries of the latency histogram.
        pub runs: u64,
        /// Sum of the run-queue latencies in ns.
        pub wait_ns: u64,
        /// Longest run-queue latency in ns.
        pub wait_max_ns: u64,
        /// Groups of latency buckets that are not all zero, one bit each. Reading skips the others.
        pub filled: u64,
        /// Number that changes whenever the row does; compared, never shown.
        pub changes: u64,
        /// Page faults without I/O.
        pub minor_faults: u64,
        /// Page faults with I/O.
        pub major_faults: u64,
        /// Moves to another CPU.
        pub migrations: u64,
        /// Ticks that came late while this owner ran with interrupts masked.
        pub late_ticks: u32,
        /// Tick instants inside the spans of [`Count::enable_ticks`].
        pub enable_instants: u32,
        /// Tick instants inside the spans of [`Count::late_ticks`] ([`crate::gap::tick_instants`]): times the
        /// period is masked time.
        pub blind_ticks: u32,
        /// Lateness sum of the spans of [`Count::late_ticks`]. It gives the uncertainty of their number
        /// ([`crate::gap::lateness`]).
        pub lateness: i32,
        /// Ticks that came while this owner ran.
        pub ticks: u32,
        /// Lateness sum of the spans of [`Count::enable_ticks`], as [`Count::lateness`].
        pub enable_lateness: i32,
        /// Ticks that found this owner in the kernel.
        pub kernel_ticks: u64,
        /// Late ticks right where the kernel enables interrupts.
        pub enable_ticks: u32,
        /// Ticks on time right where the kernel enables interrupts.
        pub enable_ticks_on_time: u32,
    }
}

impl Reading {
    /// Returns the counts between `earlier` and `self`. Counters only grow; a wrap is harmless.
    #[must_use]
    #[inline(always)]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu_time_ns: self.cpu_time_ns.wrapping_sub(earlier.cpu_time_ns),
            voluntary_switches: self.voluntary_switches.wrapping_sub(earlier.voluntary_switches),
            involuntary_switches: self.involuntary_switches.wrapping_sub(earlier.involuntary_switches),
            minor_faults: self.minor_faults.wrapping_sub(earlier.minor_faults),
            major_faults: self.major_faults.wrapping_sub(earlier.major_faults),
            migrations: self.migrations.wrapping_sub(earlier.migrations),
        }
    }

    /// Returns whether the task was preempted at the switch that ends this difference. The kernel counts a
    /// switch as involuntary exactly if the task could have continued (kernel/sched/core.c, `__schedule`).
    #[must_use]
    #[inline(always)]
    pub const fn preempted(&self) -> bool {
        self.involuntary_switches != 0
    }
}

impl Count {
    /// Adds the counts of a task.
    #[inline(always)]
    pub const fn add(&mut self, counts: &Reading) {
        self.cpu_time_ns = self.cpu_time_ns.wrapping_add(counts.cpu_time_ns);
        self.voluntary_switches = self.voluntary_switches.wrapping_add(counts.voluntary_switches);
        self.involuntary_switches = self.involuntary_switches.wrapping_add(counts.involuntary_switches);
        self.changes = self.changes.wrapping_add(1);
        if counts.minor_faults | counts.major_faults | counts.migrations != 0 {
            self.minor_faults = self.minor_faults.wrapping_add(counts.minor_faults);
            self.major_faults = self.major_faults.wrapping_add(counts.major_faults);
            self.migrations = self.migrations.wrapping_add(counts.migrations);
        }
    }

    /// Adds one wait for a CPU. Returns its bucket in the latency histogram ([`RUNQUEUE`]).
    #[inline(always)]
    pub const fn add_wait(&mut self, wait_ns: u64) -> u32 {
        let bucket = RUNQUEUE.bucket_of(wait_ns);
        self.filled |= 1 << (bucket / RUNQUEUE.group_buckets() as u32);
        self.runs = self.runs.wrapping_add(1);
        self.wait_ns = self.wait_ns.wrapping_add(wait_ns);
        if wait_ns > self.wait_max_ns {
            self.wait_max_ns = wait_ns;
        }
        bucket
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, Reading};
    use crate::histogram::RUNQUEUE;

    fn reading(base: u64) -> Reading {
        Reading {
            cpu_time_ns: base,
            voluntary_switches: base.wrapping_add(1),
            involuntary_switches: base.wrapping_add(2),
            minor_faults: base.wrapping_add(3),
            major_faults: base.wrapping_add(4),
            migrations: base.wrapping_add(5),
        }
    }

    #[test]
    fn a_difference_survives_the_wrap() {
        let difference = reading(5).since(&reading(u64::MAX - 4));
        assert_eq!(difference.cpu_time_ns, 10);
        assert_eq!(difference.migrations, 10);
    }

    #[test]
    fn every_counter_is_added() {
        let mut count = Count::ZERO;
        count.add(&reading(10));
        count.add(&reading(100));
        assert_eq!(
            (count.cpu_time_ns, count.voluntary_switches, count.involuntary_switches, count.minor_faults),
            (110, 112, 114, 116)
        );
        assert_eq!((count.major_faults, count.migrations, count.changes), (118, 120, 2));
    }

    #[test]
    fn a_wait_is_counted_summed_and_kept_if_it_is_the_longest() {
        let mut count = Count::ZERO;
        let buckets = [5, 0, 3].map(|wait_ns| count.add_wait(wait_ns));
        assert_eq!((count.runs, count.wait_ns, count.wait_max_ns), (3, 8, 5));
        assert_eq!(buckets, [5, 0, 3]);
    }

    #[test]
    fn the_groups_of_its_buckets_are_filled() {
        let mut count = Count::ZERO;
        let last = count.add_wait(u64::MAX);
        assert_eq!((last, count.filled), (RUNQUEUE.buckets as u32 - 1, 1 << 63));
        count.add_wait(0);
        assert_eq!(count.filled, 1 << 63 | 1);
    }

    #[test]
    fn an_involuntary_switch_is_a_preemption() {
        assert!(Reading { involuntary_switches: 1, ..Reading::ZERO }.preempted());
        assert!(!Reading { voluntary_switches: 1, ..Reading::ZERO }.preempted());
    }
}
