//! Locks of user space: number and length of the waits for them, until the tasks are able to run again. They
//! count in every run, because a convoy is slow with idle CPUs and no other number shows it. A wait costs two
//! additions. A task that blocks otherwise costs one load of its system call.

use pmu_common::{
    config::FUTEXES_FREEZE,
    count::{INHERITS_PRIORITY, SLOT_NONE, TaskState, WAITS_FOR_LOCK},
    cpu::CpuCount,
    lock::{inherits_priority, is_lock},
    off_cpu::may_wait_for_futex,
    owner::Rare,
};

use crate::{
    access::{Access, Fields, Pointer},
    config::config,
    intrinsics::add,
    maps::OWNERS,
    off_cpu::{is_futex, system_call},
};

/// Handles that `task` leaves its CPU. Call after [`TaskState::ready_ns`] is set if it could have continued.
#[inline(always)]
pub(crate) fn leave<A: Access>(
    task: Pointer,
    state: &mut TaskState,
    slot: u32,
    counts: &CpuCount,
    now_ns: u64,
) {
    if config!(finds_futexes) == 0 {
        return;
    }
    let blocks = state.ready_ns == 0 && slot < SLOT_NONE && counts.counted != 0;
    let found = if blocks && may_be_in_futex::<A>(task, state) { flags_of_wait::<A>(task) } else { 0 };
    if found != 0 {
        state.flags |= found;
        state.off_since_ns = now_ns;
    } else if state.flags & WAITS_FOR_LOCK != 0 {
        // A wait that ended without a wake-up: those are no longer seen.
        state.flags &= !WAITS_FOR_LOCK;
    }
}

/// Handles that the task with this state is able to run again.
#[inline(always)]
pub(crate) fn wake(state: &mut TaskState, now_ns: u64) {
    if config!(finds_futexes) == 0 || state.flags & WAITS_FOR_LOCK == 0 {
        return;
    }
    state.flags &= !WAITS_FOR_LOCK;
    add_lock_wait(u64::from(state.slot), now_ns.wrapping_sub(state.off_since_ns));
}

/// Adds a wait to the row of the owner in a slot. A separate function, on numbers only: few wake-ups end such
/// a wait, and the verifier visits it once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn add_lock_wait(slot: u64, waited_ns: u64) -> u64 {
    if let Some(rare) = rare(slot as u32) {
        // SAFETY: the lookup gave a live row, and every CPU adds to it.
        unsafe {
            add(&raw mut (*rare).lock_waits, 1);
        }
        // SAFETY: as above.
        unsafe {
            add(&raw mut (*rare).lock_wait_ns, waited_ns);
        }
    }
    0
}

/// Returns the rare events of the owner in a slot.
#[inline(always)]
pub(crate) fn rare(slot: u32) -> Option<*mut Rare> {
    // SAFETY: the lookup gave a live row.
    OWNERS.get_ptr_mut(slot).map(|owner| unsafe { &raw mut (*owner).rare })
}

/// Returns whether the task may wait for a futex, by its state. Finding its saved registers takes a call,
/// this takes two loads.
#[inline(always)]
fn may_be_in_futex<A: Fields>(task: Pointer, state: &TaskState) -> bool {
    config!(finds_futexes) != FUTEXES_FREEZE
        || may_wait_for_futex(
            A::u32(task, config!(offsets.task_state)),
            state.flags,
            state.last.voluntary_switches,
        )
}

/// Returns the state flags of a task that waits for a lock, 0 if it waits for something else.
#[inline(always)]
fn flags_of_wait<A: Access>(task: Pointer) -> u32 {
    let registers = A::user_registers(task);
    let call = system_call::<A>(registers);
    let operation = A::u32(registers, config!(offsets.regs_second));
    let expected = A::u32(registers, config!(offsets.regs_third));
    flags_of_call(call.into(), operation.into(), expected.into()) as u32
}

/// Returns the same for a system call and its arguments, as a separate function: the verifier visits its
/// branches once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn flags_of_call(call: u64, operation: u64, expected: u64) -> u64 {
    if !is_futex(call as u32) || !is_lock(operation as u32, expected as u32) {
        return 0;
    }
    let inherits = if inherits_priority(operation as u32) { INHERITS_PRIORITY } else { 0 };
    u64::from(WAITS_FOR_LOCK | inherits)
}
