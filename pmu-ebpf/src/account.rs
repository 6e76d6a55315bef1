//! Moves what a task did since it was last seen to its owner's row.

use core::ptr;

use aya_ebpf::helpers::bpf_ktime_get_ns;
use pmu_common::{
    config::{FILTER_CGROUPS, FILTER_NONE},
    count::{
        NO_WAIT, Reading, SLOT_NONE, SLOT_UNRESOLVED, TaskState, WAITS_FOR_EXEC, cpu_time_after_move_ns,
    },
    cpu::CpuCount,
    histogram::RUNQUEUE,
    loss,
    owner::OwnerKey,
};

use crate::{
    access::{Access, Pointer},
    changed,
    config::config,
    cpu::{lose, row},
    culprit, identity,
    intrinsics::masked,
    maps::{COUNTS, LATENCIES, MOVES},
    off_cpu, owner, target, task, throttling, wait,
};

/// What became of a task that was to be accounted. Every field has a value, also where there is no state: what an `Option` leaves open the
/// compiler may spill, which the verifier takes for a read of a register that was never written.
pub(crate) struct Accounted {
    /// Its state; null if nothing is known of it.
    pub(crate) task: *mut TaskState,
    /// Did it lose its CPU although it could have gone on?
    pub(crate) preempted: bool,
    /// Its owner's slot, [`SLOT_NONE`] if it is not wanted or nothing is counted here.
    pub(crate) slot: u32,
    /// CPU time that it has had since it was last accounted; 0 if that is not known.
    pub(crate) cpu_time_ns: u64,
    /// CPU time that it has had since it began, 0 likewise.
    pub(crate) sum_exec_ns: u64,
}

impl Accounted {
    const NOTHING: Self =
        Self { task: ptr::null_mut(), preempted: false, slot: SLOT_NONE, cpu_time_ns: 0, sum_exec_ns: 0 };
}

/// Accounts `task`, with this thread id, which is about to leave `cpu` or still runs on it. Call with interrupts off, on that CPU.
#[inline(always)]
pub(crate) fn account<A: Access>((task, tid): (Pointer, u32), cpu: u32, counts: &mut CpuCount) -> Accounted {
    let Some(pointer) = A::state(task) else {
        begin::<A>(task, counts);
        return Accounted::NOTHING;
    };
    // SAFETY: a task's state is written only where the task runs, and this is there.
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
        settle::<A>(task, state, (cpu, counts), &mut done);
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

/// A task of which there is no state: what it did until now is not known to be ours.
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

/// Is a task where it would be counted? Only a cgroup says more than the task itself.
#[inline(always)]
fn is_in_target(task: Pointer) -> bool {
    config!(filter) != FILTER_CGROUPS || target::cgroup(task::cgroup_and_id(task).1)
}

/// Makes `state` name the owner of what was done; time from before a move to another cgroup goes to the old one.
#[inline(always)]
fn settle<A: Access>(
    task: Pointer,
    state: &mut TaskState,
    (cpu, counts): (u32, &mut CpuCount),
    done: &mut Reading,
) {
    if !task::cgroups_matter() {
        if state.slot == SLOT_UNRESOLVED {
            state.slot = owner::resolve::<A>(task, ptr::null(), 0);
        }
        return;
    }
    let cgroup = task::cgroup::<A>(task);
    let id = identity::cgroup_id::<A>(cgroup);
    // What is no target may have become one.
    let asks = config!(follows) != 0 && state.slot == SLOT_NONE && state.asked != counts.counted;
    if id == state.cgroup && state.slot != SLOT_UNRESOLVED && !asks {
        return;
    }
    state.asked = counts.counted;
    let (old_id, old_slot) = (state.cgroup, state.slot);
    state.cgroup = id;
    state.slot = owner::resolve::<A>(task, cgroup, id);
    if id == old_id {
        return;
    }
    let before = before_move::<A>(task, done);
    done.cpu_time_ns -= before.cpu_time_ns;
    let old_slot = match old_slot {
        SLOT_UNRESOLVED => owner::known(&OwnerKey { id: old_id, born_ns: 0 }).unwrap_or(SLOT_NONE),
        slot => slot,
    };
    if old_slot < SLOT_NONE {
        let _ = add(old_slot, (cpu, counts), &before, NO_WAIT);
    }
}

/// Gives a task that is about to run its owner's slot where samples cannot do so themselves: in an NMI before Linux 5.11. One that has
/// moved since it was last accounted is left to [`settle`].
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

/// What of `done` came before the task's last move: CPU time only; the rest cannot be told apart and goes to the new
/// cgroup.
#[inline(always)]
fn before_move<A: Access>(task: Pointer, done: &Reading) -> Reading {
    // SAFETY: the value is copied at once.
    let Some(moved_ns) = (unsafe { MOVES.get(identity::tgid::<A>(task)) }).copied() else {
        lose(loss::MOVE_UNTIMED);
        return Reading::ZERO;
    };
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let after_ns = cpu_time_after_move_ns(done.cpu_time_ns, moved_ns, now_ns);
    Reading { cpu_time_ns: done.cpu_time_ns - after_ns, ..Reading::ZERO }
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
        // SAFETY: `masked` kept the index below their number, so this is inside a live row that only this CPU writes.
        let bucket = unsafe { &mut *bucket };
        *bucket = bucket.wrapping_add(1);
    }
    changed::mark(slot, cpu);
    Some(())
}
