//! Operations that Rust cannot express: addition in one instruction, which no other program on the CPU can
//! interrupt, and an optimisation barrier that keeps a value in a register. `black_box` and volatile reads go
//! through the stack, and waiting for the value just stored there costs more than the work between.

/// Adds to a live, aligned counter in a map.
#[inline(always)]
pub(crate) fn add(counter: *mut u64, value: u64) {
    #[cfg(target_arch = "bpf")]
    // SAFETY: the caller passes a live, aligned counter in a map. `AtomicU64::fetch_add` does not exist for
    // BPF in Rust 1.95; this intrinsic is what it would call.
    unsafe {
        core::intrinsics::atomic_xadd::<u64, u64, { core::intrinsics::AtomicOrdering::Relaxed }>(
            counter, value,
        );
    }
    // The host only checks the crate.
    #[cfg(not(target_arch = "bpf"))]
    let _ = (counter, value);
}

/// Adds to a live, aligned counter of 32 bits in a map.
#[inline(always)]
pub(crate) fn add_u32(counter: *mut u32, value: u32) {
    #[cfg(target_arch = "bpf")]
    // SAFETY: as in `add`.
    unsafe {
        core::intrinsics::atomic_xadd::<u32, u32, { core::intrinsics::AtomicOrdering::Relaxed }>(
            counter, value,
        );
    }
    #[cfg(not(target_arch = "bpf"))]
    let _ = (counter, value);
}

/// Returns `index` with a bound that the verifier sees. The compiler proves the bound and drops the mask
/// unless it is made to forget the value. `length` is a power of two.
#[inline(always)]
pub(crate) fn masked(index: u32, length: usize) -> usize {
    opaque(u64::from(index)) as usize & (length - 1)
}

/// Returns `value` as a value unknown to the compiler.
#[inline(always)]
pub(crate) fn opaque(value: u64) -> u64 {
    #[cfg(target_arch = "bpf")]
    {
        let mut value = value;
        // SAFETY: it changes nothing. Without an instruction, verifiers refuse that a line of the source has
        // none.
        unsafe { core::arch::asm!("{0} = {0}", inout(reg) value, options(nomem, nostack, preserves_flags)) };
        value
    }
    // The host only checks the crate.
    #[cfg(not(target_arch = "bpf"))]
    core::hint::black_box(value)
}
