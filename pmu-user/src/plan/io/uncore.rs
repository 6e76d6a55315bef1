//! I/O metrics → groups of events for each kind of uncore PMU.
//!
//! An uncore PMU rotates its groups by itself, so what a ratio divides should stand in one group; where the counters do not allow that, or
//! different kinds of uncore PMUs count its parts, the plan says so, and the metric is an estimate whose parts have coverages of their own.
//! Uncore PMUs of stacks may be asked about single parts, others only about all of theirs together.

use std::collections::{BTreeMap, BTreeSet};

use super::class::{self, pmus, selected, unit_of};
pub use super::{
    class::{Home, Parts, UncoreGroup, UncorePlan},
    order::Placement,
};
use crate::{
    machine::pmu::catalog::Catalog,
    table::{event_syntax::Selected, io::IoTable},
};

/// What to count on which uncore PMUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UncorePlans {
    /// By kind of uncore PMU, and within a kind by what is asked about parts.
    pub plans: Vec<UncorePlan>,
    /// Metrics whose events are counted by several kinds of uncore PMUs, each with turns of its own.
    pub across: Vec<u32>,
    /// Metrics that this host cannot have, and why.
    pub missing: Vec<(u32, String)>,
}

/// Why a metric's events do not count at the same times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// Different kinds of uncore PMUs count them.
    Kinds,
    /// There are not enough counters for them in one group.
    Counters,
}

impl UncorePlans {
    /// Plans `metrics` (indices of the table's) for the PMUs of `catalog`. `parts` says by PMU what to ask about parts; a PMU that
    /// is not in it is asked about all together. Opens nothing; needs no privilege.
    pub fn new(table: &IoTable, metrics: &[u32], catalog: &Catalog, parts: &BTreeMap<String, Parts>) -> Self {
        let mut instances = Self::default();
        let mut counted: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for &metric in metrics {
            let operands = table.model.operands_of(metric);
            let found: Result<Vec<Selected>, String> =
                operands.iter().map(|&operand| on_this_host(table, operand, catalog)).collect();
            let units: BTreeSet<&str> = operands.iter().map(|&operand| unit_of(table, operand)).collect();
            match found {
                Err(why) => instances.missing.push((metric, why)),
                Ok(_) => {
                    if units.len() > 1 {
                        instances.across.push(metric);
                    }
                    units.into_iter().for_each(|unit| counted.entry(unit).or_default().push(metric));
                }
            }
        }
        for (unit, metrics) in counted {
            for (parts, pmus) in classes(unit, catalog, parts) {
                let class = class::Class { table, unit, parts: &parts, metrics: &metrics };
                instances.plans.push(class.plan(pmus, catalog));
            }
        }
        instances
    }

    /// Why what a metric divides does not count at the same times, if so.
    pub fn apart(&self, metric: u32) -> Option<Apart> {
        if self.across.contains(&metric) {
            return Some(Apart::Kinds);
        }
        let mut homes = self.plans.iter().flat_map(|plan| &plan.homes);
        homes.any(|home| home.metric == metric && home.groups.len() > 1).then_some(Apart::Counters)
    }
}

/// The operand on this host's uncore PMUs, or why there is none.
fn on_this_host(table: &IoTable, operand: u32, catalog: &Catalog) -> Result<Selected, String> {
    let name = table.operand(operand).unwrap_or("?");
    let event = table.model.event(name).ok_or_else(|| format!("{name} has no encoding"))?;
    selected(&event.unit, name, &event.terms, catalog)
}

/// PMUs of a kind by what they are asked about parts.
fn classes(unit: &str, catalog: &Catalog, parts: &BTreeMap<String, Parts>) -> BTreeMap<Parts, Vec<String>> {
    let mut classes: BTreeMap<Parts, Vec<String>> = BTreeMap::new();
    for pmu in pmus(unit, catalog) {
        let asked = parts.get(&pmu).cloned().unwrap_or(Parts::Together);
        classes.entry(asked).or_default().push(pmu);
    }
    classes
}
