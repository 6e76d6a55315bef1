//! Values that the compiler must not see through. In a register: `black_box` and volatile reads go by way of the stack,
//! and waiting for what was just stored there costs more than the work between.

/// `index`, with a bound that the verifier sees: the compiler proves it and drops the mask unless it is made to forget.
/// `length` is a power of two.
#[inline(always)]
pub(crate) fn masked(index: u32, length: usize) -> usize {
    opaque(u64::from(index)) as usize & (length - 1)
}

/// `value`, of which the compiler knows nothing from here on.
#[inline(always)]
pub(crate) fn opaque(value: u64) -> u64 {
    #[cfg(target_arch = "bpf")]
    {
        let mut value = value;
        // SAFETY: it changes nothing. Without an instruction, verifiers refuse that a line of the source has none.
        unsafe { core::arch::asm!("{0} = {0}", inout(reg) value, options(nomem, nostack, preserves_flags)) };
        value
    }
    // The host only checks the crate.
    #[cfg(not(target_arch = "bpf"))]
    core::hint::black_box(value)
}
