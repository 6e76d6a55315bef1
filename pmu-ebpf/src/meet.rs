//! A task's state begins: at its fork, when it is primed, or when it is first met.

use pmu_common::{
    config::TARGET_FROM_EXEC,
    count::{NO_WAIT, SLOT_NONE, SLOT_UNRESOLVED, WAITS_FOR_EXEC},
    loss,
};

use crate::{
    access::{Access, Pointer},
    maps::lose,
    target, task,
};

/// Meets a task that nobody primed; keeps the answer for one that is not wanted. Is it wanted?
#[inline(always)]
pub(crate) fn meet<A: Access>(task: Pointer) -> bool {
    let wanted = target::existing_task::<A>(task);
    let waits = wanted.is_some_and(|flags| flags & TARGET_FROM_EXEC != 0);
    start::<A>(task, if waits { WAITS_FOR_EXEC } else { 0 });
    if let (None, Some(state)) = (wanted, A::state(task)) {
        // SAFETY: the state is live while its task is.
        unsafe { (*state).slot = SLOT_NONE };
    }
    wanted.is_some()
}

/// Remembers what `task` has counted so far.
#[inline(always)]
pub(crate) fn start<A: Access>(task: Pointer, flags: u32) {
    let Some(state) = A::create_state(task) else {
        lose(loss::TASK_UNKNOWN);
        return;
    };
    let cgroup = if task::cgroups_matter() { task::cgroup_and_id(task).1 } else { 0 };
    // SAFETY: the state is live; a task that runs at this moment is accounted again at its next switch.
    let state = unsafe { &mut *state };
    state.last = task::reading::<A>(task);
    state.ready_ns = 0;
    state.wait_ns = NO_WAIT;
    state.cgroup = cgroup;
    state.slot = SLOT_UNRESOLVED;
    state.process = task::process::<A>(task);
    state.flags = flags;
}
