//! What events measure, whoever counts them: so that a ratio finds its parts, and a configuration its events.
//!
//! A quantity has one event per vendor, in perf's notation, and the kernel's own name for it as the last resort. Codes are
//! those of Intel's cores since Skylake and of AMD's since family 17h; Arm's are the names of architectural events, which
//! sysfs lists only where the PMU has them.

use serde::{Deserialize, Serialize};

use crate::machine::cpu::Vendor;

/// What an event measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Time on the wall.
    Time,
    /// Core cycles.
    Cycles,
    /// Instructions that retired.
    Instructions,
    /// Branches that retired.
    Branches,
    /// Branches that were predicted wrongly.
    BranchMisses,
    /// Branches that were taken.
    TakenBranches,
    /// Returns.
    Returns,
    /// Returns whose target was predicted wrongly.
    ReturnMisses,
    /// Indirect branches whose target was predicted wrongly.
    IndirectMisses,
    /// Accesses of the first data cache.
    DataAccesses,
    /// Accesses that missed it.
    DataMisses,
    /// Lines that were brought into it.
    DataRefills,
    /// Data addresses that the first translation buffer did not know.
    DataTlbMisses,
    /// Accesses that cross a boundary and so take two.
    Misaligned,
    /// Fetches of code from the first instruction cache.
    CodeFetches,
    /// Fetches that missed it.
    CodeMisses,
    /// Code addresses that the first translation buffer did not know.
    CodeTlbMisses,
    /// Code addresses that no translation buffer knew.
    CodeTlbWalks,
    /// Requests to the second-level cache.
    L2Accesses,
    /// Requests that missed it.
    L2Misses,
    /// Loads whose data the second-level cache did not have.
    L2LoadMisses,
    /// Loads whose data the last-level cache did not have.
    L3LoadMisses,
    /// Times that the core had to start over.
    MachineClears,
    /// Instructions that came late because their fetch did.
    SlowFetches,
    /// Requests to the last-level cache.
    CacheReferences,
    /// Requests that missed it.
    CacheMisses,
}

/// All that is known of a quantity.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Which.
    pub quantity: Quantity,
    /// Its name in every output.
    pub name: &'static str,
    /// What it says, in one sentence.
    pub says: &'static str,
    /// Counts from one sample to the next, unless told otherwise: a prime, so that no loop keeps step with it.
    pub period: u64,
    /// Most that a core can count in a cycle, roughly: what a period must be safe against.
    pub per_cycle_max: f64,
    /// Events that tables of CPU models have for it, best first.
    pub tabled: &'static [&'static str],
    /// Event of an Intel core.
    intel: &'static str,
    /// Events of AMD cores, each with the first family that has it.
    amd: &'static [(u32, &'static str)],
    /// Event of an Arm core.
    arm: &'static str,
    /// The kernel's own name.
    kernel: &'static str,
}

impl Quantity {
    /// What is known of it.
    #[must_use]
    pub fn facts(self) -> &'static Facts {
        ALL.iter().find(|facts| facts.quantity == self).expect("a test finds every quantity in the table")
    }

    /// Its name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// What an event of that name measures, if it is one that everybody knows by it: the kernel's names and Arm's.
    #[must_use]
    pub fn of_event(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let name = crate::table::event::find(&name).map_or(name, |event| event.name.to_owned());
        let known = |facts: &&Facts| {
            [facts.kernel, facts.arm]
                .iter()
                .any(|known| !known.is_empty() && known.eq_ignore_ascii_case(&name))
        };
        ALL.iter().find(known).map(|facts| facts.quantity)
    }

    /// Events that may measure it on such a core, best first, in perf's notation.
    pub fn events(self, vendor: Vendor) -> impl Iterator<Item = &'static str> {
        let facts = self.facts();
        let own = match vendor {
            Vendor::Intel => facts.intel,
            Vendor::Amd { family } => {
                facts.amd.iter().rev().find(|(first, _)| *first <= family).map_or("", |(_, event)| event)
            }
            Vendor::Arm => facts.arm,
            Vendor::Other => "",
        };
        [own, facts.kernel].into_iter().filter(|event| !event.is_empty())
    }
}

/// The first family with that code: Zen, and Zen 3.
const ZEN: u32 = 0x17;
const ZEN3: u32 = 0x19;

/// Every quantity.
pub const ALL: [Facts; 26] = [
    Facts {
        kernel: "cpu-clock",
        per_cycle_max: 1.0,
        ..facts(Quantity::Time, "time", "Time on the wall, a sample each millisecond of it.", 1_000_003)
    },
    Facts {
        amd: &[(ZEN, "r76")],
        arm: "cpu_cycles",
        kernel: "cycles",
        per_cycle_max: 1.0,
        ..facts(Quantity::Cycles, "cycles", "Cycles during which the core was not halted.", 2_000_003)
    },
    Facts {
        amd: &[(ZEN, "rc0")],
        arm: "inst_retired",
        kernel: "instructions",
        per_cycle_max: 4.0,
        ..facts(Quantity::Instructions, "instructions", "Instructions that were completed.", 2_000_003)
    },
    Facts {
        amd: &[(ZEN, "rc2")],
        arm: "br_retired",
        kernel: "branch-instructions",
        per_cycle_max: 1.0,
        ..facts(Quantity::Branches, "branches", "Branches that were completed.", 400_009)
    },
    Facts {
        amd: &[(ZEN, "rc3")],
        tabled: &["BR_MISP_RETIRED.ALL_BRANCHES"],
        arm: "br_mis_pred_retired",
        kernel: "branch-misses",
        ..facts(
            Quantity::BranchMisses,
            "branch_misses",
            "Branches that went another way than the core had bet on.",
            50_021,
        )
    },
    Facts {
        intel: "r20c4",
        amd: &[(ZEN, "rc4")],
        per_cycle_max: 1.0,
        ..facts(Quantity::TakenBranches, "taken_branches", "Branches that were taken.", 400_009)
    },
    Facts {
        intel: "r8c4",
        amd: &[(ZEN, "rc8")],
        arm: "br_return_retired",
        per_cycle_max: 0.5,
        ..facts(Quantity::Returns, "returns", "Returns from functions.", 100_003)
    },
    Facts {
        intel: "r8c5",
        amd: &[(ZEN, "rc9")],
        ..facts(
            Quantity::ReturnMisses,
            "return_misses",
            "Returns whose target was bet on wrongly: calls nest too deep, or do not pair.",
            25_013,
        )
    },
    Facts {
        intel: "r80c5",
        amd: &[(ZEN, "rca")],
        ..facts(
            Quantity::IndirectMisses,
            "indirect_misses",
            "Calls and jumps through a pointer whose target was bet on wrongly.",
            25_013,
        )
    },
    Facts {
        intel: "r83d0",
        amd: &[(ZEN, "r40")],
        arm: "l1d_cache",
        kernel: "L1-dcache-loads",
        per_cycle_max: 2.0,
        ..facts(Quantity::DataAccesses, "data_accesses", "Loads and stores.", 1_000_003)
    },
    Facts {
        tabled: &["MEM_LOAD_RETIRED.L1_MISS"],
        intel: "r8d1",
        amd: &[(ZEN, "r1f41")],
        arm: "l1d_cache_refill",
        kernel: "L1-dcache-load-misses",
        ..facts(
            Quantity::DataMisses,
            "data_misses",
            "Accesses whose data was not in the first data cache.",
            100_003,
        )
    },
    Facts {
        amd: &[(ZEN, "r7f43")],
        arm: "l1d_cache_refill",
        kernel: "L1-dcache-load-misses",
        ..facts(
            Quantity::DataRefills,
            "data_refills",
            "Lines that were brought into the first data cache.",
            100_003,
        )
    },
    Facts {
        amd: &[(ZEN, "rff45")],
        arm: "l1d_tlb_refill",
        kernel: "dTLB-load-misses",
        ..facts(
            Quantity::DataTlbMisses,
            "data_tlb_misses",
            "Data addresses whose page was not in the first translation buffer (Intel: in none).",
            50_021,
        )
    },
    Facts {
        intel: "r41d0",
        amd: &[(ZEN, "r47"), (ZEN3, "r347")],
        arm: "unaligned_ldst_retired",
        ..facts(
            Quantity::Misaligned,
            "misaligned",
            "Accesses that cross a line, or what the core reads at once, and so take two.",
            25_013,
        )
    },
    Facts {
        amd: &[(ZEN, "r80"), (ZEN3, "r100001f8e")],
        arm: "l1i_cache",
        kernel: "L1-icache-loads",
        per_cycle_max: 1.0,
        ..facts(
            Quantity::CodeFetches,
            "code_fetches",
            "Fetches of code from the first instruction cache.",
            500_009,
        )
    },
    Facts {
        amd: &[(ZEN, "r81"), (ZEN3, "r10000188e")],
        arm: "l1i_cache_refill",
        kernel: "L1-icache-load-misses",
        ..facts(
            Quantity::CodeMisses,
            "code_misses",
            "Fetches whose code was not in the first instruction cache.",
            50_021,
        )
    },
    Facts {
        amd: &[(ZEN, "r84")],
        arm: "l1i_tlb_refill",
        kernel: "iTLB-loads",
        ..facts(
            Quantity::CodeTlbMisses,
            "code_tlb_misses",
            "Code addresses whose page the first translation buffer did not know, but the second did.",
            50_021,
        )
    },
    Facts {
        amd: &[(ZEN, "r385")],
        arm: "itlb_walk",
        kernel: "iTLB-load-misses",
        ..facts(
            Quantity::CodeTlbWalks,
            "code_tlb_walks",
            "Code addresses whose page no translation buffer knew: the tables in memory were read.",
            25_013,
        )
    },
    Facts {
        intel: "rff24",
        amd: &[(ZEN, "rf960")],
        arm: "l2d_cache",
        per_cycle_max: 0.5,
        ..facts(Quantity::L2Accesses, "l2_accesses", "Requests to the second-level cache.", 200_003)
    },
    Facts {
        intel: "r3f24",
        amd: &[(ZEN, "r964")],
        arm: "l2d_cache_refill",
        ..facts(Quantity::L2Misses, "l2_misses", "Requests that the second-level cache passed on.", 50_021)
    },
    Facts {
        tabled: &["MEM_LOAD_RETIRED.L2_MISS"],
        intel: "r10d1",
        amd: &[(ZEN, "r7e43")],
        arm: "l2d_cache_refill",
        ..facts(
            Quantity::L2LoadMisses,
            "l2_load_misses",
            "Loads whose data was not in the second-level cache.",
            50_021,
        )
    },
    Facts {
        tabled: &["MEM_LOAD_RETIRED.L3_MISS"],
        intel: "r20d1",
        amd: &[(ZEN, "r7c43")],
        arm: "ll_cache_miss_rd",
        ..facts(
            Quantity::L3LoadMisses,
            "l3_load_misses",
            "Loads whose data was not in the last-level cache (AMD: of the core complex).",
            25_013,
        )
    },
    Facts {
        tabled: &["MACHINE_CLEARS.COUNT", "resyncs_or_nc_redirects"],
        intel: "r10401c3",
        ..facts(
            Quantity::MachineClears,
            "machine_clears",
            "Times that the core threw its work away and started over, bets on branches apart.",
            25_013,
        )
    },
    Facts {
        tabled: &["FRONTEND_RETIRED.LATENCY_GE_8"],
        ..facts(
            Quantity::SlowFetches,
            "slow_fetches",
            "Instructions before which the front end delivered nothing for 8 cycles.",
            100_003,
        )
    },
    Facts {
        kernel: "cache-references",
        per_cycle_max: 0.5,
        ..facts(
            Quantity::CacheReferences,
            "cache_references",
            "Requests to the cache that the kernel calls the last one.",
            200_003,
        )
    },
    Facts {
        kernel: "cache-misses",
        ..facts(Quantity::CacheMisses, "cache_misses", "Requests that it passed on to memory.", 50_021)
    },
];

/// A miss keeps a core busy for some cycles: a quarter of one in each is more than any does.
const fn facts(quantity: Quantity, name: &'static str, says: &'static str, period: u64) -> Facts {
    Facts {
        quantity,
        name,
        says,
        period,
        per_cycle_max: 0.25,
        tabled: &[],
        intel: "",
        amd: &[],
        arm: "",
        kernel: "",
    }
}

#[cfg(test)]
mod tests;
