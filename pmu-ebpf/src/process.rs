//! Programs on the life of processes: fork, exec, exit.

use pmu_common::{
    config::{BY_CGROUP, BY_PROCESS, BY_THREAD, FILTER_PROCESSES, KEEPS_SLOT, OFF_CPU_STACKS, OWNER_IS_EXE},
    count::{ANNOUNCED, SLOT_NONE, SLOT_OTHER, SLOT_UNRESOLVED, TaskState, WAITS_FOR_EXEC},
    owner::OwnerKey,
};

use crate::{
    Way,
    access::{Access, Pointer},
    account::resolve_for_samples,
    changed,
    config::config,
    cpu::this_cpu,
    divide, identity,
    intrinsics::add,
    lock,
    maps::{CPUS, OWNERS},
    owner, ring_event, target, task, tracepoint,
};

/// Returns whether user space reads address maps.
#[inline(always)]
fn wants_names() -> bool {
    config!(hot_mask) != 0 || config!(off_cpu) == OFF_CPU_STACKS
}

tracepoint! {
    /// `trace_sched_process_fork(parent, child)`, kernel/fork.c: before the child runs.
    fork on "sched_process_fork", context => try_fork::<Way>(context.arg(0), context.arg(1))
}

#[inline(always)]
fn try_fork<A: Access>(parent: Pointer, child: Pointer) {
    if target::child::<A>(parent, child) {
        task::init::<A>(child, 0);
        if wants_names() {
            tell_fork::<A>(parent, child);
        }
    }
}

/// Reports the process from which a new one copies its address map: the new one may be gone before its own
/// map can be read.
#[inline(always)]
fn tell_fork<A: Access>(parent: Pointer, child: Pointer) {
    let (from, to) = (identity::process::<A>(parent), identity::process::<A>(child));
    if from != to && task::slot::<A>(parent).is_none_or(|slot| slot != SLOT_NONE) {
        ring_event::fork(to, from);
    }
}

tracepoint! {
    /// `trace_sched_prepare_exec(task, bprm)`, fs/exec.c (Linux 6.10): the old program is about to go.
    release on "sched_prepare_exec", context => try_release::<Way>(context.arg(0))
}

/// Starts counting of a launched command.
#[inline(always)]
fn try_release<A: Access>(task: Pointer) {
    if divide::by_program() {
        divide::resolve_before::<A>(task);
    }
    let wanted = task::slot::<A>(task).is_some_and(|slot| slot != SLOT_NONE);
    if A::CREATES_ANYWHERE && config!(filter) == FILTER_PROCESSES && !wanted {
        // It was seen before it became a target. Where cgroups are the targets it may have become one by a
        // move, and its counts since then are wanted.
        let _ = target::init_task::<A>(task);
    }
    if let Some(state) = A::state(task) {
        // SAFETY: the state is the running task's own.
        if unsafe { (*state).flags } & WAITS_FOR_EXEC != 0 {
            task::init::<A>(task, 0);
        }
    }
}

tracepoint! {
    /// `trace_sched_process_exec(task, old_pid, bprm)`, fs/exec.c: the new program is in place.
    exec on "sched_process_exec", context => try_exec::<Way>(context.arg(0))
}

/// Handles an exec. A command that keeps its CPU from here on is sampled before its first switch.
#[inline(always)]
fn try_exec<A: Access>(task: Pointer) {
    let _ = renew::<A>(task);
    if let Some(state) = A::state(task)
        && let Some(counts) = CPUS.get_ptr_mut(this_cpu())
    {
        // SAFETY: the state is the running task's own, and the lookup gave a live row.
        resolve_for_samples::<A>(task, unsafe { &mut *state }, unsafe { &*counts });
    }
}

/// Handles that the process has another program now: another name, another address map.
#[inline(always)]
fn renew<A: Access>(task: Pointer) -> Option<()> {
    try_release::<A>(task);
    let state = A::state(task)?;
    // SAFETY: the state is the running task's own. Its new address map must be read again.
    unsafe { (*state).flags &= !ANNOUNCED };
    if wants_names() {
        ring_event::exec(task::process_of::<A>(task));
    }
    if config!(by) == BY_THREAD {
        return rename_thread::<A>(task, state);
    }
    if divide::by_program() {
        return divide::divide::<A>(task, |name| owner::read_name(task, name));
    }
    // By name: its new name came before ([`rename`]).
    if config!(by) != BY_PROCESS || divide::by_name() {
        return None;
    }
    let slot = owner::known(&task::process_key::<A>(task))?;
    // SAFETY: the lookup gave a live row; a process executes in one thread at a time.
    let row = unsafe { &mut *OWNERS.get_ptr_mut(slot)? };
    row.execs = row.execs.wrapping_add(1);
    owner::read_name(task, &mut row.name);
    changed::mark(slot, this_cpu());
    Some(())
}

/// Handles a thread that executes a program: it takes over the id and the start time of its process's first
/// thread, which has exited.
#[inline(always)]
fn rename_thread<A: Access>(task: Pointer, state: *mut TaskState) -> Option<()> {
    // SAFETY: the state is the running task's own.
    let state = unsafe { &mut *state };
    if state.slot >= SLOT_NONE || state.slot == SLOT_OTHER {
        return None;
    }
    // SAFETY: the lookup gave a live row, of the task's own.
    let row = unsafe { &mut *OWNERS.get_ptr_mut(state.slot)? };
    let (before, now) = (row.key, task::thread_key::<A>(task));
    if before.id == now.id && before.born_ns == now.born_ns {
        row.execs = row.execs.wrapping_add(1);
        owner::read_comm(task, &mut row.name);
        changed::mark(state.slot, this_cpu());
    } else {
        owner::forget(&before, state.slot);
        state.slot = SLOT_UNRESOLVED;
    }
    Some(())
}

tracepoint! {
    /// `trace_task_rename(task, comm)`, fs/exec.c: a thread is about to change its name, or another task
    /// changes it.
    rename on "task_rename", context => try_rename::<Way>(context.arg(0), context.arg(1))
}

/// Renames a thread, or a process by its first thread. Where owners are names, a process of one thread is
/// another owner from then on.
#[inline(always)]
fn try_rename<A: Access>(task: Pointer, comm: Pointer) -> Option<()> {
    if divide::by_name() && divide::is_alone::<A>(task) {
        return divide::divide::<A>(task, |name| {
            let _ = owner::read_string(comm, name);
        });
    }
    let slot = if config!(by) == BY_THREAD {
        // SAFETY: the state is live while its task is, and only its slot is read.
        unsafe { (*A::state(task)?).slot }
    } else if config!(by) == BY_PROCESS && config!(names) != OWNER_IS_EXE && identity::leader(task) == task {
        owner::known(&task::process_key::<A>(task))?
    } else {
        return None;
    };
    if slot >= SLOT_NONE || slot == SLOT_OTHER {
        return None;
    }
    // SAFETY: the lookup gave a live row; of two tasks that rename a thread at once, either may win.
    let row = unsafe { &mut *OWNERS.get_ptr_mut(slot)? };
    owner::read_string(comm, &mut row.name)?;
    row.execs = row.execs.wrapping_add(1);
    changed::mark(slot, this_cpu());
    Some(())
}

tracepoint! {
    /// `trace_sched_process_exit(task)`, kernel/exit.c: for every thread.
    exit on "sched_process_exit", context => try_exit::<Way>(context.arg(0))
}

/// Ends a process at the exit of its last thread. Its own last slice still comes, so the slot stays until
/// user space frees it.
#[inline(always)]
fn try_exit<A: Access>(task: Pointer) -> Option<()> {
    if config!(by) == BY_THREAD {
        return end_thread::<A>(task);
    }
    if !task::is_over(task) {
        return None;
    }
    if config!(by) == BY_CGROUP {
        // A cgroup has its slot from the first switch of any of its tasks.
        return count_exit(owner::known(&OwnerKey { id: task::cgroup_and_id(task).1, born_ns: 0 })?);
    }
    let key = task::process_key::<A>(task);
    let slot = owner::known(&key)?;
    if config!(names) != KEEPS_SLOT {
        // An owner also ends where its process continues as another.
        let _ = count_exit(slot);
    }
    owner::forget(&key, slot);
    Some(())
}

/// Ends a thread. Its last slice still comes, so it gets its slot now if it has none: later it would never
/// end.
#[inline(always)]
fn end_thread<A: Access>(task: Pointer) -> Option<()> {
    let state = A::state(task)?;
    // SAFETY: the state is the running task's own.
    let state = unsafe { &mut *state };
    if state.slot == SLOT_UNRESOLVED {
        let (cgroup, id) =
            if task::cgroups_matter() { task::cgroup_and_id(task) } else { (core::ptr::null(), 0) };
        state.slot = owner::resolve::<A>(task, cgroup, id);
    }
    if state.slot < SLOT_NONE {
        if task::is_over(task) {
            let _ = count_exit(state.slot);
        }
        owner::forget(&task::thread_key::<A>(task), state.slot);
    }
    Some(())
}

/// Counts that a process of the owner in this slot exited.
#[inline(always)]
pub(crate) fn count_exit(slot: u32) -> Option<()> {
    // SAFETY: the lookup gave a live row, and this CPU's.
    if unsafe { (*CPUS.get_ptr(this_cpu())?).counted } == 0 {
        return None;
    }
    // SAFETY: the lookup gave a live row, and every CPU adds to it.
    add(unsafe { &raw mut (*lock::rare(slot)?).exits }, 1);
    changed::mark(slot, this_cpu());
    Some(())
}
