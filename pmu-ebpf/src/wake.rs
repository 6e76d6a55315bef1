//! Programs on `sched_wakeup` and `sched_wakeup_new`: from here on the task waits for a CPU.

use aya_ebpf::{
    helpers::bpf_ktime_get_ns,
    macros::{btf_tracepoint, raw_tracepoint},
    programs::{BtfTracePointContext, RawTracePointContext},
};

use crate::access::{Access, Pointer, Probed, Typed};

/// `trace_sched_wakeup(task)`, kernel/sched/core.c: the task is on a run queue.
#[btf_tracepoint(function = "sched_wakeup")]
pub(crate) fn wake(context: BtfTracePointContext) -> i32 {
    try_wake::<Typed>(context.arg(0));
    0
}

/// Twin of [`wake`].
#[raw_tracepoint(tracepoint = "sched_wakeup")]
pub(crate) fn wake_raw(context: RawTracePointContext) -> i32 {
    try_wake::<Probed>(context.arg(0));
    0
}

/// `trace_sched_wakeup_new(task)`, kernel/sched/core.c: the same for a new task.
#[btf_tracepoint(function = "sched_wakeup_new")]
pub(crate) fn wake_new(context: BtfTracePointContext) -> i32 {
    try_wake::<Typed>(context.arg(0));
    0
}

/// Twin of [`wake_new`].
#[raw_tracepoint(tracepoint = "sched_wakeup_new")]
pub(crate) fn wake_new_raw(context: RawTracePointContext) -> i32 {
    try_wake::<Probed>(context.arg(0));
    0
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
