//! Every metric of the boxes that belong to one place, from what they counted in turns.
//!
//! Boxes of a kind take turns in step, so their slices are added up and estimated as one; kinds are estimated apart, since
//! their turns have nothing to do with each other, and come together in the formulas.

use std::collections::HashMap;

use crate::{
    drain::{io::BoxSlice, slice::SliceRow},
    metric::{
        estimate::{Estimates, EventIndex, REPLICATES},
        formulas::{Formulas, Inputs, Results},
        value::Value,
    },
    model::slice::sums,
    plan::io::{BoxKind, IoPlan},
    table::io::{IoTable, Of, SECONDS},
};

/// A table ready to be evaluated for what a plan counts.
#[derive(Clone, Debug)]
pub struct IoMetrics {
    /// The table.
    pub table: IoTable,
    formulas: Formulas,
    /// By operand: where it is counted.
    sources: Vec<Source>,
    /// By kind and group: index of the group's first event among all of the kind's.
    firsts: Vec<Vec<usize>>,
}

/// Where an operand's count comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// An event of a kind of boxes, by its index among the kind's.
    Event(u32, EventIndex),
    /// A part behind which nothing is: nobody counts it, and nothing happens there.
    Empty,
    /// Nowhere.
    None,
}

/// What the boxes of one place counted.
#[derive(Clone, Debug)]
pub struct Measured {
    estimates: Estimates,
    /// By kind of the plan: where its events begin, and how many boxes were added up; none where the place has none.
    kinds: HashMap<u32, (usize, usize)>,
    seconds: f64,
}

impl IoMetrics {
    /// Prepares `table` for what `plan` counts.
    #[must_use]
    pub fn new(table: IoTable, plan: &IoPlan) -> Self {
        let mut events: HashMap<&str, (u32, EventIndex)> = HashMap::new();
        for (kind, boxes) in (0..).zip(&plan.kinds) {
            let all = boxes.turns.groups.iter().flat_map(|group| &group.events).enumerate();
            for (index, event) in all {
                events.entry(event.name.as_str()).or_insert((kind, EventIndex(index)));
            }
        }
        let source = |name: &String| match events.get(name.as_str()) {
            Some(&(kind, event)) => Source::Event(kind, event),
            None if plan.is_empty_part(name) => Source::Empty,
            None => Source::None,
        };
        let firsts = |kind: &BoxKind| {
            let groups = kind.turns.groups.iter();
            groups.scan(0, |next, group| Some(std::mem::replace(next, *next + group.events.len()))).collect()
        };
        Self {
            firsts: plan.kinds.iter().map(firsts).collect(),
            sources: table.model.operands.iter().map(source).collect(),
            formulas: Formulas::new(&table.model),
            table,
        }
    }

    /// Adds up what boxes counted: for each box of a place, its kind and its slices.
    #[must_use]
    pub fn measure<'a>(plan: &IoPlan, boxes: impl IntoIterator<Item = (u32, &'a [SliceRow])>) -> Measured {
        let mut by_kind: std::collections::BTreeMap<u32, (usize, Vec<&SliceRow>)> =
            std::collections::BTreeMap::new();
        for (kind, rows) in boxes {
            let (count, all) = by_kind.entry(kind).or_default();
            *count += 1;
            all.extend(rows);
        }
        let (mut first, mut kinds, mut parts) = (0, HashMap::new(), Vec::new());
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
        let before = self.firsts.get(first.kind as usize)?.get(first.group as usize)?;
        let count = |(operand, source): (u32, &Source)| match *source {
            Source::Event(kind, event) if kind == first.kind => {
                let at = event.0.checked_sub(*before);
                let sum = at.and_then(|at| {
                    slices
                        .iter()
                        .map(|slice| slice.counts.get(at).map(|count| *count as f64))
                        .sum::<Option<f64>>()
                });
                let share = if self.table.is_averaged(operand) { boxes } else { 1.0 };
                sum.map_or(f64::NAN, |sum| sum * scale / share)
            }
            Source::Empty => 0.0,
            _ => f64::NAN,
        };
        let counts: Vec<f64> = (0..).zip(&self.sources).map(count).collect();
        let constants = self.constants(seconds);
        let mut results = Results::default();
        self.formulas.evaluate(Inputs { counts: &counts, constants: &constants }, &mut results);
        let values = metrics.iter().map(|&metric| self.formulas.value(metric, &results));
        Some((values.sum::<Option<f64>>()?, seconds))
    }

    fn constants(&self, seconds: f64) -> Vec<f64> {
        let constants = self.table.model.constants.iter();
        constants.map(|name| if name == SECONDS { seconds } else { f64::NAN }).collect()
    }

    /// Counts by operand, NaN where there is none.
    fn counts(&self, measured: &Measured, of: Of, replicate: Option<usize>) -> Vec<f64> {
        let count = |(operand, source): (u32, &Source)| {
            let Source::Event(kind, event) = *source else {
                return if *source == Source::Empty { 0.0 } else { f64::NAN };
            };
            let Some((index, boxes)) = measured.find(kind, event) else { return f64::NAN };
            let total = match replicate {
                None => measured.estimates.value(index).known().map(|known| known.estimate),
                Some(replicate) => measured.estimates.replicate(index, replicate),
            };
            let share = if self.table.is_averaged(operand) { boxes as f64 } else { 1.0 };
            total.map_or(f64::NAN, |total| total / share)
        };
        let counts: Vec<f64> = (0..).zip(&self.sources).map(count).collect();
        self.table.counts_of(&counts, of)
    }

    /// What a metric needs of what was counted.
    fn events(&self, metric: u32, measured: &Measured, of: Of) -> Result<Vec<EventIndex>, String> {
        let mut events = Vec::new();
        for operand in self.table.events_of(metric, of) {
            let name = || self.table.operand(operand).unwrap_or("?");
            match self.sources.get(operand as usize) {
                Some(Source::Event(kind, event)) => match measured.find(*kind, *event) {
                    Some((index, _)) => events.push(index),
                    None => return Err(format!("no box here counts {}", name())),
                },
                Some(Source::Empty) if of == Of::All => {}
                Some(Source::Empty) => return Err("nothing is behind this part".to_owned()),
                _ => return Err(format!("{} was not counted", name())),
            }
        }
        Ok(events)
    }
}

impl Measured {
    /// An event among all of the place's, and how many boxes counted it.
    fn find(&self, kind: u32, event: EventIndex) -> Option<(EventIndex, usize)> {
        let &(first, boxes) = self.kinds.get(&kind)?;
        Some((EventIndex(first + event.0), boxes))
    }

    /// Time that was counted, in s: of the kind that counted longest.
    #[must_use]
    pub const fn seconds(&self) -> f64 {
        self.seconds
    }
}
