//! Counts of a sample: one per owner, and one per address in one of two tables per CPU.
//!
//! The program writes one table while user space reads and clears the other. So no lock is needed, no sample
//! is lost between reading and clearing, and reading needs no system call.

use crate::wire;

/// Events that can be sampled on at once. Each has a separate program, so that the programs need no helper to
/// identify the event that overflowed (`bpf_get_attach_cookie` does not support perf events before Linux
/// 5.15).
pub const EVENTS_MAX: usize = 16;

/// Entries that are searched before an address is given up.
pub const HOT_PROBES: u32 = 8;

wire! {
    /// Samples of one owner on one CPU by one event. Written only by the sampling programs of that CPU. The
    /// kernel runs one of them at a time.
    pub struct SampleCount {
        /// Samples in user mode.
        pub user: u64,
        /// Samples in kernel mode.
        pub kernel: u64,
        /// Samples with interrupts masked: only an NMI can see them.
        pub masked: u64,
        /// Number that changes whenever the row does; compared, never shown.
        pub changes: u64,
        /// Keeps a row at a cache line.
        pub reserved: [u64; 4],
    }

    /// Samples at one address within one [epoch](hot_epoch). Free while `count` is 0.
    pub struct Hot {
        /// Address of the instruction.
        pub address: u64,
        /// Process id, 0 for a kernel address.
        pub tgid: u32,
        /// Slot of the owner.
        pub slot: u32,
        /// Number of samples.
        pub count: u32,
        /// Event that overflowed, by its place in the plan.
        pub event: u32,
        /// Time when the first of them was taken (CLOCK_MONOTONIC, ns).
        pub first_ns: u64,
    }
}

impl Hot {
    /// Returns the time by which the last of these samples was taken, where epochs last `1 << shift` ns.
    #[must_use]
    pub const fn last_ns(&self, shift: u32) -> u64 {
        if self.count <= 1 { self.first_ns } else { self.first_ns | ((1 << shift) - 1) }
    }
}

/// Returns the length of an epoch as a power of two in ns. Samples at one address within an epoch share a
/// row. `samples` are expected between two drains, and a table has `entries`. The epoch is 65 µs, in which
/// hardly two samples are taken, unless the table cannot hold a row for each.
#[must_use]
pub const fn hot_epoch_shift(samples: u32, entries: u32) -> u32 {
    let (mut shift, mut room) = (HOT_EPOCH_SHIFT.0, entries as u64 / 2);
    while room < samples as u64 && shift < HOT_EPOCH_SHIFT.1 {
        shift += 4;
        room *= 2;
    }
    shift
}

/// Shortest and longest epoch: 65 µs and 4 s.
const HOT_EPOCH_SHIFT: (u32, u32) = (16, 32);

/// Returns the number of the epoch of a time. With it the mapping of an address is looked up as it was at the
/// time of a sample.
#[must_use]
#[inline(always)]
pub const fn hot_epoch(at_ns: u64, shift: u32) -> u64 {
    at_ns >> shift
}

/// Returns the first entry to search for an address, before the table's mask.
#[must_use]
#[inline(always)]
pub const fn hot_hash(address: u64, tgid: u32, slot: u32, event: u32, epoch: u64) -> u32 {
    let who = ((tgid as u64) << 40) ^ ((slot as u64) << 20) ^ ((event as u64) << 60);
    let when = epoch.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = (address ^ who ^ when).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

/// Returns the distance from an entry to the next one to search. An address has as many rows as samples. When
/// neighbouring entries were searched, 0.4 % of the samples did not find a free one in a table that was half
/// full.
#[must_use]
#[inline(always)]
pub const fn hot_step(start: u32) -> u32 {
    (start >> 16) | 1
}

#[cfg(test)]
mod tests {
    use super::{HOT_PROBES, Hot, hot_epoch, hot_epoch_shift, hot_hash, hot_step};

    #[test]
    fn neighbouring_addresses_spread_over_the_table() {
        let mask = 1023;
        let mut used = [false; 1024];
        for k in 0..512_u64 {
            used[(hot_hash(0x7f12_3456_7000 + k * 4, 4711, 3, (k % 3) as u32, 0) & mask) as usize] = true;
        }
        // 512 balls thrown at random into 1024 bins occupy about 403 of them.
        assert!(used.iter().filter(|&&entry| entry).count() > 340);
    }

    #[test]
    fn epochs_of_one_address_spread_over_the_table() {
        let mask = 1023;
        let mut used = [false; 1024];
        for k in 0..512_u64 {
            let epoch = hot_epoch(1_700_000_000_000 + k * 1_001_001, 16);
            used[(hot_hash(0x7f12_3456_7000, 4711, 3, 0, epoch) & mask) as usize] = true;
        }
        assert!(used.iter().filter(|&&entry| entry).count() > 340);
    }

    #[test]
    fn an_epoch_holds_one_sample_unless_the_table_is_too_small() {
        assert_eq!(hot_epoch_shift(999, 2048), 16);
        assert_eq!(hot_epoch_shift(16_384, 32_768), 16);
        assert_eq!(hot_epoch_shift(20_000, 32_768), 20);
        assert_eq!(hot_epoch_shift(u32::MAX, 32_768), 32);
    }

    #[test]
    fn a_table_that_is_half_full_has_room() {
        let (mask, mut lost) = (1023, 0);
        let mut used = [false; 1024];
        for k in 0..512_u64 {
            let epoch = hot_epoch(1_700_000_000_000 + k * 1_001_001, 16);
            let start = hot_hash(0x7f12_3456_7000 + (k % 40) * 4, 4711, 3, 0, epoch);
            let mut entries =
                (0..HOT_PROBES).map(|probe| start.wrapping_add(probe.wrapping_mul(hot_step(start))) & mask);
            match entries.find(|&entry| !used[entry as usize]) {
                Some(entry) => used[entry as usize] = true,
                None => lost += 1,
            }
        }
        assert!(lost <= 2, "{lost} of 512");
    }

    #[test]
    fn a_row_ends_with_its_epoch() {
        let row = Hot { first_ns: 0x1_2345, count: 2, ..Hot::ZERO };
        assert_eq!(row.last_ns(16), 0x1_ffff);
        assert_eq!(Hot { count: 1, ..row }.last_ns(16), 0x1_2345, "it is the only one");
        assert_eq!(hot_epoch(row.first_ns, 16), hot_epoch(row.last_ns(16), 16));
    }
}
