//! What `pmbpf io` will open: uncore PMUs, with groups of events that are multiplexed on each.

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

/// Everything that `pmbpf io` opens, decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoPlan {
    /// Whose bytes are told apart.
    pub target: Target,
    /// Names that may mean more cgroups while counting goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub follow: Vec<Follow>,
    /// Children of processes.
    pub inherit: Inherit,
    /// Cgroups below.
    pub descend: Descend,
    /// The table of metrics, if there is one for this machine.
    pub table: Option<String>,
    /// What to report, and how.
    pub report: Reporting,
    /// Time between two drains.
    pub tick: Duration,
    /// Time between two reports, if reports are asked for while running.
    pub interval: Option<Duration>,
    /// Stop after.
    pub duration: Option<Duration>,
    /// Kinds of uncore PMUs, each with what is counted on every uncore PMU of it.
    pub kinds: Vec<UncoreKind>,
    /// Metrics whose events do not count at the same times, since they do not fit an uncore PMU's counters or different kinds of uncore PMUs
    /// count them.
    #[serde(default)]
    pub apart: Vec<String>,
    /// Where memory traffic of CPUs is counted by group, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitoring: Option<Monitoring>,
    /// What cannot be measured here, and why.
    pub missing: Vec<Lost>,
}

/// UncorePlans of one kind: they have the same events, formats and counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncoreKind {
    /// As PMUs are named: `iio` in `uncore_iio_3`; the whole name of an IOMMU's that counts for single devices.
    pub name: String,
    /// Every instance: each uncore PMU, once a die.
    #[serde(rename = "boxes")]
    pub instances: Vec<UncoreInstance>,
    /// Groups of events, of which each uncore PMU counts one at a time.
    pub turns: Multiplexing,
    /// What each of the events counts, by what the table's formulas call it: sums, each of them equal to the count.
    pub sums: Vec<Vec<Vec<String>>>,
    /// Parts of these stacks that are counted one by one, because a device is known behind them; the others are not counted.
    /// None: all of them together.
    pub parts: Option<Vec<u32>>,
    /// Bytes that a count of each event stands for, where these uncore PMUs' counters always run and mean that; 0 for a clock. Empty
    /// for other uncore PMUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unit_bytes: Vec<u32>,
    /// The device that each group counts for, by a filter of its IOMMU; none for the IOMMU's clock. Empty for uncore PMUs that count for
    /// everybody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requesters: Vec<Option<Bdf>>,
}

impl IoPlan {
    /// Decides what to open for `request`. Needs no privilege, and the root of the file system only to see which processes
    /// exist and where CPUs stand.
    ///
    /// # Errors
    ///
    /// Names the target or model that cannot be had, and the nearest that can.
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

    /// Adds what resctrl counts, or why it does not. A host without the hardware is not bothered.
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

    /// The target in words, safe for a terminal, with the names that are followed.
    pub fn target_in_words(&self) -> String {
        in_words_with(&self.target, (self.inherit, self.descend), &self.follow)
    }

    /// Are there stacks whose parts ports could be held against?
    pub fn counts_stacks(&self) -> bool {
        self.kinds.iter().any(|kind| kind.name == "iio")
    }

    /// The shortest run in which every group of counters has as many turns as an interval needs; none if nothing is multiplexed.
    pub fn shortest(&self) -> Option<Duration> {
        let turns = self.kinds.iter().map(|kind| &kind.turns).filter(|turns| turns.take_turns());
        turns.map(|turns| turns.round() * instances::ROUNDS).max()
    }

    /// Adds what `table` says about the uncore PMUs that are here.
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
    /// Does it count for everybody, and not for single devices?
    pub const fn is_everybodys(&self) -> bool {
        self.requesters.is_empty()
    }

    /// Must its counters be stopped to be read? Those of AMD's IOMMUs begin at 0 when they are started, and each reading adds all that
    /// is in them to the event, so that a second one adds the first one's again (`perf_iommu_read`, arch/x86/events/amd/iommu.c, 6.12).
    pub fn stops_to_be_read(&self) -> bool {
        self.instances.iter().any(|site| site.pmu.starts_with("amd_iommu"))
    }

    /// Descriptors that it takes.
    pub fn descriptors(&self) -> usize {
        self.instances.len() * self.turns.descriptors()
    }
}

/// One uncore PMU of one die.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UncoreInstance {
    /// Its PMU.
    pub pmu: String,
    /// `perf_event_attr.type` of that.
    pub kind: u32,
    /// Number in the PMU's name; they may have holes.
    pub unit: u32,
    /// The die.
    pub die: u32,
    /// The CPU on which its events are opened, one of the die's (`cpumask`).
    pub cpu: Cpu,
}

/// Is there a PCI device, a disk or an interface of that name?
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

/// The table to use, or why there is none for this machine.
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

/// Parts that a device is known behind, by PMU.
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

/// A group that only some kernels put on the right counters.
fn uncertain(group: &UncoreGroup) -> Lost {
    let names: Vec<&str> = group.group.events.iter().map(|event| event.name.as_str()).collect();
    let why = "counted; but an older kernel may not know which counters can count them all";
    Lost { row: names.join(", "), why: why.to_owned() }
}

/// UncorePlans whose counters always run, a kind each: all of a kind's counters are one group, which is never stopped.
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
