//! Families that have series. Each is registered once, and all targets have the same families.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    HISTOGRAM_SERIES,
    family::{Family, Kind},
    seen::{Change, Seen},
    value::FamilyId,
};
use crate::table::metric::Metric;

/// Index of the family of target info.
pub(super) const TARGET_INFO: FamilyId = 0;

/// Families by their index.
#[derive(Debug)]
pub(super) struct Families {
    all: Vec<Family>,
    by_name: HashMap<String, FamilyId>,
    /// Families of metrics, `None` for one that is not exposed.
    by_metric: HashMap<&'static str, Option<FamilyId>>,
    of_targets: BTreeSet<FamilyId>,
    /// Families of which a target has a series only if the kernel accounts it.
    of_some: BTreeSet<FamilyId>,
    /// Families of all targets that came late and are 0 until every reader has seen that. The change is not
    /// known yet for those since the last snapshot.
    held: BTreeMap<FamilyId, Option<Change>>,
    /// Families that are variances.
    variances: BTreeSet<FamilyId>,
    /// Families that targets will have.
    expected: BTreeSet<FamilyId>,
    /// All families, as last returned.
    shared: Option<Arc<[Family]>>,
}

impl Default for Families {
    fn default() -> Self {
        let info = Family::own(
            "pmbpf_target",
            Kind::Info,
            None,
            "What a target is: its cgroup, container, pod, unit or job, as far as it is known.",
        );
        Self {
            by_name: HashMap::from([(info.name.clone(), TARGET_INFO)]),
            all: vec![info],
            by_metric: HashMap::new(),
            of_targets: BTreeSet::new(),
            of_some: BTreeSet::new(),
            held: BTreeMap::new(),
            variances: BTreeSet::new(),
            expected: BTreeSet::new(),
            shared: None,
        }
    }
}

impl Families {
    /// Returns the index of a family, which may be new.
    pub(super) fn id(&mut self, family: Family) -> FamilyId {
        if let Some(&id) = self.by_name.get(&family.name) {
            return id;
        }
        let id = self.all.len();
        self.by_name.insert(family.name.clone(), id);
        self.all.push(family);
        self.shared = None;
        id
    }

    /// Returns the index of the family of a metric.
    pub(super) fn of(&mut self, metric: &Metric) -> Option<FamilyId> {
        if let Some(&known) = self.by_metric.get(metric.name) {
            return known;
        }
        let id = Family::of(metric).map(|family| self.id(family));
        self.by_metric.insert(metric.name, id);
        id
    }

    /// Returns the index of the family of a metric that every target has, none for one that cannot be added
    /// up.
    pub(super) fn of_targets(&mut self, metric: &Metric) -> Option<FamilyId> {
        let id = self.of(metric).filter(|&id| self.all[id].kind != Kind::Gauge)?;
        self.every_target_has(id);
        Some(id)
    }

    /// Returns the index of a counter that every target has.
    pub(super) fn of_counter(&mut self, family: Family) -> FamilyId {
        let id = self.id(family);
        self.every_target_has(id);
        id
    }

    /// Returns the index of a family of which a target has a series if its value is known.
    pub(super) fn of_some(&mut self, family: Family) -> FamilyId {
        let id = self.id(family);
        self.of_some.insert(id);
        id
    }

    /// Returns whether a target has a series of this family only if its value is known.
    pub(super) fn is_of_some(&self, family: FamilyId) -> bool {
        self.of_some.contains(&family)
    }

    fn every_target_has(&mut self, id: FamilyId) {
        if self.of_targets.insert(id) {
            self.held.insert(id, None);
        }
    }

    /// Updates what readers have seen, before the next snapshot. Families of the first snapshot that any
    /// reader sees are not held back.
    pub(super) fn review(&mut self, seen: Seen, next: Change) {
        for since in self.held.values_mut().filter(|since| since.is_none()) {
            *since = Some(next);
        }
        let is_first = seen.sequence == 0;
        self.held.retain(|_, since| !is_first && since.is_some_and(|since| !seen.has(since, next.at_ns)));
    }

    /// Returns the families of targets that are still 0, because not every reader has seen them.
    pub(super) fn ids_held(&self) -> Vec<FamilyId> {
        self.held.keys().copied().collect()
    }

    /// Keeps room for the families of these metrics.
    pub(super) fn expect(&mut self, metrics: &[Metric]) {
        for metric in metrics {
            if let Some(id) = self.of(metric).filter(|&id| self.all[id].kind != Kind::Gauge) {
                self.expected.insert(id);
            }
        }
    }

    /// Returns the index of the variance of a family's values.
    pub(super) fn variance_of(&mut self, family: FamilyId, of_targets: bool) -> FamilyId {
        let variance = self.all[family].variance();
        let id = self.id(variance);
        self.variances.insert(id);
        if of_targets {
            self.every_target_has(id);
        }
        id
    }

    /// Returns the index of the variance of a family's values, if any of them has one.
    pub(super) fn known_variance_of(&self, family: FamilyId) -> Option<FamilyId> {
        self.by_name.get(&self.all[family].variance().name).copied()
    }

    /// Returns whether the family is a variance.
    pub(super) fn is_variance(&self, family: FamilyId) -> bool {
        self.variances.contains(&family)
    }

    /// Returns the family of an index.
    pub(super) fn at(&self, id: FamilyId) -> &Family {
        &self.all[id]
    }

    /// Returns the number of series of a target in text.
    pub(super) fn series_of_target(&self) -> usize {
        let all = self.of_targets.union(&self.expected).chain(&self.of_some);
        let each = all.map(|&id| series(&self.all[id]));
        // The info of the target is one more.
        1 + each.sum::<usize>()
    }

    pub(super) fn ids_of_targets(&self) -> Vec<FamilyId> {
        self.of_targets.iter().copied().collect()
    }

    pub(super) fn ids_of_some(&self) -> Vec<FamilyId> {
        self.of_some.iter().copied().collect()
    }

    /// Returns all families by index.
    pub(super) fn all(&mut self) -> Arc<[Family]> {
        let all = &self.all;
        Arc::clone(self.shared.get_or_insert_with(|| all.as_slice().into()))
    }
}

/// Returns the number of text lines of a family's value.
pub(super) const fn series(family: &Family) -> usize {
    if matches!(family.kind, Kind::Histogram) { HISTOGRAM_SERIES } else { 1 }
}
