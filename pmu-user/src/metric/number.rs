//! Numbers of a report in sequence, regardless of their source: the content of formats for machines.

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

/// Owner to which a number is attributed.
#[derive(Clone, Copy, Debug)]
pub enum Attribution<'a> {
    /// Host as a whole.
    Host,
    /// Everything that was requested, together.
    Target,
    /// One owner of the target.
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

/// Number of a report.
#[derive(Clone, Debug)]
pub struct Number<'a> {
    /// Owner to which it is attributed.
    pub whose: Attribution<'a>,
    /// Subject of the number other than CPUs: never an owner.
    pub subject: Option<&'a Subject>,
    /// Metric of the number.
    pub metric: Cow<'a, str>,
    /// Metric of which it is a part or another reading.
    pub parent: Option<Cow<'a, str>>,
    /// Unit of its value.
    pub unit: &'a str,
    /// Value or distribution of the number.
    pub content: Content<'a>,
    /// Properties that only some numbers have.
    pub details: Details<'a>,
}

/// Value or distribution of a metric.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// Value, or the reason why it is missing.
    Value(Cow<'a, Value>),
    /// Distribution of values, or the reason why it is missing.
    Distribution(Result<&'a Distribution, &'a str>),
}

/// Properties that only some numbers have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Details<'a> {
    /// Way in which the attribution is known.
    pub label: Option<Label>,
    /// Further information for the reader.
    pub note: Option<&'a str>,
    /// Place in a tree of metrics, and whether the number is over its threshold.
    pub node: Option<(&'a Shape, Option<bool>)>,
    /// Core PMU to which it applies, where cores differ.
    pub pmu: Option<&'a str>,
    /// Number of samples on which it rests.
    pub samples: Option<u64>,
    /// Counters from which it was read.
    pub counters: Option<&'a stat::Row>,
    /// CPUs to which it applies, where they have separate rows.
    pub place: Option<&'a Place>,
    /// Culprit to which a wait is charged.
    pub culprit: Option<&'a Culprit>,
    /// Time to which a rate or a share applies, in ns, where it is not exactly the interval's.
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

    /// Returns the status: `ok`, `partial`, `missing`, or `unsupported` on this host.
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

    /// Returns the reason why it is missing.
    pub fn reason(&self) -> Option<&str> {
        match &self.content {
            Content::Value(value) => value.reason(),
            Content::Distribution(found) => found.err(),
        }
    }
}

/// Start of an interval, in ns since counting started, and its length.
pub type Frame = (u64, u64);
/// Sequence of numbers.
pub type Each<'r> = dyn Iterator<Item = Number<'r>> + 'r;

impl Report {
    /// Passes the numbers of each source to `write`, with their interval: sources are drained one after the
    /// other.
    ///
    /// # Errors
    ///
    /// Errors of `write` are returned.
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
    /// Returns the numbers of the target and its owners, then their waits by culprit, then those of the CPU
    /// model.
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
    /// Returns the numbers of programs of which several processes ran. The processes' numbers include them as
    /// well.
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
    /// Returns one number for each culprit; `coverage` is the share of the switches that were seen.
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

/// Returns the numbers of one owner.
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

/// Returns the least and the greatest count in runs of a command.
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

    /// Returns the numbers of programs of which several processes moved something. The processes' numbers
    /// include them as well.
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

    /// Returns counts, each followed by its derived number, then times.
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
