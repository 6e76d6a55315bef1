//! Accounting of tasks: adds the counts of a task since it was last seen to its owner's row.

use core::ptr;

use pmu_common::{
    config::{FILTER_CGROUPS, FILTER_NONE},
    count::{NO_WAIT, Reading, SLOT_NONE, SLOT_UNRESOLVED, TaskState, WAITS_FOR_EXEC},
    cpu::CpuCount,
    histogram::RUNQUEUE,
    loss,
};

use crate::{
    access::{Access, Pointer},
    changed,
    config::config,
    cpu::{lose, row},
    culprit, identity,
    intrinsics::masked,
    maps::{COUNTS, LATENCIES},
    moves::{self, Former},
    off_cpu, owner, target, task, throttling, wait,
};

/// Result of accounting a task. Every field has a value, also where there is no state. The compiler may spill
/// the undefined part of an `Option`, which the verifier takes for a read of a register that was never
/// written.
pub(crate) struct Accounted {
    /// State of the task; null if there is none.
    pub(crate) task: *mut TaskState,
    /// Whether it lost its CPU although it could have continued.
    pub(crate) preempted: bool,
    /// Slot of its owner; [`SLOT_NONE`] if it is not wanted or nothing is counted here.
    pub(crate) slot: u32,
    /// CPU time since it was last accounted; 0 if that is not known.
    pub(crate) cpu_time_ns: u64,
    /// CPU time since it began; 0 likewise.
    pub(crate) sum_exec_ns: u64,
}

impl Accounted {
    const NOTHING: Self =
        Self { task: ptr::null_mut(), preempted: false, slot: SLOT_NONE, cpu_time_ns: 0, sum_exec_ns: 0 };
}

/// Accounts `task`, with this thread id, up to the time that `until_ns` returns (CLOCK_MONOTONIC). The task
/// is about to leave `cpu` or still runs on it. Call with interrupts off, on that CPU.
#[inline(always)]
pub(crate) fn account<A: Access>(
    (task, tid): (Pointer, u32),
    cpu: u32,
    counts: &mut CpuCount,
    until_ns: impl FnOnce(&CpuCount) -> u64,
) -> Accounted {
    let Some(pointer) = A::state(task) else {
        begin::<A>(task, counts);
        return Accounted::NOTHING;
    };
    // SAFETY: a task's state is written only where the task runs, which is here.
    let state = unsafe { &mut *pointer };
    if state.flags & WAITS_FOR_EXEC != 0 {
        wait::forget(state);
        return Accounted::NOTHING;
    }
    let now = task::reading::<A>(task);
    let mut done = now.since(&state.last);
    let waited = off_cpu::take(state);
    state.last = now;
    let mut accounted = Accounted {
        task: pointer,
        preempted: done.preempted(),
        slot: SLOT_NONE,
        cpu_time_ns: done.cpu_time_ns,
        sum_exec_ns: now.cpu_time_ns,
    };
    if counts.counted != 0 {
        settle::<A>((task, tid), state, counts, &mut done, until_ns);
        accounted.slot = state.slot;
        let waited_ns = wait::take(tid, state, cpu, counts);
        let throttled_ns = throttling::take::<A>(task, state, waited_ns);
        let wait_ns = if waited_ns == NO_WAIT { NO_WAIT } else { waited_ns.wrapping_sub(throttled_ns) };
        if state.slot != SLOT_NONE {
            let _ = add(state.slot, (cpu, counts), &done, wait_ns);
            if wait_ns != NO_WAIT {
                culprit::charge(cpu, state, wait_ns);
            }
            if let Some(waited) = waited {
                let _ = off_cpu::add(state.slot, cpu, &waited, wait_ns, throttled_ns);
            }
        }
    } else {
        wait::forget(state);
    }
    accounted
}

/// Begins a task without state: its counts until now cannot be attributed.
#[inline(always)]
fn begin<A: Access>(task: Pointer, counts: &CpuCount) {
    let wanted = if A::CREATES_ANYWHERE {
        target::init_task::<A>(task)
    } else {
        matches!(config!(filter), FILTER_NONE | FILTER_CGROUPS)
    };
    if wanted && counts.counted != 0 && is_in_target(task) {
        lose(loss::TASK_UNKNOWN);
    }
}

/// Returns whether a task is where it would be counted. Only a cgroup decides more than the task itself.
#[inline(always)]
fn is_in_target(task: Pointer) -> bool {
    config!(filter) != FILTER_CGROUPS || target::cgroup(task::cgroup_and_id(task).1)
}

/// Sets the owner in `state`. Time before moves to other cgroups goes to those that the task was in.
#[inline(always)]
fn settle<A: Access>(
    (task, tid): (Pointer, u32),
    state: &mut TaskState,
    counts: &CpuCount,
    done: &mut Reading,
    until_ns: impl FnOnce(&CpuCount) -> u64,
) {
    if !task::cgroups_matter() {
        if state.slot == SLOT_UNRESOLVED {
            state.slot = owner::resolve::<A>(task, ptr::null(), 0);
        }
        return;
    }
    let id = identity::cgroup_id::<A>(task::cgroup::<A>(task));
    // A task that was not a target may have become one.
    let asks = config!(follows) != 0 && state.slot == SLOT_NONE && state.asked != counts.counted;
    let former = Former { cgroup: state.cgroup, slot: state.slot };
    if id != state.cgroup || state.slot == SLOT_UNRESOLVED || asks {
        let (cgroup, id) = task::cgroup_and_id(task);
        state.asked = counts.counted;
        state.cgroup = id;
        state.slot = owner::resolve::<A>(task, cgroup, id);
    }
    if moves::are_within(counts) {
        moves::take_off::<A>((task, tid), state, former, until_ns(counts), &mut done.cpu_time_ns);
    }
}

/// Sets the owner's slot of a task that is about to run where samples cannot do so themselves: in an NMI
/// before Linux 5.11. A task that has moved since it was last accounted is left to [`settle`].
#[inline(always)]
pub(crate) fn resolve_for_samples<A: Access>(task: Pointer, state: &mut TaskState, counts: &CpuCount) {
    let waits = state.flags & WAITS_FOR_EXEC != 0;
    if config!(sample_inserts) != 0 || counts.counted == 0 || state.slot != SLOT_UNRESOLVED || waits {
        return;
    }
    let (cgroup, id) =
        if task::cgroups_matter() { task::cgroup_and_id(task) } else { (ptr::null(), state.cgroup) };
    if id == state.cgroup {
        state.slot = owner::resolve::<A>(task, cgroup, id);
    }
}

#[inline(always)]
fn add(slot: u32, (cpu, counts): (u32, &mut CpuCount), done: &Reading, wait_ns: u64) -> Option<()> {
    let index = row(slot, cpu);
    // SAFETY: the lookup gave a live row, and only this CPU writes it, with interrupts off.
    let count = unsafe { &mut *COUNTS.get_ptr_mut(index)? };
    count.add(done);
    counts.owners_ns = counts.owners_ns.wrapping_add(done.cpu_time_ns);
    if wait_ns != NO_WAIT {
        let bucket = masked(count.add_wait(wait_ns), RUNQUEUE.buckets);
        let buckets = LATENCIES.get_ptr_mut(index)?.cast::<u32>();
        let bucket = buckets.wrapping_add(bucket);
        // SAFETY: `masked` kept the index below their number, so this is inside a live row that only this CPU
        // writes.
        let bucket = unsafe { &mut *bucket };
        *bucket = bucket.wrapping_add(1);
    }
    changed::mark(slot, cpu);
    Some(())
}
