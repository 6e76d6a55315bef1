//! Reduction of groups at the price of split metrics: one group after the other gives its events to the rest.
//!
//! A group without room gets some by dropping an event that another group has as well. In the end metrics are
//! made whole again where an exchange of events between groups splits less than it joins.

use std::cmp::Reverse;

use super::{
    fit::{Group, Set},
    pack::Table,
    place::Demand,
};

/// Number of groups that are tried at each step, the most promising first.
const TRIED: usize = 4;
/// Number of final passes over all metrics.
const PASSES: usize = 2;

/// Empties groups while the others can take the events that only they have. `metrics` are those that fit one
/// group.
pub(super) fn tighten(table: &Table<'_>, metrics: &[&Demand], groups: Vec<Set>) -> Vec<Set> {
    let mut with = vec![Vec::new(); table.seats.len()];
    for metric in metrics {
        metric.events.iter().for_each(|&event| with[usize::from(event)].push(*metric));
    }
    let tight = Tight { table, metrics, with };
    let mut bins: Vec<Bin> = groups.into_iter().filter_map(|set| tight.bin(set)).collect();
    while let Some(fewer) = tight.one_less(&bins) {
        bins = fewer;
    }
    for _ in 0..PASSES {
        if !tight.join(&mut bins) {
            break;
        }
    }
    bins.into_iter().map(|bin| bin.set).collect()
}

/// A group with the placement of its events.
#[derive(Clone)]
struct Bin {
    set: Set,
    group: Group,
}

struct Tight<'a> {
    table: &'a Table<'a>,
    metrics: &'a [&'a Demand],
    /// Metrics with an event, by event.
    with: Vec<Vec<&'a Demand>>,
}

/// Returns the cost of splitting a metric: twice as much for each level nearer to the root.
fn cost(metric: &Demand) -> u32 {
    1 << 8_u32.saturating_sub(metric.level)
}

impl Tight<'_> {
    /// Returns the group of a set; `None` if it does not fit.
    fn bin(&self, set: Set) -> Option<Bin> {
        let group = self.table.empty.with(&set.events(), self.table.seats)?;
        Some(Bin { set, group })
    }

    fn scarcity(&self, event: u16) -> u32 {
        self.table.seats[usize::from(event)].scarcity()
    }

    /// Returns the cost of the metrics that are in no group as a whole.
    fn broken(&self, bins: &[Bin]) -> u32 {
        let split = self.metrics.iter().filter(|metric| !bins.iter().any(|bin| bin.set.holds(&metric.set)));
        split.map(|metric| cost(metric)).sum()
    }

    /// Returns the same events in one group less, at the least cost among a few ways.
    fn one_less(&self, bins: &[Bin]) -> Option<Vec<Bin>> {
        let copies = |event: u16| bins.iter().filter(|bin| bin.set.contains(event)).count();
        let only_here = |bin: &Bin| -> u32 {
            let events = bin.set.events().into_iter().filter(|&event| copies(event) == 1);
            events.map(|event| self.scarcity(event)).sum()
        };
        let mut order: Vec<usize> = (0..bins.len()).collect();
        order.sort_by_cached_key(|&index| only_here(&bins[index]));
        let without = |index: usize| {
            let mut rest = bins.to_vec();
            let emptied = rest.remove(index);
            self.give_away(&emptied.set, &mut rest).then(|| (self.broken(&rest), index, rest))
        };
        let ways = order.into_iter().filter_map(without).take(TRIED);
        ways.min_by_key(|(cost, index, _)| (*cost, *index)).map(|(.., rest)| rest)
    }

    /// Puts every event that no group has into one: whole metrics first, then single events.
    fn give_away(&self, emptied: &Set, bins: &mut [Bin]) -> bool {
        let mut lost: Vec<&&Demand> =
            self.metrics.iter().filter(|metric| emptied.holds(&metric.set)).collect();
        lost.sort_by_key(|metric| (metric.level, Reverse(metric.events.len())));
        for metric in lost {
            let mut order: Vec<usize> = (0..bins.len()).collect();
            order.sort_by_key(|&index| bins[index].set.lacks(&metric.set));
            let fits = |index: usize| {
                let group = bins[index].group.with(&metric.events, self.table.seats)?;
                Some((index, group))
            };
            if let Some((index, group)) = order.into_iter().find_map(fits) {
                bins[index].group = group;
                bins[index].set.add(&metric.set);
            }
        }
        self.place_all(emptied.events(), bins)
    }

    /// Puts each of the events that no group has into one, the hardest first. Returns false if one finds no
    /// room.
    fn place_all(&self, mut events: Vec<u16>, bins: &mut [Bin]) -> bool {
        events.sort_by_key(|&event| Reverse(self.scarcity(event)));
        events
            .into_iter()
            .all(|event| bins.iter().any(|bin| bin.set.contains(event)) || self.place(event, bins))
    }

    /// Puts an event where it fits, near the events that are used with it, or else in place of another.
    fn place(&self, event: u16, bins: &mut [Bin]) -> bool {
        let near = |bin: &Bin| -> u32 {
            let with = self.with[usize::from(event)].iter();
            with.map(|metric| metric.set.len() - bin.set.lacks(&metric.set)).sum()
        };
        let fits = |(index, bin): (usize, &Bin)| {
            let group = bin.group.with(&[event], self.table.seats)?;
            Some((Reverse(near(bin)), index, group))
        };
        let best = bins.iter().enumerate().filter_map(fits).min_by_key(|&(near, index, _)| (near, index));
        if let Some((_, index, group)) = best {
            bins[index].group = group;
            bins[index].set.insert(event);
            return true;
        }
        self.place_instead(event, bins)
    }

    /// Puts an event in place of one that another group has as well, where that splits the least.
    fn place_instead(&self, event: u16, bins: &mut [Bin]) -> bool {
        let mut once = Set::new(self.table.seats.len());
        let mut again = once.clone();
        for bin in bins.iter() {
            again.add_common(&once, &bin.set);
            once.add(&bin.set);
        }
        let mut best: Option<(u32, usize, Bin)> = None;
        for (index, bin) in bins.iter().enumerate() {
            for other in bin.set.events().into_iter().filter(|&other| again.contains(other)) {
                let loss = self.loss(other, index, bins);
                if best.as_ref().is_some_and(|(least, ..)| *least <= loss) {
                    continue;
                }
                let mut set = bin.set.clone();
                set.remove(other);
                set.insert(event);
                best = self.bin(set).map(|bin| (loss, index, bin)).or(best);
            }
        }
        let Some((_, index, bin)) = best else { return false };
        bins[index] = bin;
        true
    }

    /// Returns the cost if the group no longer has the event.
    fn loss(&self, event: u16, index: usize, bins: &[Bin]) -> u32 {
        let only_here = |metric: &&&Demand| {
            // Most are not here, so that is checked first.
            let mut others = bins.iter().enumerate().filter(|(other, _)| *other != index);
            bins[index].set.holds(&metric.set) && !others.any(|(_, bin)| bin.set.holds(&metric.set))
        };
        self.with[usize::from(event)].iter().filter(only_here).map(|metric| cost(metric)).sum()
    }

    /// Makes split metrics whole by exchanging events between groups. Returns false if nothing was gained.
    fn join(&self, bins: &mut Vec<Bin>) -> bool {
        let mut order = self.metrics.to_vec();
        order.sort_by_key(|metric| metric.level);
        let before = self.broken(bins);
        let mut least = before;
        for metric in order {
            if bins.iter().any(|bin| bin.set.holds(&metric.set)) {
                continue;
            }
            let mut near: Vec<usize> = (0..bins.len()).collect();
            near.sort_by_key(|&index| bins[index].set.lacks(&metric.set));
            for index in near.into_iter().take(TRIED) {
                let Some(tried) = self.complete(metric, index, bins) else { continue };
                let reached = self.broken(&tried);
                if reached < least {
                    (*bins, least) = (tried, reached);
                    break;
                }
            }
        }
        least < before
    }

    /// Gives a group all events of a metric, and moves those that have to leave. Returns `None` if one of
    /// them finds no room.
    fn complete(&self, metric: &Demand, index: usize, bins: &[Bin]) -> Option<Vec<Bin>> {
        let mut bins = bins.to_vec();
        let mut others = bins[index].set.clone();
        others.subtract(&metric.set);
        let mut others = others.events();
        others.sort_by_cached_key(|&event| Reverse(self.loss(event, index, &bins)));
        let group = self.table.empty.with(&metric.events, self.table.seats)?;
        let (stay, leave) = group.filled(&others, self.table.seats);
        let mut set = metric.set.clone();
        stay.into_iter().for_each(|event| set.insert(event));
        bins[index] = self.bin(set)?;
        self.place_all(leave, &mut bins).then_some(bins)
    }
}
