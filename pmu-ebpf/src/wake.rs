//! Programs on `sched_wakeup` and `sched_wakeup_new`: from here on the task waits for a CPU.

use aya_ebpf::helpers::bpf_ktime_get_ns;

use crate::{
    Way,
    access::{Access, Pointer},
    tracepoint,
};

tracepoint! {
    /// `trace_sched_wakeup(task)`, kernel/sched/core.c: the task is on a run queue.
    wake on "sched_wakeup", context => try_wake::<Way>(context.arg(0))
}

tracepoint! {
    /// `trace_sched_wakeup_new(task)`, kernel/sched/core.c: the same for a new task.
    wake_new on "sched_wakeup_new", context => try_wake::<Way>(context.arg(0))
}

/// The kernel's own `sched_info.run_delay` would cost nothing, but it uses a run-queue clock that is not updated when a
/// wake-up leads straight to a switch: most waits would be 0, and on kernels without preemption up to a tick too short.
#[inline(always)]
fn try_wake<A: Access>(task: Pointer) {
    if let Some(state) = A::state(task) {
        // SAFETY: the helper has no preconditions.
        let now_ns = unsafe { bpf_ktime_get_ns() };
        // SAFETY: the state is live while its task is; a task that still runs clears this when it leaves its CPU.
        unsafe { (*state).ready_ns = now_ns };
    }
}
