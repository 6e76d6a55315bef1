//! Events that exist here, source by source. A new source of events is a function of the host in [`SOURCES`].

use super::Host;
use crate::{
    machine::pmu::catalog::{Entry, Named, PmuCpus},
    named::named,
    table::{
        event_syntax::{family, kernel},
        model::{Counters, ModelEvent},
    },
};

/// Event that can be requested by a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEvent {
    /// Origin of the name.
    pub kind: EventOrigin,
    /// Name of the event.
    pub name: String,
    /// Other name of the event, if it has one.
    pub alias: Option<String>,
    /// PMU that counts it; uncore PMUs of a kind are one.
    pub pmu: String,
    /// Notation for `-e`.
    pub notation: String,
    /// Counters that can hold it, where that is known.
    pub counters: Option<String>,
    /// Unit of its count, if it has one.
    pub unit: Option<String>,
    /// Reason why it cannot be counted here.
    pub missing: Option<String>,
}

named! {
    /// Origin of an event's name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum EventOrigin {
        Hardware = "hardware", "The kernel's generic hardware events.";
        Cache = "cache", "The kernel's generic cache events.";
        Software = "software", "What the kernel counts by itself.";
        Pmu = "pmu", "A PMU's own names, from sysfs.";
        Table = "table", "The table of the CPU model.";
        Tracepoint = "tracepoint", "Tracepoints.";
    }
}

/// Function that returns the events of one source.
pub type EventLister = fn(&Host<'_>) -> Vec<ListedEvent>;

/// Sources of events, in the order of the list.
pub const SOURCES: [EventLister; 4] = [of_kernel, of_pmus, of_table, tracepoints];

/// Returns the kernel's own events: two names for one number are one event.
fn of_kernel(host: &Host<'_>) -> Vec<ListedEvent> {
    let no_pmu = host.machine.no_core_pmu();
    let cores: Vec<&str> = host.catalog.cores().map(|pmu| pmu.name.as_str()).collect();
    let mut events: Vec<(kernel::KernelEvent, ListedEvent)> = Vec::new();
    for (name, known) in kernel::all() {
        if let Some((_, same)) = events.iter_mut().find(|(other, _)| *other == known) {
            same.alias = (same.name != name).then_some(name).or(same.alias.take());
            continue;
        }
        let (kind, pmu) = match known.kind {
            kernel::SOFTWARE => (EventOrigin::Software, "software".to_owned()),
            kernel::CACHE => (EventOrigin::Cache, cores.join(",")),
            _ => (EventOrigin::Hardware, cores.join(",")),
        };
        let missing = if kind == EventOrigin::Software { None } else { no_pmu.clone() };
        let event = ListedEvent {
            kind,
            notation: name.clone(),
            name,
            alias: None,
            pmu,
            counters: None,
            unit: known.unit.map(str::to_owned),
            missing,
        };
        events.push((known, event));
    }
    let mut events: Vec<ListedEvent> = events.into_iter().map(|(_, event)| event).collect();
    events.sort_by_key(|event| event.kind as u8);
    events
}

/// Returns the events named by the tables of the CPU models.
fn of_table(host: &Host<'_>) -> Vec<ListedEvent> {
    let no_pmu = host.machine.no_core_pmu();
    let first = host.catalog.cores().next().map_or("cpu", |pmu| pmu.name.as_str());
    let listed = |(core, event): (&str, &ModelEvent)| {
        let (pmu, boxed) = match event.unit.as_str() {
            "core" => (core.to_owned(), false),
            unit => (format!("uncore_{unit}"), true),
        };
        let there = host.catalog.pmus.iter().any(|known| known.name.starts_with(&pmu));
        let missing = match boxed {
            true if !there => Some(format!("this host has no PMU `{pmu}`")),
            true => None,
            false => no_pmu.clone(),
        };
        ListedEvent {
            kind: EventOrigin::Table,
            name: event.name.clone(),
            alias: None,
            notation: format!("{pmu}/{}/", event.terms),
            pmu,
            counters: match event.counters {
                Counters::Any => None,
                Counters::Share => Some("share of slots".to_owned()),
                Counters::Fixed(index) => Some(format!("fixed {index}")),
                Counters::General(mask) => Some(format!("{mask:#x}")),
            },
            unit: None,
            missing,
        }
    };
    // The clock does not belong to a PMU.
    let events = host
        .tables
        .iter()
        .flat_map(|(core, model)| model.events.iter().map(move |event| (core.unwrap_or(first), event)));
    events.filter(|(_, event)| !event.terms.is_empty()).map(listed).collect()
}

/// Returns the events named by PMUs, once for the uncore PMUs of a kind.
fn of_pmus(host: &Host<'_>) -> Vec<ListedEvent> {
    let mut events: Vec<ListedEvent> = Vec::new();
    for pmu in &host.catalog.pmus {
        for named in &pmu.events {
            let event = of_pmu(pmu, named);
            if !events.contains(&event) {
                events.push(event);
            }
        }
    }
    events
}

fn of_pmu(pmu: &Entry, named: &Named) -> ListedEvent {
    let name = match pmu.place {
        PmuCpus::Uncore(_) => family(&pmu.name),
        PmuCpus::Anywhere | PmuCpus::Cores(_) => &pmu.name,
    };
    let nowhere = pmu.place == PmuCpus::Uncore(Vec::new());
    ListedEvent {
        kind: EventOrigin::Pmu,
        name: named.name.clone(),
        alias: None,
        pmu: name.to_owned(),
        notation: format!("{name}/{}/", named.name),
        counters: None,
        unit: named.unit.clone(),
        missing: nowhere.then(|| "the PMU names no CPU to count on".to_owned()),
    }
}

/// Returns the tracepoints; none where tracefs is not mounted or may not be read.
fn tracepoints(host: &Host<'_>) -> Vec<ListedEvent> {
    let all = host.catalog.tracepoints.all().unwrap_or_default();
    let event = |(system, name): (String, String)| ListedEvent {
        kind: EventOrigin::Tracepoint,
        notation: format!("{system}:{name}"),
        name: format!("{system}:{name}"),
        alias: None,
        pmu: "tracepoint".to_owned(),
        counters: None,
        unit: None,
        missing: None,
    };
    all.into_iter().map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::{EventOrigin, ListedEvent, SOURCES};
    use crate::{
        machine::{Machine, pmu::catalog::Catalog, testing::Tree},
        table::{
            event_syntax::{List, resolve},
            listing::Host,
            model::Tables,
        },
    };

    fn host(pmus: &[&str]) -> Tree {
        let tree = Tree::new(&[
            ("proc/sys/kernel/hostname", "bed\n"),
            ("proc/sys/kernel/osrelease", "6.12.0\n"),
            ("proc/cpuinfo", "flags : hypervisor\n"),
            ("proc/self/mountinfo", ""),
            ("sys/devices/system/cpu/possible", "0\n"),
            ("sys/devices/system/cpu/online", "0\n"),
            ("sys/kernel/tracing/events/sched/sched_switch/id", "317\n"),
            ("sys/kernel/tracing/events/sched/enable", "0\n"),
        ]);
        tree.pmu("software", &[("type", "1")]);
        for (pmu, kind) in pmus.iter().zip(20..) {
            let (place, kind) =
                (if pmu.starts_with("uncore") { "cpumask" } else { "name" }, kind.to_string());
            tree.pmu(
                pmu,
                &[("type", &kind), (place, "0"), ("format/event", "config:0-7"), ("events/reads", "event=1")],
            );
        }
        tree
    }

    fn listed(tree: &Tree) -> (Vec<ListedEvent>, Catalog) {
        let (machine, catalog) = (Machine::read(&tree.root).unwrap(), Catalog::read(&tree.root).unwrap());
        let host = Host { machine: &machine, catalog: &catalog, tables: &Tables::default() };
        (SOURCES.iter().flat_map(|source| source(&host)).collect(), catalog)
    }

    #[test]
    fn every_event_that_is_listed_without_a_reason_can_be_asked_for() {
        let tree = host(&["cpu", "uncore_imc_0"]);
        let (events, catalog) = listed(&tree);
        assert!(events.iter().all(|event| event.missing.is_none()));
        for event in &events {
            let list = List::parse(&event.notation).unwrap_or_else(|error| panic!("{event:?}: {error}"));
            resolve(&list, &catalog).unwrap_or_else(|error| panic!("{event:?}: {error}"));
        }
    }

    #[test]
    fn without_a_pmu_hardware_events_are_listed_with_the_reason() {
        let (events, _) = listed(&host(&[]));
        let of = |kind| events.iter().filter(move |event| event.kind == kind);
        assert!(of(EventOrigin::Hardware).count() > 5 && of(EventOrigin::Cache).count() > 20);
        let why = of(EventOrigin::Hardware)
            .chain(of(EventOrigin::Cache))
            .map(|event| event.missing.as_deref().unwrap());
        assert!(why.into_iter().all(|why| why.contains("hypervisor")));
        assert!(of(EventOrigin::Software).all(|event| event.missing.is_none()));
    }

    #[test]
    fn an_event_with_two_names_is_listed_once() {
        let (events, _) = listed(&host(&[]));
        let cycles: Vec<_> = events.iter().filter(|event| event.name.contains("cycles")).collect();
        assert_eq!(cycles.iter().filter(|event| event.name == "cycles").count(), 1);
        assert!(cycles.iter().any(|event| event.alias.as_deref() == Some("cpu-cycles")), "{cycles:?}");
        assert!(!cycles.iter().any(|event| event.name == "cpu-cycles"), "{cycles:?}");
    }

    #[test]
    fn the_uncore_pmus_of_a_kind_list_their_events_once() {
        let (events, _) = listed(&host(&["uncore_imc_0", "uncore_imc_1", "uncore_cha_0"]));
        let notations: Vec<_> = events
            .iter()
            .filter(|event| event.kind == EventOrigin::Pmu)
            .map(|event| &*event.notation)
            .collect();
        assert_eq!(notations, ["uncore_cha/reads/", "uncore_imc/reads/"]);
    }

    #[test]
    fn tracepoints_are_folders_of_folders() {
        let (events, _) = listed(&host(&[]));
        let found: Vec<_> = events.iter().filter(|event| event.kind == EventOrigin::Tracepoint).collect();
        assert_eq!(found.iter().map(|event| &*event.name).collect::<Vec<_>>(), ["sched:sched_switch"]);
    }
}
