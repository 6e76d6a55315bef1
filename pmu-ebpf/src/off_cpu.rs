//! Time off the CPU: the reason why a task leaves its CPU, and the time it was blocked and held back until it
//! gets another one. A wait that is over is accounted with the task's next span on a CPU, as its run-queue
//! latency is. The verifier drops all of it where it is not requested.

use pmu_common::{
    config::ABSENT,
    count::{NO_WAIT, TaskState},
    cpu::{Control, CpuCount},
    off_cpu::{BEFORE_COUNTING, LOCK, RUN_QUEUE, SLEEP, THROTTLED, kind_of},
};

use crate::{
    access::{Access, Fields, Pointer},
    config::config,
    cpu::row,
    maps::{CONTROL, OFF_CPU},
};

/// Wait that is over and not accounted.
pub(crate) struct Waited {
    kind: u32,
    blocked_ns: u64,
}

/// Handles that `task` leaves its CPU. Call after [`TaskState::ready_ns`] is set if it could have continued.
#[inline(always)]
pub(crate) fn leave<A: Access>(task: Pointer, state: &mut TaskState, counts: &CpuCount, now_ns: u64) {
    if config!(off_cpu) == 0 {
        return;
    }
    let since_ns = if counts.counted == 0 { BEFORE_COUNTING } else { now_ns };
    if state.ready_ns == 0 {
        begin::<A>(task, state, since_ns);
    } else {
        (state.off_kind, state.off_since_ns) = (RUN_QUEUE, since_ns);
    }
}

/// Records the start of a task's blocked time, and its kind.
#[inline(always)]
pub(crate) fn begin<A: Access>(task: Pointer, state: &mut TaskState, since_ns: u64) {
    state.off_since_ns = 0;
    let Some(kind) = kind_of(A::u32(task, config!(offsets.task_state)), is_in_iowait::<A>(task)) else {
        return;
    };
    state.off_kind = if kind == SLEEP && is_in_futex::<A>(task) { LOCK } else { kind };
    state.off_since_ns = since_ns;
}

/// Handles that the task with this state gets a CPU. Call before [`TaskState::ready_ns`] is cleared.
#[inline(always)]
pub(crate) fn arrive(state: &mut TaskState, now_ns: u64) {
    if config!(off_cpu) == 0 {
        return;
    }
    let started_ns = if state.off_since_ns == BEFORE_COUNTING { control().started_ns } else { 0 };
    state.blocked_ns = state.wait(started_ns, now_ns).map_or(NO_WAIT, |wait| wait.blocked_ns);
    state.off_since_ns = 0;
}

/// Takes the wait that is over from a task's state.
#[inline(always)]
pub(crate) fn take(state: &mut TaskState) -> Option<Waited> {
    if config!(off_cpu) == 0 {
        return None;
    }
    let TaskState { off_kind: kind, blocked_ns, .. } = *state;
    state.blocked_ns = NO_WAIT;
    Some(Waited { kind, blocked_ns })
}

/// Adds a wait to its owner's row: its blocked time, the time that the task then waited for a CPU, and the
/// time that a limit held it back. Call with interrupts off, on that CPU.
#[inline(always)]
pub(crate) fn add(slot: u32, cpu: u32, waited: &Waited, wait_ns: u64, throttled_ns: u64) -> Option<()> {
    // SAFETY: the lookup gave a live row, and only this CPU writes it, with interrupts off.
    let count = unsafe { &mut *OFF_CPU.get_ptr_mut(row(slot, cpu))? };
    if waited.blocked_ns != NO_WAIT {
        count.add(waited.kind, waited.blocked_ns);
    }
    if wait_ns != NO_WAIT {
        count.add(RUN_QUEUE, wait_ns);
        count.add(THROTTLED, throttled_ns);
    }
    Some(())
}

#[inline(always)]
pub(crate) fn control() -> Control {
    // SAFETY: the lookup gave the live row, which user space writes by words.
    CONTROL.get_ptr(0).map_or(Control::ZERO, |control| unsafe { *control })
}

#[inline(always)]
fn is_in_iowait<A: Fields>(task: Pointer) -> bool {
    let bit = config!(offsets.task_iowait_bit);
    bit != ABSENT && A::u32(task, bit / 32 * 4) >> (bit % 32) & 1 != 0
}

/// Returns whether the task is in a system call that waits for a futex.
#[inline(always)]
fn is_in_futex<A: Access>(task: Pointer) -> bool {
    config!(finds_futexes) != 0 && is_futex(system_call::<A>(A::user_registers(task)))
}

/// Returns the system call of a task that entered the kernel with these registers.
#[inline(always)]
pub(crate) fn system_call<A: Access>(registers: Pointer) -> u32 {
    A::u32(registers, config!(offsets.regs_call))
}

#[cfg(any(bpf_target_arch = "x86_64", all(not(target_arch = "bpf"), target_arch = "x86_64")))]
pub(crate) use pmu_common::off_cpu::is_futex_x86_64 as is_futex;

#[cfg(any(bpf_target_arch = "aarch64", all(not(target_arch = "bpf"), target_arch = "aarch64")))]
pub(crate) use pmu_common::off_cpu::is_futex_aarch64 as is_futex;
