//! Saved registers: the place that a sample hit, and the code that a timer interrupted. That is user code,
//! which cannot mask interrupts, or kernel code, which may have just enabled interrupts.

use core::ffi::c_void;

use aya_ebpf::bindings::bpf_perf_event_data;
use pmu_common::{
    config::ABSENT,
    enable,
    gap::{CODE_KERNEL, CODE_UNKNOWN, CODE_USER},
};

use crate::{
    access::{Fields as _, Pointer, Probed},
    config::config,
    sample::Cause,
};

/// Place that a sample hit.
pub(crate) struct Place {
    /// Address of the instruction.
    pub(crate) address: u64,
    /// Whether the CPU was in user mode.
    pub(crate) user: bool,
    /// Whether interrupts were masked.
    pub(crate) masked: bool,
}

/// Returns the place that the sample of a program's context hit.
#[inline(always)]
pub(crate) fn place(context: *mut c_void, cause: Cause) -> Place {
    match cause {
        Cause::Overflow => interrupted(context),
        Cause::Hit => caller(context),
    }
}

/// Returns the caller of a tracepoint. The registers that the kernel made up there hold its address, but no
/// flags. A program's context begins with their address, which only a helper may read.
#[inline(always)]
fn caller(context: *mut c_void) -> Place {
    let registers = Probed::read::<u64>(context as Pointer, 0) as Pointer;
    Place { address: Probed::read(registers, ADDRESS), user: false, masked: false }
}

/// Offset of the instruction's address among the registers of an interrupted task.
#[cfg(any(bpf_target_arch = "x86_64", all(not(target_arch = "bpf"), target_arch = "x86_64")))]
const ADDRESS: u32 = core::mem::offset_of!(aya_ebpf::bindings::pt_regs, rip) as u32;

#[cfg(any(bpf_target_arch = "x86_64", all(not(target_arch = "bpf"), target_arch = "x86_64")))]
#[inline(always)]
fn interrupted(context: *mut c_void) -> Place {
    // SAFETY: the kernel passes a live `bpf_perf_event_data` at an overflow.
    let registers = unsafe { &(*context.cast::<bpf_perf_event_data>()).regs };
    // Bit 9 of EFLAGS is the interrupt flag (Intel SDM vol. 3, 2.3).
    Place { address: registers.rip, user: is_user(registers.cs), masked: registers.eflags & 0x200 == 0 }
}

/// Offset of the instruction's address among the registers of an interrupted task, which begin with the
/// user-visible ones.
#[cfg(any(bpf_target_arch = "aarch64", all(not(target_arch = "bpf"), target_arch = "aarch64")))]
const ADDRESS: u32 = core::mem::offset_of!(aya_ebpf::bindings::user_pt_regs, pc) as u32;

#[cfg(any(bpf_target_arch = "aarch64", all(not(target_arch = "bpf"), target_arch = "aarch64")))]
#[inline(always)]
fn interrupted(context: *mut c_void) -> Place {
    // SAFETY: the kernel passes a live `bpf_perf_event_data` at an overflow.
    let registers = unsafe { &(*context.cast::<bpf_perf_event_data>()).regs };
    // PSTATE: bit 7 masks interrupts (Arm ARM, C5.2.19).
    Place { address: registers.pc, user: is_user(registers.pstate), masked: registers.pstate & 0x80 != 0 }
}

/// Returns the registers of the code that `timer` interrupted on this CPU; null where they cannot be found.
///
/// The kernel keeps a pointer to them in the per-CPU variable `__irq_regs` (include/asm-generic/irq_regs.h).
/// Programs do not get its address, but the timer leads to another per-CPU variable at a known distance.
#[inline(always)]
pub(crate) fn of_timer(timer: Pointer) -> Pointer {
    if config!(offsets.irq_regs) == ABSENT {
        return core::ptr::null();
    }
    let base = Probed::pointer(timer, config!(offsets.hrtimer_base));
    let cpu_base = Probed::u64(base, config!(offsets.clock_base_cpu_base));
    let place = cpu_base.wrapping_add(i64::from(config!(offsets.irq_regs) as i32) as u64);
    Probed::pointer(place as Pointer, 0)
}

/// Returns the kind of the interrupted code: `CODE_USER`, `CODE_KERNEL` or `CODE_UNKNOWN`.
#[inline(always)]
pub(crate) fn code(registers: Pointer) -> u32 {
    if registers.is_null() {
        CODE_UNKNOWN
    } else if is_user(Probed::u64(registers, config!(offsets.regs_mode))) {
        CODE_USER
    } else {
        CODE_KERNEL
    }
}

/// Returns whether the instruction before the interrupted kernel code enabled interrupts. A masked interrupt
/// comes there and nowhere else.
#[inline(always)]
pub(crate) fn is_at_enable(registers: Pointer) -> bool {
    // The instruction's address stands before the field with the mode, in both architectures' `pt_regs`.
    enables_before(Probed::u64(registers, config!(offsets.regs_mode).wrapping_sub(8))) != 0
}

/// Returns whether the instruction before an address enables interrupts. As a separate function on a number,
/// the verifier visits it once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn enables_before(address: u64) -> u64 {
    let word = |before: u64| Probed::u64(address.wrapping_sub(before) as Pointer, 0);
    enables(word(16), word(8)).into()
}

/// Returns whether CS is of user mode: the low bits are the privilege level (Intel SDM vol. 3, 5.5).
#[cfg(any(bpf_target_arch = "x86_64", all(not(target_arch = "bpf"), target_arch = "x86_64")))]
#[inline(always)]
const fn is_user(cs: u64) -> bool {
    cs & 3 != 0
}

#[cfg(any(bpf_target_arch = "x86_64", all(not(target_arch = "bpf"), target_arch = "x86_64")))]
#[inline(always)]
const fn enables(first: u64, last: u64) -> bool {
    enable::x86_64(first, last)
}

/// Returns whether PSTATE is of user mode: the low bits are the exception level (Arm ARM, C5.2.19).
#[cfg(any(bpf_target_arch = "aarch64", all(not(target_arch = "bpf"), target_arch = "aarch64")))]
#[inline(always)]
const fn is_user(pstate: u64) -> bool {
    pstate & 0xf == 0
}

#[cfg(any(bpf_target_arch = "aarch64", all(not(target_arch = "bpf"), target_arch = "aarch64")))]
#[inline(always)]
const fn enables(_: u64, last: u64) -> bool {
    enable::aarch64(last)
}
