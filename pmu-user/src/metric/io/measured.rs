//! Counts of the uncore PMUs of one scope, added up.
//!
//! Uncore PMUs of a kind are multiplexed in step, so their slices are added up and estimated as one. Kinds
//! are estimated separately, since their turns are unrelated. A group that one of the uncore PMUs did not
//! count has no sum: that of the others would be too low, without any sign of it.

use std::{borrow::Cow, cell::RefCell, collections::BTreeMap, rc::Rc};

use super::window::{Readings, Window, of_interval};
use crate::{
    drain::reading::SliceRow,
    metric::{
        estimate::{Estimates, EventIndex},
        value::Known,
    },
    model::{io::IoInterval, slice::sums},
    plan::io::{IoPlan, UncoreInstance, UncoreKind},
};

/// Counts of the uncore PMUs of a plan in an interval. The same uncore PMUs are queried for a stack, its
/// parts and the devices behind them, so sums are cached.
#[derive(Debug)]
pub(super) struct UncoreCounts<'a> {
    pub(super) plan: &'a IoPlan,
    pub(super) interval: &'a IoInterval,
    known: RefCell<BTreeMap<Instances, Rc<Sum>>>,
}

/// Kind of the plan, and indexes of its uncore PMUs.
type Instances = (u32, Vec<u32>);

/// Counts of the uncore PMUs of one scope.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) estimates: Estimates,
    /// Kinds of the plan with uncore PMUs in the scope: index of the first event, and number of uncore PMUs
    /// added up.
    pub(super) kinds: BTreeMap<u32, (usize, usize)>,
    /// Time in s of totals multiplied by their [`Window::factor`]: that of the kind that counted longest.
    pub(super) seconds: f64,
    /// Windows by event.
    windows: Vec<Window>,
    /// Length of the interval, in s.
    interval: f64,
}

/// Uncore PMUs of one kind, added up.
#[derive(Debug)]
struct Sum {
    estimates: Estimates,
    /// Uncore PMUs that counted anything.
    instances: usize,
    /// Mean time for which each of these counted, in s.
    seconds: f64,
    /// Windows by event.
    windows: Vec<Window>,
}

impl<'a> UncoreCounts<'a> {
    /// Returns the counts of `interval`, with nothing added up yet.
    pub(super) const fn new(plan: &'a IoPlan, interval: &'a IoInterval) -> Self {
        Self { plan, interval, known: RefCell::new(BTreeMap::new()) }
    }

    /// Adds up the counts of the uncore PMUs selected by `belongs`.
    pub(super) fn measured(&self, belongs: impl Fn(&UncoreKind, &UncoreInstance) -> bool) -> Measured {
        let (mut first, mut kinds, mut parts) = (0, BTreeMap::new(), Vec::new());
        let mut seconds: f64 = 0.0;
        for (number, kind) in (0..).zip(&self.plan.kinds) {
            let sites = (0..).zip(&kind.instances).filter(|(_, site)| belongs(kind, site));
            let instances: Vec<u32> = sites.map(|(at, _)| at).collect();
            let sum = self.sum(number, kind, instances);
            if sum.instances == 0 {
                continue;
            }
            seconds = seconds.max(sum.seconds);
            kinds.insert(number, (first, sum.instances));
            first += sum.estimates.events();
            parts.push(sum);
        }
        let windows =
            parts.iter().flat_map(|sum| sum.windows.iter().map(|window| window.over(sum.seconds, seconds)));
        Measured {
            estimates: Estimates::joined(parts.iter().map(|sum| &sum.estimates)),
            kinds,
            seconds,
            windows: windows.collect(),
            interval: self.interval.seconds(),
        }
    }

    fn sum(&self, number: u32, kind: &UncoreKind, instances: Vec<u32>) -> Rc<Sum> {
        let mut known = self.known.borrow_mut();
        let sum = known.entry((number, instances)).or_insert_with_key(|(_, instances)| {
            let of_instance = |&at: &u32| OneInstance {
                site: &kind.instances[at as usize],
                readings: Readings::of(self.interval, (number, at)),
            };
            Rc::new(Sum::new(kind, &instances.iter().map(of_instance).collect::<Vec<_>>()))
        });
        Rc::clone(sum)
    }
}

impl Measured {
    /// Returns the factor that scales an event's total to [`Measured::seconds`].
    pub(super) fn factor(&self, event: EventIndex) -> f64 {
        self.windows.get(event.0).map_or(1.0, |window| window.factor)
    }

    /// Converts `known`, computed from these events, to a value of the whole interval.
    pub(super) fn of_interval(&self, known: Known, events: &[EventIndex]) -> Known {
        let windows = events.iter().filter_map(|event| self.windows.get(event.0).copied());
        of_interval(known, windows, self.interval)
    }
}

struct OneInstance<'a> {
    site: &'a UncoreInstance,
    readings: Readings<'a>,
}

impl Sum {
    fn new(kind: &UncoreKind, instances: &[OneInstance<'_>]) -> Self {
        let count = instances.iter().filter(|one| !one.readings.rows.is_empty()).count();
        let groups = kind.turns.groups.len();
        let silent = silent(groups, instances);
        let rows = added_up(instances, count, &silent);
        let time_ns: f64 = rows.iter().map(|row| row.time_ns as f64).sum();
        let mut estimates = Estimates::new(&kind.turns, &rows);
        let mut event = 0;
        for (group, silent) in kind.turns.groups.iter().zip(&silent) {
            for at in event..event + group.events.len() {
                if let Some(why) = why(silent, instances.len()) {
                    estimates.forget(EventIndex(at), &why);
                }
            }
            event += group.events.len();
        }
        let events = kind.turns.groups.iter().map(|group| group.events.len());
        let windows = Window::of_kind(
            events,
            &instances.iter().map(|one| one.readings).collect::<Vec<_>>(),
            kind.stops_to_be_read() || groups > 1,
        );
        Self { estimates, instances: count, seconds: time_ns / 1e9 / count.max(1) as f64, windows }
    }
}

/// Returns the slices of all uncore PMUs of a kind as those of one. `count` of them counted anything.
fn added_up<'a>(
    instances: &[OneInstance<'a>],
    count: usize,
    silent: &[Vec<&UncoreInstance>],
) -> Cow<'a, [SliceRow]> {
    if let [one] = instances {
        return Cow::Borrowed(one.readings.rows);
    }
    let mut rows = sums(instances.iter().flat_map(|one| one.readings.rows));
    for row in &mut rows {
        // Turns that are empty on some uncore PMUs are as long as the others. Estimates over the whole time
        // depend on it.
        let missed = row.group.and_then(|group| silent.get(group as usize)).map_or(0, Vec::len);
        let counted = instances.len() - missed;
        if missed > 0 && counted > 0 {
            row.time_ns = (row.time_ns as f64 * count as f64 / counted as f64) as u64;
        }
    }
    Cow::Owned(rows)
}

/// Returns, by group, the uncore PMUs that counted nothing of it.
fn silent<'a>(groups: usize, instances: &[OneInstance<'a>]) -> Vec<Vec<&'a UncoreInstance>> {
    let mut silent = vec![Vec::new(); groups];
    for one in instances {
        let mut counted = vec![false; groups];
        for group in one.readings.rows.iter().filter_map(|row| row.group) {
            if let Some(counted) = counted.get_mut(group as usize) {
                *counted = true;
            }
        }
        for (silent, _) in silent.iter_mut().zip(counted).filter(|(_, counted)| !counted) {
            silent.push(one.site);
        }
    }
    silent
}

/// Returns why a group has no sum, if some of the uncore PMUs counted it and others did not.
fn why(silent: &[&UncoreInstance], instances: usize) -> Option<String> {
    let (first, others) = silent.split_first().filter(|_| silent.len() < instances)?;
    let more = match others.len() {
        0 => String::new(),
        1 => " and another instance".to_owned(),
        more => format!(" and {more} more instances"),
    };
    Some(format!("{} of die {}{more} did not count it", first.pmu, first.die))
}

#[cfg(test)]
mod tests {
    use super::UncoreCounts;
    use crate::{
        drain::io::{
            IoDrain, IoHeader, UncoreSlice,
            testing::{self, always_running, machine, steady},
        },
        metric::{
            io::{IoMetrics, Levels, Scope, levels::utilization, scopes::places},
            value::Value,
        },
        model::io::IoInterval,
        plan::io::UncoreKind,
        table::io::load,
    };

    /// Rates by part of an event's name. The last entry stands for all other events.
    const RATES: [(&str, u64); 3] =
        [("CAS_COUNT.RD", 100_000_000), ("CAS_COUNT.WR", 50_000_000), ("", 7_000_000)];

    /// Returns drains of 3 s of two memory controllers, without the slices that `lacks` selects.
    fn drains(header: &IoHeader, lacks: impl Fn(&UncoreSlice) -> bool) -> Vec<IoDrain> {
        let mut drains = steady(header, 3, &RATES);
        drains.iter_mut().for_each(|drain| drain.uncore.retain(|slice| !lacks(slice)));
        drains
    }

    fn total(drains: Vec<IoDrain>) -> IoInterval {
        let mut total = IoInterval::default();
        for drain in drains {
            total.append(IoInterval::of(drain.uncore, total.to_ns, drain.at_ns));
        }
        total
    }

    fn metrics(header: &IoHeader) -> IoMetrics {
        IoMetrics::new(load(header.plan.table.as_ref().unwrap()).unwrap(), &header.plan)
    }

    fn value(header: &IoHeader, interval: &IoInterval, place: Scope, metric: &str) -> Value {
        let mut rows = metrics(header).rows(&UncoreCounts::new(&header.plan, interval), place);
        rows.extend(utilization(&rows, header, f64::from(machine().topology.sockets.unwrap())));
        rows.into_iter().find(|row| row.metric == metric).unwrap().value
    }

    fn kind(header: &IoHeader, name: &str) -> u32 {
        header.plan.kinds.iter().position(|kind| kind.name == name).unwrap() as u32
    }

    #[test]
    fn a_sum_that_lacks_a_box_is_missing_and_names_it() {
        let header = always_running();
        let imc = kind(&header, "imc");
        let interval = total(drains(&header, |slice| (slice.kind, slice.at) == (imc, 1)));
        let why = Value::Missing("uncore_imc_1 of die 0 did not count it".to_owned());
        for place in [Scope::Platform, Scope::Socket(0)] {
            for metric in ["dram.read_bw", "dram.write_bw", "dram.bw", "dram.utilization"] {
                assert_eq!(value(&header, &interval, place, metric), why, "{metric} of {place:?}");
            }
        }
        let channel = |unit| value(&header, &interval, Scope::Channel(0, unit), "dram.read_bw");
        assert!((channel(0).known().unwrap().estimate - 6.4).abs() < 1e-9);
        assert!(channel(1).known().is_none());
    }

    #[test]
    fn what_was_added_up_once_says_the_same_to_whoever_asks_again() {
        let header = always_running();
        let (metrics, interval) = (metrics(&header), total(drains(&header, |_| false)));
        let kept = UncoreCounts::new(&header.plan, &interval);
        let places = places(&header.plan);
        assert!(places.iter().any(|place| matches!(place, Scope::Part(..))) && places.len() > 3);
        for _ in 0..2 {
            for &place in &places {
                let anew = UncoreCounts::new(&header.plan, &interval);
                assert_eq!(metrics.rows(&kept, place), metrics.rows(&anew, place), "{place:?}");
            }
        }
    }

    #[test]
    fn what_all_uncore_pmus_counted_has_the_same_sum_whatever_else_one_of_them_lacks() {
        let header = testing::header();
        let on_die = |kind: &UncoreKind| kind.instances.iter().filter(|site| site.die == 0).count();
        let kind = |kind: &UncoreKind| on_die(kind) > 1 && kind.turns.groups.len() > 1;
        let at = header.plan.kinds.iter().position(kind).expect("uncore PMUs whose groups take turns");
        let instance_at = header.plan.kinds[at].instances.iter().position(|site| site.die == 0).unwrap();
        let lacks =
            |slice: &UncoreSlice| (slice.kind, slice.at, slice.group) == (at as u32, instance_at as u32, 0);
        let (whole, interval) = (total(drains(&header, |_| false)), total(drains(&header, lacks)));
        let measured = |interval: &IoInterval| {
            UncoreCounts::new(&header.plan, interval).measured(|_, site| site.die == 0)
        };
        let events = |interval: &IoInterval| metrics(&header).events_of(&header.plan, &measured(interval));
        let kinds = &header.plan.kinds;
        let why = format!("{} of die 0 did not count it", kinds[at].instances[instance_at].pmu);
        let (mut lost, mut kept) = (0, 0);
        for ((name, before), (_, after)) in events(&whole).into_iter().zip(events(&interval)) {
            let before = before.known().expect("every event counts").estimate;
            match after {
                Value::Known(after) => {
                    assert!((before - after.estimate).abs() <= 1e-9 * before, "{name}: {before}, {after:?}");
                    kept += 1;
                }
                Value::Missing(other) => {
                    assert_eq!(other, why, "{name}");
                    lost += 1;
                }
            }
        }
        assert_eq!(lost, kinds[at].turns.groups[0].events.len());
        assert!(kept > kinds[at].turns.groups[1].events.len(), "{kept}");
        assert_eq!(measured(&interval).seconds, measured(&whole).seconds);
    }

    #[test]
    fn levels_of_memory_are_of_all_its_uncore_pmus_or_of_none() {
        let header = always_running();
        let imc = kind(&header, "imc");
        let levels = |drains: Vec<IoDrain>| {
            let (mut levels, metrics) = (Levels::default(), metrics(&header));
            for drain in drains {
                levels.add(&metrics, &header.plan, &IoInterval::of(drain.uncore, 0, drain.at_ns));
            }
            levels.report(&metrics).into_iter().filter(|level| level.name == "dram.bandwidth").count()
        };
        assert_eq!(levels(drains(&header, |_| false)), 1);
        assert_eq!(levels(drains(&header, |slice| (slice.kind, slice.at) == (imc, 1))), 0);
    }
}
