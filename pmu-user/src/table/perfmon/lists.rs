//! Names in perfmon's formulas, and their meaning.

use std::collections::{BTreeMap, HashMap};

use super::file;
use crate::table::formula::Expr;

/// Ticks of the time-stamp counter in the interval, where the short formula has `tsc`. The long one has its
/// frequency, which is the same number only if a second was counted.
pub(super) const TICKS: &str = "TSC_TICKS";

/// Names with their meaning.
pub(super) struct Lists {
    pub(super) operands: Vec<String>,
    pub(super) constants: Vec<String>,
    /// Expressions by name in lower case, as short formulas write them.
    pub(super) by_small: HashMap<String, Expr>,
    /// Metrics by the name that thresholds use.
    pub(super) by_legacy: BTreeMap<String, u32>,
    pub(super) by_name: HashMap<String, u32>,
    /// Whether each metric is in per cent.
    pub(super) in_per_cent: Vec<bool>,
}

impl Lists {
    pub(super) fn new(metrics: &[file::Metric], operands: Vec<String>, constants: Vec<String>) -> Self {
        let mut by_small = HashMap::new();
        for (index, metric) in metrics.iter().enumerate() {
            by_small.insert(format!("tma_{}", metric.name.to_ascii_lowercase()), Expr::Metric(index as u32));
        }
        for (index, operand) in operands.iter().enumerate() {
            by_small.insert(operand.to_ascii_lowercase(), Expr::Event(index as u32));
        }
        let in_per_cent = metrics.iter().map(|metric| metric.unit_of_measure == "percent").collect();
        let (by_legacy, by_name) = (BTreeMap::new(), HashMap::new());
        let mut lists = Self { operands, constants, by_small, by_legacy, by_name, in_per_cent };
        lists.by_small.insert("tsc".to_owned(), lists.constant(TICKS));
        for (index, metric) in metrics.iter().enumerate() {
            lists.by_legacy.insert(metric.legacy_name.clone(), index as u32);
            lists.by_name.insert(metric.name.clone(), index as u32);
        }
        lists
    }

    pub(super) fn constant(&self, name: &str) -> Expr {
        let index = self.constants.binary_search_by(|known| known.as_str().cmp(name));
        Expr::Constant(index.map_or(u32::MAX, |index| index as u32))
    }

    pub(super) fn event(&self, name: &str) -> Option<Expr> {
        let index = self.operands.binary_search_by(|known| known.as_str().cmp(name)).ok()?;
        Some(Expr::Event(index as u32))
    }
}
