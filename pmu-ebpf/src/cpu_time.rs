//! Division of a CPU's time by the clock that the scheduler accounts tasks with (`rq.clock_task`,
//! kernel/sched/core.c). This clock counts the time given to tasks and to the idle task, and the time between
//! two of them.
//!
//! A task that leaves was accounted up to its `exec_start`, and one that arrives is accounted from its own on
//! (`update_curr`, `set_next_task` of every class), so no clock has to be read.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use pmu_common::{
    config::ABSENT,
    cpu::{CpuCount, UNKNOWN},
};

use crate::{
    access::{Fields, Pointer, Probed},
    config::config,
    task,
};

/// Returns the run queue of the CPU that `task` runs on, or `None` where the kernel's fields do not lead
/// there. It reads by address on purpose: not every kernel lets a program follow these pointers by type.
#[inline(always)]
pub(crate) fn run_queue(task: Pointer) -> Option<Pointer> {
    if config!(offsets.task_cfs_rq) == ABSENT || config!(offsets.cfs_rq_rq) == ABSENT {
        return None;
    }
    let cfs_rq = Probed::pointer(task, config!(offsets.task_cfs_rq));
    Some(Probed::pointer(cfs_rq, config!(offsets.cfs_rq_rq)))
}

/// Returns the time up to which a task's CPU time is accounted, by the run queue's task clock.
#[inline(always)]
pub(crate) fn exec_start<A: Fields>(task: Pointer) -> u64 {
    A::u64(task, config!(offsets.task_exec_start))
}

/// Counts a switch at `now_ns` from one task to another, each with its thread id. The first one was just
/// given `done_ns`, 0 if it is not known. Call with interrupts off, on the row's CPU, as the last step: the
/// verifier visits the following code once more for each path through this.
#[inline(always)]
pub(crate) fn switch<A: Fields>(
    counts: &mut CpuCount,
    (prev, prev_tid): (Pointer, u32),
    (next, next_tid): (Pointer, u32),
    done_ns: u64,
    now_ns: u64,
) {
    let (ended_ns, began_ns) = (exec_start::<A>(prev), exec_start::<A>(next));
    let (prev_tid, next_tid) = (u64::from(prev_tid), u64::from(next_tid));
    let missed = counts.last_next != prev_tid;
    let was_idle = counts.last_next == 0;
    counts.switches += 1;
    counts.switches_missing += u64::from(missed);
    counts.last_next = next_tid;
    if prev_tid == 0 && counts.idle_since_ns != 0 {
        counts.idle_ns += now_ns.wrapping_sub(counts.idle_since_ns);
    }
    // Another task's end where the idle task's was due: the end of the idle span is not known, so it does not
    // count.
    counts.idle_since_ns = if next_tid == 0 { now_ns } else { 0 };
    let last_ns = counts.switched_clock_ns;
    let ended_ns = if prev_tid == 0 { last_ns } else { ended_ns };
    let began_ns = if next_tid == 0 { ended_ns } else { began_ns };
    // A task that arrived unseen while the CPU was idle arrived this much run time before now.
    let idle_until_ns = if prev_tid == 0 { began_ns } else { ended_ns.wrapping_sub(done_ns) };
    if last_ns == 0 {
        // The idle task had the CPU when the row began. Only CLOCK_MONOTONIC gives the start, and only now
        // the two clocks are read at one moment. A task that arrived unseen had the end of the span.
        let came_ns = if prev_tid == 0 { 0 } else { done_ns + began_ns.wrapping_sub(ended_ns) };
        counts.idle_clock_ns += now_ns.wrapping_sub(counts.switched_ns).wrapping_sub(came_ns);
        counts.pending_base_ns = now_ns.wrapping_sub(began_ns).wrapping_add(counts.pending_base_ns);
    } else if (was_idle || prev_tid == 0) && idle_until_ns > last_ns {
        counts.idle_clock_ns += idle_until_ns - last_ns;
    }
    if prev_tid != 0 {
        counts.between_ns += began_ns.wrapping_sub(ended_ns);
    }
    counts.switched_clock_ns = began_ns;
    counts.switched_ns = now_ns;
}

/// Records the division of the CPU's time until now, while `task` runs on it. `given_ns` of its CPU time was
/// just accounted; 0 if none was. Call on that CPU, where no other task can run during this.
///
/// The run queue's clocks stand where they were last updated, up to a tick ago, or as long ago as the CPU
/// became idle. Their distance to CLOCK_MONOTONIC contains the distance of the two clocks' origins, so
/// `flushed_pending_ns` counts from the row's start.
#[inline(always)]
pub(crate) fn flush<A: Fields>(counts: &mut CpuCount, task: Pointer, given_ns: u64) {
    let tid = task::tid::<A>(task);
    let idle = tid == 0;
    let (accounted_ns, came_ns) = if idle { (0, 0) } else { accounted::<A>(task, given_ns) };
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let rq = run_queue(task);
    let (clock_ns, task_clock_ns) = rq.map_or((UNKNOWN, UNKNOWN), clocks);
    let known = clock_ns != UNKNOWN;
    let excluded_ns = clock_ns.wrapping_sub(task_clock_ns);
    let begins = counts.switched_ns == 0;
    if begins {
        counts.switched_ns = now_ns;
        counts.switched_clock_ns = accounted_ns;
        counts.last_next = u64::from(tid);
    }
    let open_ns = now_ns.wrapping_sub(counts.switched_ns);
    let behind_ns = now_ns.wrapping_sub(clock_ns);
    counts.flushed_ns = now_ns;
    counts.flushed_owners_ns = counts.owners_ns.wrapping_add(counts.moved_ns);
    counts.flushed_idle_ns = counts.idle_clock_ns;
    counts.flushed_between_ns = counts.between_ns;
    if idle {
        counts.flushed_idle_ns += open_ns;
    }
    let pending_ns = if !known {
        let since_switch_ns = accounted_ns.wrapping_sub(counts.switched_clock_ns);
        if idle { 0 } else { open_ns.wrapping_sub(since_switch_ns).wrapping_add(came_ns) }
    } else if !idle {
        behind_ns.wrapping_add(task_clock_ns.wrapping_sub(accounted_ns)).wrapping_add(came_ns)
    } else if counts.switched_clock_ns == 0 {
        // Time excluded since the start, which `switch` takes for the distance of the clocks, is in the open
        // span, too.
        0_u64.wrapping_sub(excluded_ns)
    } else {
        behind_ns.wrapping_sub(open_ns).wrapping_add(task_clock_ns.wrapping_sub(counts.switched_clock_ns))
    };
    if begins && known {
        counts.pending_base_ns = pending_ns;
    }
    counts.flushed_pending_ns =
        if known { pending_ns.wrapping_sub(counts.pending_base_ns) } else { pending_ns };
    counts.flushed_excluded_ns = if known { excluded_ns } else { UNKNOWN };
    counts.flushed_interrupts_ns = rq.map_or(UNKNOWN, interrupts_ns);
}

/// Returns the time by the task clock up to which the kernel accounted a running task, and the part of it
/// that is not in `given_ns`. Another CPU that wakes a task for this one accounts it, too, and so does a
/// tick.
#[inline(always)]
fn accounted<A: Fields>(task: Pointer, given_ns: u64) -> (u64, u64) {
    let read = || (exec_start::<A>(task), A::u64(task, config!(offsets.task_sum_exec)));
    let (mut until_ns, mut sum_exec_ns) = read();
    if exec_start::<A>(task) != until_ns {
        (until_ns, sum_exec_ns) = read();
    }
    (until_ns, if given_ns == 0 { 0 } else { sum_exec_ns.wrapping_sub(given_ns) })
}

/// Returns a run queue's clock and its task clock; [`UNKNOWN`] for both where they cannot be read.
#[inline(always)]
fn clocks(rq: Pointer) -> (u64, u64) {
    let (clock, task_clock) = (config!(offsets.rq_clock), config!(offsets.rq_clock_task));
    if clock == ABSENT || task_clock == ABSENT {
        return (UNKNOWN, UNKNOWN);
    }
    (Probed::u64(rq, clock), Probed::u64(rq, task_clock))
}

/// Returns the time that the kernel excluded from the time of tasks because interrupt handlers ran.
#[inline(always)]
fn interrupts_ns(rq: Pointer) -> u64 {
    match config!(offsets.rq_interrupts) {
        ABSENT => UNKNOWN,
        offset => Probed::u64(rq, offset),
    }
}
