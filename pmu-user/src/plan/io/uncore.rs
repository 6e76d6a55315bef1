//! Groups of events of I/O metrics, for each kind of uncore PMU.
//!
//! An uncore PMU rotates its groups independently, so the operands of a ratio should be in one group. Where
//! the counters do not allow that, or different kinds of uncore PMUs count the operands, the plan says so.
//! The metric is then an estimate from parts with separate coverages. Uncore PMUs of stacks can count single
//! parts, others only all of their parts together.

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

/// Plan of what to count on each uncore PMU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UncorePlans {
    /// Plans by kind of uncore PMU, and within a kind by the request about parts.
    pub plans: Vec<UncorePlan>,
    /// Metrics with events on several kinds of uncore PMUs, which rotate separately.
    pub across: Vec<u32>,
    /// Metrics that this host cannot provide, with the reason.
    pub missing: Vec<(u32, String)>,
}

/// Reason why a metric's events do not count at the same times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// Different kinds of uncore PMUs count them.
    Kinds,
    /// One group does not have enough counters for them.
    Counters,
}

impl UncorePlans {
    /// Plans `metrics` (indices of the table's) for the PMUs of `catalog`. `parts` has the request about
    /// parts by PMU. The parts of a PMU that is not in it are counted together. Opens nothing and needs no
    /// privilege.
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

    /// Returns the reason if a metric's events do not count at the same times; `None` if they do.
    pub fn apart(&self, metric: u32) -> Option<Apart> {
        if self.across.contains(&metric) {
            return Some(Apart::Kinds);
        }
        let mut homes = self.plans.iter().flat_map(|plan| &plan.homes);
        homes.any(|home| home.metric == metric && home.groups.len() > 1).then_some(Apart::Counters)
    }
}

/// Returns the operand on this host's uncore PMUs, or the reason why it is missing.
fn on_this_host(table: &IoTable, operand: u32, catalog: &Catalog) -> Result<Selected, String> {
    let name = table.operand(operand).unwrap_or("?");
    let event = table.model.event(name).ok_or_else(|| format!("{name} has no encoding"))?;
    selected(&event.unit, name, &event.terms, catalog)
}

/// Returns the PMUs of a kind, by the request about their parts.
fn classes(unit: &str, catalog: &Catalog, parts: &BTreeMap<String, Parts>) -> BTreeMap<Parts, Vec<String>> {
    let mut classes: BTreeMap<Parts, Vec<String>> = BTreeMap::new();
    for pmu in pmus(unit, catalog) {
        let asked = parts.get(&pmu).cloned().unwrap_or(Parts::Together);
        classes.entry(asked).or_default().push(pmu);
    }
    classes
}
