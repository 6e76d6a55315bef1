//! Programs where interrupt handlers begin and end. They record which ran, for how long, and the interrupted
//! tasks. Loaded only where that is requested.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use pmu_common::{
    count::SLOT_NONE,
    interrupt::{
        CALL_FUNCTION, CALL_FUNCTION_SINGLE, DEPTH, HANDLERS, IRQ_WORK, Interrupts, LINES, LOCAL_TIMER,
        OTHER_LINES, RESCHEDULE, SOFTIRQS, WAYS, is_softirq,
    },
};

use crate::{
    Way,
    access::Access,
    changed::ordered,
    config::config,
    cpu::{row, this_cpu},
    intrinsics::{add, masked},
    maps::{INTERRUPTED, INTERRUPTS},
    task, tracepoint,
};

/// Declares the two programs of a handler with a separate vector.
macro_rules! vector {
    (
        $(#[$doc:meta])*
        $handler:ident: $begin:ident on $entry:literal, $end:ident on $exit:literal
    ) => {
        tracepoint! { $(#[$doc])* $begin on $entry, _context => begin($handler) }
        tracepoint! { $(#[$doc])* $end on $exit, _context => end::<Way>($handler) }
    };
}

tracepoint! {
    /// `trace_irq_handler_entry(irq, action)`, kernel/irq/handle.c.
    line_begin on "irq_handler_entry", context => begin_line(number(context.arg(0)))
}

tracepoint! {
    /// `trace_irq_handler_exit(irq, action, ret)`, kernel/irq/handle.c.
    line_end on "irq_handler_exit", context => end_line::<Way>(number(context.arg(0)))
}

tracepoint! {
    /// `trace_softirq_entry(vec_nr)`, kernel/softirq.c. Other handlers may interrupt it.
    softirq_begin on "softirq_entry", context => begin(softirq(context.arg(0)))
}

tracepoint! {
    /// `trace_softirq_exit(vec_nr)`, kernel/softirq.c: a softirq ends.
    softirq_end on "softirq_exit", context => end::<Way>(softirq(context.arg(0)))
}

vector! {
    /// `trace_local_timer_entry(vector)` and `_exit`, arch/x86/kernel/apic/apic.c.
    LOCAL_TIMER: local_timer_begin on "local_timer_entry", local_timer_end on "local_timer_exit"
}

vector! {
    /// `trace_reschedule_entry(vector)` and `_exit`, arch/x86/kernel/smp.c.
    RESCHEDULE: reschedule_begin on "reschedule_entry", reschedule_end on "reschedule_exit"
}

vector! {
    /// `trace_call_function_entry(vector)` and `_exit`, arch/x86/kernel/smp.c.
    CALL_FUNCTION: call_begin on "call_function_entry", call_end on "call_function_exit"
}

vector! {
    /// `trace_call_function_single_entry(vector)` and `_exit`, arch/x86/kernel/smp.c.
    CALL_FUNCTION_SINGLE: call_single_begin on "call_function_single_entry",
    call_single_end on "call_function_single_exit"
}

vector! {
    /// `trace_irq_work_entry(vector)` and `_exit`, arch/x86/kernel/irq_work.c.
    IRQ_WORK: irq_work_begin on "irq_work_entry", irq_work_end on "irq_work_exit"
}

/// Returns the place of the handler that had this CPU when a timer was due, plus 1; 0 if none is known. Call
/// with interrupts off. `is_tick`: the timer is the tick, and only later handlers matter for the next tick.
#[inline(always)]
pub(crate) fn at(due_ns: u64, is_tick: bool) -> u32 {
    if config!(interrupts) == 0 {
        return 0;
    }
    let Some(row) = this_row() else { return 0 };
    let handler = row.hard_at(due_ns);
    if is_tick {
        row.tick();
    }
    handler
}

/// Counts a tick that was late because a handler had the CPU. Where [`at`] never returns one, this does
/// nothing, which drops the code from `timer`.
#[inline(always)]
pub(crate) fn count_late(instants: u64) {
    if config!(interrupts) == 0 {
        return;
    }
    if let Some(row) = this_row() {
        row.late_ticks += 1;
        row.late_instants += instants;
    }
}

/// Returns a number that a tracepoint passes.
#[inline(always)]
fn number(argument: u64) -> u32 {
    argument as u32
}

/// Returns a softirq's handler, with an index bound for the verifier.
#[inline(always)]
fn softirq(argument: u64) -> u32 {
    let number = number(argument);
    if number < SOFTIRQS { number } else { SOFTIRQS - 1 }
}

/// Returns the row of this CPU.
#[inline(always)]
fn this_row() -> Option<&'static mut Interrupts> {
    // SAFETY: the lookup gave a live row. A program that interrupts its writer ends before the writer
    // continues.
    INTERRUPTS.get_ptr_mut(this_cpu()).map(|row| unsafe { &mut *row })
}

#[inline(always)]
fn now_ns() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

#[inline(always)]
fn begin_line(number: u32) -> Option<()> {
    begin(line(this_row()?, number))
}

#[inline(always)]
fn end_line<A: Access>(number: u32) -> Option<()> {
    end::<A>(line(this_row()?, number))
}

/// Returns the place of the handler of a line.
#[inline(always)]
fn line(row: &mut Interrupts, number: u32) -> u32 {
    for way in 0..WAYS {
        let place = LINES as usize + masked(number.wrapping_add(way), LINES as usize);
        if row.is_line_at(place, number) {
            return place as u32;
        }
    }
    OTHER_LINES
}

#[inline(always)]
fn begin(handler: u32) -> Option<()> {
    let (row, now_ns) = (this_row()?, now_ns());
    let level = row.deepen();
    ordered();
    row.begin(level, handler, now_ns);
    Some(())
}

#[inline(always)]
fn end<A: Access>(handler: u32) -> Option<()> {
    let (interrupts, now_ns) = (this_row()?, now_ns());
    let handler = masked(handler, HANDLERS) as u32;
    // The level comes from a subtraction; verifiers of Linux 5.10 do not find its bound.
    let place = |level: u64| masked(level as u32, DEPTH);
    let innermost = interrupts.innermost(place)?;
    ordered();
    interrupts.depth = innermost.0;
    let own_ns = interrupts.end(innermost, place, handler, now_ns)?;
    let task = A::current();
    if task::tid::<A>(task) == 0 {
        // In one instruction: a softirq may be interrupted here by another handler that interrupted the idle
        // task, too.
        add(&raw mut interrupts.of_idle_ns, own_ns);
        return None;
    }
    let slot = task::slot::<A>(task).unwrap_or(SLOT_NONE);
    if slot >= SLOT_NONE {
        add(&raw mut interrupts.of_others_ns, own_ns);
        return None;
    }
    // SAFETY: the lookup gave a live row of this CPU. Its writers end before the one that they interrupt
    // continues.
    let count = unsafe { &mut *INTERRUPTED.get_ptr_mut(row(slot, this_cpu()))? };
    if is_softirq(handler) {
        count.soft_ns += own_ns;
    } else {
        count.hard_ns += own_ns;
    }
    Some(())
}
