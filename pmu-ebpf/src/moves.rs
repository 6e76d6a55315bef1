//! Attribution of a running task's CPU time to the cgroups that it was in. The kernel reports a move at its
//! time (`cgroup_move`), but accounts a task's CPU time only at ticks and switches. So moves are kept for
//! each process, and an accounted span is divided by the moves in it. This holds for CPU time only: other
//! counts cannot be divided, and go to the cgroup of the task when it is accounted.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use pmu_common::{
    config::BY_CGROUP,
    count::{SLOT_NONE, SLOT_UNRESOLVED, TaskState, WAITS_FOR_EXEC},
    cpu::CpuCount,
    loss,
    moves::{MOVES_KEPT, Moves, Ran, Walk, accounted_until_ns, walk},
    owner::OwnerKey,
};

use crate::{
    access::{Access, Pointer},
    changed,
    config::config,
    cpu::{lose, row, this_cpu},
    cpu_time, identity,
    intrinsics::masked,
    maps::{COUNTS, CPUS, MOVES},
    owner, task,
};

/// Time when any process was last moved (CLOCK_MONOTONIC). Written by `cgroup_move`. If that was before a
/// task got its CPU, there is nothing to divide. Reading it takes no lookup.
static mut LAST_NS: u64 = 0;

/// Initial moves of a process. Not on the stack.
static NONE: Moves = Moves::ZERO;

/// Bit in a key of [`MOVES`]: a thread that was moved alone, not a process. Ids have 22 bits at most
/// (`PID_MAX_LIMIT`).
const ALONE: u32 = 1 << 31;

/// Returns whether any process has been moved since the task that has this row's CPU got it.
#[inline(always)]
pub(crate) fn are_within(counts: &CpuCount) -> bool {
    let last_ns = &raw const LAST_NS;
    // SAFETY: an aligned word that lives as long as the program.
    unsafe { last_ns.read_volatile() > counts.switched_ns }
}

/// Keeps a move to the cgroup with this slot. `together`: all threads of the task's process were moved, not
/// the task alone. Call where the kernel allows one move at a time.
#[inline(always)]
#[expect(clippy::needless_borrows_for_generic_args, reason = "a copy would be on the stack")]
pub(crate) fn keep<A: Access>(task: Pointer, together: u64, slot: u32) {
    let key = if together & 0xff != 0 { identity::tgid::<A>(task) } else { task::tid::<A>(task) | ALONE };
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    if MOVES.get_ptr_mut(key).is_none() && MOVES.insert(key, &NONE, 0).is_err() {
        lose(loss::MAP_FULL);
    }
    if let Some(moves) = MOVES.get_ptr_mut(key) {
        // SAFETY: the lookup gave a live row.
        let made = unsafe { (*moves).made };
        let (at_ns, to) = place(moves, made);
        // SAFETY: `place` stays inside the row.
        unsafe { *at_ns = now_ns };
        // SAFETY: as above.
        unsafe { *to = slot };
        changed::ordered();
        // SAFETY: as above.
        unsafe { (*moves).made = made.wrapping_add(1) };
    }
    changed::ordered();
    let last_ns = &raw mut LAST_NS;
    // SAFETY: as in `are_within`, with one writer at a time.
    unsafe { last_ns.write_volatile(now_ns) };
}

/// Returns the places of the time and slot of the move with this number.
#[inline(always)]
fn place(moves: *mut Moves, number: u64) -> (*mut u64, *mut u32) {
    let index = masked(number as u32, MOVES_KEPT);
    let at_ns = moves.wrapping_byte_add(core::mem::offset_of!(Moves, at_ns)).cast::<u64>();
    let slots = moves.wrapping_byte_add(core::mem::offset_of!(Moves, slots)).cast::<u32>();
    (at_ns.wrapping_add(index), slots.wrapping_add(index))
}

/// Owner of a task when it was last accounted.
#[derive(Clone, Copy)]
pub(crate) struct Former {
    pub(crate) cgroup: u64,
    pub(crate) slot: u32,
}

/// Charges the part of `done_ns` that the task ran in other cgroups to their owners, and subtracts it.
/// `done_ns` ended at `until_ns`. `state` holds the present owner.
#[inline(always)]
pub(crate) fn take_off<A: Access>(
    (task, tid): (Pointer, u32),
    state: &TaskState,
    former: Former,
    until_ns: u64,
    done_ns: &mut u64,
) {
    let ids = u64::from(tid) << 32 | u64::from(identity::tgid::<A>(task));
    let moved = u64::from(state.cgroup != former.cgroup) << 32;
    let slot = match former.slot {
        SLOT_UNRESOLVED => owner::known(&OwnerKey { id: former.cgroup, born_ns: 0 }).unwrap_or(SLOT_NONE),
        slot => slot,
    };
    let own = if state.slot < SLOT_NONE { state.slot } else { former.slot };
    let start_ns = until_ns.wrapping_sub(*done_ns);
    let charged_ns = charge_moved(ids, start_ns, until_ns, moved | u64::from(slot), u64::from(own));
    *done_ns = done_ns.wrapping_sub(charged_ns);
}

/// Charges the time that a task ran in cgroups that it was moved out of by `end_ns` or later, and returns it.
/// `ids` holds the thread in the upper half and the process in the lower one. `former` holds the slot of the
/// cgroup before all moves, and whether the task is in another one now. A separate function, on numbers only,
/// like all that it calls: the verifier visits it once, and few switches need it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_moved(ids: u64, start_ns: u64, end_ns: u64, former: u64, own: u64) -> u64 {
    let key = key_of(ids);
    let made = made(key);
    if made == 0 {
        if former >> 32 != 0 {
            lose(loss::MOVE_UNTIMED);
        }
        return 0;
    }
    let ran = Ran { start_ns, end_ns };
    let charged_ns = ran.within(0, word(key, made.wrapping_sub(1), AT));
    if charged_ns == 0 {
        return 0;
    }
    let walked = walk(made, |number| charge_move(key, number, start_ns, end_ns, own) != 0);
    if let Walk::Begins(oldest) | Walk::Lost(oldest) = walked {
        add_cpu_time(former & u64::from(u32::MAX), own, ran.within(0, word(key, oldest, AT)));
    }
    if let Walk::Lost(_) = walked {
        lose(loss::MOVE_UNTIMED);
    }
    charged_ns
}

/// Charges the part of a span after the move with this number and before the next, but not the part after the
/// last one. Returns whether the move was before the span.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_move(key: u64, number: u64, start_ns: u64, end_ns: u64, own: u64) -> u64 {
    let at_ns = word(key, number, AT);
    let next = number.wrapping_add(1);
    if next < made(key) {
        let ran = Ran { start_ns, end_ns };
        add_cpu_time(word(key, number, TO), own, ran.within(at_ns, word(key, next, AT)));
    }
    u64::from(at_ns <= start_ns)
}

/// Argument of [`word`]: the time of the move.
const AT: u64 = 0;
/// Argument of [`word`]: the slot of the cgroup that it led to.
const TO: u64 = 1;

/// Returns a word of the move with this number under a key.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn word(key: u64, number: u64, which: u64) -> u64 {
    let Some(moves) = MOVES.get_ptr_mut(key as u32) else { return 0 };
    let (at_ns, to) = place(moves, number);
    // SAFETY: `place` stays inside the row, and the walk leaves out the row that may be written now.
    if which == AT { unsafe { *at_ns } } else { u64::from(unsafe { *to }) }
}

/// Returns the number of moves under a key.
#[inline(always)]
fn made(key: u64) -> u64 {
    // SAFETY: the lookup gave a live row.
    MOVES.get_ptr(key as u32).map_or(0, |moves| unsafe { (*moves).made })
}

/// Returns the key of a task's moves: of those of its process, or of the thread if it was moved alone since
/// then.
#[inline(always)]
fn key_of(ids: u64) -> u64 {
    let (process, alone) = (ids & u64::from(u32::MAX), ids >> 32 | u64::from(ALONE));
    let last = made(alone);
    if last != 0 && word(alone, last.wrapping_sub(1), AT) > word(process, made(process).wrapping_sub(1), AT) {
        alone
    } else {
        process
    }
}

/// Adds CPU time on this CPU to the row of a cgroup's slot; where processes own the counts, to the row of
/// `own` if the cgroup is wanted.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn add_cpu_time(slot: u64, own: u64, cpu_time_ns: u64) -> u64 {
    let slot = if config!(by) == BY_CGROUP || slot as u32 == SLOT_NONE { slot } else { own } as u32;
    if slot >= SLOT_NONE || cpu_time_ns == 0 {
        return 0;
    }
    let cpu = this_cpu();
    if let Some(count) = COUNTS.get_ptr_mut(row(slot, cpu)) {
        // SAFETY: the lookup gave a live row, and only this CPU writes it, with interrupts off.
        let count = unsafe { &mut *count };
        count.cpu_time_ns = count.cpu_time_ns.wrapping_add(cpu_time_ns);
        count.changes = count.changes.wrapping_add(1);
        changed::mark(slot, cpu);
    }
    if let Some(counts) = CPUS.get_ptr_mut(cpu) {
        // SAFETY: as above.
        let counts = unsafe { &mut *counts };
        counts.moved_ns = counts.moved_ns.wrapping_add(cpu_time_ns);
    }
    0
}

/// Returns the time up to which CPU time of `task`, which has this row's CPU, is accounted, limited to these
/// two times.
#[inline(always)]
pub(crate) fn accounted_until<A: Access>(counts: &CpuCount, task: Pointer, from_ns: u64, to_ns: u64) -> u64 {
    let ran_ns = cpu_time::exec_start::<A>(task).wrapping_sub(counts.switched_clock_ns);
    accounted_until_ns(counts.switched_ns, ran_ns, from_ns, to_ns)
}

/// Accounts a task at a tick that was due at `due_ns`: before it leaves the CPU, it may be moved more often
/// than moves are kept. The kernel accounts it only after this, so its CPU time is from the tick before.
#[inline(always)]
pub(crate) fn at_tick<A: Access>(task: Pointer, counts: &CpuCount, due_ns: u64, now_ns: u64) -> Option<()> {
    if config!(by) != BY_CGROUP || !are_within(counts) {
        return None;
    }
    // SAFETY: a task's state is written only where the task runs, which is here.
    let state = unsafe { &mut *A::state(task)? };
    // A task without a slot is accounted where it can get one.
    if state.slot == SLOT_UNRESOLVED || state.flags & WAITS_FOR_EXEC != 0 {
        return None;
    }
    let id = identity::cgroup_id::<A>(task::cgroup::<A>(task));
    let former = Former { cgroup: state.cgroup, slot: state.slot };
    if id != state.cgroup {
        state.slot = owner::known(&OwnerKey { id, born_ns: 0 })?;
        state.cgroup = id;
    }
    let cpu_time_ns = A::u64(task, config!(offsets.task_sum_exec));
    let mut done_ns = cpu_time_ns.wrapping_sub(state.last.cpu_time_ns);
    state.last.cpu_time_ns = cpu_time_ns;
    let until_ns = accounted_until::<A>(counts, task, due_ns - config!(tick_period_ns), now_ns);
    take_off::<A>((task, task::tid::<A>(task)), state, former, until_ns, &mut done_ns);
    add_cpu_time(u64::from(state.slot), u64::from(state.slot), done_ns);
    Some(())
}
