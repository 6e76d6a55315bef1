//! Devices for which their IOMMU can count separately: the choice of them, and their groups.
//!
//! A counter of an IOMMU with the filter counts for one requester only. So each device has a separate group,
//! and the devices behind one IOMMU are multiplexed. A device that is alone there needs no filter. The
//! IOMMU's clock, which belongs to no requester, counts in addition to them. The number of an IOMMU's
//! counters is in a register that the kernel does not show. If none is left for the clock, the kernel
//! multiplexes it with the devices.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use super::{UncoreKind, class::selected, instances};
use crate::{
    machine::{
        io::{
            Platform,
            bdf::Bdf,
            owner,
            pci::{Device, Domain},
        },
        pmu::catalog::{Catalog, Entry},
    },
    plan::{
        Lost, Target,
        multiplexing::{EventGroup, Multiplexing, PlannedEvent},
    },
    table::io::{FindError, IOMMUS, IoTable, Requester, of_iommu},
    untrusted::Untrusted,
};

/// Maximum number of devices of one IOMMU that are multiplexed, unless they are named: each counts for a
/// quarter of the time.
const OF_ONE_MAX: usize = 4;
/// Maximum number of devices of all IOMMUs, unless they are named. A slice costs some twenty accesses to
/// registers of the IOMMU, of which each takes a CPU about a microsecond.
const OF_ALL_MAX: usize = 16;
/// Maximum number of names in a reason; further ones are only counted.
const NAMED_MAX: usize = 3;

/// Sources from which devices are chosen.
pub(super) struct Requesters<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) platform: &'a Platform,
    pub(super) root: &'a Path,
    pub(super) tick: Duration,
}

/// Kinds to open for the devices, and those that cannot be opened.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) kinds: Vec<UncoreKind>,
    pub(super) missing: Vec<Lost>,
}

/// Priority of a device: the order in which devices are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    /// Device that was named.
    Named,
    /// Device that the target drives directly.
    Own,
    /// Device for which the kernel has a disk, an interface or another node.
    Seen,
    /// Any other device.
    Any,
}

/// Device for which its IOMMU can count separately.
struct Candidate<'a> {
    wish: Wish,
    device: &'a Device,
    /// Counters of its IOMMU.
    counters: Counters<'a>,
    /// Events that the IOMMU counts for the device.
    events: Vec<PlannedEvent>,
}

impl Requesters<'_> {
    /// Chooses devices: those in `named`, or else the target's own first and then any with a driver.
    pub(super) fn choose(&self, named: &[String], target: &Target) -> Result<Found, FindError> {
        let mut tables = BTreeMap::new();
        for (unit, _) in IOMMUS {
            tables.extend(of_iommu(unit)?.map(|table| (*unit, table)));
        }
        let named = self.functions(named);
        let devices = self.platform.devices.iter().filter(|device| match &named {
            Some(named) => named.contains(&device.bdf),
            None => is_driven(device) && device.translation.is_some(),
        });
        let mut refused: BTreeMap<String, Vec<Bdf>> = BTreeMap::new();
        let mut candidates = Vec::new();
        for device in devices {
            let wish = match named {
                Some(_) => Wish::Named,
                None if self.is_seen(device.bdf) => Wish::Seen,
                None => Wish::Any,
            };
            match self.candidate(device, wish, &tables) {
                Ok(candidate) => candidates.push(candidate),
                Err(why) => refused.entry(why).or_default().push(device.bdf),
            }
        }
        if named.is_none() && !candidates.is_empty() {
            let own = self.own(target);
            candidates
                .iter_mut()
                .filter(|one| own.contains(&one.device.bdf))
                .for_each(|one| one.wish = Wish::Own);
        }
        let (chosen, left) = bounded(candidates);
        if !left.is_empty() {
            let why = format!(
                "{OF_ONE_MAX} devices of an IOMMU take turns, {OF_ALL_MAX} in all; --device names others"
            );
            refused.entry(why).or_default().extend(left);
        }
        let mut found = Found::default();
        let lost =
            |(why, devices): (String, Vec<Bdf>)| Lost { row: format!("vtd of {}", listed(&devices)), why };
        found.missing.extend(refused.into_iter().map(lost));
        self.open(&chosen, &mut found);
        Ok(found)
    }

    /// Returns the functions that names stand for: a PCI address, a disk's devices, an interface's, and all
    /// devices behind a bridge. Returns `None` if there are no names.
    fn functions(&self, names: &[String]) -> Option<BTreeSet<Bdf>> {
        let mut found = BTreeSet::new();
        for name in names {
            found.extend(self.platform.carriers_of(name.as_bytes()));
            let interfaces =
                self.platform.interfaces.iter().filter(|one| one.name.as_bytes() == name.as_bytes());
            found.extend(interfaces.filter_map(|one| one.device));
            let Some(device) = self.platform.find(name).ok().and_then(|bdf| self.platform.device(bdf)) else {
                continue;
            };
            let behind = self.platform.devices.iter().filter(|other| other.above.contains(&device.bdf));
            let ends = behind.chain([device]).filter(|device| !device.is_infrastructure());
            found.extend(ends.map(|device| device.bdf));
        }
        (!names.is_empty()).then_some(found)
    }

    /// Returns whether the kernel has a node or a name for the device.
    fn is_seen(&self, bdf: Bdf) -> bool {
        let nodes = &self.platform.nodes;
        nodes.iter().any(|node| node.device == bdf) || !self.platform.names_of(bdf).is_empty()
    }

    /// Returns the number of other devices with a driver behind the device's IOMMU. Bridges make no requests
    /// themselves.
    fn others_behind(&self, device: &Device) -> usize {
        let others = self.platform.devices.iter().filter(|other| other.bdf != device.bdf && is_driven(other));
        others.filter(|other| iommu(other) == iommu(device)).count()
    }

    /// Returns the devices that the target's processes drive directly.
    fn own(&self, target: &Target) -> BTreeSet<Bdf> {
        let is_his = |user: &owner::User| match target {
            Target::Processes(ids) | Target::Threads(ids) => ids.contains(&user.pid),
            Target::Cgroups(cgroups) => cgroups.iter().any(|cgroup| user.is_within(cgroup.path.as_bytes())),
            Target::System | Target::Command(_) => false,
        };
        if matches!(target, Target::System | Target::Command(_)) {
            return BTreeSet::new();
        }
        let all = owner::read(self.root, self.platform).into_iter();
        all.filter(|(_, whose)| whose.users().iter().any(is_his)).map(|(bdf, _)| bdf).collect()
    }

    /// Returns the candidate if its IOMMU can count for this device alone, or else the reason why not.
    fn candidate<'b>(
        &'b self,
        device: &'b Device,
        wish: Wish,
        tables: &'b BTreeMap<&str, IoTable>,
    ) -> Result<Candidate<'b>, String> {
        let translation = device.translation.as_ref().ok_or("no IOMMU stands before it")?;
        if translation.domain == Domain::Identity {
            return Err(
                "its IOMMU lets its addresses through as they are (its domain is `identity`)".to_owned()
            );
        }
        let id =
            device.bdf.requester_id().ok_or("it is behind a VMD, whose requests carry the VMD's address")?;
        let known = translation.pmu().and_then(|(unit, pmu)| Some((tables.get(unit)?, pmu)));
        let (table, name) = known.ok_or("its IOMMU is of a kind that no table knows")?;
        let pmu =
            self.catalog.pmus.iter().find(|pmu| pmu.name == name).ok_or_else(|| no_pmu(table.name()))?;
        let counters = Counters { table, pmu };
        // A device that is alone behind its IOMMU needs no filter.
        let id = match self.others_behind(device) {
            _ if counters.has_filter() => Some(id),
            0 => None,
            _ => {
                return Err(
                    "counters of its IOMMU have no filter by requester, and others are behind it".to_owned()
                );
            }
        };
        let events = counters.events().into_iter().filter(|&event| !table.is_averaged(event));
        let events = events.map(|event| counters.planned(event, id, self.catalog));
        let events = events.collect::<Result<Vec<_>, String>>()?;
        if events.is_empty() {
            return Err("its IOMMU counts no event of a device's metrics".to_owned());
        }
        Ok(Candidate { wish, device, counters, events })
    }

    /// Adds the groups of the chosen devices, by IOMMU.
    fn open(&self, chosen: &[Candidate], found: &mut Found) {
        let mut by_pmu: BTreeMap<u32, Vec<&Candidate>> = BTreeMap::new();
        for one in chosen {
            by_pmu.entry(one.counters.pmu.kind).or_default().push(one);
        }
        let mut lacking: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
        for devices in by_pmu.values() {
            let Some(Candidate { counters, .. }) = devices.first() else { continue };
            for (metric, event) in counters.lacking() {
                lacking.entry((event, metric)).or_default().push(&counters.pmu.name);
            }
            let clocks = counters.events().into_iter().filter(|&event| counters.table.is_averaged(event));
            let clocks = clocks.filter_map(|clock| counters.planned(clock, None, self.catalog).ok());
            let clocks: Vec<PlannedEvent> = clocks.collect();
            if !clocks.is_empty() {
                found.kinds.push(self.kind(*counters, vec![(None, clocks)]));
            }
            let groups = devices.iter().map(|one| (Some(one.device.bdf), one.events.clone()));
            found.kinds.push(self.kind(*counters, groups.collect()));
        }
        let lost = |((event, metric), pmus): ((String, String), Vec<&str>)| Lost {
            row: format!("{metric} of devices"),
            why: format!("no {event} is counted by {}", pmus.join(", ")),
        };
        found.missing.extend(lacking.into_iter().map(lost));
    }

    fn kind(&self, of: Counters, groups: Vec<(Option<Bdf>, Vec<PlannedEvent>)>) -> UncoreKind {
        let sums = groups.iter().flat_map(|(_, events)| events).map(|event| vec![vec![event.name.clone()]]);
        let sums = sums.collect();
        let slice = instances::slice(groups.len(), self.tick);
        let (requesters, groups) =
            groups.into_iter().map(|(whose, events)| (whose, EventGroup { events })).unzip();
        let name = of.pmu.name.clone();
        UncoreKind {
            instances: instances::instances(std::slice::from_ref(&name), self.catalog, self.root),
            turns: Multiplexing { pmu: of.table.name().to_owned(), always: Vec::new(), groups, slice },
            sums,
            parts: None,
            unit_bytes: Vec::new(),
            requesters,
            name,
        }
    }
}

/// Returns whether the device is an endpoint that moves data.
fn is_driven(device: &Device) -> bool {
    !device.is_infrastructure() && device.driver.is_some()
}

fn iommu(of: &Device) -> Option<&Untrusted> {
    of.translation.as_ref().map(|translation| &translation.iommu)
}

fn no_pmu(unit: &str) -> String {
    let takes = match unit {
        "dmar" => ": that takes Sapphire Rapids or later, and Linux 6.3",
        _ => "",
    };
    format!("the kernel has no counters of its IOMMU (no {unit} PMU){takes}")
}

/// Splits devices into those that are counted and those without a slice. The first device of every IOMMU
/// comes before the second of any other.
fn bounded(mut all: Vec<Candidate<'_>>) -> (Vec<Candidate<'_>>, Vec<Bdf>) {
    all.sort_by_key(|one| (one.wish, one.device.physical.is_some(), one.device.bdf));
    let mut before: BTreeMap<u32, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, Candidate)> = Vec::with_capacity(all.len());
    for one in all {
        let rank = before.entry(one.counters.pmu.kind).or_default();
        *rank += 1;
        ranked.push((*rank, one));
    }
    ranked.sort_by_key(|(rank, one)| (one.wish, *rank, one.device.bdf));
    let (mut chosen, mut left) = (Vec::new(), Vec::new());
    for (rank, one) in ranked {
        if one.wish == Wish::Named || rank <= OF_ONE_MAX && chosen.len() < OF_ALL_MAX {
            chosen.push(one);
        } else {
            left.push(one.device.bdf);
        }
    }
    left.sort_unstable();
    chosen.sort_by_key(|one| one.device.bdf);
    (chosen, left)
}

/// Returns a list such as `0000:16:00.0, 0000:29:00.0, 0000:2a:00.0 and 2 more`.
fn listed(devices: &[Bdf]) -> String {
    let named = devices.iter().take(NAMED_MAX).map(Bdf::to_string).collect::<Vec<_>>().join(", ");
    match devices.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Counters of an IOMMU, with the table of their kind.
#[derive(Clone, Copy)]
struct Counters<'a> {
    table: &'a IoTable,
    pmu: &'a Entry,
}

impl Counters<'_> {
    /// Returns whether it can count for one requester. The kernel shows the terms of filters that the IOMMU
    /// has.
    fn has_filter(&self) -> bool {
        let mut terms = self.table.requesters.iter().flat_map(Requester::names);
        terms.all(|term| self.pmu.term(term).is_some())
    }

    /// Returns the events of a device's metrics that it counts, as operands of the table. A metric is left
    /// out if the IOMMU lacks one of its events, which the kernel then does not name.
    fn events(&self) -> BTreeSet<u32> {
        let known = self.metrics().filter(|&metric| self.lacks(metric).is_none());
        known.flat_map(|metric| self.table.model.operands_of(metric)).collect()
    }

    /// Returns the metrics that it cannot provide, each with an event that it lacks.
    fn lacking(&self) -> Vec<(String, String)> {
        let name = |metric: u32| self.table.model.metrics[metric as usize].name.clone();
        self.metrics().filter_map(|metric| Some((name(metric), self.lacks(metric)?))).collect()
    }

    fn metrics(&self) -> std::ops::Range<u32> {
        0..self.table.model.metrics.len() as u32
    }

    fn lacks(&self, metric: u32) -> Option<String> {
        let operands = self.table.model.operands_of(metric).into_iter();
        let mut names = operands.filter_map(|operand| self.table.operand(operand));
        names.find(|name| self.pmu.event(name).is_none()).map(str::to_owned)
    }

    /// Returns an event for this requester, or for all.
    fn planned(
        &self,
        operand: u32,
        requester: Option<u16>,
        catalog: &Catalog,
    ) -> Result<PlannedEvent, String> {
        let name = self.table.operand(operand).unwrap_or("?");
        let event = self.table.model.event(name).ok_or_else(|| format!("{name} has no encoding"))?;
        let filters = self.table.requesters.iter().zip(requester).map(|(filter, id)| filter.terms_of(id));
        let terms = std::iter::once(event.terms.clone()).chain(filters).collect::<Vec<_>>().join(",");
        let found = selected(&self.pmu.name, name, &terms, catalog)?;
        let at = found.instances.first().ok_or_else(|| format!("nothing counts {name}"))?;
        Ok(PlannedEvent::of(&found, at))
    }
}
