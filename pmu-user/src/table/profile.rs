//! Predefined configurations: what to sample for a question, as lists of quantities.

use super::quantity::Quantity::{
    self, BranchMisses, Branches, CodeFetches, CodeMisses, CodeTlbMisses, CodeTlbWalks, Cycles, DataAccesses,
    DataMisses, DataRefills, DataTlbMisses, IndirectMisses, Instructions, L2Accesses, L2LoadMisses, L2Misses,
    L3LoadMisses, MachineClears, Misaligned, ReturnMisses, Returns, SlowFetches, TakenBranches, Time,
};

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

/// All configurations.
pub const ALL: [Profile; 9] = [
    Profile {
        name: "tbp",
        says: "Where time goes: a sample each millisecond of wall time, on any machine.",
        rows: &[Time],
        instead: None,
        events: Events::Vendor,
    },
    Profile {
        name: "hotspots",
        says: "Where cycles go and how many instructions they bring; by the clock where there is no PMU.",
        rows: &[Cycles, Instructions],
        instead: Some(Time),
        events: Events::Vendor,
    },
    Profile {
        name: "assess",
        says: "A first look: instructions per cycle, branches, the first data cache, misaligned accesses.",
        rows: &[Cycles, Instructions, Branches, BranchMisses, DataAccesses, DataMisses, Misaligned],
        instead: None,
        events: Events::Vendor,
    },
    Profile {
        name: "assess_ext",
        says: "The first look, and translation buffers and the instruction cache.",
        rows: &[
            Cycles,
            Instructions,
            Branches,
            BranchMisses,
            DataAccesses,
            DataMisses,
            DataTlbMisses,
            Misaligned,
            CodeFetches,
            CodeMisses,
            CodeTlbWalks,
        ],
        instead: None,
        events: Events::Vendor,
    },
    Profile {
        name: "data_access",
        says: "How well data is found: first data cache, refills, translation buffer, misaligned accesses.",
        rows: &[Instructions, DataAccesses, DataMisses, DataRefills, DataTlbMisses, Misaligned],
        instead: None,
        events: Events::Vendor,
    },
    Profile {
        name: "inst_access",
        says: "How well code is found: instruction cache and translation buffers.",
        rows: &[Instructions, CodeFetches, CodeMisses, CodeTlbMisses, CodeTlbWalks],
        instead: None,
        events: Events::Vendor,
    },
    Profile {
        name: "branch",
        says: "How well branches are foreseen: all of them, returns, and jumps through pointers.",
        rows: &[Instructions, Branches, BranchMisses, TakenBranches, Returns, ReturnMisses, IndirectMisses],
        instead: None,
        events: Events::Vendor,
    },
    Profile {
        name: "l2_access",
        says: "How often the second-level cache is asked, and how often in vain.",
        rows: &[Instructions, L2Accesses, L2Misses],
        instead: None,
        events: Events::Vendor,
    },
    Profile {
        name: "tma",
        says: "Which code is behind a Top-Down bottleneck: bets, clears, slow fetches, and loads by the cache they miss.",
        rows: &[
            Cycles,
            Instructions,
            BranchMisses,
            MachineClears,
            SlowFetches,
            DataMisses,
            L2LoadMisses,
            L3LoadMisses,
        ],
        instead: None,
        events: Events::Table,
    },
];

/// The configuration of that name.
#[must_use]
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
