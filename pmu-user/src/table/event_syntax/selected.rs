//! Events on one machine, or the reason why they are missing. Also the meaning of an event, as far as another
//! count can be compared with it.

use serde::{Deserialize, Serialize};

use super::{Modifiers, kernel};
use crate::{
    machine::{
        pmu::{
            bits::{Word, Words},
            catalog::{Catalog, Entry, PmuCpus},
        },
        tracepoint::TracepointError,
    },
    suggest::did_you_mean,
};

/// Events that are opened as one group, wherever they are opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelectedGroup {
    /// Events of the group; the first is the leader.
    pub events: Vec<Selected>,
    /// Whether it may be broken up if it does not fit the counters.
    pub weak: bool,
}

/// An event on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selected {
    /// Name in results: `name=`, or the text as typed.
    pub name: String,
    /// Unit of the scaled count.
    pub unit: Option<String>,
    /// Value of one count in that unit.
    pub scale: f64,
    /// Whether it is counted once per package.
    pub per_package: bool,
    /// Whether it is a level, not a count.
    pub snapshot: bool,
    /// Modifiers of the event and of its group.
    pub modifiers: Modifiers,
    /// Counts from one sample to the next, if given.
    pub period: Option<u64>,
    /// PMUs that count it, at least one.
    pub instances: Vec<Instance>,
}

/// An event on one PMU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Name of the PMU.
    pub pmu: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `config` to `config3`.
    pub words: Words,
    /// CPUs on which it can be opened.
    pub place: PmuCpus,
}

/// Error for an event that this machine cannot count, or that has no meaning on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event `{event}` (character {position}): {why}", position = .at + 1)]
pub struct ResolveError {
    /// The event as typed.
    pub event: String,
    /// Start of the event in the list, in bytes.
    pub at: usize,
    /// Reason of the failure.
    pub why: Why,
}

/// Reason why an event cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// No PMU has an event of that name. Holds the nearest names.
    #[error("there is no such event{near}", near = did_you_mean(.0))]
    NoEvent(Vec<String>),
    /// No PMU has that name. Holds the nearest names.
    #[error("no PMU is called `{0}`{near}", near = did_you_mean(.1))]
    NoPmu(String, Vec<String>),
    /// The PMU has no such term. Holds the nearest names.
    #[error("the PMU `{pmu}` has neither a term nor an event `{term}`{near}", near = did_you_mean(.near))]
    NoTerm {
        /// Name of the PMU.
        pmu: String,
        /// Name of the term.
        term: String,
        /// Names that are nearest to it.
        near: Vec<String>,
    },
    /// A value needs more bits than the PMU has for it.
    #[error("`{term}` cannot be {value:#x}: the largest value that fits its bits is {max:#x}")]
    TooLarge {
        /// Name of the term.
        term: String,
        /// Value of the term.
        value: u64,
        /// Largest value that it can have.
        max: u64,
    },
    /// A value is not a number.
    #[error("`{0}` must be a number, not `{1}`")]
    NotNumber(String, String),
    /// The event's definition leaves a value open.
    #[error("`{0}` needs a value")]
    NeedsValue(String),
    /// A sampling frequency was requested.
    #[error("pmbpf never samples by frequency, because its period varies; give `period=`")]
    Frequency,
    /// An event of the cores cannot be counted here.
    #[error("it needs a core's PMU, and this host has none")]
    NoCores,
    /// A tracepoint has no number here.
    #[error("{0}{near}", near = match .0 { TracepointError::Unknown(near) => did_you_mean(near), _ => String::new() })]
    Tracepoint(TracepointError),
    /// A breakpoint cannot watch this number of bytes.
    #[error("a breakpoint watches 1, 2, 4 or 8 bytes, not {0}")]
    BreakpointSize(u64),
    /// Events of different PMUs are in one group.
    #[error("it cannot be in a group with `{0}`, which another PMU counts")]
    Apart(String),
    /// A metric of the Top-Down counter is without the counter of which it is a share.
    #[error("it is a share of `slots` and counts only in a group that holds `slots`")]
    NeedsSlots,
}

impl Selected {
    /// Returns whether it can join a group of any core PMU. True for software events, tracepoints and
    /// breakpoints.
    pub fn goes_anywhere(&self) -> bool {
        self.instances.len() == 1
            && self
                .instances
                .iter()
                .all(|at| matches!(at.kind, kernel::SOFTWARE | kernel::TRACEPOINT | kernel::BREAKPOINT))
    }

    /// Returns its instance for the `index`th place of its group.
    pub fn instance(&self, index: usize) -> Option<&Instance> {
        if self.goes_anywhere() { self.instances.first() } else { self.instances.get(index) }
    }

    /// Returns whether it is one of the metrics that the hardware derives from `slots`: pseudo-events 0x8000
    /// to 0x8700.
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

/// Returns an event on this PMU.
pub(super) fn instance(pmu: &Entry, kind: u32, config: u64) -> Instance {
    Instance { pmu: pmu.name.clone(), kind, words: Words([config, 0, 0, 0]), place: pmu.place.clone() }
}

/// Returns an event that is counted wherever a task runs.
pub(super) fn anywhere(pmu: &str, kind: u32, config: u64) -> Instance {
    Instance { pmu: pmu.to_owned(), kind, words: Words([config, 0, 0, 0]), place: PmuCpus::Anywhere }
}

/// Meaning of an event's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// Time on a CPU, in ns.
    Clock,
    /// Cycles of a core.
    Cycles,
    /// Instructions of a core.
    Instructions,
    /// Branches of a core.
    Branches,
    /// Branches that were mispredicted.
    BranchMisses,
    /// Accesses to the last-level cache.
    CacheReferences,
    /// Misses of the last-level cache.
    CacheMisses,
    /// Cycles in which the front end delivered nothing.
    StalledFrontend,
    /// Cycles in which the back end took nothing.
    StalledBackend,
    /// Accesses to a cache in the kernel's list, by its numbers (`PERF_COUNT_HW_CACHE_*`).
    Cache {
        /// Number of the cache.
        cache: u8,
        /// Number of the operation: reading, writing or prefetching.
        operation: u8,
        /// Whether only misses count.
        miss: bool,
    },
    /// Slots of the pipeline, counted by the Top-Down counter.
    Slots,
    /// Slots of one Top-Down category.
    TopDown,
    /// Any other occurrences.
    Occurrences,
}

impl Selected {
    /// Returns the meaning of its count, by the kernel's number or by a PMU's name for it (`cpu/cycles/`).
    pub fn meaning(&self) -> Meaning {
        let Some(at) = self.instances.first() else { return Meaning::Occurrences };
        let config = at.words.0[0];
        if at.kind <= kernel::CACHE && at.kind != kernel::TRACEPOINT {
            return of_number(at.kind, config);
        }
        let named = self.name.split('/').nth(1);
        match named.or(self.name.split(':').next()).unwrap_or_default() {
            "slots" => return Meaning::Slots,
            name if name.starts_with("topdown-") => return Meaning::TopDown,
            _ => {}
        }
        let named = named.and_then(kernel::find);
        named.map_or(Meaning::Occurrences, |known| of_number(known.kind, known.config))
    }
}

fn of_number(kind: u32, config: u64) -> Meaning {
    // Where cores differ, the upper half names the PMU (`PERF_HW_EVENT_MASK`).
    let config = config & u64::from(u32::MAX);
    match (kind, config) {
        (kernel::SOFTWARE, 0 | 1) => Meaning::Clock,
        (kernel::HARDWARE, 0) => Meaning::Cycles,
        (kernel::HARDWARE, 1) => Meaning::Instructions,
        (kernel::HARDWARE, 2) => Meaning::CacheReferences,
        (kernel::HARDWARE, 3) => Meaning::CacheMisses,
        (kernel::HARDWARE, 4) => Meaning::Branches,
        (kernel::HARDWARE, 5) => Meaning::BranchMisses,
        (kernel::HARDWARE, 7) => Meaning::StalledFrontend,
        (kernel::HARDWARE, 8) => Meaning::StalledBackend,
        (kernel::CACHE, _) => Meaning::Cache {
            cache: config as u8,
            operation: (config >> 8) as u8,
            miss: config >> 16 & 1 == 1,
        },
        _ => Meaning::Occurrences,
    }
}

#[cfg(test)]
mod tests {
    use super::Meaning;
    use crate::{
        machine::{pmu::catalog::Catalog, testing::Tree},
        table::event_syntax::{List, resolve},
    };

    #[test]
    fn an_event_means_the_same_under_every_name() {
        let tree = Tree::new(&[]);
        let events = [("type", "4"), ("format/event", "config:0-7"), ("events/cpu-cycles", "event=0x3c")];
        tree.pmu("cpu", &events);
        let catalog = Catalog::read(&tree.root).unwrap();
        let meaning =
            |event: &str| resolve(&List::parse(event).unwrap(), &catalog).unwrap()[0].events[0].meaning();
        for name in ["cycles", "cpu-cycles:u", "cpu/cpu-cycles/", "cpu/cycles/k"] {
            assert_eq!(meaning(name), Meaning::Cycles, "{name}");
        }
        assert_eq!(meaning("task-clock"), Meaning::Clock);
        assert_eq!(meaning("cpu/event=0x3c/"), Meaning::Occurrences);
        assert_eq!(meaning("dTLB-store-misses"), Meaning::Cache { cache: 3, operation: 1, miss: true });
    }
}
