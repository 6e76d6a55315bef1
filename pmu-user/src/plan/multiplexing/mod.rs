//! Counters per owner: some count all the time, the others are multiplexed in groups.
//!
//! A *slice* is a span during which one group is active on every CPU. The order of the groups is random, so
//! that no periodic workload stays in step with it. Events that always count show what the other groups
//! missed.

#[cfg(test)]
mod tests;

use std::time::Duration;

use pmu_common::turn::{PLACES, Slice};
use serde::{Deserialize, Serialize};

use super::schedule::{Counters, Need, Schedule};
use crate::table::event_syntax::{Instance, Modifiers, Selected};

/// Bytes that one owner takes on one CPU where counters are read for it: this slice's and the last one's.
pub const ROW_BYTES: u64 = 2 * size_of::<Slice>() as u64;

/// Usable places of a row: a leader needs one more after its place.
const PLACES_MAX: usize = PLACES - 1;

/// Groups that are counted for every owner on the CPUs of one core PMU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Multiplexing {
    /// Name of the PMU: core types are never added up.
    pub pmu: String,
    /// Groups that count all the time.
    pub always: Vec<EventGroup>,
    /// Groups, of which one at a time counts. With at most one, nothing is multiplexed.
    pub groups: Vec<EventGroup>,
    /// Mean length of a slice.
    pub slice: Duration,
}

/// Events that are on the counters together or not at all. The first is the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventGroup {
    /// Events of the group, at least one.
    pub events: Vec<PlannedEvent>,
}

/// An event to be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedEvent {
    /// Name in results: as formulas write it, or as it was typed.
    pub name: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `config` to `config3`.
    pub words: [u64; 4],
    /// Modes that count, in perf's letters: `u`, `k`, `h`; all of them if empty.
    #[serde(default)]
    pub modes: String,
}

/// Reason why groups cannot be counted per owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A group without an event.
    #[error("a group of counters for the PMU `{0}` has no event")]
    Empty(String),
    /// A CPU reads the counters of one PMU only.
    #[error("cpu {1} would have counters of the PMU `{0}` and of another one: count one of them at a time")]
    Shared(String, u32),
    /// The events take more places than a row holds.
    #[error(
        "the counters for the PMU `{pmu}` take {places} places of {PLACES_MAX}: one for each event that counts at a \
         time, and one for each of their groups"
    )]
    TooMany {
        /// Name of the PMU.
        pmu: String,
        /// Places that the events would take.
        places: usize,
    },
}

/// Places at which the events of an active group are found and counted, as in [`pmu_common::turn::Turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveGroup {
    /// Shift from a place after those that always count to the place of its event.
    pub shift: u64,
    /// Places of running times.
    pub leaders: u64,
    /// Places of events that are not leaders.
    pub members: u64,
}

impl PlannedEvent {
    /// Returns the event on one PMU. Of its modifiers only the modes matter to a count per owner.
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

    /// Returns whether this mode (`u`, `k` or `h`) counts.
    pub fn counts_in(&self, mode: char) -> bool {
        self.modes.is_empty() || self.modes.contains(mode)
    }
}

impl EventGroup {
    /// Returns the places that it takes: one for its running time, and one for each event.
    pub const fn places(&self) -> usize {
        1 + self.events.len()
    }
}

impl Multiplexing {
    /// Returns what to open for a schedule. `resolved` has the form in which each of `needs` is opened.
    ///
    /// Events that always count are opened in up to three groups. The first is `slots` with its shares, which
    /// the hardware counts and the kernel reads as one. The second has the events on counters, and the third
    /// those that need none.
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

    /// Returns the average time until every group has had its slice.
    pub fn round(&self) -> Duration {
        self.slice.saturating_mul(u32::try_from(self.groups.len()).unwrap_or(u32::MAX))
    }

    /// Returns the number of groups that all have enough slices in this time to estimate the error of their
    /// counts, at least 1.
    pub fn groups_in(&self, time: Duration) -> usize {
        let slices = time.as_nanos() / self.slice.as_nanos().max(1);
        usize::try_from(slices / SLICES_WANTED).unwrap_or(usize::MAX).max(1)
    }

    /// Returns the time in which this many groups have enough slices.
    pub fn time_of(&self, groups: usize) -> Duration {
        self.slice.saturating_mul(u32::try_from(groups as u128 * SLICES_WANTED).unwrap_or(u32::MAX))
    }

    /// Returns the events that count all the time, in order.
    pub fn always_events(&self) -> impl Iterator<Item = &PlannedEvent> {
        self.always.iter().flat_map(|group| &group.events)
    }

    /// Returns the descriptors that one CPU takes.
    pub fn descriptors(&self) -> usize {
        self.always.iter().chain(&self.groups).map(|group| group.events.len()).sum()
    }

    /// Returns whether groups are multiplexed, because more than one has to share the counters.
    pub const fn take_turns(&self) -> bool {
        self.groups.len() > 1
    }

    /// Returns the places of the events that always count.
    pub fn always_places(&self) -> usize {
        places(&self.always)
    }

    /// Returns the places of all groups together: the distance between the events of two CPUs.
    pub fn stride(&self) -> usize {
        self.always_places() + places(&self.groups)
    }

    /// Returns the places to read while group number `group` is active, including those that always count.
    pub fn in_force(&self, group: Option<u32>) -> ActiveGroup {
        let group = group.map_or(self.groups.len(), |group| group as usize);
        let mut place = 0;
        let (mut leaders, mut members) = (0, 0);
        for events in self.always.iter().chain(self.groups.get(group)) {
            leaders |= 1_u64 << place;
            // The first event of a group counts in the place after its running time.
            for member in place + 2..place + events.places() {
                members |= 1_u64 << member;
            }
            place += events.places();
        }
        let before = self.groups.get(..group).unwrap_or_default();
        ActiveGroup { shift: places(before) as u64, leaders, members }
    }

    /// Checks that the groups can be counted per owner.
    ///
    /// # Errors
    ///
    /// A group is empty, or more events would count at a time than a row holds.
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

/// Slices that a group should have: one more than an interval takes (`metric::estimate`), since their number
/// varies by chance.
const SLICES_WANTED: u128 = 4;
/// Shortest mean slice. Every slice begins and ends between two context switches, and what runs across its
/// edges is cut.
const SLICE_MIN: Duration = Duration::from_millis(10);
/// Maximum share of a CPU's time for changing groups: 1 in this many.
const COST_SHARE: u32 = 500;
/// Cost of a change of groups on the CPU where it happens: two interrupts from the requesting CPU, and about
/// ten counters programmed. An estimate, on the high side.
const CHANGE: Duration = Duration::from_micros(20);
/// Cost of the same in a guest, where every register access goes to the hypervisor.
const CHANGE_IN_GUEST: Duration = Duration::from_micros(100);
/// Cost of a change for the thread that requests it, per CPU: two system calls that wait for the other CPU.
const ASKING: Duration = Duration::from_micros(10);
/// Share of a slice within which all CPUs change, one after the other: 1 in this many.
const SWEEP_SHARE: u32 = 20;

/// Returns the average length of a slice on a machine with this many CPUs.
///
/// A slice is long enough that changes take at most 0.2 % of every CPU's time. The CPUs change one after the
/// other, and are on the same group for most of the slice.
pub fn slice(cpus: usize, host: Host) -> Duration {
    let change = match host {
        Host::Bare => CHANGE,
        Host::Guest => CHANGE_IN_GUEST,
    };
    let sweep = ASKING.saturating_mul(u32::try_from(cpus).unwrap_or(u32::MAX));
    SLICE_MIN.max(change * COST_SHARE).max(sweep.saturating_mul(SWEEP_SHARE))
}

/// Kind of host on which pmbpf runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// A physical machine.
    Bare,
    /// A virtual machine.
    Guest,
}
