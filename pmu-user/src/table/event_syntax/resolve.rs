//! Resolution of a [`List`] with the machine's [`Catalog`] into the arguments of `perf_event_open`.
//!
//! Bits are placed as sysfs says. A value that does not fit its bits is an error: perf would truncate or
//! refuse it, and a truncated value counts something else.

use super::{
    List, Modifiers, ParsedEvent, ParsedGroup, What,
    encode::{Coded, matching},
    kernel,
    selected::{Instance, ResolveError, Selected, SelectedGroup, Why, anywhere, instance},
};
use crate::{
    machine::pmu::{
        bits::Word,
        catalog::{Catalog, Entry, PmuCpus},
    },
    table::model::Tables,
};

/// Resolves every event of `list`, by the names of the kernel and of sysfs.
///
/// # Errors
///
/// Returns the first event that is not available, the reason, and the nearest match.
pub fn resolve(list: &List, catalog: &Catalog) -> Result<Vec<SelectedGroup>, ResolveError> {
    resolve_with(list, catalog, &Tables::default())
}

/// Resolves as [`resolve`] does, and then by the names of the CPU models' tables.
///
/// # Errors
///
/// Same as for [`resolve`].
pub fn resolve_with(
    list: &List,
    catalog: &Catalog,
    tables: &Tables,
) -> Result<Vec<SelectedGroup>, ResolveError> {
    let known = Lookup { catalog, tables };
    list.groups.iter().map(|group| resolve_group(group, known)).collect()
}

/// Sources in which names are looked up.
#[derive(Clone, Copy)]
struct Lookup<'a> {
    catalog: &'a Catalog,
    tables: &'a Tables,
}

fn resolve_group(group: &ParsedGroup, known: Lookup<'_>) -> Result<SelectedGroup, ResolveError> {
    let catalog = known.catalog;
    let fail = |event: &ParsedEvent, why| ResolveError { event: event.typed.clone(), at: event.at, why };
    let mut events = Vec::with_capacity(group.members.len());
    for member in &group.members {
        let modifiers = member.modifiers.and(group.modifiers);
        let found = resolve_event(member, modifiers, known).map_err(|why| fail(member, why))?;
        check_fellows(&found, &events).map_err(|why| fail(member, why))?;
        events.push(found);
    }
    if let Some(metric) = events.iter().position(|event| event.is_topdown(catalog)) {
        // The kernel requires `slots` as the leader (arch/x86/events/intel/core.c, `intel_pmu_hw_config`,
        // 6.12).
        match events.iter().position(|event| event.is_slots(catalog)) {
            Some(slots) => events[..=slots].rotate_right(1),
            None => return Err(fail(&group.members[metric], Why::NeedsSlots)),
        }
    }
    let weak = events.iter().any(|event| event.modifiers.weak);
    Ok(SelectedGroup { events, weak })
}

/// Checks that `event` may share a group with those before it.
fn check_fellows(event: &Selected, before: &[Selected]) -> Result<(), Why> {
    let boxed = |event: &Selected| event.instances.iter().any(|at| matches!(at.place, PmuCpus::Uncore(_)));
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

fn resolve_event(event: &ParsedEvent, modifiers: Modifiers, known: Lookup<'_>) -> Result<Selected, Why> {
    let catalog = known.catalog;
    // Whether a group may be broken up is not part of its events' names.
    let own = Modifiers { weak: event.modifiers.weak, ..modifiers };
    let name = if own == event.modifiers {
        event.typed.clone()
    } else {
        ParsedEvent { modifiers: own, ..event.clone() }.to_string()
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
            None => Coded::of_name(name, catalog, known.tables)?.select(plain(Vec::new(), None)),
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
        What::Breakpoint { address, bytes, access } => {
            Ok(plain(vec![breakpoint(*address, *bytes, *access)?], None))
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

/// Returns a breakpoint at an address. The default size is a word for code and four bytes for data, as in
/// perf.
fn breakpoint(address: u64, bytes: Option<u64>, access: u8) -> Result<Instance, Why> {
    let is_code = access & EXECUTE != 0;
    let bytes = bytes.unwrap_or(if is_code { size_of::<usize>() as u64 } else { 4 });
    if !matches!(bytes, 1 | 2 | 4 | 8) {
        return Err(Why::BreakpointSize(bytes));
    }
    let mut at = anywhere("breakpoint", kernel::BREAKPOINT, u64::from(access));
    at.words.set(Word::Config1, address);
    at.words.set(Word::Config2, bytes);
    Ok(at)
}

/// `HW_BREAKPOINT_X`.
const EXECUTE: u8 = 4;

/// Returns the instances of a kernel event. A hardware event is on the core PMU. Where the cores differ, the
/// PMU's type is in the upper half of the number (`PERF_HW_EVENT_MASK`, since Linux 5.13).
fn of_kernel(known: kernel::KernelEvent, catalog: &Catalog) -> Result<Vec<Instance>, Why> {
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
