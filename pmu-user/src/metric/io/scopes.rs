//! Scopes that uncore PMUs stand for, and the rows of each.

use super::{
    IoMetrics, Label, Measured, Row, Scope, Subject, UncoreCounts,
    row_filter::{wants_events, wants_place},
    scope::ScopeClass,
};
use crate::{
    metric::value::Value,
    plan::io::{IoPlan, UncoreInstance, UncoreKind},
    table::{io::Of, unit::Unit},
};

impl Scope {
    const fn extent(self) -> ScopeClass {
        match self {
            Self::Part(..) => ScopeClass::Part,
            Self::Stack(..) => ScopeClass::Stack,
            Self::Channel(..) => ScopeClass::Channel,
            Self::Link(..) => ScopeClass::Link,
            Self::Socket(_) | Self::Platform => ScopeClass::Whole,
        }
    }

    /// Returns whether the counts of this uncore PMU belong to the scope.
    fn holds(self, kind: &str, site: &UncoreInstance) -> bool {
        let stands_for = stands_for(kind);
        match self {
            Self::Platform => true,
            Self::Socket(die) => site.die == die,
            Self::Stack(die, unit) | Self::Part(die, unit, _) => {
                stands_for == Some(ScopeClass::Stack) && (site.die, site.unit) == (die, unit)
            }
            Self::Channel(die, unit) => {
                stands_for == Some(ScopeClass::Channel) && (site.die, site.unit) == (die, unit)
            }
            Self::Link(die, unit) => {
                stands_for == Some(ScopeClass::Link) && (site.die, site.unit) == (die, unit)
            }
        }
    }

    pub(super) const fn of(self) -> Of {
        match self {
            Self::Part(.., part) => Of::Part(part),
            _ => Of::All,
        }
    }
}

/// Returns the class of scope of one uncore PMU of a kind, or none if only the sum of all is meaningful. The
/// data fabric of AMD sockets counts their I/O modules as parts.
fn stands_for(kind: &str) -> Option<ScopeClass> {
    match kind {
        "iio" | "irp" | "iio_free_running" | "amd_df" | "amd_iommu" | "nvidia_pcie_pmu" | "smmuv3_pmcg" => {
            Some(ScopeClass::Stack)
        }
        "imc" | "amd_umc" => Some(ScopeClass::Channel),
        "upi" => Some(ScopeClass::Link),
        _ => None,
    }
}

/// Returns every scope of a plan's uncore PMUs that is to be shown, the platform first, then die by die.
pub(super) fn places(plan: &IoPlan) -> Vec<Scope> {
    let mut found = vec![Scope::Platform];
    for kind in plan.kinds.iter().filter(|kind| kind.is_everybodys()) {
        for site in &kind.instances {
            let (die, unit) = (site.die, site.unit);
            found.push(Scope::Socket(die));
            match stands_for(&kind.name) {
                Some(ScopeClass::Stack) => {
                    found.push(Scope::Stack(die, unit));
                    let parts = kind.parts.iter().flatten();
                    found.extend(parts.map(|&part| Scope::Part(die, unit, part)));
                }
                Some(ScopeClass::Channel) => found.push(Scope::Channel(die, unit)),
                Some(ScopeClass::Link) => found.push(Scope::Link(die, unit)),
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
    /// Returns the rows of an interval for `place`.
    pub(super) fn rows(&self, counts: &UncoreCounts<'_>, place: Scope) -> Vec<Row> {
        let plan = counts.plan;
        let measured = Self::measured(counts, place, |_| true);
        let row = |(index, value): (u32, Value)| {
            let metric = &self.table.model.metrics[index as usize];
            let apart = plan.apart.contains(&metric.name);
            Row {
                subject: Subject::Scope(place),
                metric: metric.name.clone(),
                unit: metric.unit,
                note: apart.then(|| self.turns_of(&measured, index, place.extent(), place.of())).flatten(),
                value,
                distribution: None,
                label: Label::System,
            }
        };
        let known = self.evaluate(&measured, place.extent(), place.of()).into_iter().map(row);
        // There are many events, each with a separate interval.
        let events = match wants_events(&plan.report) {
            true => self.events_of(plan, &measured),
            false => Vec::new(),
        };
        let events = events.into_iter().map(|(event, value)| Row {
            subject: Subject::Scope(place),
            metric: format!("event.{event}"),
            unit: Unit::Counts,
            value,
            distribution: None,
            label: Label::System,
            note: None,
        });
        let free =
            self.always_running(plan, &measured, place.of()).into_iter().map(|(name, unit, value)| Row {
                subject: Subject::Scope(place),
                metric: format!("free.{name}"),
                unit,
                value,
                distribution: None,
                label: Label::System,
                note: None,
            });
        known.chain(free).chain(events).collect()
    }

    /// Returns the counts of a scope's uncore PMUs, of kinds that are `wanted`.
    pub(super) fn measured(
        counts: &UncoreCounts<'_>,
        place: Scope,
        wanted: impl Fn(&str) -> bool,
    ) -> Measured {
        let belongs = |kind: &UncoreKind| kind.is_everybodys() && wanted(&kind.name);
        counts.measured(|kind, site| belongs(kind) && place.holds(&kind.name, site))
    }
}
