//! CPU that a program runs on: its rows, and its losses.

use aya_ebpf::helpers::bpf_get_smp_processor_id;

use crate::{CPUS, config::config, intrinsics::add};

/// Returns the CPU that the program runs on.
#[inline(always)]
pub(crate) fn this_cpu() -> u32 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_get_smp_processor_id() }
}

/// Returns the index of a row by slot and CPU.
#[inline(always)]
pub(crate) fn row(slot: u32, cpu: u32) -> u32 {
    slot.wrapping_mul(config!(cpus)).wrapping_add(cpu)
}

/// Adds 1 to a counter of this CPU's row, in one instruction: a program that may be interrupted by another
/// one on its CPU must not lose the other's count.
#[inline(always)]
pub(crate) fn lose(reason: usize) {
    if let Some(cpu) = CPUS.get_ptr_mut(this_cpu()) {
        // SAFETY: the lookup gave a live row.
        let losses = unsafe { &raw mut (*cpu).losses };
        // Every caller passes a constant below `REASONS`.
        add(losses.cast::<u64>().wrapping_add(reason), 1);
    }
}
