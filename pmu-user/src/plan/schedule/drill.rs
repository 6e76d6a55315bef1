//! Drill-down: the upper levels of the tree are always measured, lower levels only below flagged nodes.
//!
//! A branch stays for a few intervals after it was last flagged. Otherwise a workload near a threshold would
//! have it measured every other time. Where more branches are open than groups of counters have time for in
//! an interval, they are multiplexed. Otherwise so few slices would be left for each that none of them, nor
//! the upper levels, would have a value.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// A node of the tree of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Level of the node, from 1.
    pub level: u32,
    /// Index of the node above it. A node without one is a root and always measured.
    pub parent: Option<usize>,
}

/// Depth of the drill-down.
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

/// Selection of the nodes to measure next.
#[derive(Clone, Debug)]
pub struct Drill {
    nodes: Vec<Node>,
    depth: Depth,
    /// Intervals for which each node's children are still measured.
    open: Vec<u32>,
    /// Intervals since each node's children, although open, had room.
    waited: Vec<u32>,
    /// Nodes that are open and have no room in this interval.
    left_out: BTreeSet<usize>,
}

/// Groups that nodes take, and the number of groups that have time.
#[derive(Clone, Copy, Debug)]
pub struct Room<'a> {
    /// Groups of its events, by node.
    pub groups: &'a [Vec<u32>],
    /// Groups that have slices in any case.
    pub always: &'a BTreeSet<u32>,
    /// Number of groups for which an interval has time.
    pub most: usize,
}

impl Drill {
    /// Returns a selection in which nothing has been flagged yet.
    pub fn new(nodes: Vec<Node>, depth: Depth) -> Self {
        let none = vec![0; nodes.len()];
        Self { open: none.clone(), waited: none, left_out: BTreeSet::new(), nodes, depth }
    }

    /// Returns the nodes to measure in the next interval, ascending. A node comes with all its siblings and
    /// all nodes above it, so that children can be compared with their parent.
    pub fn wanted(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&node| self.wants(node)).collect()
    }

    /// Returns the groups that have slices in the next interval: those of the upper levels, and of open
    /// branches as long as there is room. Within a level, branches that have waited longest come first, then
    /// those with the highest value above them (`values`, by node).
    pub fn groups(&mut self, room: Room<'_>, values: &[f64]) -> BTreeSet<u32> {
        let mut chosen = room.always.clone();
        let mut branches: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for node in self.wanted() {
            let Node { level, parent } = self.nodes[node];
            match parent.filter(|_| level > self.depth.always) {
                None => chosen.extend(&room.groups[node]),
                Some(parent) => branches.entry(parent).or_default().push(node),
            }
        }
        let mut branches: Vec<(usize, Vec<usize>)> = branches.into_iter().collect();
        branches.sort_by(|(one, _), (other, _)| {
            let rank = |node: usize| (self.nodes[node].level, Reverse(self.waited[node]));
            rank(*one).cmp(&rank(*other)).then(values[*other].total_cmp(&values[*one]))
        });
        self.left_out.clear();
        for (parent, children) in branches {
            let groups = children.iter().flat_map(|&child| &room.groups[child]).copied();
            let with: BTreeSet<u32> = chosen.iter().copied().chain(groups).collect();
            let fits = with.len() <= room.most || with.len() == chosen.len();
            if fits && !self.left_out.contains(&parent) {
                self.waited[parent] = 0;
                chosen = with;
            } else {
                self.waited[parent] = self.waited[parent].saturating_add(1);
                self.left_out.extend(children);
            }
        }
        chosen
    }

    /// Processes an interval in which `flagged` exceeded their thresholds. A flag of a node that was not
    /// measured is ignored. A node without room keeps its state.
    pub fn after(&mut self, flagged: &[usize]) {
        let measured = self.wanted();
        for (node, open) in self.open.iter_mut().enumerate() {
            if self.left_out.contains(&node) {
                continue;
            }
            let fresh = flagged.contains(&node) && measured.binary_search(&node).is_ok();
            *open = if fresh { self.depth.keep.max(1) } else { open.saturating_sub(1) };
        }
    }

    fn wants(&self, node: usize) -> bool {
        let mut here = self.nodes[node];
        if here.level > self.depth.most {
            return false;
        }
        // As many steps as there are nodes end any walk, even one in a table with a cycle.
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

    use super::{Depth, Drill, Node, Room};

    /// Returns a tree with a root and two nodes at each level below, of which the first has the next level's.
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

    /// Returns a root and two nodes below it, both flagged, each with two below it. Every node has a separate
    /// group.
    fn two_branches() -> (Drill, Vec<Vec<u32>>) {
        let levels =
            [(1, None), (2, Some(0)), (2, Some(0)), (3, Some(1)), (3, Some(1)), (3, Some(2)), (3, Some(2))];
        let nodes: Vec<Node> = levels.map(|(level, parent)| Node { level, parent }).to_vec();
        let mut drill = Drill::new(nodes, Depth { keep: 1, ..Depth::default() });
        drill.after(&[1, 2]);
        (drill, (0..7).map(|node| vec![node]).collect())
    }

    #[test]
    fn branches_without_room_take_turns() {
        let (mut drill, groups) = two_branches();
        let mut next = |flagged: &[usize], most| {
            let values = [0.0, 20.0, 30.0, 0.0, 0.0, 0.0, 0.0];
            let chosen = drill.groups(Room { groups: &groups, always: &[9].into(), most }, &values);
            drill.after(flagged);
            chosen.into_iter().collect::<Vec<u32>>()
        };
        assert_eq!(next(&[1, 2], 6), [0, 1, 2, 5, 6, 9], "the one with most above it first");
        assert_eq!(next(&[1, 2], 6), [0, 1, 2, 3, 4, 9], "then the one that waited");
        assert_eq!(next(&[1, 2], 6), [0, 1, 2, 5, 6, 9]);
        assert_eq!(next(&[1, 2], 8), [0, 1, 2, 3, 4, 5, 6, 9], "both have room");
        assert_eq!(next(&[], 3), [0, 1, 2, 9], "the upper levels always have turns");
    }

    #[test]
    fn what_shares_groups_with_the_upper_levels_needs_no_room() {
        let (mut drill, mut groups) = two_branches();
        groups[5] = vec![0];
        groups[6] = vec![1, 2];
        let chosen = drill.groups(Room { groups: &groups, always: &[].into(), most: 1 }, &[0.0; 7]);
        assert_eq!(chosen.into_iter().collect::<Vec<u32>>(), [0, 1, 2]);
        assert_eq!(drill.left_out.iter().copied().collect::<Vec<usize>>(), [3, 4]);
    }

    #[test]
    fn a_branch_that_waits_keeps_what_is_open_below_it() {
        let levels = [(1, None), (2, Some(0)), (2, Some(0)), (3, Some(1)), (4, Some(3)), (3, Some(2))];
        let nodes: Vec<Node> = levels.map(|(level, parent)| Node { level, parent }).to_vec();
        let mut drill = Drill::new(nodes, Depth { keep: 1, ..Depth::default() });
        let groups: Vec<Vec<u32>> = (0..6).map(|node| vec![node]).collect();
        let mut next = |flagged: &[usize], most| {
            drill.after(flagged);
            drill.groups(Room { groups: &groups, always: &[].into(), most }, &[0.0, 9.0, 5.0, 0.0, 0.0, 0.0])
        };
        assert!(next(&[1], 9).contains(&3));
        assert_eq!(next(&[1, 2, 3], 4), [0, 1, 2, 3].into());
        assert_eq!(next(&[1, 2, 3], 4), [0, 1, 2, 5].into());
        assert!(
            next(&[1, 2], 9).contains(&4),
            "3 was not measured, and so not found to be below its threshold"
        );
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
