//! Conditions on the numbers of a report that have to hold for a time: `runqueue_latency.p99>20ms for 10s`.
//! The whole interval of a number has to lie beyond the limit, as for findings. A missing number meets no
//! condition.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use super::{
    Report,
    filter::Pattern,
    number::{Attribution, Content, Frame, Number},
    value::{Distribution, Known, QUANTILES},
};
use crate::{
    drain::Owner,
    suggest::{did_you_mean, nearest},
    table::{
        metric::{self, Adds, Metric, PARTS},
        unit::Unit,
    },
};

/// Side of the limit on which a number has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Above the limit.
    Above,
    /// At the limit, or above it.
    AtLeast,
    /// Below the limit.
    Below,
    /// At the limit, or below it.
    AtMost,
}

/// Limit of a condition, in the form in which it was given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Limit in the unit of the number.
    Of(f64),
    /// Share of the interval, for a time that adds up. 1 is all the time of one CPU.
    ShareOfTime(f64),
}

/// Part of a metric's numbers: the value, or one of a distribution's.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Value,
    Count,
    Sum,
    Mean,
    Max,
    Quantile(f64),
}

/// Number to which a condition applies: a metric and its part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    metric: &'static Metric,
    part: Part,
}

/// Owners to which a condition applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Each owner, and the host.
    Everybodys,
    /// Target as a whole.
    Targets,
    /// Owners that match this pattern.
    Owners(Pattern),
}

/// Condition on every interval's report.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Text of the condition, as it was given.
    pub text: String,
    /// Number to which the condition applies.
    pub measure: Measure,
    /// Side of the limit on which the number has to be.
    pub side: Side,
    /// Limit of the number.
    pub limit: Limit,
    /// Time in ns for which the condition has to hold: 0 is an interval.
    pub lasting_ns: u64,
    /// Owners to which the condition applies.
    pub whose: Whose,
}

impl Measure {
    /// Returns the measure of a name: a metric of the catalogue, followed by the part of it where it is a
    /// distribution.
    ///
    /// # Errors
    ///
    /// If no metric has this name, or a part is missing or superfluous. The error lists those that exist.
    pub fn named(name: &str) -> Result<Self, String> {
        if let Some(metric) = metric::all().find(|metric| metric.name == name) {
            if metric.adds() == Adds::Distribution {
                return Err(format!(
                    "{name} is a distribution: say which part of it, as {name}.p99 ({})",
                    parts()
                ));
            }
            return Ok(Self { metric, part: Part::Value });
        }
        let whole =
            |metric: &&Metric| name.strip_prefix(metric.name).is_some_and(|rest| rest.starts_with('.'));
        let metric = metric::all().filter(whole).max_by_key(|metric| metric.name.len());
        let Some(metric) = metric.filter(|metric| metric.adds() == Adds::Distribution) else {
            let near = nearest(name, names(), |name| name);
            return Err(format!("there is no metric `{name}`{}", did_you_mean(&near)));
        };
        let part = &name[metric.name.len() + 1..];
        let quantile = |part: &str| QUANTILES.iter().find(|(name, _)| *name == part).map(|(_, share)| *share);
        let part = match part {
            "count" => Part::Count,
            "sum" => Part::Sum,
            "mean" => Part::Mean,
            "max" => Part::Max,
            // Another common spelling.
            "p999" => Part::Quantile(0.999),
            other => Part::Quantile(
                quantile(other)
                    .ok_or_else(|| format!("{} has no part `{other}`: there are {}", metric.name, parts()))?,
            ),
        };
        Ok(Self { metric, part })
    }

    /// Returns the unit of its numbers.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        if matches!(self.part, Part::Count) { Unit::Counts } else { self.metric.unit }
    }

    /// Returns the family of its metric.
    #[must_use]
    pub const fn family(&self) -> metric::Family {
        self.metric.family
    }

    /// Returns the name of the measure.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.metric.name;
        match self.part {
            Part::Value => name.to_owned(),
            Part::Count => format!("{name}.count"),
            Part::Sum => format!("{name}.sum"),
            Part::Mean => format!("{name}.mean"),
            Part::Max => format!("{name}.max"),
            Part::Quantile(share) => {
                let quantile = QUANTILES.iter().find(|(_, other)| *other == share);
                format!("{name}.{}", quantile.map_or("quantile", |(name, _)| name))
            }
        }
    }

    /// Returns whether it is a time that adds up, of which each CPU contributes at most the interval.
    #[must_use]
    pub fn is_time(&self) -> bool {
        self.part == Part::Value && self.metric.unit == Unit::Ns && self.metric.adds() == Adds::Sum
    }

    fn of(&self, number: &Number<'_>) -> Option<Known> {
        match (&number.content, self.part) {
            (Content::Value(value), Part::Value) => value.known().copied(),
            (Content::Distribution(Ok(found)), part) => of_distribution(found, part),
            _ => None,
        }
    }
}

fn of_distribution(found: &Distribution, part: Part) -> Option<Known> {
    let exact =
        |value: u64| Known { estimate: value as f64, low: value as f64, high: value as f64, ..found.mean() };
    match part {
        Part::Value => None,
        Part::Count => Some(exact(found.count())),
        Part::Sum => Some(exact(found.sum)),
        _ if found.count() == 0 => None,
        Part::Mean => Some(found.mean()),
        Part::Max => found.quantiles().find(|(name, _)| *name == "max").map(|(_, known)| known),
        Part::Quantile(share) => Some(found.quantile(share)),
    }
}

/// Returns the names of the parts of a distribution, in words.
fn parts() -> String {
    [&["count", "sum"], &PARTS[..]].concat().join(", ")
}

/// Returns every name that is accepted.
fn names() -> impl Iterator<Item = String> {
    metric::all().flat_map(|metric| {
        let parts: &[&str] = if metric.adds() == Adds::Distribution { &PARTS } else { &[] };
        let whole = parts.is_empty().then(|| metric.name.to_owned());
        whole.into_iter().chain(parts.iter().map(|part| format!("{}.{part}", metric.name)))
    })
}

/// Key of a condition that holds: the condition, the owner of the number and its subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct About {
    condition: usize,
    owner: Option<Owner>,
    subject: String,
}

/// Time since which a condition holds for one key.
#[derive(Clone, Copy, Debug)]
struct Since {
    from_ns: u64,
    /// Whether the condition has held for long enough.
    is_met: bool,
    is_reported: bool,
}

/// Condition that is met.
#[derive(Clone, Debug, PartialEq)]
pub struct Met {
    /// Index of the condition.
    pub condition: usize,
    /// Owner of the number in words, `host` or `total`.
    pub whose: String,
    /// Current number, in the unit of the condition's measure.
    pub value: f64,
}

/// Conditions that are checked on each interval.
#[derive(Debug, Default)]
pub struct Conditions {
    all: Vec<Condition>,
    /// Keys for which a condition holds at the moment.
    held: HashMap<About, Since>,
}

impl Conditions {
    /// Creates the set of these conditions, none of which holds yet.
    #[must_use]
    pub fn new(all: Vec<Condition>) -> Self {
        Self { all, held: HashMap::new() }
    }

    /// Replaces the conditions. State of a condition that stays is kept.
    pub fn replace(&mut self, all: Vec<Condition>) {
        let stays = |about: &About| {
            let before = self.all.get(about.condition)?;
            all.iter().position(|condition| condition.text == before.text)
        };
        let held = self.held.iter().filter_map(|(about, since)| {
            let condition = stays(about)?;
            Some((About { condition, ..about.clone() }, *since))
        });
        self.held = held.collect();
        self.all = all;
    }

    /// Returns the condition at an index.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<&Condition> {
        self.all.get(place)
    }

    /// Returns the conditions that are met and were not reported ([`Conditions::set_reported`]) since they began to
    /// hold.
    pub fn met(&mut self, report: &Report) -> Vec<Met> {
        let (mut held, mut met) = (HashMap::new(), Vec::new());
        if self.all.is_empty() {
            return met;
        }
        // No error is possible.
        let _ = report.by_source::<std::convert::Infallible>(|frame, numbers| {
            for number in numbers {
                for (place, condition) in self.all.iter().enumerate() {
                    let Some(value) = condition.holds(frame, &number) else { continue };
                    let about = About::new(place, &number);
                    let began = Since { from_ns: frame.0, is_met: false, is_reported: false };
                    let mut since = self.held.get(&about).copied().unwrap_or(began);
                    // The kernel determines the length of intervals: one that is a little short counts.
                    let until_ns = frame.0.saturating_add(frame.1).saturating_add(frame.1 / 10);
                    since.is_met = until_ns.saturating_sub(since.from_ns) >= condition.lasting_ns;
                    if since.is_met && !since.is_reported {
                        met.push(Met { condition: place, whose: whose(number.whose), value });
                    }
                    held.insert(about, since);
                }
            }
            Ok(())
        });
        self.held = held;
        met
    }

    /// Marks all that is met as reported. A reported condition is silent until it has ceased to hold and is
    /// met again.
    pub fn set_reported(&mut self) {
        self.held.values_mut().for_each(|since| since.is_reported |= since.is_met);
    }
}

impl Condition {
    /// Returns the number, if it is one of the condition's and all of it lies beyond the limit.
    fn holds(&self, (_, length_ns): Frame, number: &Number<'_>) -> Option<f64> {
        if number.metric != self.measure.metric.name || !self.whose.has(number.whose) {
            return None;
        }
        let known = self.measure.of(number)?;
        let limit = match self.limit {
            Limit::Of(limit) => limit,
            Limit::ShareOfTime(share) => share * number.details.over_ns.unwrap_or(length_ns) as f64,
        };
        let is_beyond = match self.side {
            Side::Above => known.low > limit,
            Side::AtLeast => known.low >= limit,
            Side::Below => known.high < limit,
            Side::AtMost => known.high <= limit,
        };
        is_beyond.then_some(known.estimate)
    }
}

impl Whose {
    fn has(&self, whose: Attribution<'_>) -> bool {
        match (self, whose) {
            (Self::Everybodys, Attribution::Host | Attribution::Owner(_))
            | (Self::Targets, Attribution::Target) => true,
            (Self::Owners(pattern), Attribution::Owner(owner)) => pattern.matches(owner),
            _ => false,
        }
    }
}

impl About {
    fn new(condition: usize, number: &Number<'_>) -> Self {
        let owner = match number.whose {
            Attribution::Owner(owner) => Some(owner.clone()),
            Attribution::Host | Attribution::Target => None,
        };
        let subject = number.subject.map(|subject| format!("{subject:?}")).unwrap_or_default();
        let culprit = number.details.culprit.map(|culprit| format!("{culprit:?}")).unwrap_or_default();
        Self { condition, owner, subject: subject + &culprit }
    }
}

fn whose(whose: Attribution<'_>) -> String {
    match whose {
        Attribution::Host => "host".to_owned(),
        Attribution::Target => "total".to_owned(),
        Attribution::Owner(owner) => owner.in_words(),
    }
}
