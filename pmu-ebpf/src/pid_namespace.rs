//! Ids of tasks in the collector's PID namespace, which its user knows them by (include/linux/pid.h).

use pmu_common::config::{OUTSIDE, PidNamespace};

use crate::access::{Fields as _, Pointer, Probed};

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
