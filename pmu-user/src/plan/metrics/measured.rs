//! What a plan says of the metrics of each core PMU: those that will be measured, those that will not, and why.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    machine::cpu::Cpu,
    plan::{multiplexing::Multiplexing, schedule::drill},
    table::model::Model,
};

/// Levels whose loss is told with the tree: those that say where to look further.
const LEVELS_TOLD: u32 = 2;

/// Metrics of one core PMU that will be measured, and those that will not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// The core type that they are of, where cores differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_type: Option<CoreType>,
    /// The CPU model whose formulas are used.
    pub model: String,
    /// Where they come from.
    pub source: String,
    /// Their version.
    pub formulas: String,
    /// The user's perfmon directory, if they come from there.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// How deep into the tree.
    pub depth: Depth,
    /// Whether groups are multiplexed.
    #[serde(default)]
    pub multiplex: Multiplex,
    /// What is measured.
    pub measured: Vec<Measured>,
    /// What is not, and why.
    pub missing: Vec<(String, String)>,
    /// Who holds counters that are missing for it.
    pub holds: Vec<String>,
    /// Do events on general counters stand in for Top-Down's shares, which the PMU does not offer here?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_shares: bool,
    /// What to bear in mind about all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Cores of one kind, where a host has several kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreType {
    /// The PMU that counts them: `cpu_core`, `cpu_atom`, `armv8_cortex_a72`.
    pub pmu: String,
    /// Their CPUs, of those that count.
    pub cpus: Vec<Cpu>,
}

impl Metrics {
    /// Groups that have turns from the start: all, or those of the upper two levels and of what stands beside the tree
    /// where flagged nodes decide about the rest.
    pub fn first_groups(&self) -> Vec<u32> {
        let first = |metric: &&Measured| match self.depth {
            Depth::DrillDown => metric.level <= drill::Depth::default().always,
            Depth::Level(_) => true,
        };
        let mut groups: Vec<u32> =
            self.measured.iter().filter(first).flat_map(|metric| &metric.groups).copied().collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// What has no time in an interval, or between two decisions of drill-down (a tick), if the counters take turns.
    pub(super) fn room_in(
        &self,
        turns: &Multiplexing,
        (interval, tick): (Option<Duration>, Duration),
    ) -> Option<String> {
        if !turns.take_turns() || self.multiplex == Multiplex::Runs {
            return None;
        }
        let (first, all) = (self.first_groups().len(), turns.groups.len());
        let slices = |time: Duration| format!("{time:?} with slices of {:?}", turns.slice);
        match interval.filter(|&interval| turns.groups_in(interval) < first) {
            Some(interval) => Some(format!(
                "{} leave {first} groups of counters too few slices each: some metrics will lack a value in some intervals, none with -I {}ms",
                slices(interval),
                turns.time_of(first).as_millis()
            )),
            None if self.depth == Depth::DrillDown && turns.groups_in(tick) < all => Some(format!(
                "drill-down: {} have room for {} of {all} groups of counters, so branches take turns where more are flagged",
                slices(tick),
                turns.groups_in(tick).max(first)
            )),
            None => None,
        }
    }

    /// What of the upper levels of `model`'s tree cannot be measured here, in a line for each level and reason.
    pub(super) fn lost_levels(&self, model: &Model) -> Vec<String> {
        let mut lost: BTreeMap<(u32, &str), Vec<&str>> = BTreeMap::new();
        for node in model.tree_nodes() {
            let metric = &model.metrics[node as usize];
            let missing = self.missing.iter().find(|(name, _)| *name == metric.name);
            if let Some((name, why)) = missing.filter(|_| metric.level <= LEVELS_TOLD) {
                lost.entry((metric.level, why)).or_default().push(name);
            }
        }
        lost.into_iter()
            .map(|((level, why), names)| format!("level {level} lacks {}: {why}", names.join(", ")))
            .collect()
    }
}

/// A metric that will be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// Its level.
    pub level: u32,
    /// Groups that must have had a turn; none if it is counted all the time.
    pub groups: Vec<u32>,
    /// Share of the time for which it is measured, if every group has as many turns.
    pub coverage: f64,
}

/// How deep into the tree to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// The first two levels, and below them only where a node was flagged.
    #[default]
    DrillDown,
    /// This level and those above, everywhere.
    Level(u32),
}

/// May events be multiplexed on the counters?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Multiplex {
    /// Yes, in groups chosen by us.
    #[default]
    Yes,
    /// No: what does not fit at once is left out, by name.
    No,
    /// No: the command runs once for each group.
    Runs,
}
