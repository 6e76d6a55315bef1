//! Quantities that events measure, whatever counts them, so that a configuration finds its events. Also their
//! ratios, each defined once and shown wherever both parts are known.
//!
//! A quantity has one event per vendor, in perf's event syntax, and the kernel's own name for it as the last resort. Codes are
//! those of Intel's cores since Skylake and of AMD's since family 17h; Arm's are the names of architectural events, which
//! sysfs lists only where the PMU has them.

use serde::{Deserialize, Serialize};

use crate::machine::cpu::Vendor;

/// Facts about a quantity.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Quantity of these facts.
    pub quantity: Quantity,
    /// Name in every output.
    pub name: &'static str,
    /// Description in one sentence.
    pub says: &'static str,
    /// Default counts from one sample to the next: a prime, so that no loop keeps step with it.
    pub period: u64,
    /// Approximate maximum of counts per cycle of a core, against which a period must be safe.
    pub per_cycle_max: f64,
    /// Events that tables of CPU models have for it, best first.
    pub tabled: &'static [&'static str],
    /// Event of an Intel core.
    intel: &'static str,
    /// Events of AMD cores, each with the first family that has it.
    amd: &'static [(u32, &'static str)],
    /// Event of an Arm core.
    arm: &'static str,
    /// Name of the event in the kernel.
    kernel: &'static str,
}

impl Quantity {
    /// Returns the facts about it.
    pub fn facts(self) -> &'static Facts {
        ALL.iter().find(|facts| facts.quantity == self).expect("a test finds every quantity in the table")
    }

    /// Returns its name in every output.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the quantity that an event of that name measures, if the name is generally known: the kernel's
    /// names and Arm's.
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

    /// Returns the events that may measure it on such a core, best first, in perf's event syntax.
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

/// First families with their codes: Zen, and Zen 3.
const ZEN: u32 = 0x17;
const ZEN3: u32 = 0x19;

/// Declares quantities, each with its name, its period, other facts and its description.
macro_rules! quantities {
    ($($quantity:ident = $name:literal every $period:literal { $($field:ident: $value:expr),* } $says:literal;)*) => {
        /// Quantity that an event measures.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Quantity {
            $(#[doc = $says] $quantity,)*
        }

        /// Facts about every quantity.
        pub const ALL: [Facts; [$($name),*].len()] =
            [$(Facts { $($field: $value,)* ..facts(Quantity::$quantity, $name, $says, $period) }),*];
    };
}

quantities! {
    Time = "time" every 1_000_003 { kernel: "cpu-clock", per_cycle_max: 1.0 }
        "Wall-clock time: a sample every millisecond.";
    Cycles = "cycles" every 2_000_003 { amd: &[(ZEN, "r76")], arm: "cpu_cycles", kernel: "cycles", per_cycle_max: 1.0 }
        "Cycles during which the core was not halted.";
    Instructions = "instructions" every 2_000_003
        { amd: &[(ZEN, "rc0")], arm: "inst_retired", kernel: "instructions", per_cycle_max: 4.0 }
        "Instructions retired.";
    Branches = "branches" every 400_009
        { amd: &[(ZEN, "rc2")], arm: "br_retired", kernel: "branch-instructions", per_cycle_max: 1.0 }
        "Branches retired.";
    BranchMisses = "branch_misses" every 50_021
        { amd: &[(ZEN, "rc3")], tabled: &["BR_MISP_RETIRED.ALL_BRANCHES"], arm: "br_mis_pred_retired", kernel: "branch-misses" }
        "Branches that were mispredicted.";
    TakenBranches = "taken_branches" every 400_009 { intel: "r20c4", amd: &[(ZEN, "rc4")], per_cycle_max: 1.0 }
        "Branches that were taken.";
    Returns = "returns" every 100_003 { intel: "r8c4", amd: &[(ZEN, "rc8")], arm: "br_return_retired", per_cycle_max: 0.5 }
        "Returns from functions.";
    ReturnMisses = "return_misses" every 25_013 { intel: "r8c5", amd: &[(ZEN, "rc9")] }
        "Returns with a mispredicted target: calls nest too deep, or do not pair.";
    IndirectMisses = "indirect_misses" every 25_013 { intel: "r80c5", amd: &[(ZEN, "rca")] }
        "Indirect calls and jumps with a mispredicted target.";
    DataAccesses = "data_accesses" every 1_000_003
        { intel: "r83d0", amd: &[(ZEN, "r40")], arm: "l1d_cache", kernel: "L1-dcache-loads", per_cycle_max: 2.0 }
        "Loads and stores.";
    DataMisses = "data_misses" every 100_003
        { tabled: &["MEM_LOAD_RETIRED.L1_MISS", "MEM_LOAD_UOPS_RETIRED.L1_MISS"], intel: "r8d1", amd: &[(ZEN, "r1f41")], arm: "l1d_cache_refill", kernel: "L1-dcache-load-misses" }
        "Accesses that missed the first-level data cache.";
    DataRefills = "data_refills" every 100_003
        { amd: &[(ZEN, "r7f43")], arm: "l1d_cache_refill", kernel: "L1-dcache-load-misses" }
        "Lines that were filled into the first-level data cache.";
    DataTlbMisses = "data_tlb_misses" every 50_021 { amd: &[(ZEN, "rff45")], arm: "l1d_tlb_refill", kernel: "dTLB-load-misses" }
        "Data accesses that missed the first-level TLB (Intel: all levels).";
    Misaligned = "misaligned" every 25_013 { intel: "r41d0", amd: &[(ZEN, "r47"), (ZEN3, "r347")], arm: "unaligned_ldst_retired" }
        "Accesses that cross a cache line, or what the core reads at once, and so take two.";
    CodeFetches = "code_fetches" every 500_009
        { amd: &[(ZEN, "r80"), (ZEN3, "r100001f8e")], arm: "l1i_cache", kernel: "L1-icache-loads", per_cycle_max: 1.0 }
        "Fetches of code from the first-level instruction cache.";
    CodeMisses = "code_misses" every 50_021
        { amd: &[(ZEN, "r81"), (ZEN3, "r10000188e")], arm: "l1i_cache_refill", kernel: "L1-icache-load-misses" }
        "Fetches that missed the first-level instruction cache.";
    CodeTlbMisses = "code_tlb_misses" every 50_021 { amd: &[(ZEN, "r84")], arm: "l1i_tlb_refill", kernel: "iTLB-loads" }
        "Code fetches that missed the first-level TLB and hit the second.";
    CodeTlbWalks = "code_tlb_walks" every 25_013 { amd: &[(ZEN, "r385")], arm: "itlb_walk", kernel: "iTLB-load-misses" }
        "Code fetches that missed all TLBs: page tables in memory were read.";
    L2Accesses = "l2_accesses" every 200_003 { intel: "rff24", amd: &[(ZEN, "rf960")], arm: "l2d_cache", per_cycle_max: 0.5 }
        "Requests to the second-level cache.";
    L2Misses = "l2_misses" every 50_021 { intel: "r3f24", amd: &[(ZEN, "r964")], arm: "l2d_cache_refill" }
        "Requests that the second-level cache passed on.";
    L2LoadMisses = "l2_load_misses" every 50_021
        { tabled: &["MEM_LOAD_RETIRED.L2_MISS", "MEM_LOAD_UOPS_RETIRED.L2_MISS"], intel: "r10d1", amd: &[(ZEN, "r7e43")], arm: "l2d_cache_refill" }
        "Loads that missed the second-level cache.";
    L3LoadMisses = "l3_load_misses" every 25_013
        { tabled: &["MEM_LOAD_RETIRED.L3_MISS", "MEM_LOAD_UOPS_RETIRED.L3_MISS"], intel: "r20d1", amd: &[(ZEN, "r7c43")], arm: "ll_cache_miss_rd" }
        "Loads that missed the last-level cache (AMD: of the core complex).";
    MachineClears = "machine_clears" every 25_013
        { tabled: &["MACHINE_CLEARS.COUNT", "MACHINE_CLEARS.ANY", "resyncs_or_nc_redirects"], intel: "r10401c3" }
        "Pipeline flushes for other reasons than mispredicted branches.";
    SlowFetches = "slow_fetches" every 100_003 { tabled: &["FRONTEND_RETIRED.LATENCY_GE_8"] }
        "Instructions before which the front end delivered nothing for 8 cycles.";
    CacheReferences = "cache_references" every 200_003 { kernel: "cache-references", per_cycle_max: 0.5 }
        "Requests to the cache that the kernel calls the last one.";
    CacheMisses = "cache_misses" every 50_021 { kernel: "cache-misses" }
        "Requests that this cache passed on to memory.";
}

/// Returns the default facts. A miss keeps a core busy for some cycles, so a quarter of one per cycle is more
/// than occurs.
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

/// A ratio of two quantities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Name in every output. A name, once given, is never used for anything else.
    pub name: &'static str,
    /// Quantity that is divided.
    pub numerator: Quantity,
    /// Quantity by which it is divided.
    pub denominator: Quantity,
    /// Description in one sentence.
    pub says: &'static str,
}

/// Declares ratios, each with its name, its two quantities and its description.
macro_rules! ratios {
    ($($name:literal = $numerator:ident / $denominator:ident, $says:literal;)*) => {
        /// List of the ratios, in the order of reports.
        pub const RATIOS: [Ratio; [$($name),*].len()] = [$(Ratio {
            name: $name,
            numerator: Quantity::$numerator,
            denominator: Quantity::$denominator,
            says: $says,
        }),*];
    };
}

ratios! {
    "ipc" = Instructions / Cycles, "Instructions per cycle.";
    "cpi" = Cycles / Instructions, "Cycles per instruction.";
    "branch_rate" = Branches / Instructions, "Branches per instruction.";
    "branch_mispredict_ratio" = BranchMisses / Branches, "Share of the branches that were mispredicted.";
    "branch_mispredict_rate" = BranchMisses / Instructions, "Mispredicted branches per instruction.";
    "branch_taken_ratio" = TakenBranches / Branches, "Share of the branches that were taken.";
    "return_mispredict_ratio" = ReturnMisses / Returns, "Share of the returns that were mispredicted.";
    "return_rate" = Returns / Instructions, "Returns per instruction.";
    "indirect_mispredict_rate" = IndirectMisses / Instructions, "Mispredicted indirect targets per instruction.";
    "data_access_rate" = DataAccesses / Instructions, "Loads and stores per instruction.";
    "data_miss_rate" = DataMisses / Instructions, "Misses of the first-level data cache per instruction.";
    "data_miss_ratio" = DataMisses / DataAccesses, "Share of the accesses that missed the first-level data cache.";
    "data_refill_rate" = DataRefills / Instructions, "Lines filled into the first-level data cache per instruction.";
    "data_tlb_miss_rate" = DataTlbMisses / Instructions, "TLB misses of data accesses per instruction.";
    "data_tlb_miss_ratio" = DataTlbMisses / DataAccesses, "Share of the data accesses that missed the TLB.";
    "misaligned_rate" = Misaligned / Instructions, "Accesses that took two, per instruction.";
    "misaligned_ratio" = Misaligned / DataAccesses, "Share of the accesses that took two.";
    "code_fetch_rate" = CodeFetches / Instructions, "Fetches of code per instruction.";
    "code_miss_rate" = CodeMisses / Instructions, "Misses of the first-level instruction cache per instruction.";
    "code_miss_ratio" = CodeMisses / CodeFetches, "Share of the fetches that missed the first-level instruction cache.";
    "code_tlb_walk_rate" = CodeTlbWalks / Instructions, "Code fetches that missed all TLBs, per instruction.";
    "l2_access_rate" = L2Accesses / Instructions, "Requests to the second-level cache per instruction.";
    "l2_miss_ratio" = L2Misses / L2Accesses, "Share of the requests that missed the second-level cache.";
    "cache_miss_ratio" = CacheMisses / CacheReferences, "Share of the last cache's requests that it passed on.";
}

#[cfg(test)]
mod tests;
