//! Predefined configurations: what to sample for a question, as lists of quantities.

use super::quantity::Quantity;

/// A predefined configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it answers, in one sentence.
    pub says: &'static str,
    /// What is sampled; the first sorts the hot functions.
    pub rows: &'static [Quantity],
    /// What is sampled if none of the rows can be.
    pub instead: Option<Quantity>,
    /// Which of a quantity's events are taken first.
    pub events: Events,
}

/// Where a configuration's events come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// Codes and names that mean the same on all cores of a vendor.
    Vendor,
    /// The CPU model's table, as precise as it says; where that has none, the vendor's.
    Table,
}

/// Declares configurations, each with its name, where its events come from, what is sampled and what it says.
macro_rules! profiles {
    ($($name:literal $events:ident [$($row:ident),*] $(or $instead:ident)?, $says:literal;)*) => {
        /// All configurations.
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
        "Where time goes: a sample each millisecond of wall time, on any machine.";
    "hotspots" Vendor [Cycles, Instructions] or Time,
        "Where cycles go and how many instructions they bring; by the clock where there is no PMU.";
    "assess" Vendor [Cycles, Instructions, Branches, BranchMisses, DataAccesses, DataMisses, Misaligned],
        "A first look: instructions per cycle, branches, the first data cache, misaligned accesses.";
    "assess_ext" Vendor [Cycles, Instructions, Branches, BranchMisses, DataAccesses, DataMisses, DataTlbMisses, Misaligned,
        CodeFetches, CodeMisses, CodeTlbWalks],
        "The first look, and translation buffers and the instruction cache.";
    "data_access" Vendor [Instructions, DataAccesses, DataMisses, DataRefills, DataTlbMisses, Misaligned],
        "How well data is found: first data cache, refills, translation buffer, misaligned accesses.";
    "inst_access" Vendor [Instructions, CodeFetches, CodeMisses, CodeTlbMisses, CodeTlbWalks],
        "How well code is found: instruction cache and translation buffers.";
    "branch" Vendor [Instructions, Branches, BranchMisses, TakenBranches, Returns, ReturnMisses, IndirectMisses],
        "How well branches are foreseen: all of them, returns, and jumps through pointers.";
    "l2_access" Vendor [Instructions, L2Accesses, L2Misses],
        "How often the second-level cache is asked, and how often in vain.";
    "tma" Table [Cycles, Instructions, BranchMisses, MachineClears, SlowFetches, DataMisses, L2LoadMisses, L3LoadMisses],
        "Which code is behind a Top-Down bottleneck: bets, clears, slow fetches, and loads by the cache they miss.";
}

/// The configuration of that name.
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
