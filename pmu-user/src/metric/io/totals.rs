//! Every metric of the boxes that belong to one place, from what they counted in turns.
//!
//! Boxes of a kind take turns in step, so their slices are added up and estimated as one; kinds are estimated apart, since
//! their turns have nothing to do with each other, and come together in the formulas.

use std::collections::BTreeMap;

use crate::{
    drain::{io::BoxSlice, slice::SliceRow},
    metric::{
        estimate::{Estimates, EventIndex, REPLICATES},
        formulas::{Formulas, Inputs, Results},
        value::Value,
    },
    model::slice::sums,
    plan::io::{BoxKind, IoPlan},
    table::io::{IoTable, Of, SECONDS, part_of},
};

/// A table ready to be evaluated for what a plan counts.
#[derive(Clone, Debug)]
pub struct IoMetrics {
    /// The table.
    pub table: IoTable,
    formulas: Formulas,
    /// By kind of the plan.
    kinds: Vec<Sources>,
}

/// What one kind of boxes counts.
#[derive(Clone, Debug)]
struct Sources {
    /// By operand of the table.
    operands: Vec<Source>,
    /// By group: index of its first event among all of the kind's.
    firsts: Vec<usize>,
}

/// Where a kind of boxes counts an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// An event, by its index among the kind's, counts it alone.
    Event(EventIndex),
    /// An event counts it with others, which are [`Source::Nothing`]: their sum is right, none of them is.
    Sum(EventIndex),
    /// It is in another's count, or of a part behind which nothing is.
    Nothing,
    /// These boxes should count it, and do not.
    Uncounted,
    /// Boxes of another kind count it.
    Elsewhere,
}

/// What the boxes of one place counted.
#[derive(Clone, Debug)]
pub struct Measured {
    estimates: Estimates,
    /// Kinds of the plan that the place has boxes of: where its events begin, and how many boxes were added up.
    kinds: BTreeMap<u32, (usize, usize)>,
    /// Time that was counted, in s: of the kind that counted longest.
    pub(super) seconds: f64,
}

impl IoMetrics {
    /// Prepares `table` for what `plan` counts.
    #[must_use]
    pub fn new(table: IoTable, plan: &IoPlan) -> Self {
        let kinds = plan.kinds.iter().map(|kind| Sources::new(&table, kind)).collect();
        Self { kinds, formulas: Formulas::new(&table.model), table }
    }

    /// Adds up what boxes counted: for each box of a place, its kind and its slices.
    #[must_use]
    pub fn measure<'a>(plan: &IoPlan, boxes: impl IntoIterator<Item = (u32, &'a [SliceRow])>) -> Measured {
        let mut by_kind: BTreeMap<u32, (usize, Vec<&SliceRow>)> = BTreeMap::new();
        for (kind, rows) in boxes {
            let (count, all) = by_kind.entry(kind).or_default();
            *count += 1;
            all.extend(rows);
        }
        let (mut first, mut kinds, mut parts) = (0, BTreeMap::new(), Vec::new());
        let mut seconds: f64 = 0.0;
        for (kind, (count, rows)) in by_kind {
            let Some(turns) = plan.kinds.get(kind as usize).map(|kind| &kind.turns) else { continue };
            let rows = sums(rows);
            let time_ns: u64 = rows.iter().map(|row| row.time_ns).sum();
            seconds = seconds.max(time_ns as f64 / 1e9 / count as f64);
            let estimates = Estimates::new(turns, &rows);
            kinds.insert(kind, (first, count));
            first += estimates.events();
            parts.push(estimates);
        }
        Measured { estimates: Estimates::joined(parts), kinds, seconds }
    }

    /// Every metric of a place, in the table's order; `of` says whether all of it is meant or one part.
    #[must_use]
    pub fn evaluate(&self, measured: &Measured, of: Of) -> Vec<Value> {
        let constants = self.constants(measured.seconds);
        let evaluate = |replicate: Option<usize>| {
            let counts = self.counts(measured, of, replicate);
            let mut results = Results::default();
            self.formulas.evaluate(Inputs { counts: &counts, constants: &constants }, &mut results);
            results
        };
        let results = evaluate(None);
        let replicas: Vec<Results> = (0..REPLICATES).map(|replicate| evaluate(Some(replicate))).collect();
        let value = |metric: u32| {
            let events = match self.events(metric, measured, of) {
                Ok(events) => events,
                Err(why) => return Value::Missing(why),
            };
            let Some(estimate) = self.formulas.value(metric, &results) else {
                let missing = events.iter().find_map(|&event| match measured.estimates.value(event) {
                    Value::Missing(why) => Some(why),
                    Value::Known(_) => None,
                });
                let why = || self.formulas.why(metric, &self.table.model, &results).words(&self.table.model);
                return Value::Missing(missing.unwrap_or_else(why));
            };
            let replicas = replicas.iter().map(|results| self.formulas.value(metric, results));
            measured.estimates.evaluated(&events, estimate, replicas)
        };
        (0..self.table.model.metrics.len() as u32).map(value).collect()
    }

    /// The sum of some metrics over one slice of boxes that count together, and its length in s. `None` if the group that was
    /// in force does not count all of their events, or did not run.
    pub(super) fn of_slice(&self, metrics: &[u32], slices: &[&BoxSlice]) -> Option<(f64, f64)> {
        let first = slices.first()?;
        let (enabled_ns, running_ns) = slices.iter().fold((0, 0), |(enabled, running), slice| {
            (enabled + slice.enabled_ns, running + slice.running_ns)
        });
        if running_ns == 0 {
            return None;
        }
        let (boxes, scale) = (slices.len() as f64, enabled_ns as f64 / running_ns as f64);
        let seconds = enabled_ns as f64 / 1e9 / boxes;
        let kind = self.kinds.get(first.kind as usize)?;
        let before = kind.firsts.get(first.group as usize)?;
        let count = |(operand, source): (u32, &Source)| match source {
            Source::Event(event) | Source::Sum(event) => {
                let at = event.0.checked_sub(*before);
                let of_box = |at| move |slice: &&BoxSlice| slice.counts.get(at).map(|count| *count as f64);
                let sum = at.and_then(|at| slices.iter().map(of_box(at)).sum::<Option<f64>>());
                let share = if self.table.is_averaged(operand) { boxes } else { 1.0 };
                sum.map_or(f64::NAN, |sum| sum * scale / share)
            }
            Source::Nothing => 0.0,
            Source::Uncounted | Source::Elsewhere => f64::NAN,
        };
        let counts: Vec<f64> = (0..).zip(&kind.operands).map(count).collect();
        let mut results = Results::default();
        let constants = self.constants(seconds);
        self.formulas.evaluate(Inputs { counts: &counts, constants: &constants }, &mut results);
        let values = metrics.iter().map(|&metric| self.formulas.value(metric, &results));
        Some((values.sum::<Option<f64>>()?, seconds))
    }

    fn constants(&self, seconds: f64) -> Vec<f64> {
        let constants = self.table.model.constants.iter();
        constants.map(|name| if name == SECONDS { seconds } else { f64::NAN }).collect()
    }

    /// Every event that the boxes of a place counted, with its count.
    #[must_use]
    pub fn events_of(&self, plan: &IoPlan, measured: &Measured) -> Vec<(String, Value)> {
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

    /// How much of the time each event of a metric counted, for one whose events take different turns.
    pub(super) fn turns_of(&self, measured: &Measured, metric: u32, of: Of) -> Option<String> {
        let events = self.events(metric, measured, of).ok()?;
        let coverage = |event: &EventIndex| Some(measured.estimates.value(*event).known()?.coverage);
        let each: Vec<String> = events
            .iter()
            .map(|event| coverage(event).map(|share| format!("{:.0} %", share * 100.0)))
            .collect::<Option<_>>()?;
        Some(format!("estimated: its events counted at different times, {} of the time", each.join(", ")))
    }

    /// What counters say that always run: name, unit and value. They take no turns, so they check what does.
    #[must_use]
    pub fn always_running(&self, plan: &IoPlan, measured: &Measured) -> Vec<(String, &'static str, Value)> {
        let mut found = Vec::new();
        for (&kind, &(first, boxes)) in &measured.kinds {
            let Some(kind) = plan.kinds.get(kind as usize) else { continue };
            let events = kind.turns.groups.iter().flat_map(|group| &group.events).zip(&kind.unit_bytes);
            for (index, (event, &bytes)) in events.enumerate() {
                let value = measured.estimates.value(EventIndex(first + index));
                // Clocks of several boxes are averaged.
                let (factor, unit) = match bytes {
                    0 => (1e-9 / boxes as f64, "GHz"),
                    bytes => (f64::from(bytes) / 1e6, "MB/s"),
                };
                let value = match value {
                    Value::Known(known) if measured.seconds > 0.0 => {
                        Value::Known(known.times(factor / measured.seconds))
                    }
                    Value::Known(_) => Value::Missing("nothing was counted".to_owned()),
                    missing => missing,
                };
                found.push((event.name.clone(), unit, value));
            }
        }
        found
    }

    /// Counts by operand, NaN where there is none.
    fn counts(&self, measured: &Measured, of: Of, replicate: Option<usize>) -> Vec<f64> {
        let total = |event: EventIndex| match replicate {
            None => measured.estimates.value(event).known().map(|known| known.estimate),
            Some(replicate) => measured.estimates.replicate(event, replicate),
        };
        let count = |operand: u32| {
            let (mut sum, mut boxes) = (None, 0);
            for (source, first, count) in self.sources(measured, operand) {
                let one = match source {
                    Source::Event(event) | Source::Sum(event) => total(EventIndex(first + event.0)),
                    Source::Nothing => Some(0.0),
                    Source::Uncounted => None,
                    Source::Elsewhere => continue,
                };
                boxes += count;
                sum = Some(sum.unwrap_or(0.0) + one.unwrap_or(f64::NAN));
            }
            let share = if self.table.is_averaged(operand) { boxes as f64 } else { 1.0 };
            sum.map_or(f64::NAN, |sum| sum / share)
        };
        let counts: Vec<f64> = (0..self.table.model.operands.len() as u32).map(count).collect();
        self.table.counts_of(&counts, of)
    }

    /// Where the kinds of a place count an operand, where each one's events begin, and of how many boxes.
    fn sources(&self, measured: &Measured, operand: u32) -> impl Iterator<Item = (Source, usize, usize)> {
        measured.kinds.iter().filter_map(move |(&kind, &(first, boxes))| {
            let source = self.kinds.get(kind as usize)?.operands.get(operand as usize)?;
            Some((*source, first, boxes))
        })
    }

    /// What a metric needs of what was counted.
    fn events(&self, metric: u32, measured: &Measured, of: Of) -> Result<Vec<EventIndex>, String> {
        let mut events = Vec::new();
        for operand in self.table.events_of(metric, of) {
            let name = self.table.operand(operand).unwrap_or("?");
            let mut somewhere = false;
            for (source, first, _) in self.sources(measured, operand) {
                somewhere |= source != Source::Elsewhere;
                match source {
                    Source::Event(event) => events.push(EventIndex(first + event.0)),
                    Source::Sum(event) if of == Of::All => events.push(EventIndex(first + event.0)),
                    Source::Nothing if of == Of::All => {}
                    Source::Sum(_) => return Err("the parts of this stack are counted together".to_owned()),
                    Source::Nothing if part_of(name).is_some() => {
                        return Err("no device is known behind this part".to_owned());
                    }
                    Source::Nothing | Source::Elsewhere => {}
                    Source::Uncounted => return Err(format!("{name} was not counted")),
                }
            }
            if !somewhere {
                return Err(format!("no box here counts {name}"));
            }
        }
        if events.is_empty() {
            return Err("no part here has a device behind it".to_owned());
        }
        Ok(events)
    }
}

impl Sources {
    fn new(table: &IoTable, kind: &BoxKind) -> Self {
        let of_this_kind = |name: &str| table.model.event(name).is_some_and(|event| event.unit == kind.name);
        let nobody = |name: &String| match part_of(name) {
            _ if !of_this_kind(name) => Source::Elsewhere,
            Some(part) if kind.parts.as_ref().is_some_and(|parts| !parts.contains(&part)) => Source::Nothing,
            _ => Source::Uncounted,
        };
        let mut operands: Vec<Source> = table.model.operands.iter().map(nobody).collect();
        let mut set = |name: &String, source: Source| {
            let at = table.model.operands.iter().position(|known| known == name);
            if let Some(known) = at.and_then(|at| operands.get_mut(at)) {
                *known = source;
            }
        };
        for (index, sums) in kind.sums.iter().enumerate() {
            for sum in sums {
                let Some((first, others)) = sum.split_first() else { continue };
                let event = EventIndex(index);
                set(first, if others.is_empty() { Source::Event(event) } else { Source::Sum(event) });
                others.iter().for_each(|other| set(other, Source::Nothing));
            }
        }
        let groups = kind.turns.groups.iter();
        let firsts =
            groups.scan(0, |next, group| Some(std::mem::replace(next, *next + group.events.len()))).collect();
        Self { operands, firsts }
    }
}
