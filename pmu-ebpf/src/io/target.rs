//! Is this process or cgroup wanted? Asked once an owner, when it is first seen.

use pmu_common::{
    config::{FILTER_CGROUPS, FILTER_PROCESSES},
    io::block::{BY_REQUEST, BY_TASK},
};

use super::{
    config::config,
    maps::IO_TARGETS,
    owner::{self, Whose},
};
use crate::access::{Fields as _, Pointer, Probed};

/// Generations of processes, and levels of cgroups, that are searched for a target.
const GENERATIONS_MAX: u32 = 32;

/// Is it a target itself?
#[inline(always)]
pub(crate) fn is_named(id: u64) -> bool {
    // SAFETY: nothing of the value is kept.
    unsafe { IO_TARGETS.get(id) }.is_some()
}

/// Is the owner of a request wanted? Where processes are the targets, one that only its cgroup is known of may be
/// theirs.
#[inline(always)]
pub(crate) fn wants(whose: &Whose, task: Pointer) -> bool {
    match (config!(filter), whose.basis) {
        (FILTER_PROCESSES, BY_TASK) => is_below(task, |task| {
            let parent = Probed::pointer(task, config!(offsets.task_real_parent));
            (u64::from(owner::id_of::<Probed>(task)), parent)
        }),
        (FILTER_CGROUPS, BY_TASK | BY_REQUEST) => is_below(whose.cgroup, |cgroup| {
            let parent = Probed::pointer(cgroup, config!(offsets.cgroup_parent));
            (owner::cgroup_id::<Probed>(cgroup), parent)
        }),
        _ => true,
    }
}

/// Is it a target, or below one? By address: typed loads do not lead up to a parent's struct.
#[inline(always)]
fn is_below(start: Pointer, look: impl Fn(Pointer) -> (u64, Pointer)) -> bool {
    let mut at = start;
    for _ in 0..GENERATIONS_MAX {
        let (id, parent) = look(at);
        if is_named(id) {
            return true;
        }
        // The first process is its own ancestor, and above the first cgroup is none.
        if config!(descend) == 0 || parent.is_null() || id <= 1 {
            return false;
        }
        at = parent;
    }
    false
}
