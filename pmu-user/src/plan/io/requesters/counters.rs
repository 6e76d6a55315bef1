//! What one IOMMU counts of a device's metrics.

use std::collections::BTreeSet;

use crate::{
    machine::pmu::catalog::{Catalog, Entry},
    plan::{io::class::selected, turns::PlannedEvent},
    table::io::{IoTable, Requester},
};

/// An IOMMU's counters, and what is known of their kind.
#[derive(Clone, Copy)]
pub(super) struct Counters<'a> {
    pub(super) table: &'a IoTable,
    pub(super) pmu: &'a Entry,
}

impl Counters<'_> {
    /// Can it be told to count for one requester? The kernel shows the terms of filters that the IOMMU has.
    pub(super) fn has_filter(&self) -> bool {
        let mut terms = self.table.requesters.iter().flat_map(Requester::names);
        terms.all(|term| self.pmu.term(term).is_some())
    }

    /// What it counts of a device's metrics, as operands of the table: a metric is none of its own if it lacks one of its events, which
    /// the kernel then does not name.
    pub(super) fn events(&self) -> BTreeSet<u32> {
        let known = self.metrics().filter(|&metric| self.lacks(metric).is_none());
        known.flat_map(|metric| self.table.model.operands_of(metric)).collect()
    }

    /// Metrics that it cannot give, each with an event that it lacks.
    pub(super) fn lacking(&self) -> Vec<(String, String)> {
        let name = |metric: u32| self.table.model.metrics[metric as usize].name.clone();
        self.metrics().filter_map(|metric| Some((name(metric), self.lacks(metric)?))).collect()
    }

    fn metrics(&self) -> std::ops::Range<u32> {
        0..self.table.model.metrics.len() as u32
    }

    fn lacks(&self, metric: u32) -> Option<String> {
        let operands = self.table.model.operands_of(metric).into_iter();
        let mut names = operands.filter_map(|operand| self.table.operand(operand));
        names.find(|name| self.pmu.event(name).is_none()).map(str::to_owned)
    }

    /// An event for this requester, or for all.
    pub(super) fn planned(
        &self,
        operand: u32,
        requester: Option<u16>,
        catalog: &Catalog,
    ) -> Result<PlannedEvent, String> {
        let name = self.table.operand(operand).unwrap_or("?");
        let event = self.table.model.event(name).ok_or_else(|| format!("{name} has no encoding"))?;
        let filters = self.table.requesters.iter().zip(requester).map(|(filter, id)| filter.terms_of(id));
        let terms = std::iter::once(event.terms.clone()).chain(filters).collect::<Vec<_>>().join(",");
        let found = selected(&self.pmu.name, name, &terms, catalog)?;
        let at = found.instances.first().ok_or_else(|| format!("nothing counts {name}"))?;
        Ok(PlannedEvent::of(&found, at))
    }
}
