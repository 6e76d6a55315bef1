//! Where most is lost, and what cannot be.

use super::{Node, Prepared};
use crate::metric::value::Known;

/// All slots, in per cent.
const WHOLE: f64 = 100.0;
/// What rounding may make of it: a share is kept in 8 bits by the hardware.
const TOLERANCE: f64 = 1.5;

impl Prepared {
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
        let values: Option<Vec<&Known>> = self.layout.roots.iter().map(|&index| known(index)).collect();
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
