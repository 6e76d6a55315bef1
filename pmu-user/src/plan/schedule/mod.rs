//! Packing of the events of wanted metrics into groups that fit a core's counters. Pure: it depends on no
//! table and no hardware.
//!
//! Events with a separate counter (fixed counters, `slots` and the events read with it) count all the time.
//! The others are multiplexed in groups. A metric with its events in one group is measured over one and the
//! same time. So groups are made of metrics, not of events, as long as that costs no more than it must.

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
    /// Name in results.
    pub name: String,
    /// Counters that can count it.
    pub counters: Counters,
    /// Register needed in addition to the counter, for which events compete. Events of fixed counters need
    /// none.
    pub resource: Option<Resource>,
}

/// Counters that can count an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counters {
    /// A fixed counter; bits of `general` are general counters that can count the same.
    Fixed {
        /// Number of the counter in the kernel (x86: 0 instructions, 1 cycles, 2 reference cycles; Arm: 31
        /// cycles).
        index: u8,
        /// General counters that may take its place, 0 if none.
        general: u32,
    },
    /// General counters: bit n stands for counter n. `u32::MAX` if any can be used.
    General(u32),
    /// The `slots` event that leads Top-Down's shares.
    Slots,
    /// A `topdown-*` event: read with `slots`, from a separate register.
    Share,
    /// No counter: software events, time, tracepoints.
    Free,
}

/// Register that events need in addition to a counter. Events that need the same value share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Match of an offcore response event (x86: MSRs 0x1a6 and 0x1a7).
    Offcore(u64),
    /// Selection of front-end events that are tagged (x86: MSR 0x3f7).
    FrontEnd(u64),
    /// Minimum latency of a load that counts (x86: MSR 0x3f6).
    LoadLatency(u64),
    /// Filter of what an uncore PMU passes to its counters.
    Filter(u64),
}

impl Resource {
    /// Returns the number of different values that can be active at a time.
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

/// Requested metric, or an event that is requested itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedMetric {
    /// Name of the metric.
    pub name: String,
    /// Level in the tree, from 1. Metrics near the root are kept together first.
    pub level: u32,
    /// Events of the metric, as indices into the needs.
    pub events: Vec<usize>,
}

/// Priority where whole metrics and few groups conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// A metric's events stay in one group while they fit one.
    Whole,
    /// Few groups, so that each has its slice more often, although more metrics are composed from several.
    Tight,
}

/// Assignment of events to groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Events that count all the time, as indices into the needs, ascending.
    pub always: Vec<usize>,
    /// Events that count together, ascending. Groups that serve the lowest levels come first.
    pub groups: Vec<Vec<usize>>,
    /// Location of the events of each wanted metric, in the order of the metrics.
    pub homes: Vec<Home>,
    /// Wanted events that cannot be counted here, ascending.
    pub impossible: Vec<(usize, Why)>,
}

impl Schedule {
    /// Returns the share of the time for which each wanted metric is measured, if every group has as many
    /// slices: the least of its events' shares. `None` if the metric is not available.
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

    /// Returns the number of metrics that are composed from several groups.
    pub fn split(&self) -> usize {
        self.homes.iter().filter(|home| matches!(home, Home::Split(..))).count()
    }
}

/// Location of a metric's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// Among the events that always count.
    Always,
    /// In this group, or among the events that always count.
    One(usize),
    /// In these groups.
    Split(Vec<usize>, Because),
    /// Events of it that cannot be counted. Nothing is scheduled for the metric.
    Nowhere(Vec<usize>),
}

/// Reason why a metric's events are in several groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// One group does not have enough counters for all of them.
    TooMany,
    /// They would fit one group, but this way takes fewer groups ([`Packing::Tight`]).
    Fewer,
}

/// Reason why an event cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The PMU has no such fixed counter, and no general one can replace it.
    NoFixed(u8),
    /// None of the general counters that could count it exists.
    NoGeneral(u32),
    /// A counter exists, but others hold it.
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

/// Returns the items to pack together: the metrics that fit one group, and the remaining events of those that
/// do not.
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

/// Sorts the groups that serve the lowest levels first, then the fullest.
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
