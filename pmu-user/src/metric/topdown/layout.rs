//! What is the same about a model's metrics for every owner: the shape of the tree, and the events behind each metric.

use std::sync::Arc;

use crate::{
    metric::estimate::EventIndex,
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
    /// When it is flagged.
    pub threshold: Option<String>,
    /// Events whose samples find the code behind it, the best first.
    pub locate: Vec<String>,
}

/// A model's tree, worked out once.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// What no other metric holds, but that has parts itself.
    pub(super) roots: Vec<u32>,
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
        let is_root = |&index: &u32| above[index as usize].is_none() && !children[index as usize].is_empty();
        // What is estimated by assumed latencies, or counts something else than its parent, may be larger.
        let comparable = |(part, whole): &(u32, u32)| {
            [part, whole].iter().all(|index| model.metrics[**index as usize].domain == "Slots")
        };
        let pairs = all.clone().filter_map(|index| Some((index, above[index as usize]?)));
        let events = |metric: u32| model.operands_of(metric).into_iter().filter_map(&event).collect();
        let shown = model.tree().into_iter().filter(|&(index, _)| is_shown(index));
        Self {
            roots: all.clone().filter(is_root).collect(),
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
        threshold: metric.threshold.as_ref().map(|threshold| threshold.write(model)),
        locate: metric.locate.clone(),
    }
}
