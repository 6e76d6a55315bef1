//! Addition in one instruction, which no other program on the CPU can come between.

/// Adds to a live, aligned counter in a map.
#[inline(always)]
pub(crate) fn add(counter: *mut u64, value: u64) {
    #[cfg(target_arch = "bpf")]
    // SAFETY: the caller passes a live, aligned counter in a map. `AtomicU64::fetch_add` does not exist for BPF in
    // Rust 1.95; this intrinsic is what it would call.
    unsafe {
        core::intrinsics::atomic_xadd::<u64, u64, { core::intrinsics::AtomicOrdering::Relaxed }>(
            counter, value,
        );
    }
    // The host only checks the crate.
    #[cfg(not(target_arch = "bpf"))]
    let _ = (counter, value);
}

/// The same of 32 bits.
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
