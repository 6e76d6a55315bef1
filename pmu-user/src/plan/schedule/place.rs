//! Assignment of wanted events: those that count all the time, those that are multiplexed, and those that
//! cannot be counted.

use std::cmp::Reverse;

use super::{
    Counters, Need, WantedMetric, Why,
    capacity::{Capacity, Shares},
    fit::{Group, Seat, Set},
};

/// Assignment of an event.
#[derive(Clone, Debug)]
enum Assigned {
    /// No available metric needs it.
    Unwanted,
    /// The event always counts.
    Always,
    /// The event is multiplexed, under this number.
    Turns(u16),
    /// The event cannot be counted.
    Nowhere(Why),
}

/// Assignment of every event, and the basis for groups of those that are multiplexed.
pub(super) struct Places {
    places: Vec<Assigned>,
    /// Events that need general counters, by number.
    numbered: Vec<usize>,
    /// Requirements of each of them, followed by those of other users of the PMU.
    pub(super) seats: Vec<Seat>,
    /// Group before an event is added: it holds what is on general counters all the time.
    pub(super) empty: Group,
}

/// Demand of a metric on the groups.
pub(super) struct Demand {
    /// Level of the metric.
    pub(super) level: u32,
    /// Multiplexed events of the metric, ascending.
    pub(super) events: Vec<u16>,
    /// Multiplexed events of the metric, as a set.
    pub(super) set: Set,
    /// Whether the events fit one group.
    pub(super) fits: bool,
}

/// Requirement of a single event.
#[derive(Clone, Debug)]
enum Asks {
    /// Nothing for which others compete.
    Always,
    /// One of these general counters.
    General(u32),
    /// One of these general counters, because its fixed counter is not available.
    Instead(u32),
    /// A counter that is not available.
    Nowhere(Why),
}

impl Asks {
    fn of(counters: Counters, capacity: &Capacity) -> Self {
        match counters {
            Counters::Free => Self::Always,
            Counters::Slots | Counters::Share => match capacity.shares {
                Shares::Offered => Self::Always,
                Shares::Missing => Self::Nowhere(Why::NoShares),
            },
            Counters::Fixed { index, .. } if capacity.has_fixed(index) => Self::Always,
            Counters::Fixed { index, general } => {
                match (capacity.usable(general), capacity.fixed_holder(index)) {
                    (Ok(counters), _) => Self::Instead(counters),
                    (Err(_), Some(by)) => Self::Nowhere(Why::Held(by.to_owned())),
                    (Err(_), None) => Self::Nowhere(Why::NoFixed(index)),
                }
            }
            Counters::General(mask) => capacity.usable(mask).map_or_else(Self::Nowhere, Self::General),
        }
    }
}

impl Places {
    /// Finds a place for every event that a metric needs.
    pub(super) fn of(needs: &[Need], wanted: &[WantedMetric], capacity: &Capacity) -> Self {
        let asks: Vec<Asks> = needs.iter().map(|need| Asks::of(need.counters, capacity)).collect();
        let mut places = vec![Assigned::Unwanted; needs.len()];
        let mut uses = vec![0_usize; needs.len()];
        for metric in wanted {
            let mut missing = false;
            for &event in &metric.events {
                if let Asks::Nowhere(why) = &asks[event] {
                    places[event] = Assigned::Nowhere(why.clone());
                    missing = true;
                }
            }
            if !missing {
                metric.events.iter().for_each(|&event| uses[event] += 1);
            }
        }
        let mut numbered = Vec::new();
        let mut seats = Vec::new();
        for (event, asks) in asks.iter().enumerate().filter(|(event, _)| uses[*event] > 0) {
            places[event] = match *asks {
                Asks::General(counters) | Asks::Instead(counters) => {
                    numbered.push(event);
                    seats.push(Seat { counters, resource: needs[event].resource });
                    Assigned::Turns(numbered.len() as u16 - 1)
                }
                _ => Assigned::Always,
            };
        }
        let others = numbered.len() as u16;
        seats.extend(capacity.roaming().map(|counters| Seat { counters, resource: None }));
        let others: Vec<u16> = (others..seats.len() as u16).collect();
        // Without room for them the events were nowhere, so the alternative is never used for anything.
        let empty = Group::new(capacity.general_left());
        let empty = empty.with(&others, &seats).unwrap_or(empty);
        let mut places = Self { places, numbered, seats, empty };
        let mut instead: Vec<u16> = (0..places.numbered.len() as u16)
            .filter(|&number| matches!(asks[places.numbered[usize::from(number)]], Asks::Instead(_)))
            .collect();
        instead.sort_by_key(|&number| Reverse(uses[places.numbered[usize::from(number)]]));
        instead.into_iter().for_each(|number| places.stand_in(number));
        places
    }

    /// Gives an event that lost its fixed counter a general one all the time, if every other still finds one.
    fn stand_in(&mut self, number: u16) {
        let Some(with) = self.empty.with(&[number], &self.seats) else { return };
        let turning =
            |other: &u16| matches!(self.places[self.numbered[usize::from(*other)]], Assigned::Turns(_));
        let mut others = (0..self.numbered.len() as u16).filter(|other| *other != number).filter(turning);
        if others.all(|other| with.with(&[other], &self.seats).is_some()) {
            self.empty = with;
            self.places[self.numbered[usize::from(number)]] = Assigned::Always;
        }
    }

    /// Returns the demand of a metric on the groups; `None` if it needs an event that cannot be counted.
    pub(super) fn demand(&self, metric: &WantedMetric) -> Option<Demand> {
        let mut events = Vec::new();
        for &event in &metric.events {
            match &self.places[event] {
                Assigned::Turns(number) => events.push(*number),
                Assigned::Nowhere(_) => return None,
                Assigned::Always | Assigned::Unwanted => {}
            }
        }
        events.sort_unstable();
        events.dedup();
        Some(Demand {
            level: metric.level,
            set: Set::of(&events, self.seats.len()),
            fits: self.empty.with(&events, &self.seats).is_some(),
            events,
        })
    }

    /// Returns the events of the metric that cannot be counted.
    pub(super) fn missing(&self, metric: &WantedMetric) -> Vec<usize> {
        let nowhere = |event: &usize| matches!(self.places[*event], Assigned::Nowhere(_));
        metric.events.iter().copied().filter(nowhere).collect()
    }

    /// Returns the events in a group, as indices into the needs.
    pub(super) fn needs_of(&self, group: &Set) -> Vec<usize> {
        let numbers = (0..self.numbered.len() as u16).filter(|&number| group.contains(number));
        numbers.map(|number| self.numbered[usize::from(number)]).collect()
    }

    /// Returns the events that always count.
    pub(super) fn always(&self) -> Vec<usize> {
        let places = self.places.iter().enumerate();
        places.filter(|(_, place)| matches!(place, Assigned::Always)).map(|(event, _)| event).collect()
    }

    /// Returns the wanted events that cannot be counted.
    pub(super) fn impossible(&self) -> Vec<(usize, Why)> {
        let why = |(event, place): (usize, &Assigned)| match place {
            Assigned::Nowhere(why) => Some((event, why.clone())),
            _ => None,
        };
        self.places.iter().enumerate().filter_map(why).collect()
    }
}
