//! What a sample leaves behind: a count per owner, and a count per address in one of two tables per CPU.
//!
//! The program writes one table while user space reads and clears the other, so nothing is locked, nothing is lost
//! between reading and clearing, and reading needs no system call.

use crate::wire;

/// Events that can be sampled on at once. Each has a program of its own, so that the programs need no helper to know
/// which of them overflowed (`bpf_get_attach_cookie` knows no perf events before Linux 5.15).
pub const EVENTS_MAX: usize = 16;

/// Entries that are looked at before an address is given up.
pub const HOT_PROBES: u32 = 8;

wire! {
    /// Samples of one owner on one CPU by one event. Written only by the sampling programs of that CPU, of which the kernel
    /// runs one at a time.
    pub struct SampleCount {
        /// Samples in user mode.
        pub user: u64,
        /// Samples in kernel mode.
        pub kernel: u64,
        /// Samples that found interrupts masked: only an NMI can see them.
        pub masked: u64,
        /// Changes whenever the row does; compared, never shown.
        pub changes: u64,
        /// Keeps a row at a cache line.
        pub reserved: [u64; 4],
    }

    /// Samples at one address. Free while `count` is 0.
    pub struct Hot {
        /// Instruction address.
        pub address: u64,
        /// Process, 0 for a kernel address.
        pub tgid: u32,
        /// Owner's slot.
        pub slot: u32,
        /// Samples.
        pub count: u32,
        /// Event that overflowed: its place in the plan.
        pub event: u32,
    }
}

/// First entry to look at for an address, before the table's mask.
#[must_use]
#[inline(always)]
pub const fn hot_hash(address: u64, tgid: u32, slot: u32, event: u32) -> u32 {
    let who = ((tgid as u64) << 40) ^ ((slot as u64) << 20) ^ ((event as u64) << 60);
    let mixed = (address ^ who).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::hot_hash;

    #[test]
    fn neighbouring_addresses_spread_over_the_table() {
        let mask = 1023;
        let mut used = [false; 1024];
        for k in 0..512_u64 {
            used[(hot_hash(0x7f12_3456_7000 + k * 4, 4711, 3, (k % 3) as u32) & mask) as usize] = true;
        }
        // 512 balls thrown at random into 1024 bins occupy about 403 of them.
        assert!(used.iter().filter(|&&entry| entry).count() > 340);
    }
}
