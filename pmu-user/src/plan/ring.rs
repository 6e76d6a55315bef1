//! Size of the ring buffer.

use std::time::Duration;

use pmu_common::ring::COPY_BYTES_MAX;

use super::request::{By, Culprits, OffCpu, Stacks, Unwind};

/// Maximum size of the ring buffer.
const RING_BYTES_MAX: u64 = 64 << 20;
/// Room for rare facts of a second: some 500 cgroups, with paths that are the longest of them.
const RARE_FACTS_BYTES: u64 = 256 << 10;
/// Room for stacks of tasks that block, per CPU: a thousand at nine tenths of a kilobyte, until the rate is
/// known.
const OFF_CPU_STACK_BYTES: u64 = 896 << 10;
/// Room for waits of a CPU that find no place among its charges. In a storm of a thousand processes a second,
/// some ten thousand come in a second, of 40 bytes. They have half of the ring buffer, and on a busy host
/// user space may have no CPU for a second.
const CHARGE_BYTES: u64 = 896 << 10;
/// Maximum room for such waits of all CPUs.
const CHARGE_BYTES_MAX: u64 = 7 << 20;

/// Returns the room for waits that find no place, where each process is a separate culprit.
pub(super) fn charge_bytes(culprits: Culprits, by: By, cpus: usize) -> u32 {
    if culprits == Culprits::No || by == By::Cgroup {
        return 0;
    }
    (CHARGE_BYTES * cpus as u64).min(CHARGE_BYTES_MAX) as u32
}

/// Returns the size of the ring buffer: room for the stacks of one and a half ticks, at a kilobyte each.
/// Without stacks, it has room for rare facts: processes and cgroups that come and go until the next tick.
/// Copies of stacks wake user space as soon as they fill a quarter, and take at most half.
pub(super) fn bytes(
    stacks: (Stacks, Unwind, OffCpu),
    (per_tick, tick): (u32, Duration),
    charges: u32,
    cpus: usize,
) -> u32 {
    let (samples, cpus) = (u64::from(per_tick) * cpus as u64, cpus as u64);
    let waits = if stacks.2.is_no() { 0 } else { OFF_CPU_STACK_BYTES * cpus };
    let (bytes, most) = match stacks {
        (Stacks::No, ..) => (0, RING_BYTES_MAX),
        (Stacks::Yes, Unwind::Fp, _) => (samples * 1536 + waits, RING_BYTES_MAX),
        (Stacks::Yes, Unwind::Dwarf, _) => (samples * COPY_BYTES_MAX as u64 + waits, RING_BYTES_MAX / 4),
    };
    let facts = RARE_FACTS_BYTES * tick.as_secs().max(1);
    (bytes.clamp(facts, most) + u64::from(charges)).min(RING_BYTES_MAX).next_power_of_two() as u32
}
