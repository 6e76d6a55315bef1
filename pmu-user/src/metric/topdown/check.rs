//! Where most is lost, and what cannot be.

use super::{Node, Prepared};
use crate::metric::value::Known;

/// All slots, in per cent.
const WHOLE: f64 = 100.0;
/// What rounding may make of it: a share is kept in 8 bits by the hardware.
const TOLERANCE: f64 = 1.5;

impl Prepared {
    /// Roots of the tree.
    fn roots(&self) -> Vec<u32> {
        let is_root = |&index: &u32| self.model.above(index).is_none();
        self.model.tree_nodes().filter(is_root).collect()
    }

    fn children(&self, of: u32) -> impl Iterator<Item = u32> {
        (0..self.model.metrics.len() as u32).filter(move |&index| self.model.above(index) == Some(of))
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
        let mut next = worst(&mut self.roots().into_iter().filter(lost))
            .or_else(|| worst(&mut self.roots().into_iter()));
        while let Some(node) = next.filter(|_| path.len() < self.model.metrics.len()) {
            path.push(node);
            next = worst(&mut self.children(node));
        }
        path
    }

    /// What cannot be: roots that do not add up to everything, parts larger than the whole.
    pub(super) fn faults(&self, nodes: &[Node]) -> Vec<String> {
        let known = |index: u32| nodes[index as usize].value.known();
        let name = |index: u32| self.model.metrics[index as usize].name.as_str();
        let mut faults = Vec::new();
        let roots = self.roots();
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
        for (index, metric) in self.model.metrics.iter().enumerate() {
            let Some(parent) = self.model.above(index as u32) else { continue };
            let (Some(part), Some(whole)) = (known(index as u32), known(parent)) else { continue };
            // What is estimated by assumed latencies, or counts something else than its parent, may be larger.
            let comparable =
                metric.domain == self.model.metrics[parent as usize].domain && metric.domain == "Slots";
            if comparable && part.low > whole.high + TOLERANCE {
                let (part, whole) = (part.estimate, whole.estimate);
                faults.push(format!(
                    "{} ({part:.1} %) is more than {} ({whole:.1} %)",
                    name(index as u32),
                    name(parent)
                ));
            }
        }
        faults
    }
}
