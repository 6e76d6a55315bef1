//! Predefined configurations on one machine: the rows that can be sampled here, and the reason why others
//! cannot.

use std::path::Path;

use super::{
    Lost, PlanError, metrics,
    request::WantedMetrics,
    sampling::{Need, Sampling, of_instance, resolved},
};
use crate::{
    machine::{Machine, cpu::Vendor, pmu::catalog::Catalog},
    table::{
        event_syntax::{List, What},
        model::{self, Tables},
        profile::{self, Events, Profile},
        quantity::Quantity,
    },
};

/// Configuration with its rows on this machine.
#[derive(Clone, Debug)]
pub struct Available {
    /// The predefined configuration.
    pub profile: &'static Profile,
    /// Rows in order, followed by the substitute if none of them is available.
    pub rows: Vec<Row>,
}

/// A row of a configuration on this machine.
#[derive(Clone, Debug)]
pub struct Row {
    /// Quantity that the row measures.
    pub quantity: Quantity,
    /// Events that measure it here, one for each kind of core, or the reason why there is none.
    pub events: Result<Vec<Sampling>, String>,
}

/// Returns every configuration with the rows that `machine` provides, with its files below `root`. Opens
/// nothing, so the kernel may still refuse an event. Needs no privilege.
pub fn profiles(machine: &Machine, root: &Path) -> Vec<Available> {
    let cores = Cores::read(machine, root, &|| metrics::tables(&WantedMetrics::None, root));
    profile::ALL.iter().map(|profile| available(profile, &cores)).collect()
}

/// Returns the events of a configuration, and the rows that are lost here. `tables` reads those of the CPU
/// models if they are needed.
pub(super) fn plan(
    name: &str,
    machine: &Machine,
    root: &Path,
    tables: &dyn Fn() -> Tables,
) -> Result<(Vec<Sampling>, Vec<Lost>), PlanError> {
    let profile = profile::find(name).ok_or_else(|| {
        let names = profile::ALL.iter().map(|profile| profile.name.to_owned());
        PlanError::NoProfile(name.to_owned(), crate::suggest::nearest(name, names, |name| name))
    })?;
    let (mut events, mut lost) = (Vec::new(), Vec::new());
    let tables = if profile.events == Events::Table { tables } else { &Tables::default };
    for row in available(profile, &Cores::read(machine, root, tables)).rows {
        match row.events {
            Ok(found) => events.extend(found),
            Err(why) => lost.push(Lost { row: row.quantity.name().to_owned(), why }),
        }
    }
    if events.is_empty() { Err(PlanError::NothingLeft(name.to_owned(), lost)) } else { Ok((events, lost)) }
}

/// Properties of the host that decide which event codes have a meaning.
struct Cores<'a> {
    machine: &'a Machine,
    root: &'a Path,
    vendor: Vendor,
    /// Core PMUs with cores of the small kind, on which codes of the large kind have other meanings.
    small: Vec<String>,
    /// Tables of the CPU models, with their names of events.
    tables: Tables,
}

impl<'a> Cores<'a> {
    fn read(machine: &'a Machine, root: &'a Path, tables: &dyn Fn() -> Tables) -> Self {
        let vendor = machine.cpu.vendor(root);
        let mut small = Vec::new();
        if vendor == Vendor::Intel && machine.no_core_pmu().is_none() {
            let catalog = Catalog::read_cores(root).unwrap_or_default();
            let is_small = |pmu: &&crate::machine::pmu::catalog::Entry| {
                let model =
                    pmu.caps.iter().find(|(name, _)| name == "pmu_name").map_or("", |(_, model)| model);
                ["cpu_atom", "cpu_lowpower"].contains(&pmu.name.as_str())
                    || SMALL.iter().any(|small| model.contains(small))
            };
            small = catalog.cores().filter(is_small).map(|pmu| pmu.name.clone()).collect();
        }
        let tables = if machine.no_core_pmu().is_none() { tables() } else { Tables::default() };
        Self { machine, root, vendor, small, tables }
    }
}

/// Kernel names of PMUs of Intel's small cores (`caps/pmu_name`).
const SMALL: [&str; 6] = ["mont", "silvermont", "airmont", "bonnell", "sierra", "knights"];

fn available(profile: &'static Profile, cores: &Cores<'_>) -> Available {
    let mut rows: Vec<Row> = Vec::new();
    for &quantity in profile.rows {
        let events = row(quantity, profile.events, cores).and_then(|events| without_twins(events, &rows));
        rows.push(Row { quantity, events });
    }
    if let (Some(instead), true) = (profile.instead, rows.iter().all(|row| row.events.is_err())) {
        rows.push(Row { quantity: instead, events: row(instead, profile.events, cores) });
    }
    Available { profile, rows }
}

/// Refuses an event that an earlier row has: an event that two rows share is sampled once.
fn without_twins(events: Vec<Sampling>, before: &[Row]) -> Result<Vec<Sampling>, String> {
    let key = |event: &Sampling| (event.kind, event.config, event.more_config);
    for row in before {
        let taken =
            row.events.iter().flatten().any(|other| events.iter().any(|event| key(event) == key(other)));
        if taken {
            return Err(format!("this processor has no event for it but that of {}", row.quantity.name()));
        }
    }
    Ok(events)
}

/// Returns the events that measure `quantity` here, by the first of its names that resolves.
fn row(quantity: Quantity, first: Events, cores: &Cores<'_>) -> Result<Vec<Sampling>, String> {
    if let (true, Some(why)) = (quantity != Quantity::Time, cores.machine.no_core_pmu()) {
        return Err(why);
    }
    let mut why = "no event of this processor is known for it".to_owned();
    if first == Events::Table {
        match of_tables(quantity, cores) {
            Ok(events) if !events.is_empty() => return Ok(events),
            Ok(_) => {}
            Err(reason) => why = reason,
        }
    }
    for event in quantity.events(cores.vendor) {
        match on_cores(quantity, event, Of::Vendor, cores) {
            Ok(events) => return Ok(events),
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

/// Returns the events of the CPU models' tables that measure `quantity`: on each core PMU that of its own
/// table.
fn of_tables(quantity: Quantity, cores: &Cores<'_>) -> Result<Vec<Sampling>, String> {
    let mut events = Vec::new();
    for (pmu, model) in cores.tables.iter() {
        let Some(event) = quantity.facts().tabled.iter().find_map(|name| model.event(name)) else { continue };
        let found = on_cores(quantity, &notation(event), Of::Table(pmu), cores)?;
        events.extend(with_period(found, event.period));
    }
    Ok(events)
}

/// Origin of the name of a row's event.
#[derive(Clone, Copy, Debug)]
enum Of<'a> {
    /// Name by the vendor, for any core PMU that has it.
    Vendor,
    /// Name in a table, of this core PMU or of any.
    Table(Option<&'a str>),
}

/// Returns an event of a table in perf's event syntax, with the highest precision that it supports.
fn notation(event: &model::ModelEvent) -> String {
    match event.precise {
        model::Precise::No => event.name.clone(),
        model::Precise::Yes | model::Precise::Only => format!("{}:P", event.name),
    }
}

/// Sets the period that the vendor suggests for an event, if there is one.
fn with_period(mut events: Vec<Sampling>, period: u64) -> Vec<Sampling> {
    events.iter_mut().filter(|_| period > 0).for_each(|event| event.period = period);
    events
}

fn on_cores(quantity: Quantity, event: &str, of: Of<'_>, cores: &Cores<'_>) -> Result<Vec<Sampling>, String> {
    let list = List::parse(event).map_err(|error| error.to_string())?;
    let mut members = list.groups.iter().flat_map(|group| &group.members);
    // A bare code belongs to one kind of core. The code, or a table's name, is less descriptive than the
    // quantity.
    let is_raw = members.any(|event| matches!(event.what, What::Raw(_)));
    let coded = is_raw || matches!(of, Of::Table(_));
    let is_meant = |pmu: &String| match of {
        Of::Table(Some(only)) => pmu == only,
        Of::Table(None) => true,
        Of::Vendor => !is_raw || !cores.small.contains(pmu),
    };
    let groups = resolved(&list, cores.machine, cores.root, &|| cores.tables.clone())
        .map_err(|error| error.why.to_string())?;
    let several = cores.machine.pmus.iter().filter(|pmu| pmu.is_core()).count() > 1;
    let mut events = Vec::new();
    for selected in groups.iter().flat_map(|group| &group.events) {
        let places = selected.instances.len();
        for at in selected.instances.iter().filter(|at| is_meant(&at.pmu)) {
            let mut sampling = of_instance(selected, at, places).map_err(|error| error.to_string())?;
            if coded {
                let name = quantity.name();
                sampling.event = if several { format!("{}/{name}/", at.pmu) } else { name.to_owned() };
            }
            sampling.quantity = Some(quantity);
            sampling.period = quantity.facts().period;
            sampling.need = Need::Optional;
            events.push(sampling);
        }
    }
    if events.is_empty() { Err("its code is known for other cores only".to_owned()) } else { Ok(events) }
}
