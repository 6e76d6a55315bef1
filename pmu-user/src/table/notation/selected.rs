//! Events on one machine, or why it has none of them.

use super::{Modifiers, kernel};
use crate::{
    machine::{
        pmu::{
            bits::{Word, Words},
            catalog::{Catalog, Entry, Place},
        },
        tracepoint::TracepointError,
    },
    suggest::did_you_mean,
};

/// Events that are opened as one group, wherever they are opened.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectedGroup {
    /// Its events; the first leads.
    pub events: Vec<Selected>,
    /// May it be broken up if it does not fit the counters?
    pub weak: bool,
}

/// An event on one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Selected {
    /// What it is called in results: `name=`, or what was typed.
    pub name: String,
    /// Unit of the scaled count.
    pub unit: Option<String>,
    /// What one count is worth in that unit.
    pub scale: f64,
    /// Counted once a package.
    pub per_package: bool,
    /// A level, not a count.
    pub snapshot: bool,
    /// Its own modifiers and its group's.
    pub modifiers: Modifiers,
    /// Counts from one sample to the next, if it said so.
    pub period: Option<u64>,
    /// The PMUs that count it, at least one.
    pub instances: Vec<Instance>,
}

/// An event on one PMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Name of the PMU.
    pub pmu: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `config` to `config3`.
    pub words: Words,
    /// Where it can be opened.
    pub place: Place,
}

/// An event that this machine cannot count, or that means nothing to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event `{event}` (character {position}): {why}", position = .at + 1)]
pub struct ResolveError {
    /// The event as typed.
    pub event: String,
    /// Where it begins in the list, in bytes.
    pub at: usize,
    /// What is wrong with it.
    pub why: Why,
}

/// Why an event cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// No PMU has an event of that name; the nearest.
    #[error("there is no such event{near}", near = did_you_mean(.0))]
    NoEvent(Vec<String>),
    /// No PMU has that name; the nearest.
    #[error("no PMU is called `{0}`{near}", near = did_you_mean(.1))]
    NoPmu(String, Vec<String>),
    /// The PMU has no such term; the nearest.
    #[error("the PMU `{pmu}` has neither a term nor an event `{term}`{near}", near = did_you_mean(.near))]
    NoTerm {
        /// The PMU.
        pmu: String,
        /// The term.
        term: String,
        /// The nearest names.
        near: Vec<String>,
    },
    /// A value needs more bits than the PMU has for it.
    #[error("`{term}` cannot be {value:#x}: the largest value that fits its bits is {max:#x}")]
    TooLarge {
        /// The term.
        term: String,
        /// Its value.
        value: u64,
        /// The largest value it can have.
        max: u64,
    },
    /// A value is no number.
    #[error("`{0}` must be a number, not `{1}`")]
    NotNumber(String, String),
    /// A value was left open by the event's definition.
    #[error("`{0}` has no value; say what it shall be")]
    NeedsValue(String),
    /// A sampling frequency was asked for.
    #[error("pmbpf never samples by frequency, whose period wanders; give `period=`")]
    Frequency,
    /// What the cores count cannot be counted here.
    #[error("it needs a core's PMU, and this host has none")]
    NoCores,
    /// A tracepoint has no number here.
    #[error("{0}{near}", near = match .0 { TracepointError::Unknown(near) => did_you_mean(near), _ => String::new() })]
    Tracepoint(TracepointError),
    /// Events of different PMUs stand in a group.
    #[error("it cannot be in a group with `{0}`, which another PMU counts")]
    Apart(String),
    /// A metric of the Top-Down counter stands without the counter that it is a share of.
    #[error("it is a share of `slots` and counts only in a group that holds `slots`")]
    NeedsSlots,
}

impl Selected {
    /// Can it join a group of any core's PMU? True of software events and tracepoints.
    #[must_use]
    pub fn goes_anywhere(&self) -> bool {
        self.instances.len() == 1
            && self.instances.iter().all(|at| matches!(at.kind, kernel::SOFTWARE | kernel::TRACEPOINT))
    }

    /// Its instance in the `index`th place of its group.
    #[must_use]
    pub fn instance(&self, index: usize) -> Option<&Instance> {
        if self.goes_anywhere() { self.instances.first() } else { self.instances.get(index) }
    }

    /// One of the metrics that the hardware derives from `slots`: pseudo-events 0x8000 to 0x8700.
    pub(super) fn is_topdown(&self, catalog: &Catalog) -> bool {
        self.is_metric_counter(catalog, |config| config & !0x700 == 0x8000)
    }

    pub(super) fn is_slots(&self, catalog: &Catalog) -> bool {
        self.is_metric_counter(catalog, |config| config == 0x400)
    }

    fn is_metric_counter(&self, catalog: &Catalog, is: impl Fn(u64) -> bool) -> bool {
        self.instances.iter().any(|at| {
            let pmu = catalog.cores().find(|pmu| pmu.kind == at.kind && pmu.event("slots").is_some());
            pmu.is_some() && is(at.words.get(Word::Config))
        })
    }
}

/// An event on this PMU.
pub(super) fn instance(pmu: &Entry, kind: u32, config: u64) -> Instance {
    Instance { pmu: pmu.name.clone(), kind, words: Words([config, 0, 0, 0]), place: pmu.place.clone() }
}

/// One that is counted wherever a task runs.
pub(super) fn anywhere(pmu: &str, kind: u32, config: u64) -> Instance {
    Instance { pmu: pmu.to_owned(), kind, words: Words([config, 0, 0, 0]), place: Place::Anywhere }
}
