//! Packs the events of wanted metrics into groups that fit a core's counters. Pure: it knows no table and no hardware.
//!
//! Events with a counter of their own (fixed counters, `slots` and what rides on it) count all the time; the others take
//! turns in groups. A metric whose events lie in one group is measured over one and the same time, so groups are made of
//! metrics, not of events, as long as that costs no more than it must.

pub mod capacity;
pub mod drill;
mod fit;
mod pack;
mod place;
#[cfg(test)]
#[path = "../../../../tests/bench/synthetic.rs"]
mod synthetic;
#[cfg(test)]
mod tests;
mod tight;

use std::{cmp::Reverse, fmt};

pub use self::capacity::Capacity;
use self::{
    fit::Set,
    pack::{Item, Table},
    place::{Demand, Places},
};

/// An event to be scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// What results call it.
    pub name: String,
    /// Where it can be counted.
    pub counters: Counters,
    /// A register beside the counter, for which events compete. Events of fixed counters need none.
    pub resource: Option<Resource>,
}

/// Counters that can count an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counters {
    /// A fixed counter; bits of `general` are general counters that can count the same.
    Fixed {
        /// Which one, as the kernel numbers them (x86: 0 instructions, 1 cycles, 2 reference cycles; Arm: 31 cycles).
        index: u8,
        /// General counters that may take its place, 0 if none.
        general: u32,
    },
    /// General counters: bit n stands for counter n. `u32::MAX` if any will do.
    General(u32),
    /// The `slots` event that leads Top-Down's shares.
    Slots,
    /// A `topdown-*` event: read with `slots`, from a register of their own.
    Share,
    /// None: software events, time, tracepoints.
    Free,
}

/// A register that events need beside a counter. Events that want the same value share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// What an offcore response event matches (x86: MSRs 0x1a6 and 0x1a7).
    Offcore(u64),
    /// Which front-end events are tagged (x86: MSR 0x3f7).
    FrontEnd(u64),
    /// The least latency of a load that counts (x86: MSR 0x3f6).
    LoadLatency(u64),
    /// What an uncore PMU lets its counters see.
    Filter(u64),
}

impl Resource {
    /// Different values that can be active at a time.
    const fn registers(self) -> usize {
        match self {
            Self::Offcore(_) => 2,
            Self::FrontEnd(_) | Self::LoadLatency(_) | Self::Filter(_) => 1,
        }
    }

    fn competes_with(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// A metric that is wanted, or an event that is wanted for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedMetric {
    /// Its name.
    pub name: String,
    /// Its level in the tree, from 1. What is near the root is kept together first.
    pub level: u32,
    /// Its events, as indices into the needs.
    pub events: Vec<usize>,
}

/// What matters more when both cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// A metric's events stay in one group while they fit one.
    Whole,
    /// Few groups, so that each has its turn more often, although more metrics are put together from several.
    Tight,
}

/// Which events count when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Events that count all the time, as indices into the needs, ascending.
    pub always: Vec<usize>,
    /// Events that count together, ascending. What serves the lowest levels comes first.
    pub groups: Vec<Vec<usize>>,
    /// Where the events of each wanted metric are, in the order of the metrics.
    pub homes: Vec<Home>,
    /// WantedMetric events that cannot be counted here, ascending.
    pub impossible: Vec<(usize, Why)>,
}

impl Schedule {
    /// The share of the time for which each wanted metric is measured, if every group has as many turns: the least of
    /// its events'. `None` if it cannot be had.
    pub fn coverage(&self, wanted: &[WantedMetric]) -> Vec<Option<f64>> {
        let share = |event: usize| {
            if self.always.binary_search(&event).is_ok() {
                return 1.0;
            }
            let with = self.groups.iter().filter(|group| group.binary_search(&event).is_ok());
            with.count() as f64 / self.groups.len().max(1) as f64
        };
        let coverage = |(metric, home): (&WantedMetric, &Home)| match home {
            Home::Nowhere(_) => None,
            _ => Some(metric.events.iter().map(|&event| share(event)).fold(1.0, f64::min)),
        };
        wanted.iter().zip(&self.homes).map(coverage).collect()
    }

    /// How many metrics are put together from several groups.
    pub fn split(&self) -> usize {
        self.homes.iter().filter(|home| matches!(home, Home::Split(..))).count()
    }
}

/// Where the events of a metric are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// Among those that always count.
    Always,
    /// In this group, or among those that always count.
    One(usize),
    /// In these groups.
    Split(Vec<usize>, Because),
    /// These events cannot be counted. Nothing is scheduled for the metric's sake.
    Nowhere(Vec<usize>),
}

/// Why a metric's events are in several groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// There are not enough counters for all of them.
    TooMany,
    /// They would fit one, but it takes fewer groups this way ([`Packing::Tight`]).
    Fewer,
}

/// Why an event cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The PMU has no such fixed counter, and no general one can stand in.
    NoFixed(u8),
    /// None of the general counters that could count it exists.
    NoGeneral(u32),
    /// It is there, but others hold it.
    Held(String),
    /// The PMU offers no `slots` and `topdown-*` events.
    NoShares,
}

impl fmt::Display for Why {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFixed(index) => write!(formatter, "this PMU has no fixed counter {index}"),
            Self::NoGeneral(_) => formatter.write_str("this PMU has none of the counters that can count it"),
            Self::Held(by) => write!(formatter, "the counters that can count it are held by {by}"),
            Self::NoShares => formatter.write_str("this PMU offers no slots and topdown-* events"),
        }
    }
}

/// Packs the events of `wanted` into groups that fit `capacity`. The same input gives the same groups.
///
/// Indices in `wanted` must be indices of `needs`.
pub fn schedule(needs: &[Need], wanted: &[WantedMetric], capacity: &Capacity, packing: Packing) -> Schedule {
    let places = Places::of(needs, wanted, capacity);
    let demands: Vec<Option<Demand>> = wanted.iter().map(|metric| places.demand(metric)).collect();
    let items = items(&places, &demands);
    let table = Table { seats: &places.seats, items: &items, empty: places.empty };
    let mut groups = pack::pack(&table);
    if packing == Packing::Tight {
        let metrics: Vec<&Demand> = demands.iter().flatten().filter(|demand| demand.fits).collect();
        groups = tight::tighten(&table, &metrics, groups);
    }
    sort(&mut groups, &demands);
    let home = |(metric, demand): (&WantedMetric, &Option<Demand>)| match demand {
        None => Home::Nowhere(places.missing(metric)),
        Some(demand) => home(demand, &groups),
    };
    Schedule {
        homes: wanted.iter().zip(&demands).map(home).collect(),
        groups: groups.iter().map(|group| places.needs_of(group)).collect(),
        always: places.always(),
        impossible: places.impossible(),
    }
}

/// What is to be packed together: the metrics that fit one group, and what is left of those that do not.
fn items(places: &Places, demands: &[Option<Demand>]) -> Vec<Item> {
    let demands = || demands.iter().flatten().filter(|demand| !demand.events.is_empty());
    let whole: Vec<&Demand> = demands().filter(|demand| demand.fits).collect();
    let within = |(index, demand): (usize, &Demand)| {
        whole.iter().enumerate().any(|(other, larger)| {
            let equal = larger.events.len() == demand.events.len();
            larger.set.holds(&demand.set) && (!equal || other < index)
        })
    };
    let mut items: Vec<Item> = whole
        .iter()
        .enumerate()
        .filter(|&(index, demand)| !within((index, demand)))
        .map(|(_, demand)| Item::new(demand.events.clone(), &places.seats))
        .collect();
    let mut covered = Set::new(places.seats.len());
    items.iter().for_each(|item| covered.add(&item.set));
    let mut large: Vec<&Demand> = demands().filter(|demand| !demand.fits).collect();
    large.sort_by_key(|demand| demand.level);
    for demand in large {
        for &event in demand.events.iter().filter(|&&event| !covered.contains(event)) {
            items.push(Item::part(event, &demand.set, &places.seats));
        }
        covered.add(&demand.set);
    }
    items
}

/// Puts first what serves the lowest levels, then what is fullest.
fn sort(groups: &mut [Set], demands: &[Option<Demand>]) {
    let level = |group: &Set| {
        let served = demands.iter().flatten().filter(|demand| !demand.events.is_empty());
        served.filter(|demand| group.holds(&demand.set)).map(|demand| demand.level).min().unwrap_or(u32::MAX)
    };
    groups.sort_by_cached_key(|group| (level(group), Reverse(group.len()), group.clone()));
}

fn home(demand: &Demand, groups: &[Set]) -> Home {
    if demand.events.is_empty() {
        return Home::Always;
    }
    if let Some(group) = groups.iter().position(|group| group.holds(&demand.set)) {
        return Home::One(group);
    }
    let mut split = Vec::new();
    let mut left = demand.set.clone();
    while left.len() > 0 {
        let lacks = |(_, group): &(usize, &Set)| group.lacks(&left);
        let (index, group) = groups
            .iter()
            .enumerate()
            .filter(|found| lacks(found) < left.len())
            .min_by_key(lacks)
            .expect("every event of a metric that can be had is in a group");
        left.subtract(group);
        split.push(index);
    }
    split.sort_unstable();
    Home::Split(split, if demand.fits { Because::Fewer } else { Because::TooMany })
}
