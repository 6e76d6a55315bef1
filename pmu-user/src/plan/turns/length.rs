//! How long a group stays in force.

use std::time::Duration;

/// Shortest mean slice. Every slice begins and ends between two switches of tasks, and what ran across its edges is cut.
const SLICE_MIN: Duration = Duration::from_millis(10);
/// Most of a CPU's time that changing groups may take: 1 in so many.
const COST_SHARE: u32 = 500;
/// What a change of groups costs the CPU on which it happens: two interrupts from the CPU that asks, and about ten
/// counters programmed. An estimate, on the high side.
const CHANGE: Duration = Duration::from_micros(20);
/// The same in a guest, where the hypervisor is asked for every register.
const CHANGE_IN_GUEST: Duration = Duration::from_micros(100);
/// What a change costs the thread that asks for it, for each CPU: two system calls that wait for the other CPU.
const ASKING: Duration = Duration::from_micros(10);
/// The CPUs change one after the other: all have within 1 in so many of a slice.
const SWEEP_SHARE: u32 = 20;

/// How long a group stays in force on average, on a machine with so many CPUs.
///
/// Long enough that changing takes at most 0.2 % of every CPU's time, and that the CPUs, which change one after the
/// other, are on the same group for most of it.
#[must_use]
pub fn slice(cpus: usize, host: Host) -> Duration {
    let change = match host {
        Host::Bare => CHANGE,
        Host::Guest => CHANGE_IN_GUEST,
    };
    let sweep = ASKING.saturating_mul(u32::try_from(cpus).unwrap_or(u32::MAX));
    SLICE_MIN.max(change * COST_SHARE).max(sweep.saturating_mul(SWEEP_SHARE))
}

/// What pmbpf runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The machine itself.
    Bare,
    /// A virtual machine.
    Guest,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Host, slice};

    #[test]
    fn changing_groups_costs_little_on_any_machine() {
        for cpus in [1, 2, 64, 512, 8192] {
            for (host, change_us) in [(Host::Bare, 20.0), (Host::Guest, 100.0)] {
                let slice_us = slice(cpus, host).as_secs_f64() * 1e6;
                assert!(change_us / slice_us <= 0.002 + 1e-9, "{cpus} CPUs, {host:?}");
                assert!(cpus as f64 * 10.0 / slice_us <= 0.05 + 1e-9, "{cpus} CPUs, {host:?}");
            }
        }
    }

    #[test]
    fn few_cpus_have_short_slices() {
        assert_eq!(slice(2, Host::Bare), Duration::from_millis(10));
        assert_eq!(slice(2, Host::Guest), Duration::from_millis(50));
        assert_eq!(slice(256, Host::Bare), Duration::from_millis(51) + Duration::from_micros(200));
    }
}
