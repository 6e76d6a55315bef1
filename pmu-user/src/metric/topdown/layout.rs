//! Shape of a model's tree, the events behind each metric, the path to the bottleneck, and values that
//! contradict each other.

use std::sync::Arc;

use super::{Node, Prepared, Tree};
use crate::{
    metric::{estimate::EventIndex, formulas::over_values, value::Known},
    table::{model::Model, unit::Unit},
};

/// Properties of a metric that are the same for every owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Index of the metric in a tree.
    pub index: u32,
    /// Name of the metric.
    pub name: String,
    /// Depth in the tree, from 0.
    pub depth: u32,
    /// Level of the metric, as its source counts.
    pub level: u32,
    /// Metric of which it is a part.
    pub parent: Option<String>,
    /// Unit of the metric.
    pub unit: Unit,
    /// Domain of which it is a fraction.
    pub domain: String,
    /// Formula of the metric.
    pub formula: String,
    /// Condition under which it is flagged.
    pub threshold: Option<String>,
    /// Events whose samples find the code behind it, the best first.
    pub locate: Vec<String>,
}

/// Tree of a model, computed once.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Metrics that are not part of another, and have parts or are a share of all slots or cycles.
    pub(super) roots: Vec<u32>,
    /// Set if all of them are shares of the slots, which add up to 100 %.
    roots_add_up: bool,
    /// Parts of each metric.
    pub(super) children: Vec<Vec<u32>>,
    /// Parts, each with its whole, where both are shares of the slots: the part cannot be larger.
    pub(super) parts: Vec<(u32, u32)>,
    /// Planned events in the formula of each metric.
    pub(super) events: Vec<Vec<EventIndex>>,
    /// Metrics that are shown, in the order of the tree.
    pub(super) shapes: Arc<[Shape]>,
}

impl Layout {
    /// Returns the layout of `model`. `event` returns the planned event that counts an operand, `is_shown`
    /// whether a metric is requested.
    pub(super) fn new(
        model: &Model,
        event: impl Fn(u32) -> Option<EventIndex>,
        is_shown: impl Fn(u32) -> bool,
    ) -> Self {
        let all = 0..model.metrics.len() as u32;
        let above: Vec<Option<u32>> = all.clone().map(|index| model.above(index)).collect();
        let mut children = vec![Vec::new(); model.metrics.len()];
        for (index, above) in all.clone().zip(&above) {
            if let Some(above) = above {
                children[*above as usize].push(index);
            }
        }
        let roots: Vec<u32> = model.tree_nodes().filter(|&node| above[node as usize].is_none()).collect();
        // A metric that is estimated by assumed latencies, or counts something else than its parent, may be
        // larger.
        let comparable = |(part, whole): &(u32, u32)| {
            [part, whole].iter().all(|index| model.metrics[**index as usize].domain == "Slots")
        };
        let pairs = all.clone().filter_map(|index| Some((index, above[index as usize]?)));
        let events = |metric: u32| model.operands_of(metric).into_iter().filter_map(&event).collect();
        let shown = model.tree().into_iter().filter(|&(index, _)| is_shown(index));
        Self {
            // Shares of cycles overlap.
            roots_add_up: roots.iter().all(|&root| model.metrics[root as usize].domain == "Slots"),
            roots,
            parts: pairs.filter(comparable).collect(),
            events: all.map(events).collect(),
            shapes: shown.map(|(index, depth)| shape(model, &above, index, depth)).collect(),
            children,
        }
    }
}

fn shape(model: &Model, above: &[Option<u32>], index: u32, depth: u32) -> Shape {
    let metric = &model.metrics[index as usize];
    Shape {
        index,
        depth,
        name: metric.name.clone(),
        level: metric.level,
        parent: above[index as usize].map(|above| model.metrics[above as usize].name.clone()),
        unit: metric.unit,
        domain: metric.domain.clone(),
        formula: model.formula_of(metric),
        threshold: metric.threshold.as_ref().map(|threshold| threshold.write(model)),
        locate: metric.locate.clone(),
    }
}

/// All slots, in per cent.
const WHOLE: f64 = 100.0;
/// Tolerance for rounding, in per cent: the hardware keeps a share in 8 bits.
const TOLERANCE: f64 = 1.5;

impl Prepared {
    /// Returns the tree of these nodes, with its path and its contradictions.
    pub(super) fn with_path(&self, nodes: Vec<Node>) -> Tree {
        let path = self.path(&nodes);
        let end = |pick: fn(&Known) -> f64| {
            nodes.iter().map(|node| node.value.known().map_or(f64::NAN, pick)).collect::<Vec<f64>>()
        };
        let ends = [end(|known| known.low), end(|known| known.high)];
        let is_sure = |&&index: &&u32| {
            let threshold = self.model.metrics[index as usize].threshold.as_ref();
            threshold.is_some_and(|threshold| ends.iter().all(|end| over_values(threshold, end) == 1.0))
        };
        let sure = path.iter().take_while(is_sure).count();
        Tree { sure, path, faults: self.faults(&nodes), nodes, ..Tree::default() }
    }

    /// Returns the path from the root down, always to the largest of the flagged nodes.
    pub(super) fn path(&self, nodes: &[Node]) -> Vec<u32> {
        let worst = |among: &mut dyn Iterator<Item = u32>| {
            let flagged = among.filter(|&index| nodes[index as usize].flagged == Some(true));
            let known =
                flagged.filter_map(|index| Some((nodes[index as usize].value.known()?.estimate, index)));
            known.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, index)| index)
        };
        let mut path = Vec::new();
        // Useful work is not a bottleneck, though a high share of it is flagged as well.
        let lost = |index: &u32| self.model.metrics[*index as usize].name != "Retiring";
        let roots = || self.layout.roots.iter().copied();
        let mut next = worst(&mut roots().filter(lost)).or_else(|| worst(&mut roots()));
        while let Some(node) = next.filter(|_| path.len() < self.model.metrics.len()) {
            path.push(node);
            next = worst(&mut self.layout.children[node as usize].iter().copied());
        }
        path
    }

    /// Returns contradictions: roots that do not add up to everything, parts larger than the whole.
    pub(super) fn faults(&self, nodes: &[Node]) -> Vec<String> {
        let known = |index: u32| nodes[index as usize].value.known();
        let name = |index: u32| self.model.metrics[index as usize].name.as_str();
        let mut faults = Vec::new();
        let roots = if self.layout.roots_add_up { self.layout.roots.as_slice() } else { &[] };
        let values: Option<Vec<&Known>> = roots.iter().map(|&index| known(index)).collect();
        if let Some(values) = values.filter(|values| !values.is_empty()) {
            let sum: f64 = values.iter().map(|known| known.estimate).sum();
            let error =
                values.iter().map(|known| ((known.high - known.low) / 2.0).powi(2)).sum::<f64>().sqrt();
            if (sum - WHOLE).abs() > error + TOLERANCE {
                faults.push(format!(
                    "the first level adds up to {sum:.1} % (± {error:.1}), not to 100: mismeasured"
                ));
            }
        }
        for &(index, parent) in &self.layout.parts {
            let (Some(part), Some(whole)) = (known(index), known(parent)) else { continue };
            if part.low > whole.high + TOLERANCE {
                let (part, whole) = (part.estimate, whole.estimate);
                faults.push(format!(
                    "{} ({part:.1} %) is more than {} ({whole:.1} %)",
                    name(index),
                    name(parent)
                ));
            }
        }
        faults
    }
}
