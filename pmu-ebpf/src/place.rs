//! Where a sample hit: the instruction, and in which mode.

use core::ffi::c_void;

use aya_ebpf::bindings::bpf_perf_event_data;

use crate::{
    access::{Pointer, Probed},
    sample::Cause,
};

/// Where a sample hit.
pub(crate) struct Place {
    /// The instruction.
    pub(crate) address: u64,
    /// In user mode?
    pub(crate) user: bool,
    /// With interrupts masked?
    pub(crate) masked: bool,
}

/// Where the sample of a program's context hit.
#[inline(always)]
pub(crate) fn place(context: *mut c_void, cause: Cause) -> Place {
    match cause {
        Cause::Overflow => interrupted(context),
        Cause::Hit => caller(context),
    }
}

/// Who called a tracepoint: the registers that the kernel made up there hold its address, but no flags. A program's context
/// begins with their address, which only a helper may read.
#[inline(always)]
fn caller(context: *mut c_void) -> Place {
    let registers = Probed::read::<u64>(context as Pointer, 0) as Pointer;
    Place { address: Probed::read(registers, ADDRESS), user: false, masked: false }
}

/// Where the instruction's address is among the registers of an interrupted task.
#[cfg(any(bpf_target_arch = "x86_64", all(not(target_arch = "bpf"), target_arch = "x86_64")))]
const ADDRESS: u32 = core::mem::offset_of!(aya_ebpf::bindings::pt_regs, rip) as u32;

#[cfg(any(bpf_target_arch = "x86_64", all(not(target_arch = "bpf"), target_arch = "x86_64")))]
#[inline(always)]
fn interrupted(context: *mut c_void) -> Place {
    // SAFETY: the kernel passes a live `bpf_perf_event_data` at an overflow.
    let registers = unsafe { &(*context.cast::<bpf_perf_event_data>()).regs };
    // The low bits of CS are the privilege level; bit 9 of EFLAGS is the interrupt flag (Intel SDM vol. 3, 5.5 and 2.3).
    Place { address: registers.rip, user: registers.cs & 3 != 0, masked: registers.eflags & 0x200 == 0 }
}

/// Where the instruction's address is among the registers of an interrupted task, which begin with what user space sees.
#[cfg(any(bpf_target_arch = "aarch64", all(not(target_arch = "bpf"), target_arch = "aarch64")))]
const ADDRESS: u32 = core::mem::offset_of!(aya_ebpf::bindings::user_pt_regs, pc) as u32;

#[cfg(any(bpf_target_arch = "aarch64", all(not(target_arch = "bpf"), target_arch = "aarch64")))]
#[inline(always)]
fn interrupted(context: *mut c_void) -> Place {
    // SAFETY: the kernel passes a live `bpf_perf_event_data` at an overflow.
    let registers = unsafe { &(*context.cast::<bpf_perf_event_data>()).regs };
    // PSTATE: the low bits are the exception level, bit 7 masks interrupts (Arm ARM, C5.2.19).
    Place { address: registers.pc, user: registers.pstate & 0xf == 0, masked: registers.pstate & 0x80 != 0 }
}
