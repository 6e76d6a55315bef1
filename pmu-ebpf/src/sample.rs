//! Programs on sampling events: they count the sample for its owner, keep its address, and keep its stacks if
//! requested.
//!
//! The kernel runs one at an overflow, or, for a tracepoint, at every hit: there the program itself waits for
//! the end of the period. They may run in an NMI and so interrupt every other program on their CPU, so they
//! write only their own rows. The kernel never runs one of them inside another (kernel/events/core.c,
//! `bpf_overflow_handler`; kernel/trace/bpf_trace.c, `trace_call_bpf`). A sample that comes then is not
//! taken, and is missing from those expected of its event.

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext,
    bindings::{BPF_F_SKIP_FIELD_MASK, BPF_F_USER_STACK, BPF_RB_FORCE_WAKEUP},
    helpers::{
        bpf_ktime_get_ns,
        generated::{bpf_get_stack, bpf_ringbuf_output},
    },
    macros::perf_event,
    programs::PerfEventContext,
};
use pmu_common::{
    config::UNWIND_OFF,
    count::{ANNOUNCED, SLOT_NONE, SLOT_UNRESOLVED},
    cpu::CpuSamples,
    gap::{Silence, silence},
    loss,
    ring::{self, STACK_FRAMES},
    sample::{HOT_PROBES, Hot, hot_epoch, hot_hash, hot_step},
};

use crate::{
    Way,
    access::{Access, Pointer},
    changed,
    config::config,
    cpu::{row, this_cpu},
    maps::{CPU_SAMPLES, CPUS, HOT, RING, SAMPLES, SCRATCH, StackRoom, of_event},
    owner,
    registers::{Place, place},
    ring_event, stack_copy, task,
};

pub(crate) const STACK_BYTES: u32 = (STACK_FRAMES * 8) as u32;

/// Error for an absent stack (`-EFAULT`): a kernel thread's user stack, or user mode's kernel stack. It is
/// not a loss.
const NO_STACK: i64 = -14;

/// Cause of a program's run.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Cause {
    /// Overflow of an event.
    Overflow,
    /// Hit of a tracepoint; every hit runs the program.
    Hit,
}

/// Declares two programs per event, in the order of `pmu_common::name::program::SAMPLES` and
/// `TRACEPOINT_SAMPLES`. The program that runs identifies the event that overflowed. Only the needed ones are
/// loaded.
macro_rules! samples {
    ($($program:ident, $at_tracepoint:ident = $event:literal),+ $(,)?) => {$(
        /// Runs at every overflow of the event that user space attached it to.
        #[perf_event]
        pub(crate) fn $program(context: PerfEventContext) -> u32 {
            sampled(context.as_ptr(), $event, Cause::Overflow);
            0
        }

        /// Runs at every hit of the tracepoint that user space attached it to. Declared by hand: aya's macro
        /// returns 0, which hides the hit from all perf events on the tracepoint, of any process.
        #[unsafe(no_mangle)]
        #[unsafe(link_section = "tracepoint")]
        pub(crate) extern "C" fn $at_tracepoint(context: *mut c_void) -> u32 {
            sampled(context, $event, Cause::Hit);
            1
        }
    )+};
}

samples! {
    sample, hit = 0, sample_1, hit_1 = 1, sample_2, hit_2 = 2, sample_3, hit_3 = 3,
    sample_4, hit_4 = 4, sample_5, hit_5 = 5, sample_6, hit_6 = 6, sample_7, hit_7 = 7,
    sample_8, hit_8 = 8, sample_9, hit_9 = 9, sample_10, hit_10 = 10,
    sample_11, hit_11 = 11, sample_12, hit_12 = 12, sample_13, hit_13 = 13,
    sample_14, hit_14 = 14, sample_15, hit_15 = 15,
}

/// Handles a sample, for all programs. There is one function for all: every copy in the object would be read
/// at every start.
#[inline(never)]
fn sampled(context: *mut c_void, event: u32, cause: Cause) -> u32 {
    let _ = try_sample::<Way>(context, event, cause);
    0
}

#[inline(always)]
fn try_sample<A: Access>(context: *mut c_void, event: u32, cause: Cause) -> Option<()> {
    let cpu = this_cpu();
    let counts = CPUS.get_ptr_mut(cpu)?;
    // SAFETY: the lookup gave a live row; a stale value only moves a sample across the start.
    if unsafe { (*counts).counted } == 0 {
        return None;
    }
    // SAFETY: the lookup gave a live row, and only this program on this CPU writes it.
    let samples = unsafe { &mut *CPU_SAMPLES.get_ptr_mut(of_event(cpu, event))? };
    if cause == Cause::Hit && !is_due(samples) {
        return None;
    }
    samples.samples += 1;
    let task = A::current();
    let idle = task::tid::<A>(task) == 0;
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    if config!(sample_period_ns) != 0 && event == config!(clock_event) {
        // SAFETY: as for `counted`.
        let idle_ns = unsafe { (*counts).idle_ns };
        check_spacing(samples, now_ns, idle, idle_ns);
    }
    if idle {
        samples.idle_samples += 1;
        return None;
    }
    let slot = slot_of::<A>(task, samples)?;
    let (place, skipped) = where_from(context, cause, samples);
    // SAFETY: as for `samples`.
    let count = unsafe { &mut *SAMPLES.get_ptr_mut(of_event(row(slot, cpu), event))? };
    count.changes += 1;
    if place.user {
        count.user += 1;
    } else {
        count.kernel += 1;
    }
    if place.masked {
        count.masked += 1;
    }
    changed::mark(slot, cpu);
    let tgid = task::process_of::<A>(task);
    let of = if place.user { tgid } else { 0 };
    let hot = Hot { address: place.address, tgid: of, slot, event, count: 1, first_ns: now_ns };
    keep_address(samples, cpu, &hot);
    announce::<A>(task, tgid);
    if config!(stacks) != 0 {
        let header = ring::Stack { kind: ring::STACK, slot, tgid, event, at_ns: now_ns, ..ring::Stack::ZERO };
        if config!(unwind) == UNWIND_OFF {
            send_stacks(context, samples, cpu, &header, skipped);
        } else {
            // A tracepoint's registers are the kernel's, and programs must not read them by type.
            let entered = (cause == Cause::Hit || !place.user).then_some(task);
            stack_copy::send::<A>(context, samples, cpu, &header, (entered, skipped));
        }
    }
    Some(())
}

/// Returns the place that the sample hit, and the number of frames of the kernel stack to skip.
#[inline(always)]
fn where_from(context: *mut c_void, cause: Cause, samples: &CpuSamples) -> (Place, u64) {
    let place = place(context, cause);
    if cause == Cause::Overflow {
        return (place, 0);
    }
    if samples.of_user != 0 {
        return match frame(context, u64::from(BPF_F_USER_STACK)) {
            Some(address) => (Place { address, user: true, masked: false }, u64::from(BPF_F_SKIP_FIELD_MASK)),
            None => (place, 0),
        };
    }
    if !samples.is_in_iterator(place.address) {
        return (place, 0);
    }
    (Place { address: frame(context, 1).unwrap_or(place.address), ..place }, 1)
}

/// Returns whether this hit of a tracepoint is the last of its period. The kernel has no overflow for a
/// program there. No hit is due before user space has set the period.
#[inline(always)]
fn is_due(samples: &mut CpuSamples) -> bool {
    if samples.hits_period == 0 {
        return false;
    }
    samples.hits += 1;
    let due = samples.hits >= samples.hits_period;
    if due {
        samples.hits = 0;
    }
    due
}

/// Checks the spacing of samples, which cross-checks the timers' lateness. A silence with idle time in it is
/// not evidence: an idle CPU wakes late, and not every kernel delivers its samples.
#[inline(always)]
fn check_spacing(samples: &mut CpuSamples, now_ns: u64, idle: bool, idle_ns: u64) {
    let comparable = !idle && samples.last_ns != 0 && idle_ns == samples.last_idle_ns;
    let apart_ns = now_ns.wrapping_sub(samples.last_ns);
    samples.last_ns = if idle { 0 } else { now_ns };
    samples.last_idle_ns = idle_ns;
    if !comparable {
        return;
    }
    match silence(apart_ns, config!(sample_period_ns), config!(late_min_ns)) {
        Silence::None => {}
        Silence::Late(late_ns) => {
            samples.silences += 1;
            samples.silent_ns += late_ns;
        }
        Silence::Withheld(missing) => samples.withheld += missing,
    }
}

/// Returns the slot of the interrupted task; `None` if it is not wanted, or not known yet.
#[inline(always)]
fn slot_of<A: Access>(task: Pointer, samples: &mut CpuSamples) -> Option<u32> {
    // A task without a state is not a target. Where every task is one, its next switch counts it as unknown.
    // SAFETY: the state is live while its task is; only its slot and cgroup are read.
    let state = unsafe { &*A::state(task)? };
    let (cgroup, id) =
        if task::cgroups_matter() { task::cgroup_and_id(task) } else { (core::ptr::null(), state.cgroup) };
    let slot = if id == state.cgroup && state.slot != SLOT_UNRESOLVED {
        state.slot
    } else if config!(sample_inserts) == 0 {
        samples.losses[loss::SAMPLE_UNOWNED] += 1;
        return None;
    } else {
        owner::resolve::<A>(task, cgroup, id)
    };
    (slot < SLOT_NONE).then_some(slot)
}

/// Counts an address in this CPU's table, in a row of the present epoch.
#[inline(always)]
fn keep_address(samples: &mut CpuSamples, cpu: u32, wanted: &Hot) {
    let mask = config!(hot_mask);
    if mask == 0 {
        return;
    }
    let base = (cpu * 2 + (samples.table & 1)) * (mask + 1);
    let shift = config!(hot_epoch_shift) & 63;
    let epoch = hot_epoch(wanted.first_ns, shift);
    let start = hot_hash(wanted.address, wanted.tgid, wanted.slot, wanted.event, epoch);
    for probe in 0..HOT_PROBES {
        let Some(entry) =
            HOT.get_ptr_mut(base + (start.wrapping_add(probe.wrapping_mul(hot_step(start))) & mask))
        else {
            return;
        };
        // SAFETY: the lookup gave a live row of the table that this CPU's program writes.
        let entry = unsafe { &mut *entry };
        if entry.count == 0 {
            *entry = *wanted;
            return;
        }
        let same = entry.address == wanted.address
            && entry.tgid == wanted.tgid
            && entry.slot == wanted.slot
            && entry.event == wanted.event
            && hot_epoch(entry.first_ns, shift) == epoch;
        if same {
            entry.count += 1;
            return;
        }
    }
    samples.losses[loss::HOT_FULL] += 1;
}

/// Requests user space, once per program, to read the address map of a sampled process while it lives.
#[inline(always)]
pub(crate) fn announce<A: Access>(task: Pointer, tgid: u32) {
    if let Some(state) = A::state(task) {
        // SAFETY: the state is live while its task is; a flag that is lost to another writer is set again.
        let flags = unsafe { &mut (*state).flags };
        if *flags & ANNOUNCED == 0 {
            *flags |= ANNOUNCED;
            ring_event::process(ring::SEEN, tgid, u64::from(BPF_RB_FORCE_WAKEUP));
        }
    }
}

/// Sends both stacks through the ring buffer. They seldom repeat, so counting them in the kernel does not
/// pay.
#[inline(always)]
fn send_stacks(context: *mut c_void, samples: &mut CpuSamples, cpu: u32, header: &ring::Stack, skipped: u64) {
    let Some(room) = SCRATCH.get_ptr_mut(cpu) else {
        return;
    };
    let addresses = room.cast::<u8>().wrapping_add(size_of::<ring::Stack>());
    let kernel_bytes = read_stack(context, samples, addresses, skipped);
    let user_bytes = read_stack(
        context,
        samples,
        addresses.wrapping_add(kernel_bytes as usize),
        u64::from(BPF_F_USER_STACK),
    );
    let header = ring::Stack { kernel_bytes, user_bytes, ..*header };
    // SAFETY: the lookup gave a live row that only this program on this CPU uses.
    unsafe { (*room).header = header };
    let bytes = size_of::<ring::Stack>() as u64 + u64::from(kernel_bytes) + u64::from(user_bytes);
    let ring = (&raw const RING).cast_mut().cast();
    // SAFETY: `bytes` is at most the size of the row.
    if unsafe { bpf_ringbuf_output(ring, room.cast(), bytes, ring_event::if_half_full()) } != 0 {
        samples.losses[loss::RING_FULL] += 1;
    }
}

const _: () = assert!(size_of::<StackRoom>() == size_of::<ring::Stack>() + 2 * STACK_BYTES as usize);

/// Returns the address of the first frame of a stack that the flags do not skip, if there is one.
#[inline(always)]
fn frame(context: *mut c_void, flags: u64) -> Option<u64> {
    let mut address = 0_u64;
    // SAFETY: there is room for one address.
    let bytes = unsafe { bpf_get_stack(context, (&raw mut address).cast(), 8, flags) };
    (bytes == 8).then_some(address)
}

/// Reads a stack to `into` and returns its bytes, at most [`STACK_BYTES`].
#[inline(always)]
pub(crate) fn read_stack(context: *mut c_void, samples: &mut CpuSamples, into: *mut u8, flags: u64) -> u32 {
    stack_bytes(context, into, flags).unwrap_or_else(|| {
        samples.losses[loss::STACK_FAILED] += 1;
        0
    })
}

/// Reads a stack likewise; returns `None` if it could not be read.
#[inline(always)]
pub(crate) fn stack_bytes(context: *mut c_void, into: *mut u8, flags: u64) -> Option<u32> {
    // SAFETY: the caller leaves room for STACK_BYTES.
    let bytes = unsafe { bpf_get_stack(context, into.cast(), STACK_BYTES, flags) };
    if bytes < 0 || bytes > i64::from(STACK_BYTES) {
        return if bytes == NO_STACK { Some(0) } else { None };
    }
    Some(bytes as u32)
}
