//! Kernel data of a task, and the start of its state: at its fork, by the iterator over tasks, or when it is
//! first seen.

use pmu_common::{
    config::{BY_CGROUP, FILTER_CGROUPS},
    count::{NO_WAIT, Reading, SLOT_NONE, SLOT_UNRESOLVED, WAITS_FOR_EXEC},
    loss,
    owner::OwnerKey,
};

use crate::{
    access::{Access, Fields, Pointer, Probed},
    config::config,
    cpu::lose,
    identity::{cgroup_id, id_in, leader, process, translates},
};

/// Returns the thread id in the first PID namespace; 0 for the idle tasks.
#[inline(always)]
pub(crate) fn tid<A: Fields>(task: Pointer) -> u32 {
    A::u32(task, config!(offsets.task_pid))
}

/// Returns the thread id in user space's PID namespace; 0 for the idle tasks.
#[inline(always)]
pub(crate) fn thread<A: Fields>(task: Pointer) -> u32 {
    match tid::<A>(task) {
        tid if tid == 0 || !translates() => tid,
        tid => id_in(&config!(pids), task, tid),
    }
}

/// Returns the process id in user space's PID namespace, also of a task that has exited, if it has been seen.
#[inline(always)]
pub(crate) fn process_of<A: Access>(task: Pointer) -> u32 {
    if translates()
        && let Some(state) = A::state(task)
    {
        // SAFETY: the state is live while its task is.
        return unsafe { (*state).process };
    }
    process::<A>(task)
}

/// Returns the counters that the kernel keeps in the task.
#[inline(always)]
pub(crate) fn reading<A: Fields>(task: Pointer) -> Reading {
    Reading {
        cpu_time_ns: A::u64(task, config!(offsets.task_sum_exec)),
        voluntary_switches: A::u64(task, config!(offsets.task_nvcsw)),
        involuntary_switches: A::u64(task, config!(offsets.task_nivcsw)),
        minor_faults: A::u64(task, config!(offsets.task_min_flt)),
        major_faults: A::u64(task, config!(offsets.task_maj_flt)),
        migrations: A::u64(task, config!(offsets.task_nr_migrations)),
    }
}

/// Returns whether the cgroup of a task matters.
#[inline(always)]
pub(crate) fn cgroups_matter() -> bool {
    config!(by) == BY_CGROUP || config!(filter) == FILTER_CGROUPS
}

/// Returns the task's cgroup in the v2 hierarchy.
#[inline(always)]
pub(crate) fn cgroup<A: Fields>(task: Pointer) -> Pointer {
    let set = A::pointer(task, config!(offsets.task_cgroups));
    A::pointer(set, config!(offsets.css_set_dfl_cgrp))
}

/// Returns the task's cgroup in the v2 hierarchy and its id. By address: see [`Probed`].
#[inline(always)]
pub(crate) fn cgroup_and_id(task: Pointer) -> (Pointer, u64) {
    let cgroup = cgroup::<Probed>(task);
    (cgroup, cgroup_id::<Probed>(cgroup))
}

/// Returns the identity of the task's process.
#[inline(always)]
pub(crate) fn process_key<A: Access>(task: Pointer) -> OwnerKey {
    key_of_process(leader(task), process_of::<A>(task))
}

/// Returns the same from its first thread and its id.
#[inline(always)]
pub(crate) fn key_of_process(leader: Pointer, process: u32) -> OwnerKey {
    OwnerKey { id: u64::from(process), born_ns: Probed::u64(leader, config!(offsets.task_start_boottime)) }
}

/// Returns the identity of the task as a thread. This id stays valid after the task has exited, unlike other
/// ids.
#[inline(always)]
pub(crate) fn thread_key<A: Access>(task: Pointer) -> OwnerKey {
    OwnerKey { id: u64::from(tid::<A>(task)), born_ns: A::u64(task, config!(offsets.task_start_boottime)) }
}

/// Returns whether the last thread of the task's process has begun to exit. By address: see [`Probed`].
#[inline(always)]
pub(crate) fn is_over(task: Pointer) -> bool {
    let signal = Probed::pointer(task, config!(offsets.task_signal));
    Probed::u32(signal, config!(offsets.signal_live)) == 0
}

/// Returns whether the task is the only one of its process that has not begun to exit. By address: see
/// [`Probed`].
#[inline(always)]
pub(crate) fn is_single(task: Pointer) -> bool {
    let signal = Probed::pointer(task, config!(offsets.task_signal));
    Probed::u32(signal, config!(offsets.signal_live)) == 1
}

/// Returns the slot that the task was last counted in, [`SLOT_NONE`] if it is not wanted; `None` if it has no
/// state.
///
/// [`SLOT_NONE`]: pmu_common::count::SLOT_NONE
#[inline(always)]
pub(crate) fn slot<A: Access>(task: Pointer) -> Option<u32> {
    // SAFETY: the state is live while its task is.
    A::state(task).map(|state| unsafe { (*state).slot })
}

/// Creates the state of a task, which begins with the task's present counters.
#[inline(always)]
pub(crate) fn init<A: Access>(task: Pointer, flags: u32) {
    let Some(state) = A::create_state(task) else {
        lose(loss::TASK_UNKNOWN);
        return;
    };
    let cgroup = if cgroups_matter() { cgroup_and_id(task).1 } else { 0 };
    // SAFETY: the state is live; a task that runs at this moment is accounted again at its next switch.
    let state = unsafe { &mut *state };
    state.last = reading::<A>(task);
    state.ready_ns = 0;
    state.wait_ns = NO_WAIT;
    state.cgroup = cgroup;
    // A launched command has no counts before it executes its program, and no samples either.
    state.slot = if flags & WAITS_FOR_EXEC == 0 { SLOT_UNRESOLVED } else { SLOT_NONE };
    state.process = process::<A>(task);
    state.flags = flags;
    state.off_since_ns = 0;
    state.blocking = 0;
    state.asked = 0;
    state.blocked_ns = NO_WAIT;
    state.throttled_ns = 0;
}
