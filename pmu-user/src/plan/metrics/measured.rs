//! Metrics of each core PMU in a plan: those that will be measured, those that will not, and the reason.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    machine::cpu::Cpu,
    plan::{multiplexing::Multiplexing, schedule::drill},
    table::model::Model,
};

/// Levels of the tree for which missing nodes are reported: those that point to where to look further.
const LEVELS_TOLD: u32 = 2;

/// Metrics of one core PMU that will be measured, and those that will not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Core type of the metrics, where cores differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_type: Option<CoreType>,
    /// CPU model of the formulas.
    pub model: String,
    /// Source of the formulas.
    pub source: String,
    /// Version of the formulas.
    pub formulas: String,
    /// Perfmon directory of the user, if the formulas are from there.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// Depth of the tree.
    pub depth: Depth,
    /// Whether groups are multiplexed.
    #[serde(default)]
    pub multiplex: Multiplex,
    /// Metrics that are measured.
    pub measured: Vec<Measured>,
    /// Metrics that are missing, with the reason.
    pub missing: Vec<(String, String)>,
    /// Holders of counters that the metrics lack.
    pub holds: Vec<String>,
    /// Whether events on general counters replace Top-Down's shares, which the PMU does not offer here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_shares: bool,
    /// Notes that apply to all of the metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Cores of one kind, where a host has several kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreType {
    /// PMU that counts them: `cpu_core`, `cpu_atom`, `armv8_cortex_a72`.
    pub pmu: String,
    /// CPUs of the core type, of those that count.
    pub cpus: Vec<Cpu>,
}

impl Metrics {
    /// Returns the groups that have slices from the start. With drill-down, these are groups of the upper two
    /// levels and outside the tree, and flagged nodes decide about the rest. Without it, these are all groups.
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

    /// Returns a note if groups lack slices in an interval, or between two decisions of drill-down (a tick).
    /// Returns `None` without multiplexing.
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

    /// Returns the nodes of the upper levels of `model`'s tree that cannot be measured here, in a line for
    /// each level and reason.
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
    /// Name of the metric.
    pub name: String,
    /// Level of the metric.
    pub level: u32,
    /// Groups that must have had a slice; empty if the metric is counted all the time.
    pub groups: Vec<u32>,
    /// Share of the time for which it is measured, if every group has as many slices.
    pub coverage: f64,
}

/// Depth of the tree to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// The first two levels, and below them only where a node was flagged.
    #[default]
    DrillDown,
    /// This level and those above, everywhere.
    Level(u32),
}

/// Whether events may be multiplexed on the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Multiplex {
    /// Multiplexing in groups that the plan chooses.
    #[default]
    Yes,
    /// No multiplexing: metrics that do not fit at once are left out, by name.
    No,
    /// No multiplexing: the command runs once for each group.
    Runs,
}
