//! Tasks that are off the CPU when counting begins, and during a drain. Programs of the iterator over tasks
//! find them, which exist only by type.

use pmu_common::{
    config::{ABSENT, FILTER_NONE},
    count::{SLOT_NONE, SLOT_UNRESOLVED, WAITS_FOR_EXEC},
    off_cpu::{BEFORE_COUNTING, RUN_QUEUE, THROTTLED},
};

use crate::{
    access::{Access, Fields as _, Pointer, Probed},
    config::config,
    maps::WAITING,
    off_cpu::{begin, control},
    owner, task, throttling,
};

/// Records the wait of a task that existed before counting began: it waits if it is not on a CPU.
#[inline(always)]
pub(crate) fn seed<A: Access>(task: Pointer) {
    if config!(off_cpu) == 0 || is_running(task) {
        return;
    }
    if let Some(state) = A::state(task) {
        // SAFETY: the state is live while its task is; if the task gets a CPU in between, the next switch
        // corrects it.
        let state = unsafe { &mut *state };
        begin::<A>(task, state, BEFORE_COUNTING);
        if state.off_kind == RUN_QUEUE && is_throttled(task) {
            state.off_kind = THROTTLED;
        }
    }
}

/// Adds a wait that lasts during a drain to its owner's row, which only the iterator over tasks writes.
#[inline(always)]
pub(crate) fn add<A: Access>(task: Pointer) -> Option<()> {
    // SAFETY: the state is live while its task is; it may mix two moments, which the next drain corrects.
    let state = unsafe { &*A::state(task)? };
    if state.flags & WAITS_FOR_EXEC != 0 || is_running(task) {
        return None;
    }
    let control = control();
    let wait = state.wait(control.started_ns, control.until_ns)?;
    let slot = if state.slot == SLOT_UNRESOLVED { resolve::<A>(task) } else { state.slot };
    if slot >= SLOT_NONE {
        return None;
    }
    // SAFETY: the lookup gave a live row that only this program writes.
    let count = unsafe { &mut *WAITING.get_ptr_mut(slot)? };
    count.add(state.off_kind, wait.blocked_ns);
    count.add(if is_throttled(task) { THROTTLED } else { RUN_QUEUE }, wait.ready_ns);
    Some(())
}

/// Returns whether a limit of CPU time keeps `task` from running at this moment.
#[inline(always)]
fn is_throttled(task: Pointer) -> bool {
    if !throttling::is_known() {
        return false;
    }
    if throttling::takes_tasks() {
        return throttling::is_taken::<Probed>(task);
    }
    let rq = Probed::pointer(task, config!(offsets.task_cfs_rq));
    Probed::u32(rq, config!(offsets.cfs_rq_throttle_count)) != 0
}

/// Returns the slot of a task that has not run since counting began. Where all tasks count, only tasks that
/// run get one.
#[inline(always)]
fn resolve<A: Access>(task: Pointer) -> u32 {
    if config!(filter) == FILTER_NONE {
        return SLOT_NONE;
    }
    let (cgroup, id) =
        if task::cgroups_matter() { task::cgroup_and_id(task) } else { (core::ptr::null(), 0) };
    owner::resolve::<A>(task, cgroup, id)
}

#[inline(always)]
fn is_running(task: Pointer) -> bool {
    // The field is an `int`, and since Linux 7.2 one byte of it, with others behind.
    config!(offsets.task_on_cpu) == ABSENT || Probed::u32(task, config!(offsets.task_on_cpu)) & 0xff != 0
}
