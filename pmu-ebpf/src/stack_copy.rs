//! Copies of user stacks that user space unwinds, with the registers to begin from. They are read from user
//! memory without faults and written to records. Only where `Config::unwind` requests it: the verifier drops
//! all of it otherwise.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_F_USER_STACK,
    helpers::generated::{bpf_probe_read_user, bpf_ringbuf_output},
};
use pmu_common::{
    config::UNWIND_ALL,
    cpu::CpuSamples,
    loss,
    ring::{self, COPY_PIECE_BYTES, COPY_PIECES, COPY_WAKE_BYTES},
};

use self::architecture::{of_context, of_entry};
use crate::{
    access::{Access, Pointer},
    config::config,
    intrinsics::opaque,
    maps::{COPIES, CopyRoom, RING},
    ring_event,
    sample::{STACK_BYTES, read_stack},
};

/// Bytes before the addresses.
const HEAD_BYTES: usize = size_of::<ring::Stack>() + size_of::<ring::StackCopy>();
/// Power of two that is an upper bound for the start of a piece.
const BEGINS_MAX: usize = 16 << 10;
const _: () =
    assert!(HEAD_BYTES + 2 * STACK_BYTES as usize + (COPY_PIECES - 1) * COPY_PIECE_BYTES < BEGINS_MAX);
const _: () = assert!(BEGINS_MAX - 1 + COPY_PIECE_BYTES <= size_of::<CopyRoom>());

/// Sends both stacks, and a copy of the user stack. `entered` is the task if the sample is in the kernel.
/// `skipped` is the number of frames of the kernel stack to leave out.
#[inline(always)]
pub(crate) fn send<A: Access>(
    context: *mut c_void,
    samples: &mut CpuSamples,
    cpu: u32,
    header: &ring::Stack,
    (entered, skipped): (Option<Pointer>, u64),
) {
    let Some(room) = COPIES.get_ptr_mut(cpu) else {
        return;
    };
    let start = room.cast::<u8>();
    let addresses = start.wrapping_add(HEAD_BYTES);
    let kernel_bytes = read_stack(context, samples, addresses, skipped);
    let user = addresses.wrapping_add(kernel_bytes as usize);
    let user_bytes = read_stack(context, samples, user, u64::from(BPF_F_USER_STACK));
    let head = HEAD_BYTES as u64 + u64::from(kernel_bytes) + u64::from(user_bytes);
    let (waiting, size) = ring_event::waiting_of();
    let mut copy = ring::StackCopy { status: ring::COPY_NO_REGISTERS, ..ring::StackCopy::ZERO };
    if waiting > size / 2 {
        copy.status = ring::COPY_NO_ROOM;
    } else if user_bytes != 0
        && let Some(registers) = registers::<A>(context, entered)
    {
        copy.registers = registers;
        copy.bytes = copy_stack(start, head, registers[1]);
        copy.status = if copy.bytes == 0 { ring::COPY_UNREADABLE } else { ring::COPIED };
    }
    let bytes = opaque(head + u64::from(copy.bytes));
    if bytes > size_of::<CopyRoom>() as u64 {
        return;
    }
    // SAFETY: the lookup gave a live row that only this program on this CPU uses.
    let room = unsafe { &mut *room };
    room.header = ring::Stack { kind: ring::STACK_COPY, kernel_bytes, user_bytes, ..*header };
    room.copy = copy;
    let ring = (&raw const RING).cast_mut().cast();
    // The other half of the ring buffer is for everything else, so user space is woken up before this one is
    // full.
    // SAFETY: `bytes` is at most the size of the row.
    if unsafe {
        bpf_ringbuf_output(
            ring,
            start.cast(),
            bytes,
            ring_event::wake_if(waiting > COPY_WAKE_BYTES || waiting > size / 4),
        )
    } != 0
    {
        samples.losses[loss::RING_FULL] += 1;
    }
}

/// Copies the user stack behind the first `head` bytes of a row and returns the number of bytes.
#[inline(always)]
fn copy_stack(row: *mut u8, head: u64, stack_pointer: u64) -> u32 {
    let mut copied = 0;
    for _ in 0..COPY_PIECES {
        let from = stack_pointer.wrapping_add(copied);
        let to_page_end = COPY_PIECE_BYTES as u64 - (opaque(from) & (COPY_PIECE_BYTES as u64 - 1));
        let begin = opaque(head + copied) & (BEGINS_MAX as u64 - 1);
        let into = row.wrapping_add(begin as usize).cast();
        // SAFETY: the row has room for a whole piece behind the last possible start; the helper checks the
        // address.
        if unsafe { bpf_probe_read_user(into, to_page_end as u32, from as *const c_void) } != 0 {
            break;
        }
        copied += to_page_end;
    }
    copied as u32
}

/// Returns registers of user mode: those that the sample interrupted, or those that `entered` entered the
/// kernel with.
#[inline(always)]
fn registers<A: Access>(context: *mut c_void, entered: Option<Pointer>) -> Option<[u64; 4]> {
    let Some(task) = entered else {
        // SAFETY: the kernel passes a live `bpf_perf_event_data` where an event has overflowed, and `entered`
        // is `None` only there.
        return of_context(unsafe { &*context.cast() });
    };
    if config!(unwind) != UNWIND_ALL {
        return None;
    }
    let entered = A::user_registers(task);
    if entered.is_null() { None } else { of_entry(entered) }
}

#[cfg(any(bpf_target_arch = "x86_64", all(not(target_arch = "bpf"), target_arch = "x86_64")))]
mod architecture {
    use core::mem::offset_of;

    use aya_ebpf::bindings::{bpf_perf_event_data, pt_regs};

    use crate::access::{Fields as _, Pointer, Probed};

    /// Code segment `__USER32_CS` (arch/x86/include/asm/segment.h): code in it has another stack layout.
    const COMPATIBLE: u64 = 0x23;

    #[inline(always)]
    pub(super) fn of_context(context: &bpf_perf_event_data) -> Option<[u64; 4]> {
        let registers = &context.regs;
        (registers.cs != COMPATIBLE).then_some([registers.rip, registers.rsp, registers.rbp, 0])
    }

    #[inline(always)]
    pub(super) fn of_entry(entered: Pointer) -> Option<[u64; 4]> {
        let read = |offset: usize| Probed::u64(entered, offset as u32);
        // All registers of a kernel thread are 0, and the low bits of CS are the privilege level.
        let cs = read(offset_of!(pt_regs, cs));
        (cs & 3 != 0 && cs != COMPATIBLE).then(|| {
            [
                read(offset_of!(pt_regs, rip)),
                read(offset_of!(pt_regs, rsp)),
                read(offset_of!(pt_regs, rbp)),
                0,
            ]
        })
    }
}

#[cfg(any(bpf_target_arch = "aarch64", all(not(target_arch = "bpf"), target_arch = "aarch64")))]
mod architecture {
    use core::mem::offset_of;

    use aya_ebpf::bindings::{bpf_perf_event_data, user_pt_regs};

    use crate::access::{Fields as _, Pointer, Probed};

    /// Bit PSTATE.nRW: the program is a 32-bit one (Arm ARM, C5.2.19).
    const COMPATIBLE: u64 = 0x10;
    /// Indices of frame pointer and link register among the general registers (AAPCS64, 6.1.1).
    const FRAME: usize = 29;
    const LINK: usize = 30;

    #[inline(always)]
    pub(super) fn of_context(context: &bpf_perf_event_data) -> Option<[u64; 4]> {
        let registers = &context.regs;
        let found = [registers.pc, registers.sp, registers.regs[FRAME], registers.regs[LINK]];
        (registers.pstate & COMPATIBLE == 0).then_some(found)
    }

    /// Reads the registers from `pt_regs`, which begins with the user-visible ones
    /// (arch/arm64/include/asm/ptrace.h).
    #[inline(always)]
    pub(super) fn of_entry(entered: Pointer) -> Option<[u64; 4]> {
        let read = |offset: usize| Probed::u64(entered, offset as u32);
        let state = read(offset_of!(user_pt_regs, pstate));
        let sp = read(offset_of!(user_pt_regs, sp));
        (state & 0xf == 0 && state & COMPATIBLE == 0 && sp != 0)
            .then(|| [read(offset_of!(user_pt_regs, pc)), sp, read(FRAME * 8), read(LINK * 8)])
    }
}
