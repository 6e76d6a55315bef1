//! Rows of devices that their IOMMU counted separately: each value belongs to one device.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{
    IoMetrics, Label, Measured, Row, Subject, UncoreCounts, apportion::exclusive, devices::name_of,
    row_filter::wants_events, scope::ScopeClass, traffic::Names,
};
use crate::{
    machine::io::{Platform, bdf::Bdf, owner::Ownership},
    metric::value::Value,
    plan::{
        Target,
        io::{IoPlan, UncoreKind},
    },
    table::{
        io::{FindError, Of, of_iommu},
        unit::Unit,
    },
};

/// Note on the values of a single device.
const NOTE: &str =
    "a function's numbers are its own: its IOMMU counts for one requester alone, or has no other";
/// Metric that is attributed to the owner of a device. The others are ratios and latencies, which have no
/// owner.
const OWNED: &str = "vtd.translation_rate";

/// Metrics of the devices for which a plan's IOMMUs count.
#[derive(Clone, Debug)]
pub(super) struct Requesters {
    iommus: Vec<Iommu>,
}

/// IOMMU with its devices.
#[derive(Clone, Debug)]
struct Iommu {
    /// Name of its counters: the plan has a kind or two of them.
    name: String,
    /// Devices of the IOMMU, each with the metrics of its events.
    devices: Vec<(Bdf, IoMetrics)>,
}

impl Requesters {
    /// Returns the requesters of a plan.
    ///
    /// # Errors
    ///
    /// A table cannot be read.
    pub(super) fn new(plan: &IoPlan) -> Result<Self, FindError> {
        let mut by_name: BTreeMap<&str, Vec<&UncoreKind>> = BTreeMap::new();
        for kind in plan.kinds.iter().filter(|kind| !kind.is_everybodys()) {
            by_name.entry(&kind.name).or_default().push(kind);
        }
        let mut iommus = Vec::new();
        for (name, kinds) in by_name {
            let Some(table) = of_iommu(&kinds[0].turns.pmu)? else { continue };
            let requesters = kinds.iter().flat_map(|kind| &kind.requesters);
            let metrics = |bdf: &Bdf| {
                // The clock belongs to no requester, and so to all.
                let counts = |requester: Option<&Option<Bdf>>| {
                    requester.is_some_and(|requester| requester.is_none_or(|requester| requester == *bdf))
                };
                let table = table.clone();
                IoMetrics::of_groups(table, plan, |kind, group| {
                    kind.name == name && counts(kind.requesters.get(group))
                })
            };
            let devices = requesters.flatten().map(|bdf| (*bdf, metrics(bdf))).collect();
            iommus.push(Iommu { name: name.to_owned(), devices });
        }
        Ok(Self { iommus })
    }

    /// Returns the rows of an interval for each device and for its exclusive owner.
    pub(super) fn rows(
        &self,
        counts: &UncoreCounts<'_>,
        names: Names<'_>,
        owned: &[(Bdf, Ownership)],
    ) -> Vec<Row> {
        let (plan, mut rows) = (counts.plan, Vec::new());
        for iommu in &self.iommus {
            let measured = counts.measured(|kind, _| iommu.has(kind));
            for (bdf, metrics) in &iommu.devices {
                let of_device = iommu.rows(*bdf, metrics, plan, &measured, names.platform);
                rows.extend(of_owner(&of_device, *bdf, owned, &plan.target, names));
                rows.extend(of_device);
            }
        }
        rows
    }
}

impl Iommu {
    /// Returns whether the IOMMU has these counters.
    fn has(&self, kind: &UncoreKind) -> bool {
        !kind.is_everybodys() && kind.name == self.name
    }

    fn rows(
        &self,
        bdf: Bdf,
        metrics: &IoMetrics,
        plan: &IoPlan,
        measured: &Measured,
        platform: &Platform,
    ) -> Vec<Row> {
        let subject = Subject::Function(bdf.to_string(), name_of(platform, bdf));
        let row = |metric: String, unit: Unit, value: Value| Row {
            subject: subject.clone(),
            metric,
            unit,
            value,
            distribution: None,
            label: Label::Measured,
            note: Some(NOTE.to_owned()),
        };
        let known = metrics.evaluate(measured, ScopeClass::Whole, Of::All).into_iter();
        let known = known.map(|(metric, value)| {
            let metric = &metrics.table.model.metrics[metric as usize];
            row(metric.name.clone(), metric.unit, value)
        });
        let mut rows: Vec<Row> = known.collect();
        if wants_events(&plan.report) {
            let whose = plan.kinds.iter().filter(|kind| self.has(kind)).flat_map(|kind| {
                let groups = kind.turns.groups.iter().zip(&kind.requesters);
                groups.flat_map(|(group, requester)| group.events.iter().map(move |_| *requester))
            });
            let events = metrics.events_of(plan, measured).into_iter().zip(whose);
            let events = events.filter(|(_, whose)| *whose == Some(bdf));
            rows.extend(events.map(|((event, value), _)| row(format!("event.{event}"), Unit::Counts, value)));
        }
        rows
    }
}

/// Returns the row of the exclusive owner of the device, if it has one.
fn of_owner(
    rows: &[Row],
    bdf: Bdf,
    owned: &[(Bdf, Ownership)],
    target: &Target,
    names: Names<'_>,
) -> Option<Row> {
    let owner = exclusive(&[bdf], owned, target, names)?;
    let row = rows.iter().find(|row| row.metric == OWNED)?;
    Some(Row { subject: Subject::Owner(owner, Box::new(row.subject.clone())), ..row.clone() })
}
