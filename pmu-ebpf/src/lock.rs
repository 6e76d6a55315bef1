//! Locks of user space that tasks wait for: how often, and for how long until they are able to run again. They count in every run, for a
//! convoy is slow with idle CPUs and no other number shows it. A wait costs two additions; a task that blocks otherwise, one load of the
//! system call that it is in.

use pmu_common::{
    count::{SLOT_NONE, TaskState, WAITS_FOR_LOCK},
    cpu::CpuCount,
    lock::is_lock,
    owner::Rare,
};

use crate::{
    access::{Access, Pointer},
    config::config,
    intrinsics::add,
    maps::OWNERS,
    off_cpu::{is_futex, system_call},
};

/// `task` leaves its CPU. Call after [`TaskState::ready_ns`] says whether it could have gone on.
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
    if blocks && is_in_lock::<A>(task) {
        state.flags |= WAITS_FOR_LOCK;
        state.off_since_ns = now_ns;
    } else {
        // A wait that no wake-up ended: those are not seen any more.
        state.flags &= !WAITS_FOR_LOCK;
    }
}

/// The task with this state is able to run again.
#[inline(always)]
pub(crate) fn wake(state: &mut TaskState, now_ns: u64) {
    if config!(finds_futexes) == 0 || state.flags & WAITS_FOR_LOCK == 0 {
        return;
    }
    state.flags &= !WAITS_FOR_LOCK;
    let waited_ns = now_ns.wrapping_sub(state.off_since_ns);
    if let Some(rare) = rare(state.slot) {
        // SAFETY: the lookup gave a live row, and every CPU adds to it.
        unsafe {
            add(&raw mut (*rare).lock_waits, 1);
        }
        // SAFETY: as above.
        unsafe {
            add(&raw mut (*rare).lock_wait_ns, waited_ns);
        }
    }
}

/// What seldom happens to the owner in a slot.
#[inline(always)]
pub(crate) fn rare(slot: u32) -> Option<*mut Rare> {
    // SAFETY: the lookup gave a live row.
    OWNERS.get_ptr_mut(slot).map(|owner| unsafe { &raw mut (*owner).rare })
}

#[inline(always)]
fn is_in_lock<A: Access>(task: Pointer) -> bool {
    let registers = A::user_registers(task);
    is_futex(system_call::<A>(registers))
        && is_lock(
            A::u32(registers, config!(offsets.regs_second)),
            A::u32(registers, config!(offsets.regs_third)),
        )
}
