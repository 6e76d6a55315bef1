//! Numbers of a report, one after the other, whichever source they are from: what formats for machines write.

use std::borrow::Cow;

use super::{
    Limited, OwnerOrTarget, OwnerReport, Pressure, Report, TasksReport, Throttled,
    culprit::{Culprit, Waited},
    io::{IoReport, Label, Row, Subject},
    stat::{self, Stat, Support},
    topdown::{Shape, Spread, TopDown},
    value::{Distribution, Value},
};
use crate::{
    drain::Owner,
    machine::duration_ns,
    plan::count::Place,
    table::{
        metric::{self, RUNQUEUE_CULPRIT, RUNQUEUE_LATENCY},
        unit::Unit,
    },
};

/// Whose a number is.
#[derive(Clone, Copy, Debug)]
pub enum Attribution<'a> {
    /// The host's.
    Host,
    /// Everything's that was asked for, together.
    Target,
    /// One owner's.
    Owner(&'a Owner),
}

impl<'a> From<&'a OwnerOrTarget> for Attribution<'a> {
    fn from(who: &'a OwnerOrTarget) -> Self {
        match who {
            OwnerOrTarget::Target => Self::Target,
            OwnerOrTarget::Owner(owner) => Self::Owner(owner),
        }
    }
}

/// A number of a report.
#[derive(Clone, Debug)]
pub struct Number<'a> {
    /// Whose it is.
    pub whose: Attribution<'a>,
    /// What it is about, beside CPUs: never an owner.
    pub subject: Option<&'a Subject>,
    /// Its metric.
    pub metric: Cow<'a, str>,
    /// The metric that it is a part, or another reading, of.
    pub parent: Option<Cow<'a, str>>,
    /// Unit of its value.
    pub unit: &'a str,
    /// What is known.
    pub content: Content<'a>,
    /// What only some numbers have.
    pub details: Details<'a>,
}

/// What is known of a metric.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// A value, or why there is none.
    Value(Cow<'a, Value>),
    /// A distribution of values, or why there is none.
    Distribution(Result<&'a Distribution, &'a str>),
}

/// What only some numbers have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Details<'a> {
    /// How it is known whose it is.
    pub label: Option<Label>,
    /// What else a reader must know.
    pub note: Option<&'a str>,
    /// Its place in a tree of metrics, and whether it is over its threshold.
    pub node: Option<(&'a Shape, Option<bool>)>,
    /// The core PMU that it is of, where cores differ.
    pub pmu: Option<&'a str>,
    /// Samples that it rests on.
    pub samples: Option<u64>,
    /// The counters that it was read from.
    pub counters: Option<&'a stat::Row>,
    /// The CPUs that it is of, where they have rows of their own.
    pub place: Option<&'a Place>,
    /// Who had the CPU, of a wait that is charged to somebody.
    pub culprit: Option<&'a Culprit>,
    /// The time that a rate or a share is of, in ns, where that is not the interval's to the last.
    pub over_ns: Option<u64>,
}

impl<'a> Number<'a> {
    fn new(whose: Attribution<'a>, metric: impl Into<Cow<'a, str>>, unit: &'a str, value: &'a Value) -> Self {
        let content = Content::Value(Cow::Borrowed(value));
        Self {
            whose,
            subject: None,
            metric: metric.into(),
            parent: None,
            unit,
            content,
            details: Details::default(),
        }
    }

    /// Is it whole, `partial`, `missing`, or `unsupported` on this host?
    pub fn status(&self) -> &'static str {
        let known = match &self.content {
            Content::Value(value) => value.known().map(|known| known.coverage),
            Content::Distribution(found) => found.ok().map(|found| found.coverage),
        };
        let counters = self.details.counters;
        match known {
            _ if counters.is_some_and(|row| row.support == Support::NotHere) => "unsupported",
            None => "missing",
            Some(_) if counters.is_some_and(|row| !row.uncounted.is_empty()) => "partial",
            Some(coverage) if coverage < 0.999 => "partial",
            Some(_) => "ok",
        }
    }

    /// Why there is none.
    pub fn reason(&self) -> Option<&str> {
        match &self.content {
            Content::Value(value) => value.reason(),
            Content::Distribution(found) => found.err(),
        }
    }
}

/// When an interval began, in ns since counting did, and how long it was.
pub type Frame = (u64, u64);
/// Numbers, one after the other.
pub type Each<'r> = dyn Iterator<Item = Number<'r>> + 'r;

impl Report {
    /// Gives the numbers of each source to `write`, with the interval that they are of: sources are drained one after the other.
    ///
    /// # Errors
    ///
    /// As `write`'s.
    pub fn by_source<'r, E>(
        &'r self,
        mut write: impl FnMut(Frame, &mut Each<'r>) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(tasks) = &self.tasks {
            write((tasks.from_ns, tasks.length_ns), &mut tasks.numbers())?;
        }
        if let Some(io) = &self.io {
            write((io.from_ns, io.length_ns), &mut io.numbers())?;
        }
        self.counts.as_ref().map_or(Ok(()), |counts| write(counts.frame(), &mut counts.numbers()))
    }
}

impl TasksReport {
    /// Those of the target and its owners, then what they waited by culprit, then those of the CPU model.
    fn numbers(&self) -> impl Iterator<Item = Number<'_>> {
        let owners = std::iter::once(&self.total).chain(&self.owners).flat_map(OwnerReport::numbers);
        let throttled = self.throttled.iter().flat_map(Throttled::numbers);
        let limits = self.limits.iter().flat_map(Limited::numbers);
        let coverage = self.quality.switch_coverage;
        let culprits = self.waited.iter().flat_map(move |waited| waited.numbers(coverage));
        let pressure = self.pressure.iter().flat_map(Pressure::numbers);
        let topdown = self.topdown.iter().flatten().flat_map(TopDown::numbers);
        owners.chain(throttled).chain(limits).chain(culprits).chain(pressure).chain(topdown)
    }
}

impl TasksReport {
    /// Those of programs of which several processes ran, which are in the numbers of these as well.
    pub fn numbers_of_programs(&self) -> impl Iterator<Item = Number<'_>> {
        self.programs().flat_map(OwnerReport::numbers)
    }
}

impl OwnerReport {
    pub(super) fn numbers(&self) -> impl Iterator<Item = Number<'_>> {
        let whose = Attribution::from(&self.who);
        let metrics = of_whom(whose, &self.metrics);
        let waits = Number {
            whose,
            subject: None,
            metric: RUNQUEUE_LATENCY.name.into(),
            parent: None,
            unit: RUNQUEUE_LATENCY.unit.name(),
            content: Content::Distribution(self.waits.as_ref().map_err(String::as_str)),
            details: Details::default(),
        };
        let events = self.events.iter().flat_map(move |event| {
            let number = |part: &str, value| {
                Number::new(whose, format!("event.{}{part}", event.name), Unit::Counts.name(), value)
            };
            let details = Details { samples: Some(event.samples), ..Details::default() };
            let all = Number { details, ..number("", &event.count) };
            [all, number(".user", &event.user), number(".kernel", &event.kernel)]
        });
        let ratios = self.ratios.iter().map(move |ratio| {
            Number::new(whose, format!("ratio.{}", ratio.name), Unit::Ratio.name(), &ratio.value)
        });
        metrics.chain([waits]).chain(events).chain(ratios)
    }
}

impl Waited {
    /// One of each culprit; `coverage` is the share of the switches that were seen.
    fn numbers(&self, coverage: f64) -> impl Iterator<Item = Number<'_>> {
        self.charges.iter().map(move |charge| Number {
            whose: Attribution::from(&self.who),
            subject: None,
            metric: RUNQUEUE_CULPRIT.name.into(),
            parent: RUNQUEUE_CULPRIT.parent.map(Cow::Borrowed),
            unit: RUNQUEUE_CULPRIT.unit.name(),
            content: Content::Value(Cow::Owned(Value::counted(charge.wait_ns, coverage))),
            details: Details { culprit: Some(&charge.culprit), ..Details::default() },
        })
    }
}

impl Throttled {
    fn numbers(&self) -> [Number<'_>; 2] {
        let values = [(metric::THROTTLED_PERIODS, &self.share), (metric::THROTTLED_TIME, &self.time)];
        let whose = Attribution::Owner(&self.owner);
        values.map(|(metric, value)| Number::new(whose, metric.name, metric.unit.name(), value))
    }
}

impl Limited {
    fn numbers(&self) -> impl Iterator<Item = Number<'_>> {
        let whose = Attribution::Owner(&self.owner);
        let io = self.io.iter().map(move |limit| Number {
            subject: Some(&limit.subject),
            ..Number::new(whose, limit.metric.name, limit.metric.unit.name(), &limit.value)
        });
        of_whom(whose, &self.values).chain(io)
    }
}

impl Pressure {
    fn numbers(&self) -> impl Iterator<Item = Number<'_>> {
        let whose = self.whose.as_ref().map_or(Attribution::Host, Attribution::Owner);
        let details = Details { over_ns: Some(self.of_ns), ..Details::default() };
        of_whom(whose, &self.shares).map(move |number| Number { details, ..number })
    }
}

/// Numbers of one owner.
fn of_whom<'a>(
    whose: Attribution<'a>,
    values: &'a [(metric::Metric, Value)],
) -> impl Iterator<Item = Number<'a>> {
    values.iter().map(move |(metric, value)| Number::new(whose, metric.name, metric.unit.name(), value))
}

impl TopDown {
    fn numbers(&self) -> impl Iterator<Item = Number<'_>> {
        let pmu = self.pmu();
        let nodes = self.owners.iter().flat_map(move |(who, tree)| {
            let time = tree.time_share.iter().map(move |share| {
                let metric = &metric::CORE_TIME_SHARE;
                let details = Details { pmu, ..Details::default() };
                Number {
                    details,
                    ..Number::new(who.into(), self.named(metric.name), metric.unit.name(), share)
                }
            });
            let nodes = self.shapes.iter().map(move |shape| {
                let node = &tree.nodes[shape.index as usize];
                let details = Details { node: Some((shape, node.flagged)), pmu, ..Details::default() };
                let name = self.named(&shape.name);
                let number = Number::new(who.into(), name, shape.unit.name(), &node.value);
                Number { parent: shape.parent.as_deref().map(|parent| self.named(parent)), details, ..number }
            });
            time.chain(nodes)
        });
        let spreads = self.runs.iter().flat_map(|runs| &runs.spreads);
        nodes.chain(spreads.flat_map(move |of| {
            spread(of).map(|number| Number { metric: self.named(number.metric), ..number })
        }))
    }
}

/// The least and the most that runs of a command counted of something.
fn spread(spread: &Spread) -> [Number<'_>; 2] {
    let number = |end: &str, pick: fn(&(f64, f64)) -> f64| {
        let value = match &spread.range {
            Ok(range) => Value::exact(pick(range)),
            Err(why) => Value::Missing(why.clone()),
        };
        Number {
            whose: Attribution::Target,
            subject: None,
            metric: format!("runs.{}.{end}", spread.what).into(),
            parent: None,
            unit: spread.unit.name(),
            content: Content::Value(Cow::Owned(value)),
            details: Details::default(),
        }
    };
    [number("least", |range| range.0), number("most", |range| range.1)]
}

impl IoReport {
    fn numbers(&self) -> impl Iterator<Item = Number<'_>> {
        self.numbers_of(&self.rows)
    }

    /// Those of programs of which several processes moved something, which are in the numbers of these as well.
    pub fn numbers_of_programs(&self) -> impl Iterator<Item = Number<'_>> {
        self.numbers_of(&self.programs)
    }

    fn numbers_of<'a>(&'a self, rows: &'a [Row]) -> impl Iterator<Item = Number<'a>> {
        rows.iter().map(|row| {
            let (whose, subject) = match &row.subject {
                Subject::Owner(owner, of) => (Attribution::Owner(owner), of.as_ref()),
                subject => (Attribution::Host, subject),
            };
            let is_traffic = matches!(
                metric::Family::of(&row.metric),
                Some(metric::Family::Block | metric::Family::Network)
            );
            let details = Details {
                label: Some(row.label),
                note: row.note.as_deref(),
                over_ns: is_traffic.then_some(self.traffic_ns),
                ..Details::default()
            };
            let number = Number::new(whose, row.metric.as_str(), row.unit.name(), &row.value);
            let content = match (&row.distribution, &row.value) {
                (Some(found), _) => Content::Distribution(Ok(found)),
                (None, Value::Missing(why)) if row.is_distribution() => Content::Distribution(Err(why)),
                _ => number.content.clone(),
            };
            Number { subject: Some(subject), content, details, ..number }
        })
    }
}

impl Stat {
    fn frame(&self) -> Frame {
        let length = self.elapsed.known().map_or(0.0, |known| known.estimate);
        (duration_ns(self.from), length as u64)
    }

    /// Counts, each followed by what it says about others, then times.
    fn numbers(&self) -> impl Iterator<Item = Number<'_>> {
        let counts = self.rows.iter().flat_map(|row| {
            let whose = row.owner.as_ref().map_or(Attribution::Target, Attribution::Owner);
            let unit = row.unit.as_deref().unwrap_or(Unit::Counts.name());
            let of_place = Details { place: row.place.as_ref(), ..Details::default() };
            let details = Details { counters: Some(row), ..of_place };
            let count =
                Number { details, ..Number::new(whose, format!("event.{}", row.event), unit, &row.value) };
            let parent = Some(count.metric.clone());
            let derived = row.derived.as_ref().map(|derived| Number {
                parent,
                details: of_place,
                ..Number::new(whose, derived.name, &derived.unit, &derived.value)
            });
            [Some(count), derived].into_iter().flatten()
        });
        let times = [
            ("elapsed", Some(&self.elapsed)),
            ("user_time", self.user.as_ref()),
            ("system_time", self.system.as_ref()),
        ];
        let times = times.into_iter().filter_map(|(name, value)| {
            Some(Number::new(Attribution::Target, name, Unit::Ns.name(), value?))
        });
        counts.chain(times)
    }
}
