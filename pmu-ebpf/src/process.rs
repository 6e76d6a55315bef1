//! Programs on the life of processes: fork, exec, exit.

use aya_ebpf::{
    helpers::bpf_ktime_get_ns,
    macros::{btf_tracepoint, raw_tracepoint},
    programs::{BtfTracePointContext, RawTracePointContext},
};
use pmu_common::{
    config::BY_PROCESS,
    count::{ANNOUNCED, SLOT_NONE, SLOT_OTHER, WAITS_FOR_EXEC},
    ring,
};

use crate::{
    access::{Access, Pointer, Probed, Typed},
    config::config,
    maps::{OWNERS, SLOT_OF, TASKS_BY_ADDRESS},
    owner,
    prime::{self, start},
    target, task,
};

/// `BPF_RB_NO_WAKEUP`: user space looks at its next tick.
const NO_WAKEUP: u64 = 1;

/// `trace_sched_process_fork(parent, child)`, kernel/fork.c: before the child runs.
#[btf_tracepoint(function = "sched_process_fork")]
pub(crate) fn fork(context: BtfTracePointContext) -> i32 {
    try_fork::<Typed>(context.arg(0), context.arg(1));
    0
}

/// Twin of [`fork`].
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub(crate) fn fork_raw(context: RawTracePointContext) -> i32 {
    try_fork::<Probed>(context.arg(0), context.arg(1));
    0
}

#[inline(always)]
fn try_fork<A: Access>(parent: Pointer, child: Pointer) {
    if target::child::<A>(parent, child) {
        start::<A>(child, 0);
    }
}

/// `trace_sched_prepare_exec(task, bprm)`, fs/exec.c (Linux 6.10): the old program is about to go.
#[btf_tracepoint(function = "sched_prepare_exec")]
pub(crate) fn release(context: BtfTracePointContext) -> i32 {
    try_release::<Typed>(context.arg(0));
    0
}

/// Twin of [`release`].
#[raw_tracepoint(tracepoint = "sched_prepare_exec")]
pub(crate) fn release_raw(context: RawTracePointContext) -> i32 {
    try_release::<Probed>(context.arg(0));
    0
}

/// A launched command counts from here.
#[inline(always)]
fn try_release<A: Access>(task: Pointer) {
    // SAFETY: the state is the running task's own.
    let wanted = A::state(task).is_some_and(|state| unsafe { (*state).slot } != SLOT_NONE);
    if A::CREATES_ANYWHERE && !wanted {
        // It was met before it became a target.
        let _ = prime::meet::<A>(task);
    }
    if let Some(state) = A::state(task) {
        // SAFETY: the state is the running task's own.
        if unsafe { (*state).flags } & WAITS_FOR_EXEC != 0 {
            start::<A>(task, 0);
        }
    }
}

/// `trace_sched_process_exec(task, old_pid, bprm)`, fs/exec.c: the new program is in place.
#[btf_tracepoint(function = "sched_process_exec")]
pub(crate) fn exec(context: BtfTracePointContext) -> i32 {
    let _ = try_exec::<Typed>(context.arg(0));
    0
}

/// Twin of [`exec`].
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub(crate) fn exec_raw(context: RawTracePointContext) -> i32 {
    let _ = try_exec::<Probed>(context.arg(0));
    0
}

#[inline(always)]
fn try_exec<A: Access>(task: Pointer) -> Option<()> {
    try_release::<A>(task);
    let state = A::state(task)?;
    // SAFETY: the state is the running task's own. Its new address map must be read anew.
    unsafe { (*state).flags &= !ANNOUNCED };
    if config!(hot_mask) != 0 {
        owner::tell(ring::EXEC, task::tgid::<A>(task), NO_WAKEUP);
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

/// `trace_sched_process_exit(task)`, kernel/exit.c: for every thread.
#[btf_tracepoint(function = "sched_process_exit")]
pub(crate) fn exit(context: BtfTracePointContext) -> i32 {
    let _ = try_exit::<Typed>(context.arg(0));
    0
}

/// Twin of [`exit`].
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub(crate) fn exit_raw(context: RawTracePointContext) -> i32 {
    let _ = try_exit::<Probed>(context.arg(0));
    0
}

/// The last thread ends its process. Its own last slice still comes, so the slot stays until user space frees it.
#[inline(always)]
fn try_exit<A: Access>(task: Pointer) -> Option<()> {
    if config!(by) != BY_PROCESS {
        return None;
    }
    let signal = A::pointer(task, config!(offsets.task_signal));
    if A::u32(signal, config!(offsets.signal_live)) != 0 {
        return None;
    }
    let key = task::process_key::<A>(task);
    let slot = owner::known(&key)?;
    let _ = SLOT_OF.remove(key);
    end(slot)
}

/// Marks an owner as ended.
#[inline(always)]
pub(crate) fn end(slot: u32) -> Option<()> {
    if slot == SLOT_OTHER {
        return None;
    }
    let owner = OWNERS.get_ptr_mut(slot)?;
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    // SAFETY: the lookup gave a live row, and an owner ends once.
    unsafe { (*owner).ended_ns = now_ns };
    Some(())
}

/// `trace_sched_process_free(task)`, kernel/exit.c: the task struct's memory may be used again from here on.
#[raw_tracepoint(tracepoint = "sched_process_free")]
pub(crate) fn free_raw(context: RawTracePointContext) -> i32 {
    let task: Pointer = context.arg(0);
    let _ = TASKS_BY_ADDRESS.remove(task as u64);
    0
}
