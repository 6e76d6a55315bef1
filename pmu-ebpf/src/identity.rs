//! Ids of processes, threads and cgroups as user space knows them: of tasks, those in the collector's PID namespace
//! (include/linux/pid.h).

use aya_ebpf::helpers::bpf_probe_read_kernel_str_bytes;
use pmu_common::{
    config::{OUTSIDE, PidNamespace},
    ring::PATH_BYTES,
    target::PathKey,
};

use crate::{
    access::{Fields, Pointer, Probed},
    config::config,
};

/// Process id in the first PID namespace.
#[inline(always)]
pub(crate) fn tgid<A: Fields>(task: Pointer) -> u32 {
    A::u32(task, config!(offsets.task_tgid))
}

/// Are ids told that are not those of the first PID namespace?
#[inline(always)]
pub(crate) fn translates() -> bool {
    config!(pids.inode) != 0
}

/// Process id as user space knows it; 0 for the idle tasks. Of a task that has not exited.
#[inline(always)]
pub(crate) fn process<A: Fields>(task: Pointer) -> u32 {
    process_led::<A>(task, || leader(task))
}

/// The same, where `leader` gives the first thread of the task's process.
#[inline(always)]
pub(crate) fn process_led<A: Fields>(task: Pointer, leader: impl FnOnce() -> Pointer) -> u32 {
    match tgid::<A>(task) {
        tgid if tgid == 0 || !translates() => tgid,
        tgid => id_in(&config!(pids), leader(), tgid),
    }
}

/// The first thread of the task's process. By address: see [`Probed`].
#[inline(always)]
pub(crate) fn leader(task: Pointer) -> Pointer {
    Probed::pointer(task, config!(offsets.task_group_leader))
}

/// A cgroup's id.
#[inline(always)]
pub(crate) fn cgroup_id<A: Fields>(cgroup: Pointer) -> u64 {
    let node = A::pointer(cgroup, config!(offsets.cgroup_kn));
    A::u64(node, config!(offsets.kernfs_node_id))
}

/// Is it a cgroup of the v2 hierarchy?
#[inline(always)]
pub(crate) fn is_v2<A: Fields>(cgroup: Pointer) -> bool {
    let root = A::pointer(cgroup, config!(offsets.cgroup_root));
    A::u32(root, config!(offsets.cgroup_root_hierarchy)) == 0
}

/// Bytes of a path that are read at a time: what a program's stack has room for.
const PART: usize = 128;

/// Key of a cgroup's path among targets, as far as the kernel tells paths.
#[inline(always)]
pub(crate) fn path_key(path: Pointer) -> u64 {
    let mut key = PathKey::EMPTY;
    let mut at = path.cast::<u8>();
    for _ in 0..PATH_BYTES / (PART - 1) + 1 {
        let mut part = [0; PART];
        // SAFETY: the helper checks the address, and never writes more than there is room for.
        let read = unsafe { bpf_probe_read_kernel_str_bytes(at, &mut part) }.map_or(0, <[u8]>::len);
        for (index, &byte) in part.iter().enumerate() {
            if index >= read {
                break;
            }
            key = key.with(byte);
        }
        if read < PART - 1 {
            break;
        }
        at = at.wrapping_add(PART - 1);
    }
    key.key()
}

/// Id of `task` in the namespace `pids`: of a thread, or, of a thread group's leader, of the process. `outside` is its id in
/// the first one, which marks it if it has none here.
///
/// By address: the namespaces lie in an array whose length no type knows.
#[inline(always)]
pub(crate) fn id_in(pids: &PidNamespace, task: Pointer, outside: u32) -> u32 {
    let pid = Probed::pointer(task, pids.task_pid);
    if Probed::u32(pid, pids.pid_level) < pids.level {
        return outside | OUTSIDE;
    }
    let namespace = Probed::pointer(pid, pids.pid_namespace);
    if Probed::u32(namespace, pids.namespace_inode) != pids.inode {
        return outside | OUTSIDE;
    }
    Probed::u32(pid, pids.pid_number)
}
