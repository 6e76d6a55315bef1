//! From flagged nodes to the groups of counters that are to have turns next.

use std::collections::BTreeSet;

use super::topdown::{Prepared, TopDown};
use crate::plan::{
    metrics::{Depth, Metrics},
    schedule::drill::{self, Drill},
};

/// Drills down a model's tree, interval by interval.
#[derive(Clone, Debug)]
pub struct Drilling {
    drill: Drill,
    /// By metric of the model: the groups that its events are in.
    groups: Vec<Vec<u32>>,
    /// Groups of what is not in the tree.
    always: BTreeSet<u32>,
}

impl Drilling {
    /// Begins where the plan does. `None` if it measures every level anyway.
    #[must_use]
    pub fn new(prepared: &Prepared, plan: &Metrics) -> Option<Self> {
        if plan.depth != Depth::DrillDown {
            return None;
        }
        let metrics = &prepared.model.metrics;
        let groups = |name: &str| {
            let found = plan.measured.iter().find(|metric| metric.name == name);
            found.map(|metric| metric.groups.clone()).unwrap_or_default()
        };
        let tree: BTreeSet<u32> = prepared.model.tree_nodes().collect();
        let node = |index: u32| drill::Node {
            level: metrics[index as usize].level,
            parent: prepared.model.above(index).map(|above| above as usize),
        };
        let nodes = (0..metrics.len() as u32).map(node);
        let beside = (0..metrics.len() as u32).filter(|index| !tree.contains(index));
        Some(Self {
            drill: Drill::new(nodes.collect(), drill::Depth::default()),
            always: beside.flat_map(|index| groups(&metrics[index as usize].name)).collect(),
            groups: metrics.iter().map(|metric| groups(&metric.name)).collect(),
        })
    }

    /// Takes in what an interval found; the groups that are to have turns in the next one.
    pub fn after(&mut self, topdown: &TopDown) -> Vec<u32> {
        let mut is_flagged = vec![false; self.groups.len()];
        for (index, node) in topdown.owners.iter().flat_map(|(_, tree)| tree.nodes.iter().enumerate()) {
            is_flagged[index] |= node.flagged == Some(true) && node.value.known().is_some();
        }
        let flagged = is_flagged.iter().enumerate().filter(|(_, is_flagged)| **is_flagged);
        self.drill.after(&flagged.map(|(index, _)| index).collect::<Vec<usize>>());
        let wanted = self.drill.wanted();
        let groups = wanted.iter().flat_map(|&node| &self.groups[node]).copied();
        groups.chain(self.always.iter().copied()).collect::<BTreeSet<u32>>().into_iter().collect()
    }
}
