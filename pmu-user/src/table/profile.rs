//! Predefined configurations: what to sample for a question, as lists of quantities.

use super::quantity::Quantity;

/// A predefined configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name on the command line.
    pub name: &'static str,
    /// Question that it answers, in one sentence.
    pub says: &'static str,
    /// Quantities that are sampled. The hot functions are sorted by the first.
    pub rows: &'static [Quantity],
    /// Quantity that is sampled if none of the rows can be.
    pub instead: Option<Quantity>,
    /// Source of a quantity's events that is tried first.
    pub events: Events,
}

/// Source of a configuration's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// Codes and names that mean the same on all cores of a vendor.
    Vendor,
    /// Table of the CPU model, with the precision that it names; where it has no event, the vendor's.
    Table,
}

/// Declares configurations, each with its name, the source of its events, the quantities sampled and its
/// description.
macro_rules! profiles {
    ($($name:literal $events:ident [$($row:ident),*] $(or $instead:ident)?, $says:literal;)*) => {
        /// List of the predefined configurations.
        pub const ALL: [Profile; [$($name),*].len()] = [$(Profile {
            name: $name,
            says: $says,
            rows: &[$(Quantity::$row),*],
            instead: [$(Some(Quantity::$instead),)? None][0],
            events: Events::$events,
        }),*];
    };
}

profiles! {
    "tbp" Vendor [Time],
        "Where time goes: a sample every millisecond of wall-clock time, on any machine.";
    "hotspots" Vendor [Cycles, Instructions] or Time,
        "Where cycles are spent and instructions retire; by the clock where there is no PMU.";
    "assess" Vendor [Cycles, Instructions, Branches, BranchMisses, DataAccesses, DataMisses, Misaligned],
        "Overview: instructions per cycle, branches, first-level data cache, misaligned accesses.";
    "assess_ext" Vendor [Cycles, Instructions, Branches, BranchMisses, DataAccesses, DataMisses, DataTlbMisses, Misaligned,
        CodeFetches, CodeMisses, CodeTlbWalks],
        "The overview, and TLBs and the instruction cache.";
    "data_access" Vendor [Instructions, DataAccesses, DataMisses, DataRefills, DataTlbMisses, Misaligned],
        "Data accesses: first-level data cache, refills, TLB, misaligned accesses.";
    "inst_access" Vendor [Instructions, CodeFetches, CodeMisses, CodeTlbMisses, CodeTlbWalks],
        "Code fetches: instruction cache and TLBs.";
    "branch" Vendor [Instructions, Branches, BranchMisses, TakenBranches, Returns, ReturnMisses, IndirectMisses],
        "Branch prediction: all branches, returns, and indirect jumps.";
    "l2_access" Vendor [Instructions, L2Accesses, L2Misses],
        "Second-level cache: requests and misses.";
    "tma" Table [Cycles, Instructions, BranchMisses, MachineClears, SlowFetches, DataMisses, L2LoadMisses, L3LoadMisses],
        "Code behind a Top-Down bottleneck: mispredictions, machine clears, slow fetches, loads by the cache they miss.";
}

/// Returns the configuration of that name.
pub fn find(name: &str) -> Option<&'static Profile> {
    ALL.iter().find(|profile| profile.name == name)
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn a_configuration_fits_the_events_that_can_be_sampled_at_once() {
        for profile in &ALL {
            assert!((1..=pmu_common::sample::EVENTS_MAX).contains(&profile.rows.len()), "{}", profile.name);
        }
    }
}
