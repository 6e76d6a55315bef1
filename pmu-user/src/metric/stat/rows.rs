//! Rows from readings: one for each event and kind of PMU.

use std::collections::HashMap;

use super::{
    super::{
        counts,
        derived::{Derived, Term, Terms},
        value::{Known, Value},
    },
    Beside, Row, Support,
};
use crate::{
    drain::{
        Owner,
        counts::{Part, Uncounted},
        reading::Reading,
    },
    machine::pmu::catalog::PmuCpus,
    plan::count::CountPlan,
    table::event_syntax::{Instance, Selected, family},
};

/// Row under construction, and the event that counts it on this host.
struct Line<'a> {
    row: Row,
    counted: Option<Counted<'a>>,
}

#[derive(Clone, Copy)]
struct Counted<'a> {
    event: &'a Selected,
    /// PMU of the row's family, one of several.
    instance: &'a Instance,
    group: u32,
}

/// Results of one target's counters for one event, or for its PMUs of one family: readings with their places
/// in the list, and PMUs without a counter.
#[derive(Clone, Default)]
struct OfEvent<'a> {
    readings: Vec<(usize, &'a Reading)>,
    uncounted: Vec<&'a Uncounted>,
}

/// Returns the results of a part by event. A recording may contain events that do not exist.
fn by_event(part: &Part, count: usize) -> Vec<OfEvent<'_>> {
    let mut all = vec![OfEvent::default(); count];
    for (place, reading) in part.readings.iter().enumerate() {
        if let Some(event) = all.get_mut(reading.index as usize) {
            event.readings.push((place, reading));
        }
    }
    for uncounted in &part.uncounted {
        if let Some(event) = all.get_mut(uncounted.index as usize) {
            event.uncounted.push(uncounted);
        }
    }
    all
}

/// Returns the rows of one target: every event that was requested, in that order, whether or not the host has
/// it.
pub(super) fn rows(
    plan: &CountPlan,
    part: &Part,
    before: Option<&Part>,
    owner: Option<&Owner>,
    elapsed_ns: f64,
) -> Vec<Row> {
    let events: Vec<&Selected> = plan.events().collect();
    let mut said = by_event(part, events.len()).into_iter().zip(events).enumerate();
    let mut lines: Vec<Line<'_>> = Vec::new();
    for asked in &plan.asked {
        let blank = Row { owner: owner.cloned(), ..blank(&asked.name) };
        match &asked.found {
            Ok(index) => {
                // Each event is requested once, in the order of its number: a recording that differs was not
                // written by pmbpf.
                let Some((_, (said, event))) = said.find(|(place, _)| *place == *index as usize) else {
                    continue;
                };
                let families = families(event, said);
                let beside = if families.len() > 1 { Beside::Others } else { Beside::Alone };
                lines.extend(families.into_iter().map(|(instance, said)| {
                    let row = counted(event, instance, &said, before, blank.clone());
                    let counted = Some(Counted { event, instance, group: asked.group });
                    Line { row: Row { beside, ..row }, counted }
                }));
            }
            Err(why) => {
                lines.push(Line { row: Row { value: Value::Missing(why.clone()), ..blank }, counted: None });
            }
        }
    }
    let terms: Vec<Term<'_>> = lines.iter().filter_map(Line::term).collect();
    let terms = Terms::new(&terms);
    let derived = |line: &Line<'_>| terms.derive(&line.term()?, elapsed_ns);
    let derived: Vec<Option<Derived>> = lines.iter().map(derived).collect();
    lines.into_iter().zip(derived).map(|(line, derived)| Row { derived, ..line.row }).collect()
}

impl Line<'_> {
    fn term(&self) -> Option<Term<'_>> {
        let Counted { event, instance, group } = self.counted?;
        Some(Term {
            meaning: event.meaning(),
            pmu: &self.row.pmu,
            boxed: matches!(instance.place, PmuCpus::Uncore(_)),
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
        place: None,
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

/// Returns one instance for each kind of PMU that counts the event, with the results of that kind. Uncore
/// PMUs of a kind are one, core types are not.
fn families<'a>(event: &'a Selected, said: OfEvent<'a>) -> Vec<(&'a Instance, OfEvent<'a>)> {
    let mut found: Vec<(&Instance, OfEvent<'_>)> = Vec::new();
    let (mut by_name, mut by_pmu) = (HashMap::new(), HashMap::new());
    for instance in &event.instances {
        let family = *by_name.entry(family_of(instance)).or_insert_with(|| {
            found.push((instance, OfEvent::default()));
            found.len() - 1
        });
        by_pmu.entry(instance.pmu.as_str()).or_insert(family);
    }
    for reading in said.readings {
        if let Some(&family) = by_pmu.get(reading.1.pmu.as_str()) {
            found[family].1.readings.push(reading);
        }
    }
    for uncounted in said.uncounted {
        if let Some(&family) = by_pmu.get(uncounted.pmu.as_str()) {
            found[family].1.uncounted.push(uncounted);
        }
    }
    found
}

fn family_of(instance: &Instance) -> &str {
    match instance.place {
        PmuCpus::Uncore(_) => family(&instance.pmu),
        PmuCpus::Anywhere | PmuCpus::Cores(_) => &instance.pmu,
    }
}

fn counted(
    event: &Selected,
    instance: &Instance,
    said: &OfEvent<'_>,
    before: Option<&Part>,
    blank: Row,
) -> Row {
    let readings: Vec<Reading> = said
        .readings
        .iter()
        .map(|&(place, now)| match before.and_then(|before| before.readings.get(place)) {
            // The value of a level is the current one.
            Some(before) if event.snapshot => Reading { value: now.value, ..now.since(before) },
            Some(before) => now.since(before),
            None => now.clone(),
        })
        .collect();
    let uncounted: Vec<String> = said.uncounted.iter().map(|one| one.why.clone()).collect();
    let (value, support) = match uncounted.first() {
        Some(why) if readings.is_empty() => (Value::Missing(why.clone()), Support::NotHere),
        _ => (scaled_by(counts::sum(&readings), event.scale), Support::Counted),
    };
    Row {
        pmu: family_of(instance).to_owned(),
        unit: event.unit.clone(),
        support,
        enabled_ns: readings.iter().map(|reading| reading.enabled_ns).fold(0, u64::saturating_add),
        running_ns: readings.iter().map(|reading| reading.running_ns).fold(0, u64::saturating_add),
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
