//! Growth in each period, a minute of the clock, by target, from reports of intervals. The rows of a table
//! have the metrics of [`super::Exposed`], and their sums over any targets, hosts and times are exact. Unlike
//! a monitoring server, a reader of a table sees all of it: nothing needs to begin at 0 or to stay as it
//! ended. So the targets with their own rows are chosen at the end of a period, when their activity is known.

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

/// Maximum number of series of the host in text: most of a table is about targets.
const HOST_SERIES_MAX: usize = 2500;
/// Maximum number of targets that are distinguished until a period is over.
const TOLD_APART_MAX: usize = 8192;

/// Growth of all families, period by period.
#[derive(Debug)]
pub struct Growth {
    /// Number of targets with their own rows in each period.
    targets_max: usize,
    every_ns: u64,
    families: Families,
    targets: BTreeMap<Arc<str>, Target>,
    claims: Claims,
    other: Values,
    host: Host,
    /// Sums of the host at the end of the last period.
    earlier: Points,
    /// Sums of the host's states, each times the length of its interval, and of those lengths.
    states: BTreeMap<(FamilyId, Arc<Labels>), (f64, f64)>,
    /// Open period: its start in ns since 1970, and the time counted in it.
    open: Option<(u64, u64)>,
}

/// A target in one period.
#[derive(Debug)]
struct Target {
    info: Arc<Labels>,
    values: Values,
    /// Sums of its states, and numbers of readings.
    states: BTreeMap<FamilyId, (f64, f64)>,
}

/// Growth of all families in a period.
#[derive(Clone, Debug)]
pub struct Period {
    /// Start of the period in ns since 1970: a multiple of its length.
    pub from_unix_ns: u64,
    /// Length of the intervals that are in it, in ns.
    pub counted_ns: u64,
    /// Rows of the period.
    pub rows: Vec<Row>,
    families: Arc<[Family]>,
}

/// A row of a period.
#[derive(Clone, Debug)]
pub struct Row {
    family: FamilyId,
    /// Target or host of the row.
    pub whose: Whose,
    /// Growth, or for a family that does not add up, its mean over the intervals that have it.
    pub point: Point,
    /// Square of the standard error of an estimate.
    pub variance: Option<f64>,
}

/// Target or host of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whose {
    /// The host, or the part of it that labels name.
    Host(Arc<Labels>),
    /// A target, with labels that describe it.
    Target(Arc<str>, Arc<Labels>),
}

impl Target {
    fn new(info: Arc<Labels>) -> Self {
        Self { info, values: Values::default(), states: BTreeMap::new() }
    }
}

impl Period {
    /// Returns the family of one of its rows.
    pub fn family(&self, row: &Row) -> &Family {
        &self.families[row.family]
    }
}

impl Growth {
    /// Returns an empty state for the run that `header` describes, in periods of `every_ns`. In each of them
    /// `targets_max` targets have their own rows.
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

    /// Sets the number of targets with their own rows in each period.
    pub const fn bound(&mut self, targets_max: usize) {
        self.targets_max = targets_max;
    }

    /// Adds the report of an interval that ended at `now_unix_ns`, in ns since 1970. It belongs to the period
    /// in which its middle lies. If that is another period, returns the one before.
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

    /// Adds the kernel's accounts of targets, after the report of the interval was added.
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
        // The name of an owner may become known at any time.
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

    /// Ends the open period and returns it, or nothing if there is none.
    pub fn end(&mut self) -> Option<Period> {
        let (from_unix_ns, counted_ns) = self.open.take()?;
        let mut rows = self.of_targets();
        rows.extend(self.of_host());
        Some(Period { from_unix_ns, counted_ns, rows, families: self.families.all() })
    }

    /// Returns rows of targets: of the busiest, and of all others together.
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
                // Figures of a cgroup include all that is below it, so they do not add up.
                target.values.0.retain(|&family, _| !self.families.is_of_some(family));
                other.merge(target.values);
            }
        }
        let mut rows = Vec::new();
        for (name, mut target) in targets {
            let whose = Whose::Target(name, target.info);
            // A family that stayed 0 for a target has no row.
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
        // Every measured family has a row, even if it is one of 0.
        let whose = Whose::Target(target::OTHER.into(), Arc::default());
        let all = self.families.ids_of_targets();
        rows.extend(all.into_iter().filter_map(|family| self.row(family, &whose, &other)));
        rows
    }

    /// Returns a target's row of a family, none for a variance, which is part of the row of its family.
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

    /// Returns rows of the host, including those without growth: there are few, and no `_other` shows that
    /// they are 0.
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

/// Returns the values to which an owner's numbers are added.
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

/// Returns the name of an owner's target, which is created if needed, or `None` if it is counted with all
/// others.
fn named(targets: &mut BTreeMap<Arc<str>, Target>, claims: &mut Claims, owner: &Owner) -> Option<Arc<str>> {
    let name = claims.name(owner)?;
    let is_full = targets.len() >= TOLD_APART_MAX;
    match targets.get_mut(&name) {
        None if is_full => return None,
        None => {
            let info = Arc::new(target::info(owner));
            drop(targets.insert(Arc::clone(&name), Target::new(info)));
        }
        // A cgroup below that of a container may come first and have fewer labels.
        Some(known) => {
            let info = target::info(owner);
            if info.len() > known.info.len() {
                known.info = Arc::new(info);
            }
        }
    }
    Some(name)
}
