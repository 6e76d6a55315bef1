//! What must hold in every table: formulas know their events, parents form a tree, nothing is a part of itself.

use super::Model;
use crate::table::formula::Expr;

/// Something in a table that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableFault {
    /// A formula counts an event that has no encoding.
    #[error("`{0}` counts `{1}`, which the table does not encode")]
    NoEvent(String, String),
    /// What would find a metric's code has no encoding.
    #[error("the code behind `{0}` is found by `{1}`, which the table does not encode")]
    NoLocation(String, String),
    /// A metric's parents lead back to it.
    #[error("`{0}` is above itself in the tree")]
    NoTree(String),
    /// A metric is computed from itself.
    #[error("`{0}` is computed from itself")]
    Circular(String),
    /// Two things have one name.
    #[error("`{0}` is there twice")]
    Twice(String),
}

impl Model {
    /// Everything that cannot be, none if the table is sound.
    #[must_use]
    pub fn faults(&self) -> Vec<TableFault> {
        let mut faults = self.twice();
        for (index, metric) in self.metrics.iter().enumerate() {
            for operand in self.operands_of(index as u32) {
                let name = &self.operands[operand as usize];
                if self.encoding(name).is_err() {
                    faults.push(TableFault::NoEvent(metric.name.clone(), name.clone()));
                }
            }
            let lost = metric.locate.iter().filter(|event| self.encoding(event).is_err());
            faults.extend(lost.map(|event| TableFault::NoLocation(metric.name.clone(), event.clone())));
            if self.parents(index as u32).any(|above| above == index as u32) {
                faults.push(TableFault::NoTree(metric.name.clone()));
            }
            if self.reaches(index as u32, index as u32) {
                faults.push(TableFault::Circular(metric.name.clone()));
            }
        }
        faults
    }

    /// The metrics above, nearest first; at most as many as there are metrics.
    pub fn parents(&self, metric: u32) -> impl Iterator<Item = u32> {
        let above = |index: &u32| self.metrics.get(*index as usize).and_then(|metric| metric.parent);
        std::iter::successors(above(&metric), above).take(self.metrics.len())
    }

    fn twice(&self) -> Vec<TableFault> {
        let mut names: Vec<&str> = self.metrics.iter().map(|metric| metric.name.as_str()).collect();
        names.extend(self.events.iter().map(|event| event.name.as_str()));
        names.sort_unstable();
        let pairs = names.windows(2).filter(|pair| pair[0] == pair[1]);
        pairs.map(|pair| TableFault::Twice(pair[0].to_owned())).collect()
    }

    /// Is `wanted` in the formula of `from`, or in one of the metrics there?
    fn reaches(&self, from: u32, wanted: u32) -> bool {
        let (mut open, mut seen, mut found) = (vec![from], Vec::new(), false);
        while let Some(index) = open.pop() {
            let Some(metric) = self.metrics.get(index as usize) else { continue };
            metric.formula.visit(&mut |part| {
                if let Expr::Metric(other) = part {
                    found |= *other == wanted;
                    if !seen.contains(other) {
                        seen.push(*other);
                        open.push(*other);
                    }
                }
            });
        }
        found
    }
}
