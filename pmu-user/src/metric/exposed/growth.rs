//! Reports of intervals → what happened in each period, a minute of the clock, by target: rows of a table with the metrics of
//! [`super::Exposed`], whose sums over any targets, hosts and times are true. Unlike a server of metrics, who reads a table sees all of it:
//! nothing need begin at 0 or stay as it ended, so who has rows of its own is decided once a period is over and it is known who did what.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    accounts::{self, Account},
    add,
    claims::Claims,
    counters, culprits,
    families::{Families, TARGET_INFO},
    family::{Family, Kind},
    host::{Host, Points},
    is_known, of_target,
    target::{self, Labels},
    value::{FamilyId, Point, Values, none_of},
};
use crate::{
    drain::{Header, Owner},
    metric::{
        Report,
        number::{Attribution, Frame, Number},
    },
    table::metric,
};

/// Series of the host, as text: most of a table is about targets.
const HOST_SERIES_MAX: usize = 2500;
/// Targets that are told apart until a period is over.
const TOLD_APART_MAX: usize = 8192;

/// What happened, period by period.
#[derive(Debug)]
pub struct Growth {
    /// Targets with rows of their own, in each period.
    targets_max: usize,
    every_ns: u64,
    families: Families,
    targets: BTreeMap<Arc<str>, Target>,
    claims: Claims,
    other: Values,
    host: Host,
    /// What adds up of the host, at the end of the last period.
    earlier: Points,
    /// Sums of what the host's states were, each times its interval's length, and of those lengths.
    states: BTreeMap<(FamilyId, Arc<Labels>), (f64, f64)>,
    /// The period that is going on: when it began, in ns since 1970, and for how long it was counted.
    open: Option<(u64, u64)>,
}

/// A target in one period.
#[derive(Debug)]
struct Target {
    info: Arc<Labels>,
    values: Values,
    /// Sums of what its states were, and of how many readings.
    states: BTreeMap<FamilyId, (f64, f64)>,
}

/// What happened in a period.
#[derive(Clone, Debug)]
pub struct Period {
    /// When it began, in ns since 1970: a multiple of its length.
    pub from_unix_ns: u64,
    /// Length of the intervals that are in it, in ns.
    pub counted_ns: u64,
    /// What happened.
    pub rows: Vec<Row>,
    families: Arc<[Family]>,
}

/// A row of a period.
#[derive(Clone, Debug)]
pub struct Row {
    family: FamilyId,
    /// Whose it is.
    pub whose: Whose,
    /// By how much it grew; of what does not add up, its mean over the intervals that have it.
    pub point: Point,
    /// Square of its standard error, where it is an estimate.
    pub variance: Option<f64>,
}

/// Whose a row is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whose {
    /// The host's, or that of the part of it that labels name.
    Host(Arc<Labels>),
    /// A target's, with what is known of it.
    Target(Arc<str>, Arc<Labels>),
}

impl Target {
    fn new(info: Arc<Labels>) -> Self {
        Self { info, values: Values::default(), states: BTreeMap::new() }
    }
}

impl Period {
    /// Family of one of its rows.
    pub fn family(&self, row: &Row) -> &Family {
        &self.families[row.family]
    }
}

impl Growth {
    /// Nothing yet, of the run that `header` describes, in periods of this length; in each of them so many targets have rows of their own.
    pub fn new(header: &Header, targets_max: usize, every_ns: u64) -> Self {
        let mut families = Families::default();
        let mut host = Host::new(HOST_SERIES_MAX);
        host.begin(&mut families, header);
        Self {
            targets_max,
            every_ns: every_ns.max(1),
            families,
            targets: BTreeMap::new(),
            claims: Claims::default(),
            other: Values::default(),
            host,
            earlier: Points::new(),
            states: BTreeMap::new(),
            open: None,
        }
    }

    /// From now on so many targets have rows of their own, in each period.
    pub const fn bound(&mut self, targets_max: usize) {
        self.targets_max = targets_max;
    }

    /// Adds the report of an interval that ended at this time, in ns since 1970. It is of the period that its middle lies in; where that
    /// is another one, what happened in the one before.
    pub fn add(&mut self, report: &Report, now_unix_ns: u64) -> Option<Period> {
        let length_ns = match (&report.tasks, &report.io) {
            (Some(tasks), _) => tasks.length_ns,
            (None, io) => io.as_ref().map_or(0, |io| io.length_ns),
        };
        let middle_ns = now_unix_ns.saturating_sub(length_ns / 2);
        let from_ns = middle_ns - middle_ns % self.every_ns;
        let over = if self.open.is_some_and(|(began_ns, _)| began_ns != from_ns) { self.end() } else { None };
        self.open.get_or_insert((from_ns, 0)).1 += length_ns;
        self.count(report);
        for (key, state) in self.host.states() {
            if let Point::Number(state) = state {
                let (sum, weight) = self.states.entry(key.clone()).or_default();
                *sum += state * length_ns as f64;
                *weight += length_ns as f64;
            }
        }
        over
    }

    /// Adds what the kernel accounts to targets, after the report of the interval was added.
    pub fn account(&mut self, accounts: &[Account]) {
        for Account { target, info, of_interval, .. } in accounts {
            if !self.targets.contains_key(target) && self.targets.len() >= TOLD_APART_MAX {
                continue;
            }
            let of = self.targets.entry(Arc::clone(target)).or_insert_with(|| Target::new(Arc::clone(info)));
            for &(figure, value) in of_interval {
                if figure.grows() {
                    accounts::add(&mut of.values, &mut self.families, figure, value);
                } else {
                    let (family, value) = accounts::in_base_unit(&mut self.families, figure, value);
                    let (sum, readings) = of.states.entry(family).or_default();
                    (*sum, *readings) = (*sum + value, *readings + 1.0);
                }
            }
        }
    }

    fn count(&mut self, report: &Report) {
        self.host.forget_states();
        report.io.iter().for_each(|io| self.host.learn_levels(io));
        // What an owner is called may become known at any time.
        let mut names = HashMap::new();
        self.claims.begin(report);
        // No error is possible.
        let _ = report.by_source::<std::convert::Infallible>(|frame, numbers| {
            numbers.for_each(|number| self.number(&mut names, frame, &number));
            Ok(())
        });
        let (targets, other) = ((&mut self.targets, &mut self.claims), &mut self.other);
        let mut take = |owner, family, amount| {
            values_of(owner, &mut names, (targets.0, targets.1), other).add(family, amount);
        };
        counters::amounts(report, &mut self.families, &mut take);
        culprits::amounts(report, &mut self.families, &mut take);
        self.host.add_report(&mut self.families, report);
    }

    fn number<'r>(
        &mut self,
        names: &mut HashMap<&'r Owner, Option<Arc<str>>>,
        frame: Frame,
        number: &Number<'r>,
    ) {
        let found = metric::find(&number.metric).filter(|metric| metric.name == number.metric);
        let Some(metric) = found.filter(|_| is_known(number)) else { return };
        if let Some(owner) = of_target(metric, number) {
            let Some(family) = self.families.of_targets(metric) else { return };
            let targets = (&mut self.targets, &mut self.claims);
            let values = values_of(owner, names, targets, &mut self.other);
            add(values, (metric, family), &mut self.families, frame, number);
        } else if let Attribution::Host = number.whose {
            self.host.number(&mut self.families, metric, frame, number);
        }
    }

    /// What happened in the period that is going on, which ends; nothing if none is.
    pub fn end(&mut self) -> Option<Period> {
        let (from_unix_ns, counted_ns) = self.open.take()?;
        let mut rows = self.of_targets();
        rows.extend(self.of_host());
        Some(Period { from_unix_ns, counted_ns, rows, families: self.families.all() })
    }

    /// Rows of targets: of those that did most, and of all others together.
    fn of_targets(&mut self) -> Vec<Row> {
        let mut targets: Vec<(Arc<str>, Target)> = std::mem::take(&mut self.targets).into_iter().collect();
        let mut other = std::mem::take(&mut self.other);
        if targets.len() > self.targets_max {
            let cpu_time = self.families.of(&metric::CPU_TIME);
            let busy = |target: &Target| match cpu_time.and_then(|family| target.values.0.get(&family)) {
                Some(Point::Number(seconds)) => *seconds,
                _ => 0.0,
            };
            targets.sort_by(|(_, one), (_, other)| busy(other).total_cmp(&busy(one)));
            let rest = targets.drain(self.targets_max..);
            for (_, mut target) in rest {
                // With all that is below a cgroup, these do not add up.
                target.values.0.retain(|&family, _| !self.families.is_of_some(family));
                other.merge(target.values);
            }
        }
        let mut rows = Vec::new();
        for (name, mut target) in targets {
            let whose = Whose::Target(name, target.info);
            // What a target never did has no row.
            target.values.0.retain(|_, point| !point.is_nothing());
            let values = &target.values;
            rows.extend(values.0.keys().filter_map(|&family| self.row(family, &whose, values)));
            let states = target.states.into_iter();
            rows.extend(states.map(|(family, (sum, readings))| Row {
                family,
                whose: whose.clone(),
                point: Point::Number(sum / readings),
                variance: None,
            }));
        }
        // Of whatever is measured somebody has a row, if it is one of 0.
        let whose = Whose::Target(target::OTHER.into(), Arc::default());
        let all = self.families.ids_of_targets();
        rows.extend(all.into_iter().filter_map(|family| self.row(family, &whose, &other)));
        rows
    }

    /// A target's row of a family; none of variances, which stand in the rows of what they are of.
    fn row(&self, family: FamilyId, whose: &Whose, values: &Values) -> Option<Row> {
        if self.families.is_variance(family) {
            return None;
        }
        let variance = self.families.known_variance_of(family).map(|of| match values.0.get(&of) {
            Some(Point::Number(variance)) => *variance,
            _ => 0.0,
        });
        let none = || none_of(self.families.at(family).kind);
        let point = values.0.get(&family).cloned().unwrap_or_else(none);
        Some(Row { family, whose: whose.clone(), point, variance })
    }

    /// Rows of the host, of what did not grow, too: there are few, and they have no `_other` to say that it is 0.
    fn of_host(&mut self) -> Vec<Row> {
        let now = self.host.sums().clone();
        let mut rows = Vec::new();
        for ((family, labels), point) in &now {
            if *family == TARGET_INFO || self.families.is_variance(*family) {
                continue;
            }
            let kind = self.families.at(*family).kind;
            let grown = |key: &(FamilyId, Arc<Labels>)| Some(now.get(key)?.since(self.earlier.get(key)));
            let variance = self.families.known_variance_of(*family);
            let variance = variance.and_then(|of| match grown(&(of, Arc::clone(labels)))? {
                Point::Number(variance) => Some(variance),
                Point::Histogram(_) => None,
            });
            let point = match kind {
                Kind::Gauge | Kind::Info => point.clone(),
                Kind::Counter | Kind::Histogram => {
                    point.since(self.earlier.get(&(*family, Arc::clone(labels))))
                }
            };
            rows.push(Row { family: *family, whose: Whose::Host(Arc::clone(labels)), point, variance });
        }
        self.earlier = now;
        let states = std::mem::take(&mut self.states).into_iter();
        rows.extend(states.filter(|(_, (_, weight))| *weight > 0.0).map(
            |((family, labels), (sum, weight))| Row {
                family,
                whose: Whose::Host(labels),
                point: Point::Number(sum / weight),
                variance: None,
            },
        ));
        rows
    }
}

/// Where an owner's numbers are added to.
fn values_of<'r, 't>(
    owner: &'r Owner,
    names: &mut HashMap<&'r Owner, Option<Arc<str>>>,
    (targets, claims): (&'t mut BTreeMap<Arc<str>, Target>, &mut Claims),
    other: &'t mut Values,
) -> &'t mut Values {
    let name = names.entry(owner).or_insert_with(|| named(targets, claims, owner));
    let target = name.as_ref().and_then(|name| targets.get_mut(name));
    target.map_or(other, |target| &mut target.values)
}

/// The name of an owner's target, which is there then; `None` if it is counted with all others.
fn named(targets: &mut BTreeMap<Arc<str>, Target>, claims: &mut Claims, owner: &Owner) -> Option<Arc<str>> {
    let name = claims.name(owner)?;
    let is_full = targets.len() >= TOLD_APART_MAX;
    match targets.get_mut(&name) {
        None if is_full => return None,
        None => {
            let info = Arc::new(target::info(owner));
            drop(targets.insert(Arc::clone(&name), Target::new(info)));
        }
        // What is below a container's cgroup may be met first and know less.
        Some(known) => {
            let info = target::info(owner);
            if info.len() > known.info.len() {
                known.info = Arc::new(info);
            }
        }
    }
    Some(name)
}
