//! [`List`] and the machine's [`Catalog`] → what `perf_event_open` is to be told.
//!
//! Bits are placed as sysfs says. A value that does not fit its bits is an error: perf would cut it off or refuse it, and
//! a cut-off value counts something else.

use super::{Event, Group, List, Modifiers, What, coded::Coded, find::matching, kernel};
use crate::{
    machine::{
        pmu::{
            bits::{Word, Words},
            catalog::{Catalog, Entry, Place},
        },
        tracepoint::TracepointError,
    },
    suggest::did_you_mean,
    table::model::Model,
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

/// Resolves every event of `list`, by the names of the kernel and of sysfs.
///
/// # Errors
///
/// Names the first event that cannot be had, why, and the nearest thing that can.
pub fn resolve(list: &List, catalog: &Catalog) -> Result<Vec<SelectedGroup>, ResolveError> {
    resolve_with(list, catalog, None)
}

/// [`resolve`], and then by the names of the CPU model's table.
///
/// # Errors
///
/// As there.
pub fn resolve_with(
    list: &List,
    catalog: &Catalog,
    model: Option<&Model>,
) -> Result<Vec<SelectedGroup>, ResolveError> {
    let known = Known { catalog, model };
    list.groups.iter().map(|group| resolve_group(group, known)).collect()
}

/// Where names are looked up.
#[derive(Clone, Copy)]
struct Known<'a> {
    catalog: &'a Catalog,
    model: Option<&'a Model>,
}

fn resolve_group(group: &Group, known: Known<'_>) -> Result<SelectedGroup, ResolveError> {
    let catalog = known.catalog;
    let fail = |event: &Event, why| ResolveError { event: event.typed.clone(), at: event.at, why };
    let mut events = Vec::with_capacity(group.members.len());
    for member in &group.members {
        let modifiers = member.modifiers.and(group.modifiers);
        let found = resolve_event(member, modifiers, known).map_err(|why| fail(member, why))?;
        check_fellows(&found, &events).map_err(|why| fail(member, why))?;
        events.push(found);
    }
    if let Some(metric) = events.iter().position(|event| event.is_topdown(catalog)) {
        // The kernel wants `slots` to lead (arch/x86/events/intel/core.c, `intel_pmu_hw_config`, 6.12).
        match events.iter().position(|event| event.is_slots(catalog)) {
            Some(slots) => events[..=slots].rotate_right(1),
            None => return Err(fail(&group.members[metric], Why::NeedsSlots)),
        }
    }
    let weak = events.iter().any(|event| event.modifiers.weak);
    Ok(SelectedGroup { events, weak })
}

/// May `event` share a group with those before it?
fn check_fellows(event: &Selected, before: &[Selected]) -> Result<(), Why> {
    let boxed = |event: &Selected| event.instances.iter().any(|at| matches!(at.place, Place::Box(_)));
    for other in before {
        let same = event.instances.len() == other.instances.len()
            && event.instances.iter().zip(&other.instances).all(|(a, b)| a.pmu == b.pmu);
        let free = event.goes_anywhere() || other.goes_anywhere();
        if !same && (boxed(event) || boxed(other) || !free) {
            return Err(Why::Apart(other.name.clone()));
        }
    }
    Ok(())
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
    fn is_topdown(&self, catalog: &Catalog) -> bool {
        self.is_metric_counter(catalog, |config| config & !0x700 == 0x8000)
    }

    fn is_slots(&self, catalog: &Catalog) -> bool {
        self.is_metric_counter(catalog, |config| config == 0x400)
    }

    fn is_metric_counter(&self, catalog: &Catalog, is: impl Fn(u64) -> bool) -> bool {
        self.instances.iter().any(|at| {
            let pmu = catalog.cores().find(|pmu| pmu.kind == at.kind && pmu.event("slots").is_some());
            pmu.is_some() && is(at.words.get(Word::Config))
        })
    }
}

fn resolve_event(event: &Event, modifiers: Modifiers, known: Known<'_>) -> Result<Selected, Why> {
    let catalog = known.catalog;
    // What a group may do when it does not fit is no part of what its events are.
    let own = Modifiers { weak: event.modifiers.weak, ..modifiers };
    let name = if own == event.modifiers {
        event.typed.clone()
    } else {
        Event { modifiers: own, ..event.clone() }.to_string()
    };
    let plain = |instances: Vec<Instance>, unit: Option<&str>| Selected {
        name: name.clone(),
        unit: unit.map(str::to_owned),
        scale: 1.0,
        per_package: false,
        snapshot: false,
        modifiers,
        period: None,
        instances,
    };
    match &event.what {
        What::Named(name) => match kernel::find(name) {
            Some(known) => Ok(plain(of_kernel(known, catalog)?, known.unit)),
            None => Coded::of_name(name, catalog, known.model)?.select(plain(Vec::new(), None)),
        },
        What::Raw(code) => {
            let core = |pmu: &Entry| instance(pmu, pmu.kind, *code);
            let instances: Vec<Instance> = catalog.cores().map(core).collect();
            if instances.is_empty() { Err(Why::NoCores) } else { Ok(plain(instances, None)) }
        }
        What::Tracepoint { system, name: tracepoint, settings } => {
            let called = format!("{system}:{tracepoint}");
            let coded = Coded::of_settings(&called, settings)?;
            let id = catalog.tracepoints.id(system, tracepoint).map_err(Why::Tracepoint)?;
            let plain = plain(vec![anywhere("tracepoint", kernel::TRACEPOINT, id)], None);
            let colon = if own.is_empty() { "" } else { ":" };
            let bare = (!settings.is_empty()).then(|| format!("{called}{colon}{own}"));
            let name = coded.name.or(bare).unwrap_or_else(|| name.clone());
            Ok(Selected { name, period: coded.period, ..plain })
        }
        What::Pmu { pmu, terms } => {
            match kernel::find(pmu).filter(|_| catalog.pmus.iter().all(|one| one.name != *pmu)) {
                Some(known) => {
                    let coded = Coded::of_settings(pmu, terms)?;
                    let colon = if modifiers.is_empty() { "" } else { ":" };
                    let name = coded.name.unwrap_or_else(|| format!("{pmu}{colon}{modifiers}"));
                    let plain = plain(of_kernel(known, catalog)?, known.unit);
                    Ok(Selected { name, period: coded.period, ..plain })
                }
                None => {
                    let coded = matching(pmu, catalog)?.into_iter().map(|pmu| Coded::of_terms(pmu, terms));
                    Coded::join(coded.collect::<Result<_, _>>()?).select(plain(Vec::new(), None))
                }
            }
        }
    }
}

pub(super) fn instance(pmu: &Entry, kind: u32, config: u64) -> Instance {
    Instance { pmu: pmu.name.clone(), kind, words: Words([config, 0, 0, 0]), place: pmu.place.clone() }
}

fn anywhere(pmu: &str, kind: u32, config: u64) -> Instance {
    Instance { pmu: pmu.to_owned(), kind, words: Words([config, 0, 0, 0]), place: Place::Anywhere }
}

/// A hardware event is the core PMU's. Where the cores differ, the PMU's type stands in the upper half of the number
/// (`PERF_HW_EVENT_MASK`, since Linux 5.13).
fn of_kernel(known: kernel::Known, catalog: &Catalog) -> Result<Vec<Instance>, Why> {
    if known.kind == kernel::SOFTWARE {
        return Ok(vec![anywhere("software", known.kind, known.config)]);
    }
    let cores: Vec<&Entry> = catalog.cores().collect();
    match cores.as_slice() {
        [] => Err(Why::NoCores),
        [core] => Ok(vec![instance(core, known.kind, known.config)]),
        _ => {
            let numbered =
                |core: &&Entry| instance(core, known.kind, known.config | u64::from(core.kind) << 32);
            Ok(cores.iter().map(numbered).collect())
        }
    }
}
