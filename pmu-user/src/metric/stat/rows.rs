//! Readings → a row for each event and kind of PMU.

use super::{
    super::{
        counts,
        derived::{Derived, Term, derive},
        value::{Known, Value},
    },
    Beside, Row, Support,
};
use crate::{
    drain::{Owner, reading::Reading, tally::Part},
    machine::pmu::catalog::Place,
    plan::count::CountPlan,
    table::notation::{Instance, Selected, family},
};

/// A row that is being made, and what of this host counts it.
struct Line<'a> {
    row: Row,
    counted: Option<Counted<'a>>,
}

#[derive(Clone, Copy)]
struct Counted<'a> {
    event: &'a Selected,
    /// One of the PMUs of the row's family.
    instance: &'a Instance,
    group: u32,
}

/// The rows of one target: every event that was asked for, in that order, whether or not the host has it.
pub(super) fn rows(
    plan: &CountPlan,
    part: &Part,
    before: Option<&Part>,
    owner: Option<&Owner>,
    elapsed_ns: f64,
) -> Vec<Row> {
    let events: Vec<&Selected> = plan.events().collect();
    let mut lines: Vec<Line<'_>> = Vec::new();
    for asked in &plan.asked {
        let blank = Row { owner: owner.cloned(), ..blank(&asked.name) };
        match asked.found.as_ref().map(|index| (*index, events.get(*index as usize).copied())) {
            Ok((index, Some(event))) => {
                lines.extend(families(event).into_iter().map(|(instance, beside)| {
                    let row = counted(event, index, instance, part, before, blank.clone());
                    let counted = Some(Counted { event, instance, group: asked.group });
                    Line { row: Row { beside, ..row }, counted }
                }));
            }
            Ok((_, None)) => {}
            Err(why) => {
                lines.push(Line { row: Row { value: Value::Missing(why.clone()), ..blank }, counted: None });
            }
        }
    }
    let terms: Vec<Term<'_>> = lines.iter().filter_map(Line::term).collect();
    let derived = |line: &Line<'_>| derive(&line.term()?, &terms, elapsed_ns);
    let derived: Vec<Option<Derived>> = lines.iter().map(derived).collect();
    lines.into_iter().zip(derived).map(|(line, derived)| Row { derived, ..line.row }).collect()
}

impl Line<'_> {
    fn term(&self) -> Option<Term<'_>> {
        let Counted { event, instance, group } = self.counted?;
        Some(Term {
            meaning: event.meaning(),
            pmu: &self.row.pmu,
            boxed: matches!(instance.place, Place::Box(_)),
            modifiers: event.modifiers,
            group,
            unit: self.row.unit.as_deref().filter(|unit| *unit != "ns"),
            snapshot: event.snapshot,
            value: &self.row.value,
        })
    }
}

fn blank(event: &str) -> Row {
    Row {
        owner: None,
        event: event.to_owned(),
        pmu: String::new(),
        beside: Beside::Alone,
        unit: None,
        value: Value::Missing(String::new()),
        support: Support::NotHere,
        enabled_ns: 0,
        running_ns: 0,
        derived: None,
        of_runs: Vec::new(),
        uncounted: Vec::new(),
    }
}

/// One instance for each kind of PMU that counts the event: boxes of a kind are one, core types are not.
fn families(event: &Selected) -> Vec<(&Instance, Beside)> {
    let mut found: Vec<&Instance> = Vec::new();
    for instance in &event.instances {
        if !found.iter().any(|known| family_of(known) == family_of(instance)) {
            found.push(instance);
        }
    }
    let beside = if found.len() > 1 { Beside::Others } else { Beside::Alone };
    found.into_iter().map(|instance| (instance, beside)).collect()
}

fn family_of(instance: &Instance) -> &str {
    match instance.place {
        Place::Box(_) => family(&instance.pmu),
        Place::Anywhere | Place::Cores(_) => &instance.pmu,
    }
}

fn counted(
    event: &Selected,
    index: u32,
    instance: &Instance,
    part: &Part,
    before: Option<&Part>,
    blank: Row,
) -> Row {
    let ours = |pmu: &str| {
        let mut same = event.instances.iter().filter(|other| family_of(other) == family_of(instance));
        same.any(|other| other.pmu == pmu)
    };
    let readings: Vec<Reading> = part
        .readings
        .iter()
        .enumerate()
        .filter(|(_, reading)| reading.index == index && ours(&reading.pmu))
        .map(|(place, now)| match before.and_then(|before| before.readings.get(place)) {
            // A level is what it is now.
            Some(before) if event.snapshot => Reading { value: now.value, ..now.since(before) },
            Some(before) => now.since(before),
            None => now.clone(),
        })
        .collect();
    let uncounted: Vec<String> = part
        .uncounted
        .iter()
        .filter(|one| one.index == index && ours(&one.pmu))
        .map(|one| one.why.clone())
        .collect();
    let (value, support) = match uncounted.first() {
        Some(why) if readings.is_empty() => (Value::Missing(why.clone()), Support::NotHere),
        _ => (scaled_by(counts::sum(&readings), event.scale), Support::Counted),
    };
    Row {
        pmu: family_of(instance).to_owned(),
        unit: event.unit.clone(),
        support,
        enabled_ns: readings.iter().map(|reading| reading.enabled_ns).sum(),
        running_ns: readings.iter().map(|reading| reading.running_ns).sum(),
        uncounted: if support == Support::NotHere { Vec::new() } else { uncounted },
        value,
        ..blank
    }
}

fn scaled_by(value: Value, scale: f64) -> Value {
    match value {
        Value::Known(known) => Value::Known(Known {
            estimate: known.estimate * scale,
            low: known.low * scale,
            high: known.high * scale,
            ..known
        }),
        missing @ Value::Missing(_) => missing,
    }
}
