//! Formulas of a model where the hypervisor hides the register of Top-Down's shares (x86: `PERF_METRICS`):
//! general counters count the same.
//!
//! Slots that were used and slots that were lost have separate events (`UOPS_RETIRED.SLOTS`,
//! `IDQ_BUBBLES.CORE`, `TOPDOWN.BACKEND_BOUND_SLOTS`). Formulas used these before the register existed
//! (pmu-tools has both, `topdown_use_fixed`). The rest of all slots was lost to wrong guesses. Heavy
//! operations of the second level have no such event.

use super::{Counters, Model};
use crate::table::formula::{Binary, Expr};

/// Shares of the first level, and the events that count their slots, of which the first that a model has is
/// used.
const RETIRING: (&str, &[&str]) = ("PERF_METRICS.RETIRING", &["UOPS_RETIRED.SLOTS"]);
const FRONTEND: (&str, &[&str]) =
    ("PERF_METRICS.FRONTEND_BOUND", &["IDQ_BUBBLES.CORE", "IDQ_UOPS_NOT_DELIVERED.CORE"]);
const BACKEND: (&str, &[&str]) = ("PERF_METRICS.BACKEND_BOUND", &["TOPDOWN.BACKEND_BOUND_SLOTS"]);
const SLOTS: (&str, &[&str]) = ("TOPDOWN.SLOTS", &["TOPDOWN.SLOTS_P"]);
const BAD_SPECULATION: &str = "PERF_METRICS.BAD_SPECULATION";
/// Shares of the second level, likewise.
const SECOND: [(&str, &[&str]); 2] = [
    ("PERF_METRICS.MEMORY_BOUND", &["TOPDOWN.MEMORY_BOUND_SLOTS"]),
    ("PERF_METRICS.BRANCH_MISPREDICTS", &["TOPDOWN.BR_MISPREDICT_SLOTS"]),
];
/// Cycles without a micro-operation: each has as many slots as the threshold of the event.
const FETCH_LATENCY: (&str, &[&str]) = (
    "PERF_METRICS.FETCH_LATENCY",
    &["IDQ_BUBBLES.CYCLES_0_UOPS_DELIV.CORE", "IDQ_UOPS_NOT_DELIVERED.CYCLES_0_UOPS_DELIV.CORE"],
);

impl Model {
    /// Returns whether any of its events is a share that the hardware derives from slots.
    pub fn has_shares(&self) -> bool {
        self.events.iter().any(|event| event.counters == Counters::Share)
    }

    /// Returns the model with formulas of events in place of shares. A model without sufficient events stays
    /// as it is.
    #[must_use]
    pub fn without_shares(mut self) -> Self {
        let Some(instead) = self.instead_of_shares() else { return self };
        let mut metrics = std::mem::take(&mut self.metrics);
        for metric in &mut metrics {
            metric.formula = replaced(&metric.formula, &instead);
        }
        self.metrics = metrics;
        self
    }

    /// Returns the expression that replaces each operand, by operand.
    fn instead_of_shares(&mut self) -> Option<Vec<Option<Expr>>> {
        let [retiring, frontend, backend, slots] =
            [RETIRING, FRONTEND, BACKEND, SLOTS].map(|(_, names)| self.counted_by(names));
        let (retiring, frontend, backend, slots) = (retiring?, frontend?, backend?, slots?);
        let used = [&retiring, &frontend, &backend].map(Clone::clone);
        let used = used.into_iter().reduce(|sum, one| Expr::binary(Binary::Add, sum, one))?;
        let left = Expr::binary(Binary::Subtract, slots.clone(), used);
        let wasted = Expr::binary(Binary::Max, left, Expr::Number(0.0));
        let mut all = vec![
            (RETIRING.0, retiring),
            (FRONTEND.0, frontend),
            (BACKEND.0, backend),
            (SLOTS.0, slots),
            (BAD_SPECULATION, wasted),
        ];
        all.extend(SECOND.iter().filter_map(|(share, names)| Some((*share, self.counted_by(names)?))));
        let width = FETCH_LATENCY.1.iter().find_map(|name| self.threshold_of(name));
        if let (Some(width), Some(cycles)) = (width, self.counted_by(FETCH_LATENCY.1)) {
            all.push((FETCH_LATENCY.0, Expr::binary(Binary::Multiply, Expr::Number(width), cycles)));
        }
        // `TOPDOWN.SLOTS:percore` is a sum of both threads, and not a share.
        let of = |operand: &String| {
            let name = operand.strip_suffix(":perf_metrics").unwrap_or(operand);
            all.iter().find(|(share, _)| *share == name).map(|(_, expr)| expr.clone())
        };
        Some(self.operands.iter().map(of).collect())
    }

    /// Returns the operand of the first of these events that the model has.
    fn counted_by(&mut self, names: &[&str]) -> Option<Expr> {
        let name = names.iter().find(|name| self.event(name).is_some())?;
        Some(self.intern(name))
    }

    /// Returns the threshold of an event that counts cycles with at least this many occurrences.
    fn threshold_of(&self, name: &str) -> Option<f64> {
        let event = self.event(name)?;
        event.terms.split(',').find_map(|term| term.strip_prefix("cmask=")?.parse().ok())
    }
}

fn replaced(expr: &Expr, instead: &[Option<Expr>]) -> Expr {
    match expr {
        Expr::Event(index) => instead.get(*index as usize).cloned().flatten().unwrap_or_else(|| expr.clone()),
        Expr::Binary(operation, operands) => {
            Expr::Binary(*operation, Box::new(operands.each_ref().map(|part| replaced(part, instead))))
        }
        Expr::If(parts) => Expr::If(Box::new(parts.each_ref().map(|part| replaced(part, instead)))),
        _ => expr.clone(),
    }
}

#[cfg(test)]
mod tests {
    use crate::table::model::{Counters, KNOWN, load};

    /// Returns the metrics of a model that still need a share.
    fn with_shares(name: &str) -> Vec<String> {
        let model = load(name, None).unwrap().without_shares();
        let needs_share = |metric: &u32| {
            model.operands_of(*metric).iter().any(|operand| {
                let encoding = model.encoding(&model.operands[*operand as usize]).unwrap();
                encoding.counters == Counters::Share
            })
        };
        let all = 0..model.metrics.len() as u32;
        let level = |metric: &u32| {
            model.metrics[*metric as usize].level <= 2 && model.tree_nodes().any(|node| node == *metric)
        };
        all.filter(needs_share)
            .filter(level)
            .map(|metric| model.metrics[metric as usize].name.clone())
            .collect()
    }

    #[test]
    fn two_levels_need_no_shares_but_for_heavy_operations() {
        for name in ["icelake", "icelakex", "tigerlake", "rocketlake"] {
            assert_eq!(with_shares(name), [""; 0], "{name}");
        }
        for name in
            ["sapphirerapids", "emeraldrapids", "graniterapids", "alderlake/cpu_core", "meteorlake/cpu_core"]
        {
            assert_eq!(with_shares(name), ["Light_Operations", "Heavy_Operations"], "{name}");
        }
    }

    #[test]
    fn a_model_without_shares_stays_as_it_is() {
        for (name, _) in KNOWN {
            let model = load(name, None).unwrap();
            if !model.has_shares() {
                assert_eq!(model.clone().without_shares().metrics, model.metrics, "{name}");
            }
        }
    }
}
