//! Snapshot to scrape at one time: families, each with its series, of targets and of the host.

use std::{borrow::Cow, sync::Arc};

use super::{
    families::TARGET_INFO,
    family::Family,
    host::OfHost,
    target::Labels,
    value::{FamilyId, Point, Values, none_of},
};

/// Families and series to scrape at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Sequence number: the first is 1.
    pub sequence: u64,
    pub(super) families: Arc<[Family]>,
    /// Families that every target has.
    pub(super) of_targets: Vec<FamilyId>,
    /// Families of targets that are still 0.
    pub(super) held: Vec<FamilyId>,
    /// Families of which a target has a series if its value is known.
    pub(super) of_some: Vec<FamilyId>,
    pub(super) targets: Vec<TargetSeries>,
    pub(super) host: Vec<OfHost>,
}

/// Series of a target.
#[derive(Clone, Debug)]
pub(super) struct TargetSeries {
    pub(super) name: Arc<str>,
    pub(super) info: Option<Arc<Labels>>,
    pub(super) since_ns: u64,
    pub(super) values: Arc<Values>,
    pub(super) states: Arc<Values>,
}

/// Series of a family.
#[derive(Debug)]
pub struct Series<'a> {
    /// Target of the series, if it has one.
    pub target: Option<&'a str>,
    /// Other labels of the series.
    pub labels: &'a [(&'static str, String)],
    /// Value of the series.
    pub point: Cow<'a, Point>,
    /// Start of the series, in ns since counting began.
    pub since_ns: u64,
}

impl Snapshot {
    /// Returns the families in the order of their names, each with its series.
    pub fn families(&self) -> impl Iterator<Item = (&Family, Vec<Series<'_>>)> {
        let mut order: Vec<FamilyId> = (0..self.families.len()).collect();
        order.sort_by(|one, other| self.families[*one].name.cmp(&self.families[*other].name));
        let all = order.into_iter().map(|id| (&self.families[id], self.series(id)));
        all.filter(|(_, series)| !series.is_empty())
    }

    fn series(&self, id: FamilyId) -> Vec<Series<'_>> {
        let family = &self.families[id];
        let of_host = self.host.iter().filter(|one| one.family == id);
        let mut series: Vec<Series<'_>> = of_host
            .map(|one| Series {
                target: None,
                labels: &one.labels,
                point: Cow::Borrowed(&one.point),
                since_ns: one.since_ns,
            })
            .collect();
        if id == TARGET_INFO {
            let infos = self.targets.iter().filter_map(|target| Some((target, target.info.as_ref()?)));
            series.extend(infos.map(|(target, info)| Series {
                target: Some(&target.name),
                labels: info,
                point: Cow::Owned(Point::Number(1.0)),
                since_ns: target.since_ns,
            }));
        }
        if self.of_targets.contains(&id) {
            let is_held = self.held.contains(&id);
            // A target without a value of the family has 0.
            series.extend(self.targets.iter().map(|target| {
                let point = target.values.0.get(&id).filter(|_| !is_held);
                Series {
                    target: Some(&target.name),
                    labels: &[],
                    point: point.map_or_else(|| Cow::Owned(none_of(family.kind)), Cow::Borrowed),
                    since_ns: target.since_ns,
                }
            }));
        }
        if self.of_some.contains(&id) {
            series.extend(self.targets.iter().filter_map(|target| {
                let point = target.values.0.get(&id).or_else(|| target.states.0.get(&id))?;
                Some(Series {
                    target: Some(&target.name),
                    labels: &[],
                    point: Cow::Borrowed(point),
                    since_ns: target.since_ns,
                })
            }));
        }
        series
    }
}
