//! Part of a wait for a CPU that a cgroup's limit of CPU time (`cpu.max`, `cpu.cfs_quota_us`) takes. It does
//! not count as run-queue latency: no task has the CPU for it.
//!
//! Up to Linux 6.17 a limit takes a run queue off its CPU with all tasks on it (kernel/sched/fair.c,
//! `throttle_cfs_rq`). Since then it takes each task on its way back to user mode (`throttle_cfs_rq_work`),
//! and others on that run queue continue. The run queue's clock counts both.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use pmu_common::{
    config::ABSENT,
    count::{MAY_BE_THROTTLED, NO_WAIT, TaskState},
    throttling::{Throttled, of_wait, so_far},
};

use crate::{
    access::{Fields, Pointer, Probed},
    config::config,
    intrinsics::opaque,
    maps::{THROTTLED, THROTTLES},
    wait,
};

/// Handles that the task wakes up. Since Linux 6.18 a limit does not take a task that slept.
#[inline(always)]
pub(crate) fn wake<A: Fields>(task: Pointer, state: &mut TaskState) {
    if !takes_tasks() && is_known() {
        note::<A>(task, state);
    } else {
        forget(state);
    }
}

/// Handles that the task leaves its CPU although it could continue. Since Linux 6.18 it waits for a limit
/// only if the limit has taken it off its run queue.
#[inline(always)]
pub(crate) fn preempt<A: Fields>(task: Pointer, state: &mut TaskState) {
    if is_known() && (!takes_tasks() || is_taken::<A>(task)) {
        note::<A>(task, state);
    } else {
        forget(state);
    }
}

/// Clears the record of a throttled wait. Most waits for a CPU are not for a limit: their writes stay in a
/// cache line that is used anyway.
#[inline(always)]
fn forget(state: &mut TaskState) {
    if state.flags & MAY_BE_THROTTLED != 0 {
        state.flags &= !MAY_BE_THROTTLED;
    }
}

/// Returns the run queue of the task's cgroup. It reads by address where few waits are for a limit: see
/// [`Probed`].
#[inline(always)]
fn run_queue<A: Fields>(task: Pointer) -> Pointer {
    let offset = config!(offsets.task_cfs_rq);
    if takes_tasks() { Probed::pointer(task, offset) } else { A::pointer(task, offset) }
}

/// Records the time that the run queue of `task`, which could run from now on, has been throttled so far.
#[inline(always)]
fn note<A: Fields>(task: Pointer, state: &mut TaskState) {
    let rq = run_queue::<A>(task);
    if rq.is_null() {
        forget(state);
    } else {
        state.flags |= MAY_BE_THROTTLED;
        state.throttling_rq = rq as u64;
        state.throttling_ns = if is_timed() {
            timed_ns(rq as u64)
        } else if takes_tasks() {
            throttled_by(rq as u64)
        } else {
            throttled_ns::<A>(rq)
        };
    }
}

/// Handles that the task with this state gets a CPU after `wait_ns`. Call only where the wait is not computed
/// when the task leaves.
#[inline(always)]
pub(crate) fn arrive<A: Fields>(task: Pointer, state: &mut TaskState, wait_ns: u64) {
    state.throttled_ns = ended::<A>(task, state, wait_ns);
}

/// Takes the part of the accounted wait that a limit took; the wait was `wait_ns` long.
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

/// Returns whether the throttling of run queues is known.
#[inline(always)]
pub(crate) fn is_known() -> bool {
    (config!(offsets.cfs_rq_throttled) != ABSENT || is_timed()) && config!(offsets.task_cfs_rq) != ABSENT
}

/// Returns whether typed programs time the throttling (`throttle.rs`).
#[inline(always)]
fn is_timed() -> bool {
    config!(times_throttling) != 0
}

/// Returns whether the kernel takes single tasks off a throttled run queue.
#[inline(always)]
pub(crate) fn takes_tasks() -> bool {
    config!(offsets.task_throttled) != ABSENT
}

/// Returns whether the kernel has taken this task off its run queue.
#[inline(always)]
pub(crate) fn is_taken<A: Fields>(task: Pointer) -> bool {
    A::u8(task, config!(offsets.task_throttled)) != 0
}

/// Returns the time that a run queue has been throttled up to now, limits of cgroups above included
/// (`tg_throttle_down`, `tg_unthrottle_up`).
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

/// Returns the part of a completed wait that a limit took, by the run queue that the task waited on,
/// regardless of its present one.
#[inline(always)]
fn ended<A: Fields>(task: Pointer, state: &mut TaskState, wait_ns: u64) -> u64 {
    if state.flags & MAY_BE_THROTTLED == 0 {
        return 0;
    }
    state.flags &= !MAY_BE_THROTTLED;
    let waited_on = state.throttling_rq;
    if is_timed() {
        let ended_ns = timed(waited_on).map_or(0, |throttled| throttled.ended_ns);
        return of_wait(state.throttling_ns, ended_ns, wait_ns);
    }
    let ended = config!(offsets.cfs_rq_throttled);
    let by_address = || Probed::u64(waited_on as Pointer, ended);
    if takes_tasks() {
        return throttled_since(waited_on, state.throttling_ns, wait_ns);
    }
    let rq = run_queue::<A>(task);
    let ended_ns = if rq as u64 == waited_on && !rq.is_null() { A::u64(rq, ended) } else { by_address() };
    of_wait(state.throttling_ns, ended_ns, wait_ns)
}

/// Returns [`throttled_ns`] of the run queue at this address. A separate function, on numbers only: few waits
/// need it, and the verifier visits it once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn throttled_by(rq: u64) -> u64 {
    throttled_ns::<Probed>(rq as Pointer)
}

/// Returns the part of a completed wait that a limit took, on the run queue at this address. It had been
/// throttled for `since_ns` when the wait began.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn throttled_since(rq: u64, since_ns: u64, wait_ns: u64) -> u64 {
    of_wait(since_ns, Probed::u64(rq as Pointer, config!(offsets.cfs_rq_throttled)), wait_ns)
}

/// Returns the time that a run queue has been throttled since the programs were attached, up to now.
#[inline(always)]
fn timed_ns(rq: u64) -> u64 {
    // SAFETY: the helper has no preconditions.
    timed(rq)
        .map_or(0, |throttled| so_far(throttled.ended_ns, throttled.since_ns, unsafe { bpf_ktime_get_ns() }))
}

/// Returns the times that the programs recorded of a run queue, if any was throttled.
#[inline(always)]
fn timed(rq: u64) -> Option<Throttled> {
    // SAFETY: the lookup gave the live row, which is written by words.
    if unsafe { *THROTTLES.get_ptr(0)? } == 0 {
        return None;
    }
    // SAFETY: the entry is copied at once; its words are written one by one with the run queue locked.
    unsafe { THROTTLED.get(opaque(rq)) }.copied()
}
