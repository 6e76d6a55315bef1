//! Stacks of blocking tasks. The switch program still runs as the task that leaves, so both its stacks are
//! available: of another task the kernel returns no user stack (kernel/bpf/stackmap.c, `__bpf_get_stack`).
//! Only where `Config::off_cpu` requests it: the verifier drops all of it otherwise.

use core::{ffi::c_void, mem::offset_of};

use aya_ebpf::{
    bindings::BPF_F_USER_STACK,
    helpers::{
        bpf_ktime_get_ns,
        generated::{bpf_get_prandom_u32, bpf_probe_read_kernel, bpf_probe_read_user, bpf_ringbuf_output},
    },
};
use pmu_common::{
    config::OFF_CPU_STACKS as WITH_STACKS,
    count::{NO_WAIT, SLOT_NONE, TaskState},
    loss,
    off_cpu::{BEFORE_COUNTING, RUN_QUEUE},
    off_cpu_stack::is_taken,
    ring::{self, ENTERED_REGISTERS, ENTERED_WORDS},
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

/// Handles that `task`, of the owner in `slot`, leaves its CPU, after its wait was recorded.
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

/// Handles that the task with this state becomes able to run. Call while [`TaskState::ready_cpu`] is still
/// the CPU that it left.
#[inline(always)]
pub(crate) fn wake<A: Access>(state: &mut TaskState) {
    // If the CPU was idle, it waited only for an interrupt, which comes at its own time.
    if config!(off_cpu) == WITH_STACKS
        && state.has_stack()
        && state.ready_cpu == this_cpu()
        && task::tid::<A>(A::current()) != 0
    {
        state.wake_on_its_cpu();
    }
}

/// Sends the task's stacks, if this wait is selected.
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
    let addresses = room.cast::<u8>().wrapping_add(HEAD_BYTES);
    let copied = enter::<A>(task, room);
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
        copied,
        since_ns: state.off_since_ns,
    };
    // SAFETY: as above.
    unsafe { (*room).header = header };
    announce::<A>(task, tgid);
    send(room, HEAD_BYTES as u64 + u64::from(kernel_bytes) + u64::from(user_bytes))
}

/// Bytes before the addresses.
const HEAD_BYTES: usize = size_of::<ring::OffCpuStack>() + size_of::<ring::Entered>();

const _: () = assert!(offset_of!(OffCpuRoom, pace) == HEAD_BYTES + 2 * STACK_BYTES as usize);

/// Writes the task's user state at its entry to the kernel into the record, without a copy on the stack,
/// which is small. Returns the number of bytes of the user stack.
#[inline(always)]
fn enter<A: Access>(task: Pointer, room: *mut OffCpuRoom) -> u32 {
    if config!(finds_futexes) == 0 {
        return 0;
    }
    let saved = A::user_registers(task);
    if saved.is_null() {
        return 0;
    }
    let from = saved.wrapping_add(FIRST_REGISTER);
    let registers = room.wrapping_byte_add(offset_of!(OffCpuRoom, entered.registers));
    // SAFETY: the row has room for them; the helper checks the address.
    unsafe { bpf_probe_read_kernel(registers.cast(), REGISTER_BYTES, from.cast()) };
    // SAFETY: the lookup gave a live row, and only this CPU uses it, with interrupts off.
    let stack_pointer = unsafe { (*room).entered.registers[STACK_POINTER] };
    let bytes = (ENTERED_WORDS * 8) as u32;
    let stack = room.wrapping_byte_add(offset_of!(OffCpuRoom, entered.stack));
    // SAFETY: the row has room for them; the helper checks the address.
    match unsafe { bpf_probe_read_user(stack.cast(), bytes, stack_pointer as *const c_void) } {
        0 => bytes,
        _ => 0,
    }
}

#[cfg(any(bpf_target_arch = "x86_64", all(not(target_arch = "bpf"), target_arch = "x86_64")))]
const FIRST_REGISTER: usize = offset_of!(aya_ebpf::bindings::pt_regs, rbp);
#[cfg(any(bpf_target_arch = "x86_64", all(not(target_arch = "bpf"), target_arch = "x86_64")))]
const REGISTER_BYTES: u32 = (ENTERED_REGISTERS * 8) as u32;
#[cfg(any(bpf_target_arch = "x86_64", all(not(target_arch = "bpf"), target_arch = "x86_64")))]
const STACK_POINTER: usize = (offset_of!(aya_ebpf::bindings::pt_regs, rsp) - FIRST_REGISTER) / 8;

/// Register x29 (AAPCS64, 6.1.1).
#[cfg(any(bpf_target_arch = "aarch64", all(not(target_arch = "bpf"), target_arch = "aarch64")))]
const FIRST_REGISTER: usize = 29 * 8;
#[cfg(any(bpf_target_arch = "aarch64", all(not(target_arch = "bpf"), target_arch = "aarch64")))]
const REGISTER_BYTES: u32 = 5 * 8;
#[cfg(any(bpf_target_arch = "aarch64", all(not(target_arch = "bpf"), target_arch = "aarch64")))]
const STACK_POINTER: usize = 2;

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

/// Handles that the task with this state gets a CPU with a known blocked time.
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
