//! What of a wait for a CPU a cgroup's limit of CPU time (`cpu.max`, `cpu.cfs_quota_us`) takes. It does not count as run-queue
//! latency: no task has the CPU for it.
//!
//! Up to Linux 6.17 a limit takes a run queue off its CPU with all tasks on it (kernel/sched/fair.c, `throttle_cfs_rq`). Since then it takes
//! each task on its way back to user mode (`throttle_cfs_rq_work`), and others on that run queue go on. The run queue's clock has both.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use pmu_common::{
    config::ABSENT,
    count::{NO_WAIT, TaskState},
    throttling::{Throttled, of_wait, so_far},
};

use crate::{
    access::{Fields, Pointer, Probed},
    config::config,
    intrinsics::opaque,
    maps::{THROTTLED, THROTTLES},
    wait,
};

/// Notes how long the run queue of `task`, which could run from now on, has been throttled so far.
#[inline(always)]
pub(crate) fn begin<A: Fields>(task: Pointer, state: &mut TaskState) {
    state.throttling_rq = 0;
    // Since Linux 6.18 only a task that leaves its CPU because of the limit waits for it.
    if !is_known() || takes_tasks() && !is_taken::<A>(task) {
        return;
    }
    let rq = A::pointer(task, config!(offsets.task_cfs_rq));
    if !rq.is_null() {
        state.throttling_rq = rq as u64;
        state.throttling_ns = if is_timed() { timed_ns(rq as u64) } else { throttled_ns::<A>(rq) };
    }
}

/// The task with this state gets a CPU after `wait_ns`. Call where the wait is not found out by leaving only.
#[inline(always)]
pub(crate) fn arrive<A: Fields>(task: Pointer, state: &mut TaskState, wait_ns: u64) {
    state.throttled_ns = ended::<A>(task, state, wait_ns);
}

/// Takes what a limit took of the wait that is now accounted, which was `wait_ns` long.
#[inline(always)]
pub(crate) fn take<A: Fields>(task: Pointer, state: &mut TaskState, wait_ns: u64) -> u64 {
    if wait_ns == NO_WAIT {
        return 0;
    }
    if wait::is_told_by_leaving() {
        return ended::<A>(task, state, wait_ns);
    }
    let throttled_ns = state.throttled_ns;
    state.throttled_ns = 0;
    if throttled_ns < wait_ns { throttled_ns } else { wait_ns }
}

/// Is it known when run queues are throttled?
#[inline(always)]
pub(crate) fn is_known() -> bool {
    (config!(offsets.cfs_rq_throttled) != ABSENT || is_timed()) && config!(offsets.task_cfs_rq) != ABSENT
}

/// Do programs of types time it (`throttle.rs`)?
#[inline(always)]
fn is_timed() -> bool {
    config!(times_throttling) != 0
}

/// Does the kernel take single tasks off a run queue that is throttled?
#[inline(always)]
pub(crate) fn takes_tasks() -> bool {
    config!(offsets.task_throttled) != ABSENT
}

/// Has the kernel taken this task off its run queue?
#[inline(always)]
pub(crate) fn is_taken<A: Fields>(task: Pointer) -> bool {
    A::u8(task, config!(offsets.task_throttled)) != 0
}

/// How long a run queue has been throttled, up to now: limits of cgroups above included (`tg_throttle_down`, `tg_unthrottle_up`).
#[inline(always)]
fn throttled_ns<A: Fields>(rq: Pointer) -> u64 {
    let ended_ns = A::u64(rq, config!(offsets.cfs_rq_throttled));
    let since = config!(offsets.cfs_rq_throttled_since);
    let is_whole = since != ABSENT
        && config!(offsets.rq_throttled_clock) != ABSENT
        && config!(offsets.cfs_rq_rq) != ABSENT;
    if !is_whole || A::u32(rq, config!(offsets.cfs_rq_throttle_count)) == 0 {
        return ended_ns;
    }
    let clock_of = Probed::pointer(rq, config!(offsets.cfs_rq_rq));
    let now_ns = Probed::u64(clock_of, config!(offsets.rq_throttled_clock));
    so_far(ended_ns, Probed::u64(rq, since), now_ns)
}

/// What of a wait that is over a limit took, by the run queue that the task waited on, whichever it is on now.
#[inline(always)]
fn ended<A: Fields>(task: Pointer, state: &mut TaskState, wait_ns: u64) -> u64 {
    let waited_on = state.throttling_rq;
    if waited_on == 0 {
        return 0;
    }
    state.throttling_rq = 0;
    if is_timed() {
        let ended_ns = timed(waited_on).map_or(0, |throttled| throttled.ended_ns);
        return of_wait(state.throttling_ns, ended_ns, wait_ns);
    }
    let rq = A::pointer(task, config!(offsets.task_cfs_rq));
    let ended_ns = if rq as u64 == waited_on && !rq.is_null() {
        A::u64(rq, config!(offsets.cfs_rq_throttled))
    } else {
        Probed::u64(waited_on as Pointer, config!(offsets.cfs_rq_throttled))
    };
    of_wait(state.throttling_ns, ended_ns, wait_ns)
}

/// How long a run queue has been throttled since the programs were attached, up to now.
#[inline(always)]
fn timed_ns(rq: u64) -> u64 {
    // SAFETY: the helper has no preconditions.
    timed(rq)
        .map_or(0, |throttled| so_far(throttled.ended_ns, throttled.since_ns, unsafe { bpf_ktime_get_ns() }))
}

/// What the programs have seen of a run queue, if any was throttled.
#[inline(always)]
fn timed(rq: u64) -> Option<Throttled> {
    // SAFETY: the lookup gave the live row, which is written by words.
    if unsafe { *THROTTLES.get_ptr(0)? } == 0 {
        return None;
    }
    // SAFETY: the entry is copied at once; its words are written one by one with the run queue locked.
    unsafe { THROTTLED.get(opaque(rq)) }.copied()
}
