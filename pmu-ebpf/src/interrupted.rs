//! What code a timer interrupted: a user's, which cannot mask interrupts, or the kernel's, and whether that had just let
//! interrupts in.

use pmu_common::{
    config::ABSENT,
    enable,
    gap::{CODE_KERNEL, CODE_UNKNOWN, CODE_USER},
};

use crate::{
    access::{Fields as _, Pointer, Probed},
    config::config,
};

/// Registers of what `timer` interrupted on this CPU; null where they cannot be found.
///
/// The kernel keeps a pointer to them in the per-CPU variable `__irq_regs` (include/asm-generic/irq_regs.h), whose address
/// programs are not given; but the timer leads to another per-CPU variable, and the distance is known.
#[inline(always)]
pub(crate) fn registers(timer: Pointer) -> Pointer {
    if config!(offsets.irq_regs) == ABSENT {
        return core::ptr::null();
    }
    let base = Probed::pointer(timer, config!(offsets.hrtimer_base));
    let cpu_base = Probed::u64(base, config!(offsets.clock_base_cpu_base));
    let place = cpu_base.wrapping_add(i64::from(config!(offsets.irq_regs) as i32) as u64);
    Probed::pointer(place as Pointer, 0)
}

/// What code was interrupted: `CODE_USER`, `CODE_KERNEL` or `CODE_UNKNOWN`.
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

/// Had the interrupted kernel code let interrupts in with the instruction before? An interrupt that was masked comes there
/// and nowhere else.
#[inline(always)]
pub(crate) fn is_at_enable(registers: Pointer) -> bool {
    // The instruction's address stands before what tells the mode, in both architectures' `pt_regs`.
    let address = Probed::u64(registers, config!(offsets.regs_mode).wrapping_sub(8));
    let word = |before: u64| Probed::u64(address.wrapping_sub(before) as Pointer, 0);
    enables(word(16), word(8))
}

/// CS: the low bits are the privilege level (Intel SDM vol. 3, 5.5).
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

/// PSTATE: the low bits are the exception level (Arm ARM, C5.2.19).
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
