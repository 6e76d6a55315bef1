//! Plan of `pmbpf io`: uncore PMUs, with groups of events that are multiplexed on each.

mod class;
mod instances;
pub mod listing;
mod order;
pub mod request;
mod requesters;
#[cfg(test)]
mod tests;
pub mod uncore;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use self::{
    instances::{FreeCounter, free_running},
    request::{IoRequest, Reporting},
    requesters::Requesters,
    uncore::{Parts, Placement, UncoreGroup, UncorePlan, UncorePlans},
};
use super::{
    Lost, PlanError, TICK, Target, in_words_with,
    multiplexing::{EventGroup, Multiplexing, PlannedEvent},
    request::{Descend, Inherit},
    resolve, tick,
};
use crate::{
    machine::{
        Machine,
        container::Follow,
        cpu::{self, Cpu},
        io::{
            Platform,
            bdf::Bdf,
            resctrl::{Monitoring, MonitoringError, MonitoringEvent},
        },
        pmu::{catalog::Catalog, cpuid::Cpuid},
    },
    suggest::nearest,
    table::{
        event_syntax::SelectedGroup,
        io::{self, IoTable},
    },
};

/// Complete plan of what `pmbpf io` opens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoPlan {
    /// Target to which bytes are attributed.
    pub target: Target,
    /// Names that may match more cgroups during the count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub follow: Vec<Follow>,
    /// Inheritance by children of processes.
    pub inherit: Inherit,
    /// Treatment of cgroups below the target.
    pub descend: Descend,
    /// Table of metrics, if there is one for this machine.
    pub table: Option<String>,
    /// Contents and form of the report.
    pub report: Reporting,
    /// Time between two drains.
    pub tick: Duration,
    /// Interval between two reports, for reports during the run.
    pub interval: Option<Duration>,
    /// Duration after which counting stops.
    pub duration: Option<Duration>,
    /// Kinds of uncore PMUs, each with the events that are counted on every uncore PMU of it.
    pub kinds: Vec<UncoreKind>,
    /// Metrics with events that do not count at the same times. They do not fit an uncore PMU's counters, or
    /// different kinds of uncore PMUs count them.
    #[serde(default)]
    pub apart: Vec<String>,
    /// resctrl monitoring that counts memory traffic of CPUs by group, if available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitoring: Option<Monitoring>,
    /// Items that cannot be measured here, with the reason.
    pub missing: Vec<Lost>,
}

/// Uncore PMUs of one kind, with the same events, formats and counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncoreKind {
    /// Name as in PMU names: `iio` in `uncore_iio_3`. The whole PMU name for an IOMMU that counts for single
    /// devices.
    pub name: String,
    /// Instances of the kind: each uncore PMU, once per die.
    #[serde(rename = "boxes")]
    pub instances: Vec<UncoreInstance>,
    /// Groups of events, of which each uncore PMU counts one at a time.
    pub turns: Multiplexing,
    /// Quantity that each event counts, by the names in the table's formulas: sums, each equal to the count.
    pub sums: Vec<Vec<Vec<String>>>,
    /// Parts of these stacks that are counted separately, because a device is known behind them. The others
    /// are not counted. `None`: all parts together.
    pub parts: Option<Vec<u32>>,
    /// Bytes that a count of each event stands for, on free-running counters that count bytes; 0 for a clock.
    /// Empty for other uncore PMUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unit_bytes: Vec<u32>,
    /// Device for which each group counts, by a filter of its IOMMU; `None` for the IOMMU's clock. Empty for
    /// uncore PMUs that count for all devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requesters: Vec<Option<Bdf>>,
}

impl IoPlan {
    /// Decides what to open for `request`. Needs no privilege. Uses the root of the file system to see which
    /// processes exist and where CPUs are.
    ///
    /// # Errors
    ///
    /// Returns the target or model that is not available, and the nearest match.
    pub fn new(
        request: &IoRequest,
        machine: &Machine,
        catalog: &Catalog,
        platform: &Platform,
        root: &Path,
    ) -> Result<Self, PlanError> {
        request.report.devices.iter().try_for_each(|device| exists(device, platform))?;
        let tick = tick(request.interval, request.tick_max);
        let (target, follow) = resolve(&request.target, machine, root)?;
        let mut plan = Self {
            target,
            follow,
            inherit: request.inherit,
            descend: request.descend,
            table: None,
            report: request.report.clone(),
            tick,
            interval: request.interval,
            duration: request.duration,
            kinds: Vec::new(),
            apart: Vec::new(),
            monitoring: None,
            missing: Vec::new(),
        };
        match table(request.model.as_deref(), root)? {
            Ok(mut table) => {
                if let Some(counters) = Cpuid::read(root, &[]).and_then(|cpuid| cpuid.amd_channel()) {
                    table.set_counters("amd_umc", counters);
                }
                plan.count(&table, catalog, platform, root);
            }
            Err(why) => {
                plan.missing.push(Lost { row: "PCIe, memory and links between sockets".to_owned(), why });
            }
        }
        let requesters = Requesters { catalog, platform, root, tick };
        let found = requesters.choose(&plan.report.devices, &plan.target)?;
        plan.kinds.extend(found.kinds);
        plan.missing.extend(found.missing);
        plan.monitor(Monitoring::find(root, &machine.cpu));
        Ok(plan)
    }

    /// Adds the traffic that resctrl counts, or the reason why it does not. A host without the hardware gets
    /// no message.
    fn monitor(&mut self, found: Option<Result<Monitoring, MonitoringError>>) {
        let Some(found) = found else { return };
        let why = match &found {
            Ok(monitoring) if monitoring.events.contains(&MonitoringEvent::MbmTotalBytes) => None,
            Ok(_) => Some("resctrl counts no memory traffic here (`info/L3_MON/mon_features`)".to_owned()),
            Err(error) => Some(error.with_fix()),
        };
        let row = || "memory traffic of CPUs by owner".to_owned();
        self.missing.extend(why.map(|why| Lost { row: row(), why }));
        self.monitoring = found.ok();
    }

    /// Returns the target in words, safe for a terminal, with the names that are followed.
    pub fn target_in_words(&self) -> String {
        in_words_with(&self.target, (self.inherit, self.descend), &self.follow)
    }

    /// Returns whether the plan counts stacks with parts to which ports could be matched.
    pub fn counts_stacks(&self) -> bool {
        self.kinds.iter().any(|kind| kind.name == "iio")
    }

    /// Returns the shortest run in which every group has as many slices as an interval needs; `None` without
    /// multiplexing.
    pub fn shortest(&self) -> Option<Duration> {
        let turns = self.kinds.iter().map(|kind| &kind.turns).filter(|turns| turns.take_turns());
        turns.map(|turns| turns.round() * instances::ROUNDS).max()
    }

    /// Adds the events that `table` has for the uncore PMUs of this host.
    fn count(&mut self, table: &IoTable, catalog: &Catalog, platform: &Platform, root: &Path) {
        self.table = Some(table.name().to_owned());
        let metrics: Vec<u32> = (0..table.model.metrics.len() as u32).collect();
        let found = UncorePlans::new(table, &metrics, catalog, &parts(platform));
        let mut lacking: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (metric, why) in &found.missing {
            lacking.entry(why.clone()).or_default().push(&table.model.metrics[*metric as usize].name);
        }
        let absent = table.absent.iter().map(|absent| (absent.why.clone(), absent.name.as_str()));
        absent.for_each(|(why, name)| lacking.entry(why).or_default().push(name));
        let lost = lacking.into_iter().map(|(why, names)| Lost { row: names.join(", "), why });
        self.missing.extend(lost);
        self.kinds = found.plans.iter().map(|plan| kind(plan, table, catalog, root, self.tick)).collect();
        let hoped = found.plans.iter().flat_map(|plan| &plan.groups);
        self.missing.extend(hoped.filter(|group| group.placement == Placement::Hoped).map(uncertain));
        let apart = metrics.iter().filter(|metric| found.apart(**metric).is_some());
        self.apart = apart.map(|metric| table.model.metrics[*metric as usize].name.clone()).collect();
        self.kinds.extend(always_running(table, catalog, root));
    }
}

impl UncoreKind {
    /// Returns whether the kind counts for all devices, and not for single devices.
    pub const fn is_everybodys(&self) -> bool {
        self.requesters.is_empty()
    }

    /// Returns whether its counters must be stopped to be read. Counters of AMD's IOMMUs begin at 0 when they
    /// are started. Each read adds the whole counter to the event, so that a second read adds the first one's
    /// value again (`perf_iommu_read`, arch/x86/events/amd/iommu.c, 6.12).
    pub fn stops_to_be_read(&self) -> bool {
        self.instances.iter().any(|site| site.pmu.starts_with("amd_iommu"))
    }

    /// Returns the number of descriptors that the kind takes.
    pub fn descriptors(&self) -> usize {
        self.instances.len() * self.turns.descriptors()
    }
}

/// One uncore PMU of one die.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UncoreInstance {
    /// Name of the PMU.
    pub pmu: String,
    /// `perf_event_attr.type` of the PMU.
    pub kind: u32,
    /// Number in the PMU's name; the numbers may have holes.
    pub unit: u32,
    /// Number of the die.
    pub die: u32,
    /// CPU of the die on which its events are opened (`cpumask`).
    pub cpu: Cpu,
}

/// Checks that a PCI device, a disk or an interface of that name exists.
fn exists(name: &str, platform: &Platform) -> Result<(), PlanError> {
    let disks = platform.disks.iter().map(|disk| &disk.name);
    let names: Vec<String> = disks
        .chain(platform.interfaces.iter().map(|interface| &interface.name))
        .filter_map(|name| std::str::from_utf8(name.as_bytes()).ok().map(str::to_owned))
        .collect();
    if names.iter().any(|known| known == name) {
        return Ok(());
    }
    if name.contains(':') {
        return Ok(platform.find(name).map(drop)?);
    }
    let near = nearest(name, names.into_iter(), |name| name);
    Err(PlanError::NoDevice(name.to_owned(), near))
}

/// Returns the table to use, or the reason why there is none for this machine.
fn table(model: Option<&str>, root: &Path) -> Result<Result<IoTable, String>, PlanError> {
    if let Some(name) = model {
        return Ok(Ok(io::load(name)?));
    }
    let Some(identity) = cpu::identity(root) else {
        return Ok(Err("the kernel does not say what processor this is".to_owned()));
    };
    match io::for_machine(&identity) {
        Some(name) => Ok(Ok(io::load(name)?)),
        None => Ok(Err(format!("no table knows the uncore PMUs of this processor ({identity})"))),
    }
}

/// Returns the parts behind which a device is known, by PMU.
fn parts(platform: &Platform) -> BTreeMap<String, Parts> {
    let mut known: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for port in &platform.ports {
        let unit = platform.stack_of(port.bus).and_then(|stack| stack.unit.value());
        if let (Some(unit), Some(parts)) = (unit, port.parts.value()) {
            known.entry(unit.pmu.clone()).or_default().extend(parts);
        }
    }
    known.into_iter().map(|(pmu, parts)| (pmu, Parts::Each(parts.into_iter().collect()))).collect()
}

fn kind(plan: &UncorePlan, table: &IoTable, catalog: &Catalog, root: &Path, tick: Duration) -> UncoreKind {
    let name = |operand: &u32| table.operand(*operand).unwrap_or("?").to_owned();
    let names = |sum: &Vec<u32>| sum.iter().map(name).collect::<Vec<String>>();
    let sums = plan.groups.iter().flat_map(|group| &group.sums);
    let sums = sums.map(|sums| sums.iter().map(names).collect());
    let events = |group: &SelectedGroup| EventGroup {
        events: group
            .events
            .iter()
            .filter_map(|event| Some(PlannedEvent::of(event, event.instances.first()?)))
            .collect(),
    };
    let instances = instances::instances(&plan.pmus, catalog, root);
    let slice = instances::slice(plan.groups.len(), tick);
    let groups = plan.groups.iter().map(|group| events(&group.group)).collect();
    UncoreKind {
        name: plan.unit.clone(),
        instances,
        turns: Multiplexing { pmu: plan.unit.clone(), always: Vec::new(), groups, slice },
        sums: sums.collect(),
        parts: match &plan.parts {
            Parts::Each(parts) => Some(parts.clone()),
            Parts::Together => None,
        },
        unit_bytes: Vec::new(),
        requesters: Vec::new(),
    }
}

/// Reports a group that only some kernels place on the right counters.
fn uncertain(group: &UncoreGroup) -> Lost {
    let names: Vec<&str> = group.group.events.iter().map(|event| event.name.as_str()).collect();
    let why = "counted; but an older kernel may not know which counters can count them all";
    Lost { row: names.join(", "), why: why.to_owned() }
}

/// Returns the uncore PMUs with free-running counters, as one kind each. All counters of a kind are one
/// group, which is never stopped.
fn always_running(table: &IoTable, catalog: &Catalog, root: &Path) -> Vec<UncoreKind> {
    let mut kinds: BTreeMap<String, Vec<FreeCounter>> = BTreeMap::new();
    for free in free_running(table, catalog) {
        kinds.entry(free.counter.unit.clone()).or_default().push(free);
    }
    let pmus = |counters: &[FreeCounter]| -> Vec<String> {
        let instances = counters.first().map(|free| &free.event.instances);
        instances.into_iter().flatten().map(|at| at.pmu.clone()).collect()
    };
    let kind = |(name, counters): (String, Vec<FreeCounter>)| {
        let planned = |free: &FreeCounter| Some(PlannedEvent::of(&free.event, free.event.instances.first()?));
        let events: Vec<PlannedEvent> = counters.iter().filter_map(planned).collect();
        let groups = vec![EventGroup { events }];
        let slice = instances::slice(1, TICK);
        UncoreKind {
            instances: instances::instances(&pmus(&counters), catalog, root),
            turns: Multiplexing { pmu: name.clone(), always: Vec::new(), groups, slice },
            sums: vec![Vec::new(); counters.len()],
            parts: None,
            unit_bytes: counters.iter().map(|free| free.counter.unit_bytes).collect(),
            requesters: Vec::new(),
            name,
        }
    };
    kinds.into_iter().map(kind).collect()
}
