//! Owner of a request, and whether it is wanted.
//!
//! A request carries the cgroup that controls its I/O: that of the task that submitted it, or, in writeback,
//! of the task that dirtied the pages. That cgroup is as fine as the `io` controller is enabled, and does not
//! count where the controller is a v1 one. So a user task that submits a request with its own I/O cgroup owns
//! it, with all data of a task. If the two differ, or a kernel thread submits it, only the cgroup that the
//! request carries is used.

use pmu_common::{
    config::{ABSENT, BY_PROCESS, FILTER_CGROUPS, FILTER_PROCESSES},
    io::block::{BY_KERNEL, BY_REQUEST, BY_TASK, process},
};

use super::maps::IO_TARGETS;
use crate::{
    access::{Fields, Pointer, Probed},
    config::config,
    identity,
};

/// Largest number of generations of processes, and levels of cgroups, that are searched for a target.
const GENERATIONS_MAX: u32 = 32;
/// Flag `PF_KTHREAD`, include/linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Owner of a request.
pub(crate) struct Whose {
    /// Basis of the owner: `pmu_common::io::block::BY_TASK` and the others.
    pub(crate) basis: u32,
    /// Process or cgroup; 0 if none is known.
    pub(crate) id: u64,
    /// Cgroup of the owner, if `id` is not 0 and cgroups matter.
    pub(crate) cgroup: Pointer,
}

/// Returns the owner of a bio, or of a request made of it, that `task` submits. A request may have no bio.
#[inline(always)]
pub(crate) fn whose<A: Fields>(bio: Pointer, task: Pointer) -> Whose {
    let carried = carried::<A>(bio);
    if A::u32(task, config!(offsets.task_flags)) & KERNEL_THREAD == 0 {
        let set = A::pointer(task, config!(offsets.task_cgroups));
        if carried.is_null() || carried == A::pointer(set, config!(offsets.css_set_io)) {
            let cgroup = A::pointer(set, config!(offsets.css_set_dfl_cgrp));
            let id = match config!(by) {
                BY_PROCESS => process_key::<A>(task),
                _ => identity::cgroup_id::<A>(cgroup),
            };
            return Whose { basis: BY_TASK, id, cgroup };
        }
    }
    // The first cgroup is that of tasks without a separate one: the kernel, and all tasks without the
    // controller.
    if !carried.is_null() && !A::pointer(carried, config!(offsets.blkcg_parent)).is_null() {
        let cgroup = A::pointer(carried, config!(offsets.blkcg_cgroup));
        if identity::is_v2::<A>(cgroup) {
            return Whose { basis: BY_REQUEST, id: identity::cgroup_id::<A>(cgroup), cgroup };
        }
    }
    Whose { basis: BY_KERNEL, id: 0, cgroup: core::ptr::null() }
}

/// Returns the identity of the task's process.
#[inline(always)]
fn process_key<A: Fields>(task: Pointer) -> u64 {
    let born_ns = A::u64(leader_of::<A>(task), config!(offsets.task_start_boottime));
    process(identity::process_led::<A>(task, || leader_of::<A>(task)), born_ns)
}

/// Returns the first thread of the task's process. Every request leads there, so by type where types are
/// known: see [`Probed`].
#[inline(always)]
fn leader_of<A: Fields>(task: Pointer) -> Pointer {
    A::pointer(task, config!(offsets.task_group_leader))
}

/// Returns the I/O cgroup (`struct blkcg`, which begins with its state in the cgroup) that a bio carries;
/// null if it carries none.
#[inline(always)]
fn carried<A: Fields>(bio: Pointer) -> Pointer {
    if config!(offsets.bio_group) == ABSENT || bio.is_null() {
        return core::ptr::null();
    }
    let group = A::pointer(bio, config!(offsets.bio_group));
    if group.is_null() { group } else { A::pointer(group, config!(offsets.group_blkcg)) }
}

/// Returns whether a process or cgroup is a target itself. Called once per owner, when it is first seen.
#[inline(always)]
pub(crate) fn is_named(id: u64) -> bool {
    // SAFETY: nothing of the value is kept.
    unsafe { IO_TARGETS.get(id) }.is_some()
}

/// Returns whether the owner of a request is wanted. Where processes are the targets, a request with only a
/// known cgroup may be theirs.
#[inline(always)]
pub(crate) fn wants(whose: &Whose, task: Pointer) -> bool {
    match (config!(filter), whose.basis) {
        (FILTER_PROCESSES, BY_TASK) => is_below(task, |task| {
            let parent = Probed::pointer(task, config!(offsets.task_real_parent));
            (u64::from(identity::process::<Probed>(task)), parent)
        }),
        (FILTER_CGROUPS, BY_TASK | BY_REQUEST) => is_below(whose.cgroup, |cgroup| {
            let parent = Probed::pointer(cgroup, config!(offsets.cgroup_parent));
            (identity::cgroup_id::<Probed>(cgroup), parent)
        }),
        _ => true,
    }
}

/// Returns whether it is a target, or below one. By address: typed loads do not lead up to a parent's struct.
#[inline(always)]
fn is_below(start: Pointer, look: impl Fn(Pointer) -> (u64, Pointer)) -> bool {
    let mut at = start;
    for _ in 0..GENERATIONS_MAX {
        let (id, parent) = look(at);
        if is_named(id) {
            return true;
        }
        // The first process is its own ancestor, and the first cgroup has no parent.
        if config!(descend) == 0 || parent.is_null() || id <= 1 {
            return false;
        }
        at = parent;
    }
    false
}
