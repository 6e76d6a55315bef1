//! Counters per owner: some are on the PMU all the time, the others take turns in groups.
//!
//! A *slice* is a span during which one group is in force on every CPU. The order of the groups is random, so that no
//! habit of the workload keeps step with it; what is always counted tells what the other groups missed.

mod length;

use std::time::Duration;

use pmu_common::turn::{PLACES, Slice};
use serde::{Deserialize, Serialize};

pub use self::length::{Host, slice};
use super::schedule::{Counters, Need, Schedule};
use crate::table::notation::{Instance, Modifiers, Selected};

/// Bytes that one owner takes on one CPU where counters are read for it: this slice's and the last one's.
pub const ROW_BYTES: u64 = 2 * size_of::<Slice>() as u64;

/// Places of a row that can be used: a leader needs one behind its own.
const PLACES_MAX: usize = PLACES - 1;

/// What is counted for every owner on the CPUs of one core PMU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    /// Name of the PMU: core types are never added up.
    pub pmu: String,
    /// Groups that count all the time.
    pub always: Vec<EventGroup>,
    /// Groups of which one at a time counts. With at most one, nothing takes turns.
    pub groups: Vec<EventGroup>,
    /// Mean length of a slice.
    pub slice: Duration,
}

/// Events that are on the counters together or not at all; the first leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventGroup {
    /// Its events, at least one.
    pub events: Vec<PlannedEvent>,
}

/// An event to be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedEvent {
    /// What results call it: as formulas write it, or as it was typed.
    pub name: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `config` to `config3`.
    pub words: [u64; 4],
    /// Modes that count, in perf's letters: `u`, `k`, `h`; all of them if empty.
    #[serde(default)]
    pub modes: String,
}

/// Groups that cannot be counted per owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A group without an event.
    #[error("a group of counters for the PMU `{0}` has no event")]
    Empty(String),
    /// A CPU reads the counters of one PMU only.
    #[error("cpu {1} would have counters of the PMU `{0}` and of another one: count one of them at a time")]
    Shared(String, u32),
    /// More than a row holds.
    #[error(
        "the counters for the PMU `{pmu}` take {places} places of {PLACES_MAX}: one for each event that counts at a \
         time, and one for each of their groups"
    )]
    TooMany {
        /// PMU.
        pmu: String,
        /// Places that they would take.
        places: usize,
    },
}

/// Where the events of a group that is in force are found and counted, as [`pmu_common::turn::Turn`] says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InForce {
    /// From a place behind those that always count to its event's.
    pub shift: u64,
    /// Places of running times.
    pub leaders: u64,
    /// Places of events that do not lead.
    pub members: u64,
}

impl PlannedEvent {
    /// The event on one PMU. Of its modifiers only the modes matter to a count per owner.
    #[must_use]
    pub fn of(event: &Selected, at: &Instance) -> Self {
        let Modifiers { user, kernel, hypervisor, .. } = event.modifiers;
        let modes = [(user, 'u'), (kernel, 'k'), (hypervisor, 'h')];
        Self {
            name: event.name.clone(),
            kind: at.kind,
            words: at.words.0,
            modes: modes.into_iter().filter(|&(counts, _)| counts).map(|(_, letter)| letter).collect(),
        }
    }

    /// Does this mode (`u`, `k` or `h`) count?
    #[must_use]
    pub fn counts_in(&self, mode: char) -> bool {
        self.modes.is_empty() || self.modes.contains(mode)
    }
}

impl EventGroup {
    /// Places that it takes: its running time, and each event.
    #[must_use]
    pub const fn places(&self) -> usize {
        1 + self.events.len()
    }
}

impl Turns {
    /// What to open for a schedule. `resolved` says how to open each of `needs`.
    ///
    /// What always counts is opened in up to three groups: `slots` with what rides on it, which the hardware counts and
    /// the kernel reads as one; events on counters; and those that need none.
    #[must_use]
    pub fn new(
        schedule: &Schedule,
        needs: &[Need],
        resolved: &[PlannedEvent],
        pmu: &str,
        slice: Duration,
    ) -> Self {
        let group = |events: &[usize]| EventGroup {
            events: events.iter().map(|&event| resolved[event].clone()).collect(),
        };
        let always = |belongs: fn(Counters) -> bool| {
            let events = schedule.always.iter().copied();
            events.filter(|&event| belongs(needs[event].counters)).collect::<Vec<usize>>()
        };
        let leader = always(|counters| counters == Counters::Slots);
        let shares = always(|counters| counters == Counters::Share);
        let counted = always(|counters| matches!(counters, Counters::Fixed { .. } | Counters::General(_)));
        let free = always(|counters| counters == Counters::Free);
        let always = [[leader, shares].concat(), counted, free];
        Self {
            pmu: pmu.to_owned(),
            always: always.iter().filter(|events| !events.is_empty()).map(|events| group(events)).collect(),
            groups: schedule.groups.iter().map(|events| group(events)).collect(),
            slice,
        }
    }

    /// How long it takes on average until every group has had its turn.
    #[must_use]
    pub fn round(&self) -> Duration {
        self.slice.saturating_mul(u32::try_from(self.groups.len()).unwrap_or(u32::MAX))
    }

    /// Events that count all the time, in order.
    pub fn always_events(&self) -> impl Iterator<Item = &PlannedEvent> {
        self.always.iter().flat_map(|group| &group.events)
    }

    /// Descriptors that one CPU takes.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.always.iter().chain(&self.groups).map(|group| group.events.len()).sum()
    }

    /// Does more than one group have to share the counters?
    #[must_use]
    pub const fn take_turns(&self) -> bool {
        self.groups.len() > 1
    }

    /// Places of what always counts.
    #[must_use]
    pub fn always_places(&self) -> usize {
        places(&self.always)
    }

    /// Places of all groups together: how far the events of two CPUs are apart.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.always_places() + places(&self.groups)
    }

    /// What is read while the group number `group` is in force, beside what always counts.
    #[must_use]
    pub fn in_force(&self, group: Option<u32>) -> InForce {
        let group = group.map_or(self.groups.len(), |group| group as usize);
        let mut place = 0;
        let (mut leaders, mut members) = (0, 0);
        for events in self.always.iter().chain(self.groups.get(group)) {
            leaders |= 1_u64 << place;
            // Its first event counts in the place behind it.
            for member in place + 2..place + events.places() {
                members |= 1_u64 << member;
            }
            place += events.places();
        }
        let before = self.groups.get(..group).unwrap_or_default();
        InForce { shift: places(before) as u64, leaders, members }
    }

    /// Can this be counted per owner?
    ///
    /// # Errors
    ///
    /// A group is empty, or more would count at a time than a row holds.
    pub fn check(&self) -> Result<(), Unfit> {
        if self.always.iter().chain(&self.groups).any(|group| group.events.is_empty()) {
            return Err(Unfit::Empty(self.pmu.clone()));
        }
        let largest = self.groups.iter().map(EventGroup::places).max().unwrap_or(0);
        let places = self.always_places() + largest;
        if places > PLACES_MAX {
            return Err(Unfit::TooMany { pmu: self.pmu.clone(), places });
        }
        Ok(())
    }
}

fn places(groups: &[EventGroup]) -> usize {
    groups.iter().map(EventGroup::places).sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{EventGroup, InForce, PlannedEvent, Turns, Unfit};
    use crate::plan::schedule::{Counters, Need, Schedule};

    fn group(events: usize) -> EventGroup {
        let event = PlannedEvent { name: "e".to_owned(), kind: 4, words: [0; 4], modes: String::new() };
        EventGroup { events: vec![event; events] }
    }

    fn turns(always: &[usize], groups: &[usize]) -> Turns {
        let all = |sizes: &[usize]| sizes.iter().map(|&size| group(size)).collect();
        let slice = Duration::from_millis(10);
        Turns { pmu: "cpu".to_owned(), always: all(always), groups: all(groups), slice }
    }

    #[test]
    fn a_group_in_force_lies_behind_what_always_counts() {
        let turns = turns(&[2, 1], &[3, 1]);
        assert_eq!((turns.always_places(), turns.stride()), (5, 11));
        let first = InForce { shift: 0, leaders: 0b10_1001, members: 0b1_1000_0100 };
        assert_eq!(turns.in_force(Some(0)), first);
        assert_eq!(turns.in_force(Some(1)), InForce { shift: 4, members: 0b100, ..first });
    }

    #[test]
    fn without_groups_only_what_always_counts_is_read() {
        assert_eq!(turns(&[2], &[]).in_force(None), InForce { shift: 0, leaders: 1, members: 0b100 });
    }

    #[test]
    fn more_events_at_a_time_than_a_row_holds_are_refused() {
        assert_eq!(turns(&[8, 8], &[8]).check(), Ok(()));
        let error = Unfit::TooMany { pmu: "cpu".to_owned(), places: 28 };
        assert_eq!(turns(&[8, 8], &[1, 9]).check(), Err(error));
        assert_eq!(turns(&[0], &[]).check(), Err(Unfit::Empty("cpu".to_owned())));
    }

    #[test]
    fn slots_lead_and_what_needs_no_counter_stands_apart() {
        let counters = [
            Counters::Share,
            Counters::Free,
            Counters::Fixed { index: 1, general: 0 },
            Counters::Slots,
            Counters::General(0xf),
        ];
        let names = ["retiring", "clock", "cycles", "slots", "misses"];
        let need =
            |(name, counters): (&str, Counters)| Need { name: name.to_owned(), counters, resource: None };
        let needs: Vec<Need> = names.into_iter().zip(counters).map(need).collect();
        let event =
            |name: &str| PlannedEvent { name: name.to_owned(), kind: 4, words: [0; 4], modes: String::new() };
        let resolved = names.map(event);
        let schedule = Schedule { always: vec![0, 1, 2, 3], groups: vec![vec![4]], ..Schedule::default() };
        let turns = Turns::new(&schedule, &needs, &resolved, "cpu", Duration::from_millis(20));
        let found: Vec<Vec<&str>> = turns
            .always
            .iter()
            .chain(&turns.groups)
            .map(|group| group.events.iter().map(|event| event.name.as_str()).collect())
            .collect();
        assert_eq!(found, [vec!["slots", "retiring"], vec!["cycles"], vec!["clock"], vec!["misses"]]);
        assert_eq!((turns.pmu.as_str(), turns.round()), ("cpu", Duration::from_millis(20)));
    }
}
