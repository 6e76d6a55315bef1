//! How long a task waited for a CPU, found out when it leaves it: what is remembered of a task is then looked up once a switch, and not at
//! its arrival, too. Its CPU's row says when it came.

use pmu_common::{
    config::ABSENT,
    count::{MOVED, NO_WAIT, TaskState},
    cpu::CpuCount,
};

use crate::{
    access::{Fields, Pointer},
    config::config,
    counter,
};

/// Does nobody want to know of a wait before the task leaves its CPU, and can it be told then? Time off the CPU ends with the arrival, so do
/// slices of counters; in an NMI before Linux 5.11 samples find no owner but one that was given at the arrival.
#[inline(always)]
pub(crate) fn is_told_by_leaving() -> bool {
    cfg!(target_endian = "little")
        && config!(off_cpu) == 0
        && !counter::are_read()
        && config!(sample_inserts) != 0
        && config!(offsets.task_on_cpu) != ABSENT
}

/// Does a task run? One that wakes up does not yet (kernel/sched/core.c, `try_to_wake_up`), but for one that was about to wait.
#[inline(always)]
pub(crate) fn is_on_cpu<A: Fields>(task: Pointer) -> bool {
    // An `int`, of which this is the lowest byte, and since Linux 7.2 a byte.
    A::u8(task, config!(offsets.task_on_cpu)) != 0
}

/// Takes the wait of the task with this thread id, which has had `cpu` since then, from its state; [`NO_WAIT`] if there was none, or
/// it was accounted, or the CPU was not seen to be given to it. Call before the CPU's row takes in that the task leaves.
#[inline(always)]
pub(crate) fn take(tid: u32, state: &mut TaskState, cpu: u32, counts: &CpuCount) -> u64 {
    if !is_told_by_leaving() {
        let wait_ns = state.wait_ns;
        state.wait_ns = NO_WAIT;
        return wait_ns;
    }
    let (ready_ns, came_ns) = (state.ready_ns, counts.switched_ns);
    state.ready_ns = 0;
    if ready_ns == 0 || came_ns < ready_ns || counts.last_next != u64::from(tid) {
        return NO_WAIT;
    }
    if state.ready_cpu != cpu {
        state.ready_cpu = MOVED;
    }
    came_ns - ready_ns
}

/// Forgets a wait that nothing counts.
#[inline(always)]
pub(crate) fn forget(state: &mut TaskState) {
    if is_told_by_leaving() {
        state.ready_ns = 0;
    } else {
        state.wait_ns = NO_WAIT;
    }
}
