//! Totals over all the time from multiplexed counts, and metrics of these totals, each with its interval.
//!
//! The input is the slices of one owner. In each slice the events that always count and one of the
//! multiplexed groups counted. What a group missed is predicted from the events that always count, by a ridge
//! regression over the slices in which the group counted. The residuals there are added for the rest, by
//! nearness in time (a generalised regression estimator: Särndal, Swensson and Wretman, Model Assisted Survey
//! Sampling, 1992, ch. 6). Where phases differ in what always counts, most of their error is gone. Where they
//! do not, the estimate is the ratio of near slices. No workload can bias that, as the order of the groups is
//! random.
//!
//! The uncertainty of a total is derived from the differences of near slices, after the regression. It goes
//! into replicates: totals of all events at once, as other turns might have given. A metric is evaluated on
//! each replicate, whatever its formula.
//!
//! An interval does not include what no slice shows: a burst so rare that no slice of the group met one is in
//! neither.

mod group;
mod population;
mod regression;
mod replicates;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::{array, rc::Rc};

pub use self::replicates::{REPLICATES, student_quantile};
use self::{population::Population, regression::Room, replicates::Deviations};
use super::value::{How, Known, Value};
use crate::{drain::reading::SliceRow, plan::multiplexing::Multiplexing};

/// Minimum number of slices in which a group has to have counted: two give one difference, and with it an
/// interval 13 times as wide.
pub const SLICES_MIN: usize = 3;

/// Share below which a difference of two times is ignored: the owner's time and a counter's are read one
/// after the other.
const CLOCKS_DIFFER: f64 = 1e-3;

/// Reason for an event without an estimate.
const UNPLANNED: &str = "the event is not in the plan";

/// Index of an event of a [`Multiplexing`]: first those that always count, then group by group, in the plan's
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventIndex(pub usize);

impl EventIndex {
    /// Returns the event that results call `name`. One that always counts precedes a multiplexed one of the
    /// same name.
    pub fn of(turns: &Multiplexing, name: &str) -> Option<Self> {
        let taking_turns = turns.groups.iter().flat_map(|group| &group.events);
        turns.always_events().chain(taking_turns).position(|event| event.name == name).map(Self)
    }
}

/// Totals of one owner's events over all its slices.
#[derive(Clone, Debug)]
pub struct Estimates {
    events: Vec<Estimate>,
}

/// Estimate of an event's total.
#[derive(Clone, Debug)]
enum Estimate {
    /// No estimate, with the reason.
    Missing(Rc<str>),
    /// Count of an event that counted whenever the owner ran.
    Exact(u64),
    /// Estimate of an event that counted in part of the time.
    Scaled(Rc<Scaled>),
}

/// A total of which a part was counted.
#[derive(Clone, Debug)]
struct Scaled {
    total: f64,
    /// Part that was counted: no total is less.
    seen: f64,
    /// Running by the owner's time (0 to 1).
    coverage: f64,
    /// Deviations of the total.
    deviations: Deviations,
}

impl Estimates {
    /// Estimates every event of `turns`. `rows` are one owner's, of these turns only, in any order. Several
    /// rows of a slice are taken as separate slices. Pure.
    pub fn new(turns: &Multiplexing, rows: &[SliceRow]) -> Self {
        let mut ran: Vec<&SliceRow> = rows.iter().filter(|row| row.time_ns > 0).collect();
        ran.sort_by_key(|row| row.slice);
        let population = Population::new(turns, &ran);
        let mut events = group::always(turns, rows, &population);
        let mut room = Room::default();
        for group in 0..turns.groups.len() {
            events.extend(group::rotating(turns, group, &population, &mut room));
        }
        Self { events }
    }

    /// Joins the totals of several lists of events, in their order.
    pub fn joined<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        Self { events: parts.into_iter().flat_map(|part| &part.events).cloned().collect() }
    }

    /// Removes the total of an event, because what was counted of it is not all that was requested.
    pub fn forget(&mut self, event: EventIndex, why: &str) {
        if let Some(known) = self.events.get_mut(event.0) {
            *known = Estimate::Missing(why.into());
        }
    }

    /// Returns the number of events, which is the end of the indices.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Returns whether every known total was counted in full. Then no replicate differs from the totals.
    pub fn are_exact(&self) -> bool {
        !self.events.iter().any(|event| matches!(event, Estimate::Scaled(_)))
    }

    /// Returns the best estimate of an event's total, without its interval.
    pub fn total(&self, event: EventIndex) -> Option<f64> {
        match self.events.get(event.0)? {
            Estimate::Exact(count) => Some(*count as f64),
            Estimate::Scaled(scaled) => Some(scaled.total),
            Estimate::Missing(_) => None,
        }
    }

    /// Returns why an event has no total, if it has none.
    pub fn why_missing(&self, event: EventIndex) -> Option<&str> {
        match self.events.get(event.0) {
            Some(Estimate::Exact(_) | Estimate::Scaled(_)) => None,
            Some(Estimate::Missing(why)) => Some(why),
            None => Some(UNPLANNED),
        }
    }

    /// Returns the total of an event.
    pub fn value(&self, event: EventIndex) -> Value {
        match self.events.get(event.0) {
            Some(Estimate::Exact(count)) => Value::counted(*count, 1.0),
            Some(Estimate::Scaled(scaled)) => Value::Known(scaled.known()),
            Some(Estimate::Missing(why)) => Value::Missing(why.to_string()),
            None => Value::Missing(UNPLANNED.to_owned()),
        }
    }

    /// Returns an event's totals as other turns might have given them. One place in the list means the same
    /// turns for every event, so errors in common stay in common.
    pub fn replicates(&self, event: EventIndex) -> Option<[f64; REPLICATES]> {
        match self.events.get(event.0)? {
            Estimate::Exact(count) => Some([*count as f64; REPLICATES]),
            Estimate::Scaled(scaled) => Some(array::from_fn(|replicate| scaled.replicate(replicate))),
            Estimate::Missing(_) => None,
        }
    }
}

impl Scaled {
    fn replicate(&self, replicate: usize) -> f64 {
        (self.total + self.deviations.each[replicate]).max(self.seen)
    }

    fn known(&self) -> Known {
        let reach = self.deviations.reach();
        Known {
            estimate: self.total,
            low: (self.total - reach).max(self.seen),
            high: self.total + reach,
            coverage: self.coverage,
            how: How::Scaled,
        }
    }
}
