//! Time that a task waited for a CPU, computed when the task leaves it. Its state is then looked up once per
//! switch, and not also at its arrival. The CPU's row holds the time of the arrival.

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

/// Returns whether a wait can be computed when the task leaves its CPU, and is not needed before. Time off
/// the CPU ends with the arrival, and so do slices of counters. In an NMI before Linux 5.11, samples find
/// only an owner that was set at the arrival.
#[inline(always)]
pub(crate) fn is_told_by_leaving() -> bool {
    cfg!(target_endian = "little")
        && config!(off_cpu) == 0
        && !counter::are_read()
        && config!(sample_inserts) != 0
        && config!(offsets.task_on_cpu) != ABSENT
}

/// Returns whether a task runs. One that wakes up does not yet (kernel/sched/core.c, `try_to_wake_up`),
/// except for one that was about to wait.
#[inline(always)]
pub(crate) fn is_on_cpu<A: Fields>(task: Pointer) -> bool {
    // The field is an `int`, of which this is the lowest byte, and since Linux 7.2 a byte.
    A::u8(task, config!(offsets.task_on_cpu)) != 0
}

/// Takes the wait of the task with this thread id, which has had `cpu` since then, from its state. Returns
/// [`NO_WAIT`] if there was none, it was accounted, or the task was not seen to get the CPU. Call before the
/// departure of the task is recorded in the CPU's row.
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

/// Clears a wait that does not count.
#[inline(always)]
pub(crate) fn forget(state: &mut TaskState) {
    if is_told_by_leaving() {
        state.ready_ns = 0;
    } else {
        state.wait_ns = NO_WAIT;
    }
}
