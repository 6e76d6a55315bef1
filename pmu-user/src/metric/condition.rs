//! Conditions on the numbers of a report, for as long as they hold: `runqueue_latency.p99>20ms for 10s`. A number with an interval has to
//! lie beyond the limit with all of that, as what stands out has to; one that is missing meets nothing.

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

/// On which side of the limit a number has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Above it.
    Above,
    /// There, or above it.
    AtLeast,
    /// Below it.
    Below,
    /// There, or below it.
    AtMost,
}

/// A limit, in whatever it was given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// In the unit of the number.
    Of(f64),
    /// Of a time that adds up: a share of the interval. 1 is all the time of one CPU.
    ShareOfTime(f64),
}

/// A part of a metric's numbers: the value, or one of a distribution's.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Value,
    Count,
    Sum,
    Mean,
    Max,
    Quantile(f64),
}

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    metric: &'static Metric,
    part: Part,
}

/// Whose numbers a condition is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Each owner's, and the host's.
    Everybodys,
    /// Everything's that was asked for, together.
    Targets,
    /// Those of these owners.
    Owners(Pattern),
}

/// A condition on every interval's report.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// As it was given.
    pub text: String,
    /// What it is about.
    pub measure: Measure,
    /// Where a number has to be.
    pub side: Side,
    /// Of what.
    pub limit: Limit,
    /// For how long, in ns: 0 is an interval.
    pub lasting_ns: u64,
    /// Whose it is.
    pub whose: Whose,
}

impl Measure {
    /// What a name stands for: a metric of the catalogue, with the part of it that is meant where it is a distribution.
    ///
    /// # Errors
    ///
    /// There is none of this name, or a part is missing or too much; the error says which there are.
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
            // As some write it.
            "p999" => Part::Quantile(0.999),
            other => Part::Quantile(
                quantile(other)
                    .ok_or_else(|| format!("{} has no part `{other}`: there are {}", metric.name, parts()))?,
            ),
        };
        Ok(Self { metric, part })
    }

    /// The unit of its numbers.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        if matches!(self.part, Part::Count) { Unit::Counts } else { self.metric.unit }
    }

    /// The family of its metric.
    #[must_use]
    pub const fn family(&self) -> metric::Family {
        self.metric.family
    }

    /// Its name.
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

    /// Is it a time that adds up, of which an interval has so much a CPU?
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

/// Names of the parts of a distribution, in words.
fn parts() -> String {
    [&["count", "sum"], &PARTS[..]].concat().join(", ")
}

/// Every name that is understood.
fn names() -> impl Iterator<Item = String> {
    metric::all().flat_map(|metric| {
        let parts: &[&str] = if metric.adds() == Adds::Distribution { &PARTS } else { &[] };
        let whole = parts.is_empty().then(|| metric.name.to_owned());
        whole.into_iter().chain(parts.iter().map(|part| format!("{}.{part}", metric.name)))
    })
}

/// Whose a number is and what it is about: what a condition holds of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct About {
    condition: usize,
    owner: Option<Owner>,
    subject: String,
}

/// Since when a condition holds of something.
#[derive(Clone, Copy, Debug)]
struct Since {
    from_ns: u64,
    /// For long enough?
    is_met: bool,
    is_told: bool,
}

/// A condition that is met.
#[derive(Clone, Debug, PartialEq)]
pub struct Met {
    /// Which, by its place.
    pub condition: usize,
    /// Whose number it is: the owner in words, `host` or `total`.
    pub whose: String,
    /// The number, as it is now, in the unit of the condition's measure.
    pub value: f64,
}

/// Conditions while intervals come.
#[derive(Debug, Default)]
pub struct Conditions {
    all: Vec<Condition>,
    /// Of what they hold at the moment.
    held: HashMap<About, Since>,
}

impl Conditions {
    /// These, of which none holds yet.
    #[must_use]
    pub fn new(all: Vec<Condition>) -> Self {
        Self { all, held: HashMap::new() }
    }

    /// Others in place of these; what held of one that stays goes on to hold.
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

    /// The condition at a place.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<&Condition> {
        self.all.get(place)
    }

    /// What is met by now that nobody was told of ([`Conditions::told`]) since it began to hold.
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
                    let began = Since { from_ns: frame.0, is_met: false, is_told: false };
                    let mut since = self.held.get(&about).copied().unwrap_or(began);
                    // Intervals are as long as the kernel lets them: one that is a little short counts.
                    let until_ns = frame.0.saturating_add(frame.1).saturating_add(frame.1 / 10);
                    since.is_met = until_ns.saturating_sub(since.from_ns) >= condition.lasting_ns;
                    if since.is_met && !since.is_told {
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

    /// Somebody was told of all that is met: of it nothing is said until it has ceased to hold and is met once more.
    pub fn told(&mut self) {
        self.held.values_mut().for_each(|since| since.is_told |= since.is_met);
    }
}

impl Condition {
    /// The number, if it is one of the condition's and all of it lies beyond the limit.
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
