//! Targets: whether a task or cgroup is wanted.

use pmu_common::{
    config::{FILTER_CGROUPS, FILTER_NONE, FILTER_PROCESSES, FILTER_THREADS, TARGET_FROM_EXEC},
    count::{SLOT_NONE, WAITS_FOR_EXEC},
    loss,
};

use crate::{
    access::{Access, Fields as _, Pointer, Probed},
    config::config,
    cpu::lose,
    identity,
    maps::TARGETS,
    task,
};

/// Largest number of generations of processes that are searched for a target.
const GENERATIONS_MAX: u32 = 64;

/// Returns the value of an id in the targets.
#[inline(always)]
fn target(id: u64) -> Option<u32> {
    // SAFETY: the value is copied at once.
    unsafe { TARGETS.get(id) }.copied()
}

/// Returns whether a task that existed before counting started is wanted. `Some` holds the target's flags.
#[inline(always)]
pub(crate) fn existing_task<A: Access>(task: Pointer) -> Option<u32> {
    match config!(filter) {
        FILTER_NONE | FILTER_CGROUPS => Some(0),
        FILTER_THREADS => target(u64::from(task::thread::<A>(task))),
        // The walk begins at the leader: its address was read, so it is a number to the verifier, which
        // `task` may not be.
        FILTER_PROCESSES => match target_above(identity::leader(task) as u64) {
            NO_TARGET => None,
            flags => Some(flags as u32),
        },
        _ => None,
    }
}

/// Result of [`target_above`]: no target was found.
const NO_TARGET: u64 = u64::MAX;
/// Result of [`flags_of`]: not a target, but an ancestor may be one.
const ABOVE: u64 = NO_TARGET - 1;

/// Returns the flags of the target if the process with this leader is one, 0 if an ancestor is one,
/// [`NO_TARGET`] if none is. A separate function, on numbers only, like [`flags_of`]: the verifier visits
/// each once, whatever the path to it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn target_above(leader: u64) -> u64 {
    let mut ancestor = leader;
    for generation in 0..GENERATIONS_MAX {
        match flags_of(ancestor) {
            ABOVE => {}
            NO_TARGET => break,
            // Only the target itself waits to execute another program.
            flags => return if generation == 0 { flags } else { 0 },
        }
        ancestor = Probed::u64(ancestor as Pointer, config!(offsets.task_real_parent));
    }
    NO_TARGET
}

/// Returns the flags of the target if the process of the task at this address is one, else [`ABOVE`] or
/// [`NO_TARGET`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn flags_of(task: u64) -> u64 {
    let task = task as Pointer;
    match target(u64::from(identity::process::<Probed>(task))) {
        Some(flags) => u64::from(flags),
        None if config!(inherit) == 0 || identity::tgid::<Probed>(task) <= 1 => NO_TARGET,
        None => ABOVE,
    }
}

/// Creates the state of a task that the iterator over tasks missed, and caches whether it is wanted. Returns
/// that.
#[inline(always)]
pub(crate) fn init_task<A: Access>(task: Pointer) -> bool {
    let wanted = existing_task::<A>(task);
    let waits = wanted.is_some_and(|flags| flags & TARGET_FROM_EXEC != 0);
    task::init::<A>(task, if waits { WAITS_FOR_EXEC } else { 0 });
    if let (None, Some(state)) = (wanted, A::state(task)) {
        // SAFETY: the state is live while its task is.
        unsafe { (*state).slot = SLOT_NONE };
    }
    wanted.is_some()
}

/// Returns whether a child of a wanted task is wanted too. Threads of a wanted process always are.
#[inline(always)]
pub(crate) fn child<A: Access>(parent: Pointer, child: Pointer) -> bool {
    match config!(filter) {
        FILTER_NONE | FILTER_CGROUPS => true,
        FILTER_PROCESSES => {
            let thread = identity::tgid::<A>(parent) == identity::tgid::<A>(child);
            let wanted = task::slot::<A>(parent).is_some_and(|slot| slot != SLOT_NONE);
            wanted && (thread || config!(inherit) != 0)
        }
        _ => false,
    }
}

/// Returns whether the cgroup with this id is wanted. User space adds the existing ones, [`adopt`] the new
/// ones.
#[inline(always)]
pub(crate) fn cgroup(id: u64) -> bool {
    config!(filter) != FILTER_CGROUPS || target(id).is_some()
}

/// Makes a new cgroup a target if its parent is one, or if it has the path of a former one: a container or
/// unit that starts again. Call before any task can be in it. Returns whether it is wanted.
#[inline(always)]
pub(crate) fn adopt(new: Pointer, id: u64, path: Pointer) -> bool {
    if config!(filter) != FILTER_CGROUPS {
        return true;
    }
    if !has_target_above(new) && target(identity::path_key(path)).is_none() {
        return false;
    }
    if TARGETS.insert(id, 0, 0).is_err() {
        lose(loss::MAP_FULL);
    }
    true
}

/// Returns whether the parent of a new cgroup is a target together with the cgroups below it.
///
/// By address on purpose: the parent is reached through a struct of another type, which typed loads do not
/// allow.
#[inline(always)]
fn has_target_above(new: Pointer) -> bool {
    let parent = Probed::pointer(new, config!(offsets.cgroup_parent));
    config!(descend) != 0 && !parent.is_null() && target(identity::cgroup_id::<Probed>(parent)).is_some()
}

/// Removes a cgroup that is gone. Where processes or threads are the targets, its id may be one of theirs.
#[inline(always)]
pub(crate) fn forget(id: u64) {
    if config!(filter) == FILTER_CGROUPS {
        let _ = TARGETS.remove(id);
    }
}
