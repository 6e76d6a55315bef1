//! Program on `hrtimer_expire_entry`: measures the lateness of the kernel's tick and of the sampling clock.
//!
//! Both are armed only for the future, so lateness means that the CPU could not take the interrupt. The steal
//! clock is updated a tick later; until then a late timer waits in `LATE`.

use aya_ebpf::{
    EbpfContext,
    helpers::generated::{bpf_get_stack, bpf_ringbuf_output},
};
use aya_log_ebpf::debug;
use pmu_common::{
    config::ABSENT,
    count::SLOT_NONE,
    cpu::CpuCount,
    gap::{
        self, CODE_KERNEL, CODE_USER, DELAYED, HANDLED, IDLE, Late, MASKED, STACK_FRAMES, STOLEN,
        TIMER_CLOCK, TIMER_TICK,
    },
    loss, ring,
};

use crate::{
    Way,
    access::{Access, Fields as _, Pointer, Probed},
    changed,
    config::config,
    cpu::{lose, row, this_cpu},
    cpu_time, interrupt,
    maps::{CONTROL, COUNTS, CPUS, LATE, RING},
    moves, owner, registers, task, tracepoint,
};

/// Largest number of late timers per CPU that can wait at a time.
pub(crate) const PENDING: u32 = 4;

/// Periods of the tick after which the steal clock is known to be updated.
const SETTLE_PERIODS: u64 = 2;

tracepoint! {
    /// `trace_hrtimer_expire_entry(timer, now)`, kernel/time/hrtimer.c.
    timer on "hrtimer_expire_entry", context => try_timer::<Way>(&context, context.arg(0), context.arg(1))
}

#[inline(always)]
fn try_timer<A: Access>(context: &impl EbpfContext, timer: Pointer, now: Pointer) -> Option<()> {
    let kind = kind(A::u64(timer, config!(offsets.hrtimer_function)))?;
    let cpu = this_cpu();
    // SAFETY: the lookup gave a live row, and only this CPU writes it, with interrupts off.
    let counts = unsafe { &mut *CPUS.get_ptr_mut(cpu)? };
    // Typed loads cannot follow a plain pointer to a ktime_t. Linux 7.2 passes the time itself.
    let now_ns = if config!(timer_now_by_value) == 0 { Probed::u64(now, 0) } else { now as u64 };
    let due_ns = A::u64(timer, config!(offsets.hrtimer_expires));
    let task = A::current();
    let stolen_ns = stolen_ns(task);
    settle_old(cpu, stolen_ns, now_ns);
    if kind == TIMER_TICK {
        counts.ticks += 1;
    }
    let is_late = now_ns >= due_ns + config!(late_min_ns);
    if counts.counted == 0 || kind != TIMER_TICK && !is_late {
        return None;
    }
    let handler = interrupt::at(due_ns, kind == TIMER_TICK);
    let idle = task::tid::<A>(task) == 0;
    let registers = registers::of_timer(timer);
    let code = registers::code(registers);
    let slot = task::slot::<A>(task).unwrap_or(SLOT_NONE);
    let at_enable = u32::from(code == CODE_KERNEL && registers::is_at_enable(registers));
    if kind == TIMER_TICK && !idle {
        let _ = moves::at_tick::<A>(task, counts, due_ns, now_ns);
        count_tick(counts, cpu, slot, code, if is_late { 0 } else { at_enable });
    }
    if !is_late {
        return None;
    }
    let late = Late {
        at_ns: now_ns,
        late_ns: now_ns - due_ns,
        steal_ns: stolen_ns,
        timer: kind,
        cpu,
        slot,
        class: if handler != 0 && !idle { HANDLED } else { gap::found(idle, code) } as u32,
        handler,
        at_enable,
        ..Late::ZERO
    };
    note::<A>(context, task, &late)
}

/// Counts a tick by the code that it found, for the CPU and for the owner that ran. `on_time`: 1 if it came
/// on time where the kernel enables interrupts.
#[inline(always)]
fn count_tick(counts: &mut CpuCount, cpu: u32, slot: u32, code: u32, on_time: u32) {
    if code == CODE_USER {
        counts.user_ticks = counts.user_ticks.wrapping_add(1);
    }
    if code == CODE_KERNEL {
        counts.kernel_ticks = counts.kernel_ticks.wrapping_add(1);
        counts.enable_ticks_on_time = counts.enable_ticks_on_time.wrapping_add(on_time);
    }
    if slot >= SLOT_NONE {
        return;
    }
    if let Some(count) = COUNTS.get_ptr_mut(row(slot, cpu)) {
        // SAFETY: the lookup gave a live row of this CPU, and interrupts are off.
        let count = unsafe { &mut *count };
        count.ticks = count.ticks.wrapping_add(1);
        count.changes += 1;
        if code == CODE_KERNEL {
            count.kernel_ticks += 1;
            count.enable_ticks_on_time = count.enable_ticks_on_time.wrapping_add(on_time);
        }
        changed::mark(slot, cpu);
    }
}

/// Returns the kind of a timer if it is one of the two.
#[inline(always)]
fn kind(function: u64) -> Option<u32> {
    let control = CONTROL.get(0)?;
    if function == control.tick_function {
        Some(TIMER_TICK)
    } else if function == control.clock_function {
        Some(TIMER_CLOCK)
    } else {
        None
    }
}

/// Keeps a late timer until it can be classified.
#[inline(always)]
fn note<A: Access>(context: &impl EbpfContext, task: Pointer, late: &Late) -> Option<()> {
    let pending = free_row(late)?;
    // SAFETY: the lookup gave a live row, and only this CPU uses it, with interrupts off.
    let pending = unsafe { &mut *pending };
    pending.kind = ring::GAP;
    pending.cpu = late.cpu;
    pending.at_ns = late.at_ns;
    pending.late_ns = late.late_ns;
    pending.steal_ns = late.steal_ns;
    pending.timer = late.timer;
    pending.tid = task::thread::<A>(task);
    pending.tgid = task::process_of::<A>(task);
    pending.class = late.class;
    pending.slot = late.slot;
    pending.handler = late.handler;
    pending.at_enable = late.at_enable;
    pending.frames = 0;
    if late.late_ns >= config!(gap_min_ns) {
        owner::read_comm(task, &mut pending.comm);
        let stack = (&raw mut pending.stack).cast();
        // SAFETY: the helper writes at most the given size into a live row.
        let bytes = unsafe { bpf_get_stack(context.as_ptr(), stack, (STACK_FRAMES * 8) as u32, 0) };
        pending.frames = if bytes > 0 { bytes as u32 / 8 } else { 0 };
        debug!(context, "cpu {} took timer {} {} ns late", late.cpu, late.timer, late.late_ns);
    }
    Some(())
}

/// Returns a row to keep a late timer in. If all are in use, the first is classified with the present steal
/// clock.
#[inline(always)]
fn free_row(late: &Late) -> Option<*mut Late> {
    for index in 0..PENDING {
        let pending = LATE.get_ptr_mut(late.cpu * PENDING + index)?;
        // SAFETY: the lookup gave a live row.
        if unsafe { (*pending).kind } == 0 {
            return Some(pending);
        }
    }
    settle_row(late.cpu.into(), 0, late.steal_ns, u64::MAX);
    LATE.get_ptr_mut(late.cpu * PENDING)
}

/// Classifies the late timers that are old enough.
#[inline(always)]
fn settle_old(cpu: u32, stolen_ns: u64, now_ns: u64) {
    let age_ns = SETTLE_PERIODS * config!(tick_period_ns);
    for index in 0..PENDING {
        // SAFETY: the lookup gave a live row.
        let waits = LATE.get_ptr(cpu * PENDING + index).is_some_and(|late| unsafe { (*late).kind } != 0);
        if waits {
            settle_row(cpu.into(), index.into(), stolen_ns, now_ns.saturating_sub(age_ns));
        }
    }
}

/// Classifies all late timers of a CPU.
#[inline(always)]
pub(crate) fn settle_all(cpu: u32, stolen_ns: u64) {
    settle_old(cpu, stolen_ns, u64::MAX);
}

/// Settles the late timer in a row of `cpu` ([`settle`]), if one waits there that came by `until_ns`. A
/// separate function on numbers only: the verifier visits it once, and not for each row; see
/// [`crate::culprit`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn settle_row(cpu: u64, index: u64, stolen_ns: u64, until_ns: u64) -> u64 {
    let row = (cpu as u32).wrapping_mul(PENDING).wrapping_add(index as u32);
    if let (Some(pending), Some(counts)) = (LATE.get_ptr_mut(row), CPUS.get_ptr_mut(cpu as u32)) {
        // SAFETY: the lookup gave a live row, and only this CPU uses it, with interrupts off.
        let pending = unsafe { &mut *pending };
        if pending.kind != 0 && pending.at_ns <= until_ns {
            // SAFETY: as above.
            settle(pending, unsafe { &mut *counts }, stolen_ns);
        }
    }
    0
}

/// Classifies one late timer, counts it, and sends it if it is long enough.
#[inline(always)]
fn settle(pending: &mut Late, counts: &mut CpuCount, stolen_ns: u64) {
    pending.kind = 0;
    let stolen_ns = stolen_ns.saturating_sub(pending.steal_ns);
    let class = gap::class(pending.class as usize, pending.late_ns, stolen_ns);
    if pending.timer == TIMER_TICK {
        let instants = gap::tick_instants(pending.late_ns, config!(late_min_ns), config!(tick_period_ns));
        // One arm per class: the verifier requires constant indices.
        match class {
            MASKED => {
                counts.late_ticks[MASKED] += 1;
                counts.blind_ticks[MASKED] += instants;
                let lateness = gap::lateness(pending.late_ns, config!(late_min_ns), config!(tick_period_ns));
                counts.lateness = counts.lateness.wrapping_add(lateness);
                if pending.at_enable != 0 {
                    counts.enable_ticks = counts.enable_ticks.wrapping_add(1);
                    counts.enable_instants = counts.enable_instants.wrapping_add(instants as u32);
                    counts.enable_lateness = counts.enable_lateness.wrapping_add(lateness);
                }
                let _ = bill(pending, instants, lateness);
            }
            DELAYED => {
                counts.delayed_ticks = counts.delayed_ticks.wrapping_add(1);
                counts.delayed_instants += instants;
            }
            HANDLED => interrupt::count_late(instants),
            STOLEN => {
                counts.late_ticks[STOLEN] += 1;
                counts.blind_ticks[STOLEN] += instants;
            }
            _ => {
                counts.late_ticks[IDLE] += 1;
                counts.blind_ticks[IDLE] += instants;
            }
        }
    }
    if pending.late_ns >= config!(gap_min_ns) {
        let record = Late { kind: ring::GAP, class: class as u32, steal_ns: stolen_ns, ..Late::ZERO };
        send(pending, &record);
    }
}

/// Counts masked ticks for the owner that was running.
#[inline(always)]
fn bill(late: &Late, instants: u64, lateness: i32) -> Option<()> {
    if late.slot >= SLOT_NONE {
        return None;
    }
    // SAFETY: the lookup gave a live row of this CPU, and interrupts are off.
    let count = unsafe { &mut *COUNTS.get_ptr_mut(row(late.slot, late.cpu))? };
    count.late_ticks = count.late_ticks.wrapping_add(1);
    count.blind_ticks = count.blind_ticks.wrapping_add(instants as u32);
    count.lateness = count.lateness.wrapping_add(lateness);
    if late.at_enable != 0 {
        count.enable_ticks = count.enable_ticks.wrapping_add(1);
        count.enable_instants = count.enable_instants.wrapping_add(instants as u32);
        count.enable_lateness = count.enable_lateness.wrapping_add(lateness);
    }
    count.changes += 1;
    changed::mark(late.slot, late.cpu);
    Some(())
}

#[inline(always)]
fn send(pending: &mut Late, settled: &Late) {
    pending.kind = settled.kind;
    pending.class = settled.class;
    pending.steal_ns = settled.steal_ns;
    let ring = (&raw const RING).cast_mut().cast();
    let record = core::ptr::from_mut(pending).cast();
    // SAFETY: the record is a live row of exactly this size.
    if unsafe { bpf_ringbuf_output(ring, record, size_of::<Late>() as u64, 0) } != 0 {
        lose(loss::RING_FULL);
    }
    pending.kind = 0;
}

/// Returns the time that the hypervisor has taken from this CPU, in ns, as of the last tick; 0 where the
/// kernel does not record it.
#[inline(always)]
pub(crate) fn stolen_ns(task: Pointer) -> u64 {
    if config!(offsets.rq_steal) == ABSENT {
        return 0;
    }
    cpu_time::run_queue(task).map_or(0, |rq| Probed::u64(rq, config!(offsets.rq_steal)))
}
