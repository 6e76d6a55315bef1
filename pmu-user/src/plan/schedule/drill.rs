//! Drill-down: the upper levels of the tree are always measured, what is below only where it was flagged.
//!
//! A branch stays for a few intervals after it was last flagged, since a workload near a threshold would otherwise have
//! it measured every other time.

/// A node of the tree of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its level, from 1.
    pub level: u32,
    /// The node above it, as an index. What has none is a root and always measured.
    pub parent: Option<usize>,
}

/// How far to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Levels that are always measured.
    pub always: u32,
    /// Levels below which nothing is measured, flagged or not.
    pub most: u32,
    /// Intervals for which a node's children are measured after it was last flagged, at least 1.
    pub keep: u32,
}

impl Default for Depth {
    fn default() -> Self {
        Self { always: 2, most: u32::MAX, keep: 3 }
    }
}

/// Which nodes to measure next.
#[derive(Clone, Debug)]
pub struct Drill {
    nodes: Vec<Node>,
    depth: Depth,
    /// Intervals for which each node's children are still measured.
    open: Vec<u32>,
}

impl Drill {
    /// Nothing has been flagged yet.
    pub fn new(nodes: Vec<Node>, depth: Depth) -> Self {
        Self { open: vec![0; nodes.len()], nodes, depth }
    }

    /// Nodes to measure in the next interval, ascending. With a node come all its siblings and all that is above it, so
    /// that children can be held against their parent.
    pub fn wanted(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&node| self.wants(node)).collect()
    }

    /// Takes in an interval: `flagged` exceeded their thresholds. A flag of a node that was not measured says nothing.
    pub fn after(&mut self, flagged: &[usize]) {
        let measured = self.wanted();
        for (node, open) in self.open.iter_mut().enumerate() {
            let fresh = flagged.contains(&node) && measured.binary_search(&node).is_ok();
            *open = if fresh { self.depth.keep.max(1) } else { open.saturating_sub(1) };
        }
    }

    fn wants(&self, node: usize) -> bool {
        let mut here = self.nodes[node];
        if here.level > self.depth.most {
            return false;
        }
        // As many steps as there are nodes end any walk, also one in a table with a circle.
        for _ in 0..self.nodes.len() {
            match here.parent {
                _ if here.level <= self.depth.always => return true,
                None => return true,
                Some(parent) if self.open[parent] == 0 => return false,
                Some(parent) => here = self.nodes[parent],
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Depth, Drill, Node};

    /// A root, two nodes at each level below, of which the first has the next level's.
    fn tree(keep: u32) -> Drill {
        let mut nodes = vec![Node { level: 1, parent: None }];
        for level in 2..=4_u32 {
            let parent = Some(if level == 2 { 0 } else { nodes.len() - 2 });
            nodes.extend([Node { level, parent }, Node { level, parent }]);
        }
        Drill::new(nodes, Depth { keep, ..Depth::default() })
    }

    #[test]
    fn the_upper_levels_are_always_measured() {
        assert_eq!(tree(1).wanted(), [0, 1, 2]);
    }

    #[test]
    fn a_flagged_node_brings_all_its_children() {
        let mut drill = tree(1);
        drill.after(&[1]);
        assert_eq!(drill.wanted(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_branch_stays_for_as_long_as_it_was_told() {
        let mut drill = tree(2);
        drill.after(&[1]);
        drill.after(&[]);
        assert_eq!(drill.wanted().len(), 5, "the second interval after the flag");
        drill.after(&[]);
        assert_eq!(drill.wanted().len(), 3, "the third");
    }

    #[test]
    fn a_flag_anew_keeps_the_branch() {
        let mut drill = tree(2);
        for flagged in [&[1][..], &[], &[1], &[]] {
            drill.after(flagged);
        }
        assert_eq!(drill.wanted().len(), 5);
    }

    #[test]
    fn what_was_not_measured_cannot_be_flagged() {
        let mut drill = tree(1);
        drill.after(&[3]);
        drill.after(&[1]);
        assert_eq!(drill.wanted(), [0, 1, 2, 3, 4], "3 is measured only now");
    }

    #[test]
    fn a_branch_ends_with_the_one_above_it() {
        let mut drill = tree(1);
        drill.after(&[1]);
        drill.after(&[1, 3]);
        assert_eq!(drill.wanted(), [0, 1, 2, 3, 4, 5, 6]);
        drill.after(&[3]);
        assert_eq!(drill.wanted(), [0, 1, 2]);
    }

    #[test]
    fn nothing_below_the_deepest_level_is_measured() {
        let mut drill = tree(1);
        drill.depth.most = 2;
        drill.after(&[0, 1, 2]);
        assert_eq!(drill.wanted(), [0, 1, 2]);
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let nodes = [1, 0].map(|parent| Node { level: 3, parent: Some(parent) });
        let mut drill = Drill::new(nodes.to_vec(), Depth::default());
        drill.open = vec![1, 1];
        assert_eq!(drill.wanted(), [0_usize; 0]);
    }

    proptest! {
        #[test]
        fn siblings_come_together_and_parents_come_first(
            parents in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
            flags in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..6), 1..10),
            keep in 0..4_u32,
        ) {
            let mut nodes = vec![Node { level: 1, parent: None }];
            for index in parents {
                let parent = index.index(nodes.len());
                nodes.push(Node { level: nodes[parent].level + 1, parent: Some(parent) });
            }
            let mut drill = Drill::new(nodes.clone(), Depth { keep, ..Depth::default() });
            for flagged in flags {
                let flagged: Vec<usize> = flagged.iter().map(|index| index.index(nodes.len())).collect();
                drill.after(&flagged);
                let wanted = drill.wanted();
                for (node, Node { level, parent }) in nodes.iter().enumerate() {
                    let here = wanted.contains(&node);
                    prop_assert!(here || *level > 2);
                    prop_assert!(!here || parent.is_none_or(|parent| wanted.contains(&parent)));
                    let siblings = nodes.iter().enumerate().filter(|(_, other)| other.parent == *parent);
                    for (sibling, _) in siblings {
                        prop_assert_eq!(here, wanted.contains(&sibling));
                    }
                }
            }
        }
    }
}
