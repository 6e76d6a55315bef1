//! Attribution of waits for a CPU to the owners that had it.
//!
//! A task's wait is charged when it is accounted, while the task's own span is the last one of its CPU. The
//! task waited for the spans before it. The spans of a CPU follow one another without gaps, so each holds
//! only its start.

use pmu_common::{
    config::ABSENT,
    count::{MOVED, TaskState},
    culprit::{
        CHARGES, CULPRIT_IDLE, CULPRIT_MIGRATED, Charge, Culprits, NEAR_WAYS, SPANS, SPANS_A_CALL, Span,
        WAYS, pair, place,
    },
};

use crate::{
    access::{Fields, Pointer},
    config::config,
    intrinsics::{masked, opaque},
    maps::CULPRITS,
    ring_event,
};

/// Ends the last span of `cpu` at `now_ns`, and begins another. Its owner is `slot`, or the idle task. Call
/// with interrupts off, on that CPU, after the task that leaves was accounted.
#[inline(always)]
pub(crate) fn switch(cpu: u32, is_idle: bool, slot: u32, now_ns: u64) -> Option<()> {
    if config!(culprits) == 0 {
        return None;
    }
    let culprits = CULPRITS.get_ptr_mut(cpu)?;
    let slot = u64::from(if is_idle { CULPRIT_IDLE } else { slot });
    // SAFETY: the lookup gave a live row, and only this CPU writes it, with interrupts off.
    let begun = unsafe { (*culprits).begun };
    // SAFETY: as above; `span` stays inside the row.
    let before = unsafe { (*span(culprits, begun.wrapping_sub(1))).slot };
    // SAFETY: as above.
    let last = unsafe { &mut *span(culprits, begun) };
    if begun != 0 && before == slot {
        // Consecutive tasks of one owner are one span.
        last.from_ns = now_ns;
        return Some(());
    }
    last.slot = slot;
    // SAFETY: as above.
    unsafe { (*span(culprits, begun.wrapping_add(1))).from_ns = now_ns };
    // SAFETY: as above.
    unsafe { (*culprits).begun = begun.wrapping_add(1) };
    Some(())
}

/// Returns the CPU of the run queue that `task` is on.
#[inline(always)]
pub(crate) fn queue_of<A: Fields>(task: Pointer) -> u32 {
    let offset = config!(offsets.task_cpu);
    if offset == ABSENT { 0 } else { A::u32(task, offset) }
}

/// Charges a wait of the task with this state. The wait ended when the last span of `cpu` began. Call with
/// interrupts off, on that CPU.
#[inline(always)]
pub(crate) fn charge(cpu: u32, state: &TaskState, wait_ns: u64) {
    if config!(culprits) != 0 {
        charge_wait(cpu.into(), state.slot.into(), state.ready_cpu.into(), wait_ns);
    }
}

/// Charges a wait to a victim's slot, inlined. The functions that it calls are separate and take numbers
/// only: the verifier visits each once, whatever the path to it (kernel/bpf/verifier.c, `do_check_subprogs`,
/// since 5.6). On every path, and with [`charge_span`] in every step of the walk, they took the largest part
/// of the start time. They keep little on the stack, which a program shares with the functions it calls.
// Part of `switch`: Linux 5.10 allows 512 bytes of stack for all calls together, 32 for each at least.
#[inline(always)]
fn charge_wait(cpu: u64, victim: u64, ready_cpu: u64, wait_ns: u64) -> u64 {
    let Some(culprits) = CULPRITS.get_ptr_mut(cpu as u32) else { return 0 };
    // SAFETY: the lookup gave a live row, and only this CPU writes it, with interrupts off.
    let begun = unsafe { (*culprits).begun };
    // SAFETY: as above; `span` stays inside the row.
    let until_ns = unsafe { (*span(culprits, begun)).from_ns };
    let ready_ns = until_ns.wrapping_sub(wait_ns);
    // SAFETY: as above.
    let last = unsafe { *span(culprits, begun.wrapping_sub(1)) };
    let whole = if ready_cpu as u32 == MOVED {
        // The time of its arrival here is not known. Most such tasks are pulled by an idle CPU, and run at
        // once.
        CULPRIT_MIGRATED
    } else if begun != 0 && last.from_ns <= ready_ns {
        // Most waits began in the span before, and a call costs as much as the rest.
        last.slot as u32
    } else {
        return charge_all(cpu, victim, begun.wrapping_sub(1), ready_ns);
    };
    add(culprits, cpu, pair(victim as u32, whole), wait_ns);
    0
}

/// Charges all spans, from the one with this number back; see [`charge_span`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_all(cpu: u64, victim: u64, newest: u64, ready_ns: u64) -> u64 {
    for call in 0..(SPANS / SPANS_A_CALL) as u64 {
        if charge_spans(cpu, victim, newest.wrapping_sub(call * SPANS_A_CALL as u64), ready_ns) != 0 {
            break;
        }
    }
    0
}

/// Charges some spans, from the one with this number back, in a separate function as [`charge_span`]. Returns
/// whether none is left to charge.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_spans(cpu: u64, victim: u64, newest: u64, ready_ns: u64) -> u64 {
    let Some(culprits) = CULPRITS.get_ptr_mut(cpu as u32) else { return 1 };
    // SAFETY: the lookup gave a live row, and only this CPU writes it, with interrupts off.
    let begun = unsafe { (*culprits).begun };
    for back in 0..SPANS_A_CALL as u64 {
        let number = newest.wrapping_sub(opaque(back));
        // Before the first span numbers wrap.
        if begun.wrapping_sub(number) >= SPANS as u64
            || number > begun
            || charge_span(cpu, victim, number, ready_ns) != 0
        {
            return 1;
        }
    }
    0
}

/// Charges the part of the span with this number after the victim was ready to the owner of the span. Returns
/// whether the victim was ready by its start: then no span before it is charged.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_span(cpu: u64, victim: u64, number: u64, ready_ns: u64) -> u64 {
    let Some(culprits) = CULPRITS.get_ptr_mut(cpu as u32) else { return 1 };
    // SAFETY: the lookup gave a live row, and only this CPU writes it, with interrupts off; `span` stays
    // inside the row.
    let Span { from_ns, slot } = unsafe { *span(culprits, number) };
    // SAFETY: as above.
    let until_ns = unsafe { (*span(culprits, number.wrapping_add(1))).from_ns };
    let since_ns = if from_ns > ready_ns { from_ns } else { ready_ns };
    if until_ns > since_ns {
        add(culprits, cpu, pair(victim as u32, slot as u32), until_ns - since_ns);
    }
    u64::from(from_ns <= ready_ns)
}

/// Returns the span with this number, of the last [`SPANS`].
#[inline(always)]
fn span(culprits: *mut Culprits, number: u64) -> *mut Span {
    let spans = culprits.wrapping_byte_add(core::mem::offset_of!(Culprits, spans)).cast::<Span>();
    spans.wrapping_add(masked(number as u32, SPANS))
}

/// Adds to the charge of a pair.
#[inline(always)]
fn add(culprits: *mut Culprits, cpu: u64, pair: u64, wait_ns: u64) {
    for way in 0..NEAR_WAYS {
        // SAFETY: this is inside a live row that only this CPU writes.
        let charge = unsafe { &mut *charge_at(culprits, masked(place(pair, way), CHARGES)) };
        if charge.pair == pair {
            charge.wait_ns = charge.wait_ns.wrapping_add(wait_ns);
            return;
        }
    }
    add_elsewhere(cpu, pair, wait_ns);
}

/// Returns the charge at a place below their number.
#[inline(always)]
fn charge_at(culprits: *mut Culprits, at: usize) -> *mut Charge {
    culprits.wrapping_byte_add(core::mem::offset_of!(Culprits, charges)).cast::<Charge>().wrapping_add(at)
}

/// Adds to a pair that is not in its first line, and may not have a place yet, in a separate function: see
/// [`charge_wait`]. A charge without a place is sent to user space.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn add_elsewhere(cpu: u64, pair: u64, wait_ns: u64) -> u64 {
    let Some(culprits) = CULPRITS.get_ptr_mut(cpu as u32) else { return 0 };
    for way in NEAR_WAYS..WAYS {
        // SAFETY: the lookup gave a live row, and only this CPU writes it, with interrupts off; the place is
        // inside it.
        let charge = unsafe { &mut *charge_at(culprits, masked(place(pair, way), CHARGES)) };
        if charge.pair == pair {
            charge.wait_ns = charge.wait_ns.wrapping_add(wait_ns);
            return 0;
        }
    }
    for way in 0..WAYS {
        let at = masked(place(pair, way), CHARGES);
        // SAFETY: as above.
        let charge = unsafe { &mut *charge_at(culprits, at) };
        if charge.pair == 0 {
            *charge = Charge { pair, wait_ns };
            let used = culprits.wrapping_byte_add(core::mem::offset_of!(Culprits, used)).cast::<u64>();
            let word = used.wrapping_add(masked(at as u32 / u64::BITS, CHARGES / u64::BITS as usize));
            // SAFETY: as above, as `masked` kept the index below their number.
            unsafe { *word |= 1 << (at as u32 % u64::BITS) };
            return 0;
        }
    }
    ring_event::charge(cpu as u32, pair, wait_ns);
    0
}
