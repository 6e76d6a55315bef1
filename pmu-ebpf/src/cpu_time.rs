//! Where a CPU's time goes by the clock that the scheduler accounts tasks with (`rq.clock_task`, kernel/sched/core.c): what it gives to
//! tasks, to the idle task, and what passes between two of them, is all that this clock counts.
//!
//! A task that leaves was accounted up to its `exec_start`, and one that comes is from its own on (`update_curr`, `set_next_task` of
//! every class), so no clock has to be read.

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

/// The run queue of the CPU that `task`, which runs on it, is on; `None` where the kernel does not lead there. By address on purpose:
/// not every kernel lets a program follow these pointers by type.
#[inline(always)]
pub(crate) fn run_queue(task: Pointer) -> Option<Pointer> {
    if config!(offsets.task_cfs_rq) == ABSENT || config!(offsets.cfs_rq_rq) == ABSENT {
        return None;
    }
    let cfs_rq = Probed::pointer(task, config!(offsets.task_cfs_rq));
    Some(Probed::pointer(cfs_rq, config!(offsets.cfs_rq_rq)))
}

#[inline(always)]
fn exec_start<A: Fields>(task: Pointer) -> u64 {
    A::u64(task, config!(offsets.task_exec_start))
}

/// Counts a switch at `now_ns` from a task to another, each with its thread id; the first one was just given `done_ns`, 0 if it is not
/// known. Call with interrupts off, on the row's CPU, as the last thing: what follows is looked at by the verifier once more for each of
/// the ways through this.
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
    // Another task's end where the idle task's was due: when idle ended is not known, so its span does not count.
    counts.idle_since_ns = if next_tid == 0 { now_ns } else { 0 };
    let last_ns = counts.switched_clock_ns;
    let ended_ns = if prev_tid == 0 { last_ns } else { ended_ns };
    let began_ns = if next_tid == 0 { ended_ns } else { began_ns };
    // A task that came unseen while the CPU was idle came when it had this much to run until now.
    let idle_until_ns = if prev_tid == 0 { began_ns } else { ended_ns.wrapping_sub(done_ns) };
    if last_ns == 0 {
        // The idle task had the CPU when the row began: only CLOCK_MONOTONIC tells since when.
        counts.idle_clock_ns += now_ns.wrapping_sub(counts.switched_ns);
    } else if (was_idle || prev_tid == 0) && idle_until_ns > last_ns {
        counts.idle_clock_ns += idle_until_ns - last_ns;
    }
    if prev_tid != 0 {
        counts.between_ns += began_ns.wrapping_sub(ended_ns);
    }
    counts.switched_clock_ns = began_ns;
    counts.switched_ns = now_ns;
}

/// Writes down where the CPU's time went until now, while `task` runs on it, of whose CPU time `given_ns` was just accounted; 0 if none
/// is. Call with interrupts off, on that CPU.
#[inline(always)]
pub(crate) fn flush<A: Fields>(counts: &mut CpuCount, task: Pointer, given_ns: u64) {
    let tid = task::tid::<A>(task);
    let idle = tid == 0;
    let accounted_ns = if idle { 0 } else { exec_start::<A>(task) };
    // Another CPU that wakes a task for this one accounts it, too: what came since is not given yet.
    let sum_exec_ns = A::u64(task, config!(offsets.task_sum_exec));
    let came_ns = if given_ns == 0 { 0 } else { sum_exec_ns.wrapping_sub(given_ns) };
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    if counts.switched_ns == 0 {
        counts.switched_ns = now_ns;
        counts.switched_clock_ns = accounted_ns;
        counts.last_next = u64::from(tid);
    }
    let open_ns = now_ns.wrapping_sub(counts.switched_ns);
    counts.flushed_ns = now_ns;
    counts.flushed_owners_ns = counts.owners_ns;
    counts.flushed_idle_ns = counts.idle_clock_ns;
    counts.flushed_between_ns = counts.between_ns;
    counts.flushed_pending_ns = 0;
    if idle {
        counts.flushed_idle_ns += open_ns;
    } else {
        let since_switch_ns = accounted_ns.wrapping_sub(counts.switched_clock_ns);
        counts.flushed_pending_ns = open_ns.wrapping_sub(since_switch_ns).wrapping_add(came_ns);
    }
    let rq = run_queue(task);
    counts.flushed_excluded_ns = rq.map_or(UNKNOWN, excluded_ns);
    counts.flushed_interrupts_ns = rq.map_or(UNKNOWN, interrupts_ns);
}

/// What the kernel has left out of the time of tasks on this run queue.
#[inline(always)]
fn excluded_ns(rq: Pointer) -> u64 {
    let (clock, task_clock) = (config!(offsets.rq_clock), config!(offsets.rq_clock_task));
    if clock == ABSENT || task_clock == ABSENT {
        return UNKNOWN;
    }
    Probed::u64(rq, clock).wrapping_sub(Probed::u64(rq, task_clock))
}

/// What of that were interrupt handlers.
#[inline(always)]
fn interrupts_ns(rq: Pointer) -> u64 {
    match config!(offsets.rq_interrupts) {
        ABSENT => UNKNOWN,
        offset => Probed::u64(rq, offset),
    }
}
