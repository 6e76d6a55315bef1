//! Ids of processes, threads and cgroups in user space's view. Ids of tasks are those in the collector's PID
//! namespace (include/linux/pid.h).

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

/// Returns the process id in the first PID namespace.
#[inline(always)]
pub(crate) fn tgid<A: Fields>(task: Pointer) -> u32 {
    A::u32(task, config!(offsets.task_tgid))
}

/// Returns whether reported ids differ from those of the first PID namespace.
#[inline(always)]
pub(crate) fn translates() -> bool {
    config!(pids.inode) != 0
}

/// Returns the process id in user space's PID namespace; 0 for the idle tasks. The task must not have exited.
#[inline(always)]
pub(crate) fn process<A: Fields>(task: Pointer) -> u32 {
    process_led::<A>(task, || leader(task))
}

/// Returns the same, where `leader` returns the first thread of the task's process.
#[inline(always)]
pub(crate) fn process_led<A: Fields>(task: Pointer, leader: impl FnOnce() -> Pointer) -> u32 {
    match tgid::<A>(task) {
        tgid if tgid == 0 || !translates() => tgid,
        tgid => id_in(&config!(pids), leader(), tgid),
    }
}

/// Returns the first thread of the task's process. By address: see [`Probed`].
#[inline(always)]
pub(crate) fn leader(task: Pointer) -> Pointer {
    Probed::pointer(task, config!(offsets.task_group_leader))
}

/// Returns the id of a cgroup.
#[inline(always)]
pub(crate) fn cgroup_id<A: Fields>(cgroup: Pointer) -> u64 {
    let node = A::pointer(cgroup, config!(offsets.cgroup_kn));
    A::u64(node, config!(offsets.kernfs_node_id))
}

/// Returns whether a cgroup is in the v2 hierarchy.
#[inline(always)]
pub(crate) fn is_v2<A: Fields>(cgroup: Pointer) -> bool {
    let root = A::pointer(cgroup, config!(offsets.cgroup_root));
    A::u32(root, config!(offsets.cgroup_root_hierarchy)) == 0
}

/// Bytes of a path that are read at a time: the size that fits a program's stack.
const PART: usize = 128;

/// Returns the key of a cgroup's path among targets, as far as the kernel reports paths.
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

/// Returns the id of `task` in the namespace `pids`: of a thread, or, for a thread group's leader, of the
/// process. `outside` is its id in the first namespace, which is returned with a mark if it has none here.
///
/// By address: the namespaces lie in an array with a length that no type gives.
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
