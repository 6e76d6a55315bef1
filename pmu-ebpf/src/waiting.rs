//! Tasks that are off the CPU when counting begins, and while a drain goes on: programs of the iterator over tasks find them, which
//! there are by type only.

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

/// A task that was there before counting began: it waits if it is on no CPU.
#[inline(always)]
pub(crate) fn seed<A: Access>(task: Pointer) {
    if config!(off_cpu) == 0 || is_running(task) {
        return;
    }
    if let Some(state) = A::state(task) {
        // SAFETY: the state is live while its task is; where it gets a CPU meanwhile, the next switch sets it right.
        let state = unsafe { &mut *state };
        begin::<A>(task, state, BEFORE_COUNTING);
        if state.off_kind == RUN_QUEUE && is_throttled(task) {
            state.off_kind = THROTTLED;
        }
    }
}

/// Adds the wait that lasts while a drain goes on to its owner's row, which only the iterator over tasks writes.
#[inline(always)]
pub(crate) fn add<A: Access>(task: Pointer) -> Option<()> {
    // SAFETY: the state is live while its task is; it may mix two moments, which the next drain sets right.
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

/// Does a limit of CPU time keep `task` from running at this moment?
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

/// Slot of a task that has not run since counting began: of a whole host only what runs gets one.
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
    // An `int`, and since Linux 7.2 one byte of it, with others behind.
    config!(offsets.task_on_cpu) == ABSENT || Probed::u32(task, config!(offsets.task_on_cpu)) & 0xff != 0
}
