//! Ratios of what events measure. Each is defined once, and shown wherever both parts are there.

use super::quantity::Quantity::{
    self, BranchMisses, Branches, CacheMisses, CacheReferences, CodeFetches, CodeMisses, CodeTlbWalks,
    Cycles, DataAccesses, DataMisses, DataRefills, DataTlbMisses, IndirectMisses, Instructions, L2Accesses,
    L2Misses, Misaligned, ReturnMisses, Returns, TakenBranches,
};

/// A ratio of two quantities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Its name in every output. A name, once given, is never used for anything else.
    pub name: &'static str,
    /// What is divided.
    pub numerator: Quantity,
    /// What it is divided by.
    pub denominator: Quantity,
    /// What it says, in one sentence.
    pub says: &'static str,
}

const fn ratio(name: &'static str, parts: [Quantity; 2], says: &'static str) -> Ratio {
    Ratio { name, numerator: parts[0], denominator: parts[1], says }
}

/// All ratios, in the order of reports.
pub const ALL: [Ratio; 24] = [
    ratio("ipc", [Instructions, Cycles], "Instructions completed per cycle."),
    ratio("cpi", [Cycles, Instructions], "Cycles per instruction completed."),
    ratio("branch_rate", [Branches, Instructions], "Branches per instruction."),
    ratio(
        "branch_mispredict_ratio",
        [BranchMisses, Branches],
        "Share of the branches that were bet on wrongly.",
    ),
    ratio(
        "branch_mispredict_rate",
        [BranchMisses, Instructions],
        "Branches bet on wrongly, per instruction.",
    ),
    ratio("branch_taken_ratio", [TakenBranches, Branches], "Share of the branches that were taken."),
    ratio(
        "return_mispredict_ratio",
        [ReturnMisses, Returns],
        "Share of the returns that were bet on wrongly.",
    ),
    ratio("return_rate", [Returns, Instructions], "Returns per instruction."),
    ratio(
        "indirect_mispredict_rate",
        [IndirectMisses, Instructions],
        "Wrong targets of pointers, per instruction.",
    ),
    ratio("data_access_rate", [DataAccesses, Instructions], "Loads and stores per instruction."),
    ratio("data_miss_rate", [DataMisses, Instructions], "Misses of the first data cache per instruction."),
    ratio(
        "data_miss_ratio",
        [DataMisses, DataAccesses],
        "Share of the accesses that missed the first data cache.",
    ),
    ratio(
        "data_refill_rate",
        [DataRefills, Instructions],
        "Lines brought into the first data cache per instruction.",
    ),
    ratio(
        "data_tlb_miss_rate",
        [DataTlbMisses, Instructions],
        "Data pages not in the translation buffer, per instruction.",
    ),
    ratio(
        "data_tlb_miss_ratio",
        [DataTlbMisses, DataAccesses],
        "Share of the accesses whose page was not in the buffer.",
    ),
    ratio("misaligned_rate", [Misaligned, Instructions], "Accesses that took two, per instruction."),
    ratio("misaligned_ratio", [Misaligned, DataAccesses], "Share of the accesses that took two."),
    ratio("code_fetch_rate", [CodeFetches, Instructions], "Fetches of code per instruction."),
    ratio(
        "code_miss_rate",
        [CodeMisses, Instructions],
        "Misses of the first instruction cache per instruction.",
    ),
    ratio(
        "code_miss_ratio",
        [CodeMisses, CodeFetches],
        "Share of the fetches that missed the first instruction cache.",
    ),
    ratio(
        "code_tlb_walk_rate",
        [CodeTlbWalks, Instructions],
        "Code pages that no buffer knew, per instruction.",
    ),
    ratio(
        "l2_access_rate",
        [L2Accesses, Instructions],
        "Requests to the second-level cache per instruction.",
    ),
    ratio(
        "l2_miss_ratio",
        [L2Misses, L2Accesses],
        "Share of the requests that missed the second-level cache.",
    ),
    ratio(
        "cache_miss_ratio",
        [CacheMisses, CacheReferences],
        "Share of the last cache's requests that it passed on.",
    ),
];

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn a_name_is_used_once() {
        for (index, ratio) in ALL.iter().enumerate() {
            assert!(ALL[index + 1..].iter().all(|other| other.name != ratio.name), "{}", ratio.name);
        }
    }
}
