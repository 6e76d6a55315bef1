//! PMUs that exist here; boxes of a kind are one row.

use super::Host;
use crate::machine::{
    cpu::Cpu,
    pmu::catalog::{Entry, Place},
};
use crate::table::notation::family;

/// A PMU, or boxes of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPmu {
    /// Its name, or what the boxes' names begin with.
    pub name: String,
    /// `perf_event_attr.type` of it, or of each box.
    pub kinds: Vec<u32>,
    /// Names of the boxes; none if it is no box.
    pub boxes: Vec<String>,
    /// CPUs that it counts on; none if that is any.
    pub cpus: Option<Vec<Cpu>>,
    /// Terms of its events, with their bits.
    pub terms: Vec<(String, String)>,
    /// Capabilities, with their values.
    pub caps: Vec<(String, String)>,
    /// Events that sysfs has names for.
    pub events: usize,
    /// Does it count what a core executes?
    pub of_cores: bool,
}

/// Every PMU of the host, by name.
#[must_use]
pub fn pmus(host: &Host<'_>) -> Vec<ListedPmu> {
    let mut listed: Vec<ListedPmu> = Vec::new();
    for pmu in &host.catalog.pmus {
        let row = row(pmu);
        match listed.last_mut().filter(|last| last.is_like(&row)) {
            Some(last) => {
                last.kinds.extend(row.kinds);
                last.boxes.extend(row.boxes);
            }
            None => listed.push(row),
        }
    }
    listed
}

impl ListedPmu {
    /// Boxes of the same kind, that differ in number only.
    fn is_like(&self, other: &Self) -> bool {
        let alike = |pmu: &Self| (pmu.cpus.clone(), pmu.terms.clone(), pmu.caps.clone(), pmu.events);
        !self.boxes.is_empty() && self.name == other.name && alike(self) == alike(other)
    }
}

fn row(pmu: &Entry) -> ListedPmu {
    let (name, boxes, cpus) = match &pmu.place {
        Place::Box(cpus) => (family(&pmu.name), vec![pmu.name.clone()], Some(cpus.clone())),
        Place::Cores(cpus) => (pmu.name.as_str(), Vec::new(), Some(cpus.clone())),
        Place::Anywhere => (pmu.name.as_str(), Vec::new(), None),
    };
    ListedPmu {
        name: name.to_owned(),
        kinds: vec![pmu.kind],
        boxes,
        cpus,
        terms: pmu.terms.iter().map(|(name, bits)| (name.clone(), bits.to_string())).collect(),
        caps: pmu.caps.clone(),
        events: pmu.events.len(),
        of_cores: pmu.is_core(),
    }
}
