//! Marks the slots with changed rows for user space, which skips all others.

use pmu_common::changed::MARKS;

use crate::{intrinsics::masked, maps::CHANGED};

/// Marks that a row of `slot` was written on `cpu`, which runs this. Call when the row is complete: a reader
/// that finds the mark finds all of it.
#[inline(always)]
pub(crate) fn mark(slot: u32, cpu: u32) {
    ordered();
    if let Some(marks) = CHANGED.get_ptr_mut(cpu) {
        let mark = marks.cast::<u8>().wrapping_add(masked(slot, MARKS));
        // SAFETY: the lookup gave a live row, and `masked` kept the index below their number.
        unsafe { *mark = 1 };
    }
}

/// Orders memory writes before this call before those after it, as seen by a program that interrupts this one
/// on its CPU.
#[inline(always)]
pub(crate) fn ordered() {
    #[cfg(target_arch = "bpf")]
    {
        let mut nothing = 0_u64;
        // SAFETY: it changes nothing; without `nomem` the compiler does not move memory accesses across it.
        // As in `intrinsics::opaque` there is an instruction.
        unsafe { core::arch::asm!("{0} = {0}", inout(reg) nothing, options(nostack, preserves_flags)) };
        let _ = nothing;
    }
}
