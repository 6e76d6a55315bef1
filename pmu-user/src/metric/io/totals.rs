//! Metrics of the uncore PMUs of one scope, from multiplexed counts.

use super::{
    measured::Measured,
    scope::{Asked, ScopeClass, asked, watched},
    terms::{TermSource, Terms},
};
use crate::{
    drain::reading::SliceRow,
    metric::{estimate::EventIndex, value::Value},
    plan::io::{IoPlan, UncoreKind},
    table::{
        io::{IoTable, Of, part_of},
        unit::Unit,
    },
};

/// A table ready to be evaluated for what a plan counts.
#[derive(Clone, Debug)]
pub(super) struct IoMetrics {
    /// Table of the metrics.
    pub table: IoTable,
    /// Properties of the table's operands.
    operands: Vec<Operand>,
    /// Metrics by [`ScopeClass`].
    asked: [Asked; 5],
    /// Metrics by watched bandwidth, none where the table lacks it.
    pub(super) watched: Vec<Option<Asked>>,
    /// Sources by kind of the plan.
    kinds: Vec<Sources>,
}

/// Properties of an operand that are the same for every scope.
#[derive(Clone, Copy, Debug)]
struct Operand {
    /// Part for which the operand counts.
    part: Option<u32>,
    is_averaged: bool,
}

/// Operands that one kind of uncore PMU counts.
#[derive(Clone, Debug)]
struct Sources {
    /// Sources by operand of the table.
    operands: Vec<TermSource>,
    /// Index of each group's first event among all events of the kind.
    firsts: Vec<usize>,
}

impl IoMetrics {
    /// Prepares `table` for what `plan` counts.
    pub(super) fn new(table: IoTable, plan: &IoPlan) -> Self {
        Self::of_groups(table, plan, |kind, _| kind.is_everybodys())
    }

    /// Prepares `table` for what some groups of the plan's kinds count.
    pub(super) fn of_groups(
        table: IoTable,
        plan: &IoPlan,
        counts: impl Fn(&UncoreKind, usize) -> bool,
    ) -> Self {
        let kinds = plan.kinds.iter().map(|kind| Sources::new(&table, kind, |group| counts(kind, group)));
        let kinds = kinds.collect();
        let operand = |(index, name): (u32, &String)| Operand {
            part: part_of(name),
            is_averaged: table.is_averaged(index),
        };
        let operands = (0..).zip(&table.model.operands).map(operand).collect();
        Self { operands, asked: asked(&table), watched: watched(&table), kinds, table }
    }

    /// Returns every metric that applies to a scope, in the table's order. `of` selects the whole scope or
    /// one part.
    pub(super) fn evaluate(&self, measured: &Measured, extent: ScopeClass, of: Of) -> Vec<(u32, Value)> {
        let asked = &self.asked[extent as usize];
        let estimates = &measured.estimates;
        let terms = self.terms(asked, measured, of);
        let counts =
            terms.counts(|event| estimates.total(event).map(|total| [total * measured.factor(event)]));
        let results = asked.evaluate(&counts, measured.seconds);
        let events: Vec<_> =
            asked.metrics.iter().map(|(_, operands)| self.events(operands, measured, of)).collect();
        // An exact value is the same in every replicate.
        let replicates = |event| {
            let replicates = estimates.replicates(event)?;
            Some(replicates.map(|total| total * measured.factor(event)))
        };
        let replicas = (!estimates.are_exact() && events.iter().any(Result::is_ok))
            .then(|| asked.evaluate(&terms.counts(replicates), measured.seconds));
        let value = |(at, events): (usize, Result<Vec<EventIndex>, String>)| {
            let metric = asked.metrics[at].0;
            let value = match (events, asked.value(metric, &results)) {
                (Err(why), _) => Value::Missing(why),
                (Ok(events), Some(estimate)) => {
                    let unit = self.table.model.metrics[metric as usize].unit;
                    let replicas = replicas.as_ref().and_then(|replicas| asked.values(metric, replicas));
                    match estimates.evaluated(&events, estimate, replicas, unit) {
                        Value::Known(known) => {
                            Value::Known(measured.of_interval(known, &events).within(unit))
                        }
                        missing => missing,
                    }
                }
                (Ok(events), None) => {
                    let missing = events.iter().find_map(|&event| estimates.why_missing(event));
                    let why = || asked.why(metric, &self.table.model, &results);
                    Value::Missing(missing.map_or_else(why, str::to_owned))
                }
            };
            (metric, value)
        };
        events.into_iter().enumerate().map(value).collect()
    }

    /// Returns the sum of all `asked` metrics over one slice of uncore PMUs that count together, and its
    /// length in s. Returns `None` if the active group does not count all of their events or did not run.
    pub(super) fn of_slice(&self, asked: &Asked, slices: &[&SliceRow]) -> Option<(f64, f64)> {
        let first = slices.first()?;
        // Doubles, because a recording may hold any number.
        let (enabled_ns, running_ns) = slices.iter().fold((0.0, 0.0), |(enabled, running), slice| {
            (enabled + slice.time_ns as f64, running + slice.running_ns as f64)
        });
        if running_ns == 0.0 {
            return None;
        }
        let (instances, scale) = (slices.len() as f64, enabled_ns / running_ns);
        let seconds = enabled_ns / 1e9 / instances;
        let ran = || slices.iter().filter(|slice| slice.running_ns > 0);
        let mean_ns = running_ns / ran().count() as f64;
        let kind = self.kinds.get(first.turns as usize)?;
        let before = kind.firsts.get(first.group? as usize)?;
        let mut counts = vec![[f64::NAN]; self.operands.len()];
        for &operand in &asked.operands {
            let operand = operand as usize;
            counts[operand] = match kind.operands[operand] {
                TermSource::Event(event) | TermSource::Sum(event) => {
                    let at = event.0.checked_sub(*before);
                    // Scales each count from its own running time to the mean running time.
                    let of_instance = |slice: &&SliceRow, at: usize| {
                        Some(*slice.counts.get(at)? as f64 * (mean_ns / slice.running_ns as f64))
                    };
                    let sum =
                        at.and_then(|at| ran().map(|slice| of_instance(slice, at)).sum::<Option<f64>>());
                    let share = if self.operands[operand].is_averaged { instances } else { 1.0 };
                    [sum.map_or(f64::NAN, |sum| sum * scale / share)]
                }
                TermSource::Nothing => [0.0],
                TermSource::Uncounted | TermSource::Elsewhere => continue,
            };
        }
        let results = asked.evaluate(&counts, seconds);
        let values = asked.metrics.iter().map(|(metric, _)| asked.value(*metric, &results));
        Some((values.sum::<Option<f64>>()?, seconds))
    }

    /// Returns every event that the uncore PMUs of a scope counted, with its count.
    pub(super) fn events_of(&self, plan: &IoPlan, measured: &Measured) -> Vec<(String, Value)> {
        let mut found = Vec::new();
        for (&kind, &(first, _)) in &measured.kinds {
            let Some(kind) = plan.kinds.get(kind as usize) else { continue };
            let events = kind.turns.groups.iter().flat_map(|group| &group.events).enumerate();
            found.extend(events.map(|(index, event)| {
                (event.name.clone(), measured.estimates.value(EventIndex(first + index)))
            }));
        }
        found
    }

    /// Returns the share of time for which each event of a metric counted, for a metric with events in
    /// different turns.
    pub(super) fn turns_of(
        &self,
        measured: &Measured,
        metric: u32,
        extent: ScopeClass,
        of: Of,
    ) -> Option<String> {
        let mut asked = self.asked[extent as usize].metrics.iter();
        let (_, operands) = asked.find(|(known, _)| *known == metric)?;
        let events = self.events(operands, measured, of).ok()?;
        let coverage = |event: &EventIndex| Some(measured.estimates.value(*event).known()?.coverage);
        let each: Vec<String> = events
            .iter()
            .map(|event| coverage(event).map(|share| format!("{:.0} %", share * 100.0)))
            .collect::<Option<_>>()?;
        Some(format!("estimated: its events counted at different times, {} of the time", each.join(", ")))
    }

    /// Returns name, unit and value of each free-running counter. A part has only the counters of its port.
    pub(super) fn always_running(
        &self,
        plan: &IoPlan,
        measured: &Measured,
        of: Of,
    ) -> Vec<(String, Unit, Value)> {
        let mut found = Vec::new();
        for (&kind, &(first, instances)) in &measured.kinds {
            let Some(kind) = plan.kinds.get(kind as usize) else { continue };
            let events = kind.turns.groups.iter().flat_map(|group| &group.events).zip(&kind.unit_bytes);
            for (index, (event, &bytes)) in events.enumerate() {
                let Some(name) = name_at(&event.name, of) else { continue };
                let event = EventIndex(first + index);
                let value = measured.estimates.value(event);
                // Clocks of several uncore PMUs are averaged.
                let (factor, unit) = match bytes {
                    0 => (1e-9 / instances as f64, Unit::Gigahertz),
                    bytes => (f64::from(bytes) / 1e6, Unit::MegabytesPerSecond),
                };
                let value = match value {
                    Value::Known(known) if measured.seconds > 0.0 => {
                        let rate = known.times(factor * measured.factor(event) / measured.seconds);
                        Value::Known(measured.of_interval(rate, &[event]))
                    }
                    Value::Known(_) => Value::Missing("nothing was counted".to_owned()),
                    missing => missing,
                };
                found.push((name.to_owned(), unit, value));
            }
        }
        found
    }

    /// Returns the metrics that apply to a class of scope.
    pub(super) fn metrics_of(&self, extent: ScopeClass) -> impl Iterator<Item = u32> {
        self.asked[extent as usize].metrics.iter().map(|(metric, _)| *metric)
    }

    /// Returns the terms of a scope's counts, for the operands of `asked`.
    fn terms(&self, asked: &Asked, measured: &Measured, of: Of) -> Terms {
        let mut terms = Terms::new(self.operands.len());
        for &operand in &asked.operands {
            let known = self.operands[operand as usize];
            if !of.needs_part(known.part) {
                terms.nothing(operand);
                continue;
            }
            let instances = terms.add(operand, self.sources(measured, operand));
            if known.is_averaged {
                terms.average(operand, instances);
            }
        }
        terms
    }

    /// Returns the source of an operand for each kind of a scope, with the index of its first event and its
    /// number of uncore PMUs.
    fn sources(&self, measured: &Measured, operand: u32) -> impl Iterator<Item = (TermSource, usize, usize)> {
        measured.kinds.iter().filter_map(move |(&kind, &(first, instances))| {
            let source = self.kinds.get(kind as usize)?.operands.get(operand as usize)?;
            Some((*source, first, instances))
        })
    }

    /// Returns the events that a metric with these operands needs, or why its counts are missing.
    fn events(&self, operands: &[u32], measured: &Measured, of: Of) -> Result<Vec<EventIndex>, String> {
        let mut events = Vec::new();
        let part = |operand: u32| self.operands[operand as usize].part;
        for &operand in operands.iter().filter(|&&operand| of.needs_part(part(operand))) {
            let name = || self.table.operand(operand).unwrap_or("?");
            let mut somewhere = false;
            for (source, first, _) in self.sources(measured, operand) {
                somewhere |= source != TermSource::Elsewhere;
                match source {
                    TermSource::Event(event) => events.push(EventIndex(first + event.0)),
                    TermSource::Sum(event) if of == Of::All => events.push(EventIndex(first + event.0)),
                    TermSource::Nothing if of == Of::All => {}
                    TermSource::Sum(_) => {
                        return Err("the parts of this stack are counted together".to_owned());
                    }
                    TermSource::Nothing if part(operand).is_some() => {
                        return Err("no device is known behind this part".to_owned());
                    }
                    TermSource::Nothing | TermSource::Elsewhere => {}
                    TermSource::Uncounted => return Err(format!("{} was not counted", name())),
                }
            }
            if !somewhere {
                return Err(format!("no uncore PMU here counts {}", name()));
            }
        }
        if events.is_empty() {
            return Err("no part here has a device behind it".to_owned());
        }
        Ok(events)
    }
}

/// Returns the name of a stack's free-running counter for `of`: `bw_in_port3` is `bw_in` of part 3, and none
/// of another part.
fn name_at(name: &str, of: Of) -> Option<&str> {
    let Of::Part(part) = of else { return Some(name) };
    let (counter, port) = name.split_once("_port")?;
    (port.parse() == Ok(part)).then_some(counter)
}

impl Sources {
    /// Returns the sources of the groups of a kind that `counts` selects.
    fn new(table: &IoTable, kind: &UncoreKind, counts: impl Fn(usize) -> bool) -> Self {
        let of_this_kind = |name: &str| table.model.event(name).is_some_and(|event| event.unit == kind.name);
        let nobody = |name: &String| match part_of(name) {
            _ if !of_this_kind(name) => TermSource::Elsewhere,
            Some(part) if kind.parts.as_ref().is_some_and(|parts| !parts.contains(&part)) => {
                TermSource::Nothing
            }
            _ => TermSource::Uncounted,
        };
        let mut operands: Vec<TermSource> = table.model.operands.iter().map(nobody).collect();
        let mut set = |name: &String, source: TermSource| {
            let at = table.model.operands.iter().position(|known| known == name);
            if let Some(known) = at.and_then(|at| operands.get_mut(at)) {
                *known = source;
            }
        };
        let groups = kind.turns.groups.iter().enumerate();
        let group_of: Vec<usize> =
            groups.flat_map(|(group, events)| std::iter::repeat_n(group, events.events.len())).collect();
        for (index, sums) in kind.sums.iter().enumerate() {
            let wanted = group_of.get(index).is_some_and(|&group| counts(group));
            for sum in sums.iter().filter(|_| wanted) {
                let Some((first, others)) = sum.split_first() else { continue };
                let event = EventIndex(index);
                set(first, if others.is_empty() { TermSource::Event(event) } else { TermSource::Sum(event) });
                others.iter().for_each(|other| set(other, TermSource::Nothing));
            }
        }
        let groups = kind.turns.groups.iter();
        let firsts =
            groups.scan(0, |next, group| Some(std::mem::replace(next, *next + group.events.len()))).collect();
        Self { operands, firsts }
    }
}
