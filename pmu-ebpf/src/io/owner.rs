//! Whose request is it?
//!
//! A request carries the cgroup that its I/O is controlled in: of the task that submitted it, or, in writeback, of the
//! one that dirtied the pages. That cgroup is as fine as the `io` controller is enabled, and none that counts where the
//! controller is a v1 one. So a user task that submits a request of its own I/O cgroup owns it, with all that is known
//! of a task; if the two differ, or a kernel thread submits it, only what the request carries is believed.

use pmu_common::{
    config::{ABSENT, BY_PROCESS},
    io::block::{BY_KERNEL, BY_REQUEST, BY_TASK, process},
};

use super::config::config;
use crate::{
    access::{Fields, Pointer},
    pid_namespace::id_in,
};

/// `PF_KTHREAD`, include/linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// An owner.
pub(crate) struct Whose {
    /// How it is known: `pmu_common::io::block::BY_TASK` and the others.
    pub(crate) basis: u32,
    /// Process or cgroup; 0 if none is known.
    pub(crate) id: u64,
    /// Its cgroup, if `id` is not 0 and cgroups matter.
    pub(crate) cgroup: Pointer,
}

/// Owner of a bio, or of a request made of it, that `task` submits. A request may have none.
#[inline(always)]
pub(crate) fn whose<A: Fields>(bio: Pointer, task: Pointer) -> Whose {
    let carried = carried::<A>(bio);
    if A::u32(task, config!(offsets.task_flags)) & KERNEL_THREAD == 0 {
        let set = A::pointer(task, config!(offsets.task_cgroups));
        if carried.is_null() || carried == A::pointer(set, config!(offsets.css_set_io)) {
            let cgroup = A::pointer(set, config!(offsets.css_set_dfl_cgrp));
            let id = match config!(by) {
                BY_PROCESS => process_id::<A>(task),
                _ => cgroup_id::<A>(cgroup),
            };
            return Whose { basis: BY_TASK, id, cgroup };
        }
    }
    // The first cgroup is that of whoever has none of his own: the kernel, and everyone without the controller.
    if !carried.is_null() && !A::pointer(carried, config!(offsets.blkcg_parent)).is_null() {
        let cgroup = A::pointer(carried, config!(offsets.blkcg_cgroup));
        if is_v2::<A>(cgroup) {
            return Whose { basis: BY_REQUEST, id: cgroup_id::<A>(cgroup), cgroup };
        }
    }
    Whose { basis: BY_KERNEL, id: 0, cgroup: core::ptr::null() }
}

/// Identity of the task's process.
#[inline(always)]
fn process_id<A: Fields>(task: Pointer) -> u64 {
    let leader = A::pointer(task, config!(offsets.task_group_leader));
    let born_ns = A::u64(leader, config!(offsets.task_start_boottime));
    process(id_of::<A>(task), born_ns)
}

/// Process id of a task as user space knows it.
#[inline(always)]
pub(crate) fn id_of<A: Fields>(task: Pointer) -> u32 {
    let id = A::u32(task, config!(offsets.task_tgid));
    if id == 0 || config!(pids.inode) == 0 {
        return id;
    }
    id_in(&config!(pids), A::pointer(task, config!(offsets.task_group_leader)), id)
}

/// The I/O cgroup (`struct blkcg`, which begins with its state in the cgroup) that a bio carries; null if it carries
/// none.
#[inline(always)]
fn carried<A: Fields>(bio: Pointer) -> Pointer {
    if config!(offsets.bio_group) == ABSENT || bio.is_null() {
        return core::ptr::null();
    }
    let group = A::pointer(bio, config!(offsets.bio_group));
    if group.is_null() { group } else { A::pointer(group, config!(offsets.group_blkcg)) }
}

/// A cgroup's id.
#[inline(always)]
pub(crate) fn cgroup_id<A: Fields>(cgroup: Pointer) -> u64 {
    let node = A::pointer(cgroup, config!(offsets.cgroup_kn));
    A::u64(node, config!(offsets.kernfs_node_id))
}

#[inline(always)]
fn is_v2<A: Fields>(cgroup: Pointer) -> bool {
    let root = A::pointer(cgroup, config!(offsets.cgroup_root));
    A::u32(root, config!(offsets.cgroup_root_hierarchy)) == 0
}
