//! What the kernel knows of a task.

use pmu_common::{
    config::{BY_CGROUP, FILTER_CGROUPS},
    count::Reading,
    owner::OwnerKey,
};

use crate::{
    access::{Access, Fields, Pointer, Probed},
    config::config,
    pid_namespace::id_in,
};

/// Thread id in the first PID namespace; 0 for the idle tasks.
#[inline(always)]
pub(crate) fn tid<A: Fields>(task: Pointer) -> u32 {
    A::u32(task, config!(offsets.task_pid))
}

/// Process id in the first PID namespace.
#[inline(always)]
pub(crate) fn tgid<A: Fields>(task: Pointer) -> u32 {
    A::u32(task, config!(offsets.task_tgid))
}

/// Are ids told that are not those of the first PID namespace?
#[inline(always)]
fn translates() -> bool {
    config!(pids.inode) != 0
}

/// Thread id as user space knows it; 0 for the idle tasks.
#[inline(always)]
pub(crate) fn thread<A: Fields>(task: Pointer) -> u32 {
    match tid::<A>(task) {
        tid if tid == 0 || !translates() => tid,
        tid => id_in(&config!(pids), task, tid),
    }
}

/// Process id as user space knows it; 0 for the idle tasks. Of a task that has not exited.
#[inline(always)]
pub(crate) fn process<A: Fields>(task: Pointer) -> u32 {
    match tgid::<A>(task) {
        tgid if tgid == 0 || !translates() => tgid,
        tgid => id_in(&config!(pids), leader(task), tgid),
    }
}

/// The same of a task that may have exited, if it has been met.
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

/// The task's own counters.
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

/// Does it matter which cgroup a task is in?
#[inline(always)]
pub(crate) fn cgroups_matter() -> bool {
    config!(by) == BY_CGROUP || config!(filter) == FILTER_CGROUPS
}

/// The task's cgroup in the v2 hierarchy.
#[inline(always)]
pub(crate) fn cgroup<A: Fields>(task: Pointer) -> Pointer {
    let set = A::pointer(task, config!(offsets.task_cgroups));
    A::pointer(set, config!(offsets.css_set_dfl_cgrp))
}

/// A cgroup's id.
#[inline(always)]
pub(crate) fn cgroup_id<A: Fields>(cgroup: Pointer) -> u64 {
    let node = A::pointer(cgroup, config!(offsets.cgroup_kn));
    A::u64(node, config!(offsets.kernfs_node_id))
}

/// The task's cgroup in the v2 hierarchy and its id. By address: see [`Probed`].
#[inline(always)]
pub(crate) fn cgroup_and_id(task: Pointer) -> (Pointer, u64) {
    let cgroup = cgroup::<Probed>(task);
    (cgroup, cgroup_id::<Probed>(cgroup))
}

/// Identity of the task's process.
#[inline(always)]
pub(crate) fn process_key<A: Access>(task: Pointer) -> OwnerKey {
    OwnerKey {
        id: u64::from(process_of::<A>(task)),
        born_ns: Probed::u64(leader(task), config!(offsets.task_start_boottime)),
    }
}

/// Identity of the task as a thread. Its id stays when the task has exited, when others no longer know it.
#[inline(always)]
pub(crate) fn thread_key<A: Access>(task: Pointer) -> OwnerKey {
    OwnerKey { id: u64::from(tid::<A>(task)), born_ns: A::u64(task, config!(offsets.task_start_boottime)) }
}

/// The first thread of the task's process. By address: see [`Probed`].
#[inline(always)]
pub(crate) fn leader(task: Pointer) -> Pointer {
    Probed::pointer(task, config!(offsets.task_group_leader))
}

/// Has the last thread of the task's process begun to exit? By address: see [`Probed`].
#[inline(always)]
pub(crate) fn is_over(task: Pointer) -> bool {
    let signal = Probed::pointer(task, config!(offsets.task_signal));
    Probed::u32(signal, config!(offsets.signal_live)) == 0
}

/// The slot that the task was last counted in, [`SLOT_NONE`] if it is not wanted; `None` if nobody has met it.
///
/// [`SLOT_NONE`]: pmu_common::count::SLOT_NONE
#[inline(always)]
pub(crate) fn slot<A: Access>(task: Pointer) -> Option<u32> {
    // SAFETY: the state is live while its task is.
    A::state(task).map(|state| unsafe { (*state).slot })
}
