//! Subtracts the drains of `pmbpf io`, and keeps the names that came with them.

use std::collections::{BTreeMap, VecDeque};

use super::{IoInterval, groups::GroupsInterval, traffic::TrafficInterval};
use crate::{
    drain::{
        Absent,
        io::{IoDrain, Named, block::DeviceNumber, group::Groups, traffic::Traffic},
    },
    machine::io::{bdf::Bdf, owner::Ownership, resctrl::Event},
    plan::io::IoPlan,
    untrusted::Untrusted,
};

/// Names of cgroups that are kept: more than there can be rows.
const CGROUPS_MAX: usize = 65_536;

/// The last reading of every source, and names so far.
#[derive(Clone, Debug)]
pub struct IoLedger {
    /// Cgroups, by id.
    pub cgroups: BTreeMap<u64, Untrusted>,
    /// The id of the last one that was told with a path.
    pub paths: BTreeMap<Untrusted, u64>,
    /// Their ids in the order in which they were told.
    told: VecDeque<u64>,
    /// Disks.
    pub disks: BTreeMap<DeviceNumber, Untrusted>,
    /// Who has which device for himself.
    pub owned: Vec<(Bdf, Ownership)>,
    /// Targets that had no group of their own, when that was last so, and why.
    pub untold: Vec<Absent>,
    /// The last drain, without what is in intervals.
    pub last: IoDrain,
    begun: bool,
    traffic: Option<Traffic>,
    /// What groups count, in the order in which counts stand in a drain; none where nothing is.
    events: Option<Vec<Event>>,
    groups: Option<Groups>,
}

impl IoLedger {
    /// An empty ledger for a run that counts what `plan` says.
    #[must_use]
    pub fn new(plan: &IoPlan) -> Self {
        Self {
            cgroups: BTreeMap::new(),
            paths: BTreeMap::new(),
            told: VecDeque::new(),
            disks: BTreeMap::new(),
            owned: Vec::new(),
            untold: Vec::new(),
            last: IoDrain::default(),
            begun: false,
            traffic: None,
            events: plan.monitoring.as_ref().map(|monitoring| monitoring.events.clone()),
            groups: None,
        }
    }

    /// What was counted since the drain before. The first one says what there was before anything was counted: the run begins with
    /// it.
    pub fn advance(&mut self, mut drain: IoDrain) -> IoInterval {
        let is_first = !std::mem::replace(&mut self.begun, true);
        let from_ns = if is_first && drain.boxes.is_empty() { drain.at_ns } else { self.last.at_ns };
        self.learn(std::mem::take(&mut drain.names));
        self.disks.extend(drain.disks.drain(..).map(|named| (named.device, named.name)));
        if !drain.owned.is_empty() {
            self.owned = std::mem::take(&mut drain.owned);
        }
        let interval = IoInterval {
            traffic: drain.traffic.take().map(|now| self.traffic_until(now)),
            groups: drain.groups.take().map(|now| self.groups_until(now)).unwrap_or_default(),
            ..IoInterval::of(std::mem::take(&mut drain.boxes), from_ns, drain.at_ns)
        };
        self.last = drain;
        interval
    }

    /// Bounds how much an interval holds that is appended to: see [`TrafficInterval::fold`].
    pub fn fold(&self, interval: &mut IoInterval) {
        if let (Some(traffic), Some(now)) = (&mut interval.traffic, &self.traffic) {
            traffic.fold(now);
        }
    }

    fn traffic_until(&mut self, now: Traffic) -> TrafficInterval {
        let before = self.traffic.as_ref();
        let tick = before.map(|before| TrafficInterval::between(before, &now)).unwrap_or_default();
        self.traffic = Some(now);
        tick
    }

    fn groups_until(&mut self, mut now: Groups) -> GroupsInterval {
        let Some(events) = &self.events else { return GroupsInterval::default() };
        let before = self.groups.as_ref();
        let tick = before.map(|before| GroupsInterval::between(before, &now, events)).unwrap_or_default();
        if !now.untold.is_empty() {
            self.untold = std::mem::take(&mut now.untold);
        }
        self.groups = Some(now);
        tick
    }

    /// Takes names of cgroups. Of more than [`CGROUPS_MAX`] those that were told last stay: older ones are of cgroups whose rows are
    /// likely to have been added up.
    fn learn(&mut self, names: Vec<Named>) {
        for Named { cgroup, path } in names {
            self.paths.insert(path.clone(), cgroup);
            if self.cgroups.insert(cgroup, path).is_none() {
                self.told.push_back(cgroup);
            }
        }
        while self.told.len() > CGROUPS_MAX {
            let Some(oldest) = self.told.pop_front() else { return };
            let path = self.cgroups.remove(&oldest);
            if let Some(path) = path.filter(|path| self.paths.get(path) == Some(&oldest)) {
                self.paths.remove(&path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CGROUPS_MAX, IoLedger};
    use crate::{
        drain::io::{
            IoDrain, Named,
            testing::{drains, header},
        },
        model::io::IoInterval,
        untrusted::Untrusted,
    };

    #[test]
    fn a_run_begins_with_the_first_drain_unless_something_was_counted_before() {
        let header = header();
        for first in 0..2 {
            let (mut ledger, mut total) = (IoLedger::new(&header.plan), IoInterval::default());
            for mut drain in drains(&header).into_iter().skip(first) {
                drain.at_ns += 500;
                total.append(ledger.advance(drain));
            }
            let begun = if first == 0 { 500 } else { 0 };
            assert_eq!((total.from_ns, total.to_ns), (begun, 5_000_000_500), "drain {first} is the first");
            let traffic = total.traffic.unwrap();
            assert_eq!(traffic.duration_ns, (5 - first as u64) * 1_000_000_000);
            assert_eq!(traffic.losses["io_nested"], 5 - first as u64, "what was lost before is not ours");
        }
    }

    #[test]
    fn of_too_many_names_those_that_were_told_last_stay() {
        let (mut ledger, most) = (IoLedger::new(&header().plan), CGROUPS_MAX as u64);
        let named = |cgroup: u64| Named { cgroup, path: Untrusted::from("/web") };
        for cgroups in [0..most, 0..2, most..most + 3] {
            ledger.advance(IoDrain { names: cgroups.map(named).collect(), ..IoDrain::default() });
        }
        assert_eq!(ledger.cgroups.len(), CGROUPS_MAX);
        assert!(!ledger.cgroups.contains_key(&2) && ledger.cgroups.contains_key(&(most + 2)));
    }
}
