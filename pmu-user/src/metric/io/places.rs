//! The places that boxes stand for, and what is known of each.

use super::{
    BoxCounts, IoMetrics, Label, Measured, Place, Row, Subject,
    choice::{wants_events, wants_place},
    extent::Extent,
};
use crate::{
    metric::value::Value,
    plan::io::{BoxKind, BoxSite, IoPlan},
    table::{io::Of, unit::Unit},
};

impl Place {
    const fn extent(self) -> Extent {
        match self {
            Self::Part(..) => Extent::Part,
            Self::Stack(..) => Extent::Stack,
            Self::Channel(..) => Extent::Channel,
            Self::Link(..) => Extent::Link,
            Self::Socket(_) | Self::Platform => Extent::Whole,
        }
    }

    /// Do the counts of this box belong to it?
    fn holds(self, kind: &str, site: &BoxSite) -> bool {
        let stands_for = stands_for(kind);
        match self {
            Self::Platform => true,
            Self::Socket(die) => site.die == die,
            Self::Stack(die, unit) | Self::Part(die, unit, _) => {
                stands_for == Some(Extent::Stack) && (site.die, site.unit) == (die, unit)
            }
            Self::Channel(die, unit) => {
                stands_for == Some(Extent::Channel) && (site.die, site.unit) == (die, unit)
            }
            Self::Link(die, unit) => stands_for == Some(Extent::Link) && (site.die, site.unit) == (die, unit),
        }
    }

    pub(super) const fn of(self) -> Of {
        match self {
            Self::Part(.., part) => Of::Part(part),
            _ => Of::All,
        }
    }
}

/// What one box of a kind is; none for those of which only all together mean something. The data fabric of AMD's sockets counts
/// their I/O modules as parts.
fn stands_for(kind: &str) -> Option<Extent> {
    match kind {
        "iio" | "irp" | "iio_free_running" | "amd_df" | "amd_iommu" | "nvidia_pcie_pmu" | "smmuv3_pmcg" => {
            Some(Extent::Stack)
        }
        "imc" | "amd_umc" => Some(Extent::Channel),
        "upi" => Some(Extent::Link),
        _ => None,
    }
}

/// Every place that the boxes of a plan stand for and about which something is to be shown, the whole first, then die by die.
#[must_use]
pub(super) fn places(plan: &IoPlan) -> Vec<Place> {
    let mut found = vec![Place::Platform];
    for kind in plan.kinds.iter().filter(|kind| kind.is_everybodys()) {
        for site in &kind.boxes {
            let (die, unit) = (site.die, site.unit);
            found.push(Place::Socket(die));
            match stands_for(&kind.name) {
                Some(Extent::Stack) => {
                    found.push(Place::Stack(die, unit));
                    let parts = kind.parts.iter().flatten();
                    found.extend(parts.map(|&part| Place::Part(die, unit, part)));
                }
                Some(Extent::Channel) => found.push(Place::Channel(die, unit)),
                Some(Extent::Link) => found.push(Place::Link(die, unit)),
                _ => {}
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found.retain(|place| wants_place(*place, &plan.report));
    found
}

impl IoMetrics {
    /// What an interval says about `place`.
    #[must_use]
    pub(super) fn rows(&self, counts: &BoxCounts<'_>, place: Place) -> Vec<Row> {
        let plan = counts.plan;
        let measured = Self::measured(counts, place, |_| true);
        let row = |(index, value): (u32, Value)| {
            let metric = &self.table.model.metrics[index as usize];
            let apart = plan.apart.contains(&metric.name);
            Row {
                subject: Subject::Place(place),
                metric: metric.name.clone(),
                unit: metric.unit,
                note: apart.then(|| self.turns_of(&measured, index, place.extent(), place.of())).flatten(),
                value,
                distribution: None,
                label: Label::System,
            }
        };
        let known = self.evaluate(&measured, place.extent(), place.of()).into_iter().map(row);
        // There are many of them, each with an interval of its own.
        let events = match wants_events(&plan.report) {
            true => self.events_of(plan, &measured),
            false => Vec::new(),
        };
        let events = events.into_iter().map(|(event, value)| Row {
            subject: Subject::Place(place),
            metric: format!("event.{event}"),
            unit: Unit::Counts,
            value,
            distribution: None,
            label: Label::System,
            note: None,
        });
        let free =
            self.always_running(plan, &measured, place.of()).into_iter().map(|(name, unit, value)| Row {
                subject: Subject::Place(place),
                metric: format!("free.{name}"),
                unit,
                value,
                distribution: None,
                label: Label::System,
                note: None,
            });
        known.chain(free).chain(events).collect()
    }

    /// What the boxes of a place counted, of kinds that are `wanted`.
    pub(super) fn measured(counts: &BoxCounts<'_>, place: Place, wanted: impl Fn(&str) -> bool) -> Measured {
        let belongs = |kind: &BoxKind| kind.is_everybodys() && wanted(&kind.name);
        counts.measured(|kind, site| belongs(kind) && place.holds(&kind.name, site))
    }
}
