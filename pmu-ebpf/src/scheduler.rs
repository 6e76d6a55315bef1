//! Programs on the scheduler. On `sched_switch`: accounts the task that leaves the CPU, and records the time
//! that the other task waited for it. On `sched_wakeup` and `sched_wakeup_new`: from then on the task waits
//! for a CPU.

use core::{ffi::c_void, ptr};

use aya_ebpf::{EbpfContext as _, helpers::bpf_ktime_get_ns};
use pmu_common::{
    count::{MOVED, SLOT_NONE, TaskState},
    cpu::CpuCount,
};

use crate::{
    Way,
    access::{Access, Pointer},
    account::{account, resolve_for_samples},
    counter,
    cpu::this_cpu,
    cpu_time, culprit, lock,
    maps::CPUS,
    off_cpu, off_cpu_stack, task, throttling, tracepoint, wait,
};

tracepoint! {
    /// `trace_sched_switch(preempt, prev, next, prev_state)`, kernel/sched/core.c.
    switch on "sched_switch", context => try_switch::<Way>(context.as_ptr(), context.arg(1), context.arg(2))
}

#[inline(always)]
fn try_switch<A: Access>(context: *mut c_void, prev: Pointer, next: Pointer) -> Option<()> {
    let cpu = this_cpu();
    // SAFETY: the lookup gave a live row, and only this CPU writes it, with interrupts off.
    let counts = unsafe { &mut *CPUS.get_ptr_mut(cpu)? };
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let (prev_tid, next_tid) = (task::tid::<A>(prev), task::tid::<A>(next));
    let arrives = next_tid != 0 && !wait::is_told_by_leaving();
    let arriving = if arrives { arrive::<A>(next, cpu, counts, now_ns) } else { ptr::null_mut() };
    let (leaving, done_ns) = if prev_tid != 0 {
        leave::<A>(context, (prev, prev_tid), cpu, counts, now_ns)
    } else {
        (SLOT_NONE, 0)
    };
    let _ = culprit::switch(cpu, prev_tid == 0, leaving, now_ns);
    if counter::are_read() && counts.counted != 0 {
        counter::switch::<A>(cpu, leaving, next, arriving, now_ns);
    }
    cpu_time::switch::<A>(counts, (prev, prev_tid), (next, next_tid), done_ns, now_ns);
    Some(())
}

/// Handles that the task gets the CPU: its wait is over, and is accounted when it leaves. Returns its state;
/// null if there is none. Not called where [`wait`] computes the wait when the task leaves.
#[inline(always)]
fn arrive<A: Access>(next: Pointer, cpu: u32, counts: &CpuCount, now_ns: u64) -> *mut TaskState {
    let Some(pointer) = A::state(next) else { return ptr::null_mut() };
    // SAFETY: the state is live while its task is, and its task is about to run here.
    let state = unsafe { &mut *pointer };
    off_cpu::arrive(state, now_ns);
    off_cpu_stack::arrive::<A>(next, state);
    if state.ready_ns != 0 {
        state.wait_ns = now_ns.wrapping_sub(state.ready_ns);
        throttling::arrive::<A>(next, state, state.wait_ns);
        if state.ready_cpu != cpu {
            state.ready_cpu = MOVED;
        }
        state.ready_ns = 0;
    }
    resolve_for_samples::<A>(next, state, counts);
    pointer
}

/// Handles that the task leaves the CPU: a preempted one waits from now on, a blocked one may wait for a
/// lock. Returns its owner's slot, and the CPU time it was just given.
#[inline(always)]
fn leave<A: Access>(
    context: *mut c_void,
    (prev, prev_tid): (Pointer, u32),
    cpu: u32,
    counts: &mut CpuCount,
    now_ns: u64,
) -> (u32, u64) {
    let accounted = account::<A>((prev, prev_tid), cpu, counts, |_| now_ns);
    if accounted.task.is_null() {
        return (SLOT_NONE, 0);
    }
    // SAFETY: as in `arrive`.
    let state = unsafe { &mut *accounted.task };
    state.ready_ns = if accounted.preempted { now_ns } else { 0 };
    state.ready_cpu = cpu;
    if accounted.preempted {
        throttling::preempt::<A>(prev, state);
    }
    off_cpu::leave::<A>(prev, state, counts, now_ns);
    lock::leave::<A>(prev, state, accounted.slot, counts, now_ns);
    off_cpu_stack::leave::<A>(context, prev, state, accounted.slot, cpu);
    (accounted.slot, accounted.cpu_time_ns)
}

tracepoint! {
    /// `trace_sched_wakeup(task)`, kernel/sched/core.c: a task is on a run queue.
    wake on "sched_wakeup", context => try_wake::<Way>(context.arg(0))
}

tracepoint! {
    /// `trace_sched_wakeup_new(task)`, kernel/sched/core.c: a new task is on a run queue.
    wake_new on "sched_wakeup_new", context => try_wake::<Way>(context.arg(0))
}

/// Handles a wake-up. The kernel's own `sched_info.run_delay` would cost nothing, but its run-queue clock is
/// not updated when a wake-up leads straight to a switch. Most waits would be 0, and on kernels without
/// preemption up to a tick too short.
#[inline(always)]
fn try_wake<A: Access>(task: Pointer) {
    if wait::is_told_by_leaving() && wait::is_on_cpu::<A>(task) {
        // The task was about to wait and need not. Its previous wait is not accounted yet.
        return;
    }
    if let Some(state) = A::state(task) {
        // SAFETY: the helper has no preconditions.
        let now_ns = unsafe { bpf_ktime_get_ns() };
        // SAFETY: the state is live while its task is; a task that still runs clears this when it leaves its
        // CPU.
        let state = unsafe { &mut *state };
        off_cpu_stack::wake::<A>(state);
        lock::wake(state, now_ns);
        state.ready_ns = now_ns;
        state.ready_cpu = culprit::queue_of::<A>(task);
        throttling::wake::<A>(task, state);
    }
}
