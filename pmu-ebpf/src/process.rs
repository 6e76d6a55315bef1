//! Programs on the life of processes: fork, exec, exit.

use pmu_common::{
    config::{BY_PROCESS, FILTER_PROCESSES},
    count::{ANNOUNCED, SLOT_NONE, WAITS_FOR_EXEC},
    ring,
};

use crate::{
    Way,
    access::{Access, Pointer},
    config::config,
    maps::OWNERS,
    meet::{self, start},
    owner, target, task, tell, tracepoint,
};

tracepoint! {
    /// `trace_sched_process_fork(parent, child)`, kernel/fork.c: before the child runs.
    fork on "sched_process_fork", context => try_fork::<Way>(context.arg(0), context.arg(1))
}

#[inline(always)]
fn try_fork<A: Access>(parent: Pointer, child: Pointer) {
    if target::child::<A>(parent, child) {
        start::<A>(child, 0);
        if config!(hot_mask) != 0 {
            tell_fork::<A>(parent, child);
        }
    }
}

/// Tells user space whose address map a process begins with: it may be gone before its own can be read.
#[inline(always)]
fn tell_fork<A: Access>(parent: Pointer, child: Pointer) {
    let (from, to) = (task::process::<A>(parent), task::process::<A>(child));
    if from != to && task::slot::<A>(parent).is_none_or(|slot| slot != SLOT_NONE) {
        tell::fork(to, from);
    }
}

tracepoint! {
    /// `trace_sched_prepare_exec(task, bprm)`, fs/exec.c (Linux 6.10): the old program is about to go.
    release on "sched_prepare_exec", context => try_release::<Way>(context.arg(0))
}

/// A launched command counts from here.
#[inline(always)]
fn try_release<A: Access>(task: Pointer) {
    let wanted = task::slot::<A>(task).is_some_and(|slot| slot != SLOT_NONE);
    if A::CREATES_ANYWHERE && config!(filter) == FILTER_PROCESSES && !wanted {
        // It was met before it became a target. Where cgroups are the targets it may have become one by a move, and
        // what it has done since counts.
        let _ = meet::meet::<A>(task);
    }
    if let Some(state) = A::state(task) {
        // SAFETY: the state is the running task's own.
        if unsafe { (*state).flags } & WAITS_FOR_EXEC != 0 {
            start::<A>(task, 0);
        }
    }
}

tracepoint! {
    /// `trace_sched_process_exec(task, old_pid, bprm)`, fs/exec.c: the new program is in place.
    exec on "sched_process_exec", context => try_exec::<Way>(context.arg(0))
}

#[inline(always)]
fn try_exec<A: Access>(task: Pointer) -> Option<()> {
    try_release::<A>(task);
    let state = A::state(task)?;
    // SAFETY: the state is the running task's own. Its new address map must be read anew.
    unsafe { (*state).flags &= !ANNOUNCED };
    if config!(hot_mask) != 0 {
        tell::process(ring::EXEC, task::process_of::<A>(task), tell::AT_TICK);
    }
    if config!(by) != BY_PROCESS {
        return None;
    }
    let slot = owner::known(&task::process_key::<A>(task))?;
    // SAFETY: the lookup gave a live row; a process executes in one thread at a time.
    let row = unsafe { &mut *OWNERS.get_ptr_mut(slot)? };
    row.execs = row.execs.wrapping_add(1);
    owner::read_comm(task, &mut row.name);
    Some(())
}

tracepoint! {
    /// `trace_sched_process_exit(task)`, kernel/exit.c: for every thread.
    exit on "sched_process_exit", context => try_exit::<Way>(context.arg(0))
}

/// The last thread ends its process. Its own last slice still comes, so the slot stays until user space frees it.
#[inline(always)]
fn try_exit<A: Access>(task: Pointer) -> Option<()> {
    if config!(by) != BY_PROCESS || !task::is_over::<A>(task) {
        return None;
    }
    let key = task::process_key::<A>(task);
    owner::forget(&key, owner::known(&key)?);
    Some(())
}
