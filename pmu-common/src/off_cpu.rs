//! Time off the CPU: kinds of waits, and the division of a wait into the time until the task was able to run
//! and the rest.

use crate::{
    count::{INHERITS_PRIORITY, TaskState},
    wire,
};

/// Number of kinds of waits.
pub const KINDS: usize = 6;
/// Index of [`OffCpu::ns`]: able to run, and waiting for a CPU.
pub const RUN_QUEUE: u32 = 0;
/// Index of time on the run queue, held back by a cgroup's limit of CPU time (`cpu.max`).
pub const THROTTLED: u32 = 1;
/// Index of blocked time that the kernel counts as waiting for I/O (`in_iowait`).
pub const IO: u32 = 2;
/// Index of blocked time in a futex system call.
pub const LOCK: u32 = 3;
/// Index of blocked time that no signal ends and that is not for I/O: locks of the kernel, and all other such
/// waits.
pub const UNINTERRUPTIBLE: u32 = 4;
/// Index of all other blocked time.
pub const SLEEP: u32 = 5;

/// [`TaskState::off_since_ns`]: the task left its CPU before counting began.
pub const BEFORE_COUNTING: u64 = 1;

/// Task states (include/linux/sched.h), the same since Linux 4.14: blocked until a signal comes at the
/// latest, blocked so that no signal ends it, dead, not part of the load (an idle worker of the kernel).
const TASK_INTERRUPTIBLE: u32 = 0x1;
const TASK_UNINTERRUPTIBLE: u32 = 0x2;
const TASK_DEAD: u32 = 0x80;
const TASK_NOLOAD: u32 = 0x400;

wire! {
    /// Time that tasks of one owner were off the CPU, by kind. A row by slot and CPU is written only by
    /// programs that run with interrupts off on that CPU. A row by slot is written only by the iterator over
    /// tasks.
    pub struct OffCpu {
        /// Time in ns, by kind; two are free.
        pub ns: [u64; 8],
    }
}

/// Returns the kind of wait of a task in this `state` that leaves its CPU, [`LOCK`] excepted; `None` for a
/// dead task.
#[must_use]
#[inline(always)]
pub const fn kind_of(state: u32, in_iowait: bool) -> Option<u32> {
    if state == 0 {
        Some(RUN_QUEUE)
    } else if state & TASK_DEAD != 0 {
        None
    } else if in_iowait {
        Some(IO)
    } else if state & TASK_UNINTERRUPTIBLE != 0 && state & TASK_NOLOAD == 0 {
        Some(UNINTERRUPTIBLE)
    } else {
        Some(SLEEP)
    }
}

/// Returns whether a system call of x86-64 may wait for a futex: `futex`, `futex_waitv`, `futex_wait`.
#[must_use]
#[inline(always)]
pub const fn is_futex_x86_64(call: u32) -> bool {
    matches!(call, 202 | 449 | 455)
}

/// Returns the same for AArch64.
#[must_use]
#[inline(always)]
pub const fn is_futex_aarch64(call: u32) -> bool {
    matches!(call, 98 | 449 | 455)
}

/// Returns whether a wait that begins in this `state` may be for a futex, where waits for futexes can be
/// frozen ([`crate::config::FUTEXES_FREEZE`]). `waits` is its number. Most waits are for I/O, a timer or a
/// message. Those for a lock with priority inheritance cannot be frozen. So every eighth wait is checked, and
/// all waits of a task that was seen in such a one (`flags`).
#[must_use]
#[inline(always)]
pub const fn may_wait_for_futex(state: u32, flags: u32, waits: u64) -> bool {
    state & TASK_INTERRUPTIBLE != 0
        && (state != TASK_INTERRUPTIBLE || flags & INHERITS_PRIORITY != 0 || waits & 7 == 0)
}

/// Wait of a task, or the part of it that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Time until the task was able to run again, in ns.
    pub blocked_ns: u64,
    /// Time from then on, in ns.
    pub ready_ns: u64,
}

impl TaskState {
    /// Returns the task's wait so far, at `until_ns`. Returns `None` if it is on a CPU, or the start of the
    /// wait is not known. Time before `started_ns` is left out.
    #[must_use]
    #[inline(always)]
    pub const fn wait(&self, started_ns: u64, until_ns: u64) -> Option<Wait> {
        let since_ns = match self.off_since_ns {
            0 => return None,
            BEFORE_COUNTING => started_ns,
            since_ns => since_ns,
        };
        if since_ns == 0 || until_ns <= since_ns {
            return None;
        }
        let ready_ns = if self.ready_ns == 0 || self.ready_ns > until_ns {
            until_ns
        } else if self.ready_ns < since_ns {
            since_ns
        } else {
            self.ready_ns
        };
        Some(Wait { blocked_ns: ready_ns - since_ns, ready_ns: until_ns - ready_ns })
    }
}

impl OffCpu {
    /// Adds time of a kind of wait.
    #[inline(always)]
    pub const fn add(&mut self, kind: u32, ns: u64) {
        // The verifier requires proof that the index is inside.
        let place = &mut self.ns[kind as usize & 7];
        *place = place.wrapping_add(ns);
    }

    /// Adds the times of another row.
    pub const fn merge(&mut self, other: &Self) {
        let mut kind = 0;
        while kind < self.ns.len() {
            self.ns[kind] = self.ns[kind].saturating_add(other.ns[kind]);
            kind += 1;
        }
    }
}

const _: () = assert!(size_of::<OffCpu>() == 64, "rows of two CPUs must not share a cache line");

#[cfg(test)]
mod tests {
    use super::{
        BEFORE_COUNTING, IO, RUN_QUEUE, SLEEP, UNINTERRUPTIBLE, Wait, is_futex_aarch64, is_futex_x86_64,
        kind_of, may_wait_for_futex,
    };
    use crate::count::{INHERITS_PRIORITY, TaskState};

    fn state(off_since_ns: u64, ready_ns: u64) -> TaskState {
        TaskState { off_since_ns, ready_ns, ..TaskState::ZERO }
    }

    #[test]
    fn a_wait_is_split_where_the_task_is_able_to_run_again() {
        let wait = |blocked_ns, ready_ns| Some(Wait { blocked_ns, ready_ns });
        assert_eq!(state(100, 130).wait(10, 150), wait(30, 20));
        assert_eq!(state(100, 100).wait(10, 150), wait(0, 50), "preempted");
        assert_eq!(state(100, 0).wait(10, 150), wait(50, 0), "nobody has woken it up");
        assert_eq!(state(100, 160).wait(10, 150), wait(50, 0), "not yet");
    }

    #[test]
    fn a_wait_that_cannot_be_frozen_is_seldom_for_a_futex() {
        // TASK_INTERRUPTIBLE | TASK_FREEZABLE.
        assert!(may_wait_for_futex(0x2001, 0, 3));
        // A pipe or a socket, or a lock with priority inheritance.
        let looked_at = |flags| (0..80).filter(|&waits| may_wait_for_futex(1, flags, waits)).count();
        assert_eq!((looked_at(0), looked_at(INHERITS_PRIORITY)), (10, 80));
        // Not ended by a signal; an idle worker of the kernel.
        assert!(!may_wait_for_futex(2, 0, 0) && !may_wait_for_futex(0x402, INHERITS_PRIORITY, 0));
    }

    #[test]
    fn a_task_on_a_cpu_does_not_wait() {
        assert_eq!(state(0, 0).wait(10, 150), None);
        assert_eq!(state(200, 0).wait(10, 150), None);
    }

    #[test]
    fn what_came_before_counting_is_left_out() {
        let before = state(BEFORE_COUNTING, 130);
        assert_eq!(before.wait(120, 150), Some(Wait { blocked_ns: 10, ready_ns: 20 }));
        assert_eq!(before.wait(140, 150), Some(Wait { blocked_ns: 0, ready_ns: 10 }));
        assert_eq!(before.wait(0, 150), None, "nothing is counted yet");
    }

    #[test]
    fn a_state_says_what_a_task_waits_for() {
        // TASK_INTERRUPTIBLE, TASK_KILLABLE, TASK_IDLE, __TASK_STOPPED.
        assert_eq!(
            [0x1, 0x102, 0x402, 0x4].map(|state| kind_of(state, false)),
            [Some(SLEEP), Some(UNINTERRUPTIBLE), Some(SLEEP), Some(SLEEP)]
        );
        assert_eq!((kind_of(0, false), kind_of(0x80, false)), (Some(RUN_QUEUE), None));
        assert_eq!([0x1, 0x2].map(|state| kind_of(state, true)), [Some(IO); 2]);
    }

    #[test]
    fn futexes_have_a_number_of_each_architecture_and_two_that_all_share() {
        let is = |is: fn(u32) -> bool, calls: [u32; 3]| (0..1024).filter(|&call| is(call)).eq(calls);
        assert!(is(is_futex_x86_64, [202, 449, 455]));
        assert!(is(is_futex_aarch64, [98, 449, 455]));
    }
}
