//! The shape of a model's tree, the events behind each metric, the path to the bottleneck, and values that contradict each other.

use std::sync::Arc;

use super::{Node, Prepared, Tree};
use crate::{
    metric::{estimate::EventIndex, formulas::over_values, value::Known},
    table::{model::Model, unit::Unit},
};

/// What is the same about a metric for every owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Its index in a tree.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Depth in the tree, from 0.
    pub depth: u32,
    /// Its level, as its source counts.
    pub level: u32,
    /// The metric it is a part of.
    pub parent: Option<String>,
    /// Its unit.
    pub unit: Unit,
    /// What a fraction of it is a fraction of.
    pub domain: String,
    /// Its formula.
    pub formula: String,
    /// When it is flagged.
    pub threshold: Option<String>,
    /// Events whose samples find the code behind it, the best first.
    pub locate: Vec<String>,
}

/// A model's tree, worked out once.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// What no other metric holds, and that has parts itself or is a share of all slots or cycles.
    pub(super) roots: Vec<u32>,
    /// Are all of them shares of the slots, which add up to 100 %?
    roots_add_up: bool,
    /// By metric: its parts.
    pub(super) children: Vec<Vec<u32>>,
    /// Parts, each with its whole, that are shares of the slots both: the part cannot be larger.
    pub(super) parts: Vec<(u32, u32)>,
    /// By metric: the planned events in its formula.
    pub(super) events: Vec<Vec<EventIndex>>,
    /// The metrics that are shown, in the order of the tree.
    pub(super) shapes: Arc<[Shape]>,
}

impl Layout {
    /// The layout of `model`. `event` says which planned event counts an operand, `is_shown` whether anyone wants a metric.
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
        // What is estimated by assumed latencies, or counts something else than its parent, may be larger.
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
/// What rounding may make of it: a share is kept in 8 bits by the hardware.
const TOLERANCE: f64 = 1.5;

impl Prepared {
    /// The tree of these nodes: with its path, and with what contradicts itself.
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

    /// From the root down, always to the largest of the flagged nodes.
    pub(super) fn path(&self, nodes: &[Node]) -> Vec<u32> {
        let worst = |among: &mut dyn Iterator<Item = u32>| {
            let flagged = among.filter(|&index| nodes[index as usize].flagged == Some(true));
            let known =
                flagged.filter_map(|index| Some((nodes[index as usize].value.known()?.estimate, index)));
            known.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, index)| index)
        };
        let mut path = Vec::new();
        // Doing useful work is no bottleneck, though a high share of it is flagged as well.
        let lost = |index: &u32| self.model.metrics[*index as usize].name != "Retiring";
        let roots = || self.layout.roots.iter().copied();
        let mut next = worst(&mut roots().filter(lost)).or_else(|| worst(&mut roots()));
        while let Some(node) = next.filter(|_| path.len() < self.model.metrics.len()) {
            path.push(node);
            next = worst(&mut self.layout.children[node as usize].iter().copied());
        }
        path
    }

    /// What cannot be: roots that do not add up to everything, parts larger than the whole.
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
