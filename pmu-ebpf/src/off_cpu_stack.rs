//! Stacks of tasks that block. The switch program still runs as the task that leaves, so both its stacks are there: of another task the
//! kernel gives none of user mode (kernel/bpf/stackmap.c, `__bpf_get_stack`). Only where `Config::off_cpu` asks for it: the verifier
//! drops all of it otherwise.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_F_USER_STACK,
    helpers::{
        bpf_ktime_get_ns,
        generated::{bpf_get_prandom_u32, bpf_ringbuf_output},
    },
};
use pmu_common::{
    config::OFF_CPU_STACKS as WITH_STACKS,
    count::{NO_WAIT, SLOT_NONE, TaskState},
    loss,
    off_cpu::{BEFORE_COUNTING, RUN_QUEUE},
    off_cpu_stack::is_taken,
    ring,
};

use crate::{
    access::{Access, Pointer},
    config::config,
    cpu::{lose, this_cpu},
    maps::{OFF_CPU_STACKS, OffCpuRoom, RING},
    ring_event,
    sample::{STACK_BYTES, announce, stack_bytes},
    task,
};

/// `task` leaves its CPU, and its wait is noted. `slot` is its owner's.
#[inline(always)]
pub(crate) fn leave<A: Access>(
    context: *mut c_void,
    task: Pointer,
    state: &mut TaskState,
    slot: u32,
    cpu: u32,
) {
    if config!(off_cpu) != WITH_STACKS {
        return;
    }
    let since_ns = state.off_since_ns;
    let blocks = since_ns > BEFORE_COUNTING && state.off_kind != RUN_QUEUE && slot < SLOT_NONE;
    state.block();
    if blocks && take::<A>(context, task, state, slot, cpu).is_some() {
        // SAFETY: the helper has no preconditions.
        state.block_with_stack(unsafe { bpf_ktime_get_ns() }.wrapping_sub(since_ns));
    }
}

/// The task with this state becomes able to run. Call before [`TaskState::ready_cpu`] is no longer the CPU that it left.
#[inline(always)]
pub(crate) fn wake<A: Access>(state: &mut TaskState) {
    // Idle, the CPU waited for nothing but an interrupt, which comes when it comes.
    if config!(off_cpu) == WITH_STACKS
        && state.has_stack()
        && state.ready_cpu == this_cpu()
        && task::tid::<A>(A::current()) != 0
    {
        state.wake_on_its_cpu();
    }
}

/// Sends the task's stacks, if those of this wait are to be taken.
#[inline(always)]
fn take<A: Access>(
    context: *mut c_void,
    task: Pointer,
    state: &TaskState,
    slot: u32,
    cpu: u32,
) -> Option<()> {
    let room = OFF_CPU_STACKS.get_ptr_mut(cpu)?;
    // SAFETY: the lookup gave a live row, and only this CPU uses it, with interrupts off.
    let pace = unsafe { &mut (*room).pace };
    let thinning = pace.thinning(state.guess(), state.off_since_ns);
    // SAFETY: the helper has no preconditions.
    if !is_taken(thinning, unsafe { bpf_get_prandom_u32() }) {
        return None;
    }
    pace.took(state.off_since_ns);
    let addresses = room.cast::<u8>().wrapping_add(size_of::<ring::OffCpuStack>());
    let kernel_bytes = read(context, addresses, 0);
    let user_bytes =
        read(context, addresses.wrapping_add(kernel_bytes as usize), u64::from(BPF_F_USER_STACK));
    let tgid = task::process_of::<A>(task);
    let header = ring::OffCpuStack {
        kind: ring::OFF_CPU_STACK,
        slot,
        tgid,
        tid: task::tid::<A>(task),
        thinning,
        kernel_bytes,
        user_bytes,
        reserved: 0,
        since_ns: state.off_since_ns,
    };
    // SAFETY: as above.
    unsafe { (*room).header = header };
    announce::<A>(task, tgid);
    send(room, size_of::<ring::OffCpuStack>() as u64 + u64::from(kernel_bytes) + u64::from(user_bytes))
}

const _: () = assert!(
    core::mem::offset_of!(OffCpuRoom, pace) == size_of::<ring::OffCpuStack>() + 2 * STACK_BYTES as usize
);

#[inline(always)]
fn read(context: *mut c_void, into: *mut u8, flags: u64) -> u32 {
    stack_bytes(context, into, flags).unwrap_or_else(|| {
        lose(loss::STACK_FAILED);
        0
    })
}

#[inline(always)]
fn send(room: *mut OffCpuRoom, bytes: u64) -> Option<()> {
    let ring = (&raw const RING).cast_mut().cast();
    // SAFETY: `bytes` is at most the size of the row.
    if unsafe { bpf_ringbuf_output(ring, room.cast(), bytes, ring_event::if_half_full()) } != 0 {
        lose(loss::RING_FULL);
        return None;
    }
    Some(())
}

/// The task with this state gets a CPU, and how long it was blocked is known.
#[inline(always)]
pub(crate) fn arrive<A: Access>(task: Pointer, state: &mut TaskState) {
    if config!(off_cpu) != WITH_STACKS || state.blocked_ns == NO_WAIT || state.off_kind == RUN_QUEUE {
        return;
    }
    let blocked_ns = state.blocked_ns;
    if let Some(blocked_ns) = state.unblock(blocked_ns) {
        ring_event::unblocked(task::tid::<A>(task), blocked_ns);
    }
}
