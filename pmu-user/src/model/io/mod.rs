//! Differences between drains of I/O: intervals, their sums, and the names that came with them.

pub mod groups;
pub mod kernel;
pub mod names;
pub mod traffic;

use std::collections::{BTreeMap, BTreeSet};

use self::{
    groups::GroupsInterval,
    kernel::KernelInterval,
    names::CgroupPaths,
    traffic::{TrafficInterval, grown},
};
use super::{FollowedPaths, OwnCost, slice::condense};
use crate::{
    drain::{
        Absent, SlotId,
        io::{IoDrain, KernelCounts, UncoreSlice, block::DeviceNumber, group::Groups, traffic::Traffic},
        reading::SliceRow,
    },
    machine::io::{bdf::Bdf, owner::Ownership, resctrl::MonitoringEvent},
    plan::io::IoPlan,
    untrusted::Untrusted,
};

/// Slices of an uncore PMU beyond which those of a long run are merged. More slices do not improve intervals.
const SLICES_MAX: usize = 512;

/// Id of an uncore PMU: index of its kind in the plan, and index within that kind.
pub type UncoreId = (u32, u32);

/// Span of time, in ns since counting started. It may begin before that, if a recording begins midway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Start of the span.
    pub from_ns: i64,
    /// End of the span.
    pub to_ns: i64,
}

impl Span {
    /// Returns the span of a slice. A recording may hold any number.
    fn of(slice: &UncoreSlice) -> Self {
        let to_ns = signed(slice.ended_ns);
        Self { from_ns: to_ns.saturating_sub(signed(slice.enabled_ns)), to_ns }
    }

    /// Returns the span from the earlier start to the later end.
    fn joined(self, other: Self) -> Self {
        Self { from_ns: self.from_ns.min(other.from_ns), to_ns: self.to_ns.max(other.to_ns) }
    }
}

/// Returns a time in ns as one that may be before counting started.
pub fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Counts of I/O in some time.
#[derive(Clone, Debug, Default)]
pub struct IoInterval {
    /// Start, in ns since counting started.
    pub from_ns: u64,
    /// End, in ns since counting started.
    pub to_ns: u64,
    /// Slices of each uncore PMU, in order of time.
    pub uncore: BTreeMap<UncoreId, Vec<SliceRow>>,
    /// Start of each uncore PMU's first slice and end of its last one. They differ slightly from the
    /// interval's, since uncore PMUs are read one after the other.
    pub spans: BTreeMap<UncoreId, Span>,
    /// Block requests and packets, where they are counted.
    pub traffic: Option<TrafficInterval>,
    /// The kernel's own counts.
    pub kernel: KernelInterval,
    /// Memory traffic by group.
    pub groups: GroupsInterval,
    /// Losses by reason, except those of traffic.
    pub losses: BTreeMap<String, u64>,
}

impl IoInterval {
    /// Returns the counts of uncore PMUs between two drains.
    pub fn of(slices: Vec<UncoreSlice>, from_ns: u64, to_ns: u64) -> Self {
        let mut interval = Self { from_ns, to_ns, ..Self::default() };
        for slice in slices {
            let id = (slice.kind, slice.at);
            interval.lasts(id, Span::of(&slice));
            interval.uncore.entry(id).or_default().push(row(slice));
        }
        interval
    }

    fn lasts(&mut self, id: UncoreId, span: Span) {
        self.spans.entry(id).and_modify(|all| *all = all.joined(span)).or_insert(span);
    }

    /// Adds the interval that follows. An interval without length begins where that does.
    pub fn append(&mut self, next: Self) {
        if self.from_ns == self.to_ns {
            self.from_ns = next.from_ns;
        }
        self.to_ns = next.to_ns;
        for (id, mut rows) in next.uncore {
            let all = self.uncore.entry(id).or_default();
            all.append(&mut rows);
            fold(all);
        }
        next.spans.into_iter().for_each(|(id, span)| self.lasts(id, span));
        if let Some(traffic) = next.traffic {
            self.traffic.get_or_insert_default().append(traffic);
        }
        self.kernel.append(next.kernel);
        self.groups.extend(&next.groups);
        for (reason, count) in next.losses {
            *self.losses.entry(reason).or_default() += count;
        }
    }

    /// Returns the length in s.
    pub fn seconds(&self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }
}

fn fold(rows: &mut Vec<SliceRow>) {
    if rows.len() > SLICES_MAX {
        condense(rows);
    }
}

/// Converts an uncore PMU's slice into an owner's row. The owner of an uncore PMU's counts is the uncore PMU.
fn row(slice: UncoreSlice) -> SliceRow {
    SliceRow {
        slot: SlotId { slot: slice.at, generation: 0 },
        turns: slice.kind,
        slice: slice.slice,
        group: Some(slice.group),
        time_ns: slice.enabled_ns,
        always: Vec::new(),
        always_running_ns: Vec::new(),
        counts: slice.counts,
        running_ns: slice.running_ns,
    }
}

/// The last reading of every source, and names so far.
#[derive(Clone, Debug)]
pub struct IoLedger {
    /// Paths of cgroups.
    pub cgroups: CgroupPaths,
    /// Names of disks.
    pub disks: BTreeMap<DeviceNumber, Untrusted>,
    /// Devices with an exclusive owner, and that owner.
    pub owned: Vec<(Bdf, Ownership)>,
    /// Targets that had no group of theirs alone, when that was last so, with the reason.
    pub untold: Vec<Absent>,
    /// The last drain, without what is in intervals.
    pub last: IoDrain,
    /// Cost of the process.
    pub cost: OwnCost,
    /// Cgroups that became targets.
    pub followed: FollowedPaths,
    begun: bool,
    traffic: Option<Traffic>,
    /// Events that groups count, in the order of the counts in a drain; `None` if nothing is counted.
    events: Option<Vec<MonitoringEvent>>,
    groups: Option<Groups>,
    kernel: Option<KernelCounts>,
}

impl IoLedger {
    /// Returns an empty ledger for a run with this plan.
    pub fn new(plan: &IoPlan) -> Self {
        Self {
            cgroups: CgroupPaths::default(),
            disks: BTreeMap::new(),
            owned: Vec::new(),
            untold: Vec::new(),
            last: IoDrain::default(),
            cost: OwnCost::default(),
            followed: FollowedPaths::default(),
            begun: false,
            traffic: None,
            events: plan.monitoring.as_ref().map(|monitoring| monitoring.events.clone()),
            groups: None,
            kernel: None,
        }
    }

    /// Returns the counts since the previous drain. The first drain has the state before anything was
    /// counted: the run begins with it.
    pub fn advance(&mut self, mut drain: IoDrain) -> IoInterval {
        let is_first = !std::mem::replace(&mut self.begun, true);
        let from_ns = if is_first && drain.uncore.is_empty() { drain.at_ns } else { self.last.at_ns };
        self.cgroups.extend(std::mem::take(&mut drain.names));
        self.disks.extend(drain.disks.drain(..).map(|named| (named.device, named.name)));
        if !drain.owned.is_empty() {
            self.owned = std::mem::take(&mut drain.owned);
        }
        let interval = IoInterval {
            traffic: drain.traffic.take().map(|now| self.traffic_until(now)),
            kernel: drain.kernel.take().map(|now| self.kernel_until(now)).unwrap_or_default(),
            groups: drain.groups.take().map(|now| self.groups_until(now)).unwrap_or_default(),
            losses: grown(&self.last.losses, &drain.losses),
            ..IoInterval::of(std::mem::take(&mut drain.uncore), from_ns, drain.at_ns)
        };
        self.cost.drain(drain.cost);
        self.last = drain;
        interval
    }

    /// Bounds the size of intervals that are appended to (see [`TrafficInterval::fold`]), and the number of
    /// cgroups known by path. No other interval may need the paths of any.
    pub fn fold(&mut self, intervals: &mut [&mut IoInterval]) {
        if let Some(now) = &self.traffic {
            let parts = intervals.iter_mut().filter_map(|interval| interval.traffic.as_mut());
            parts.for_each(|traffic| traffic.fold(now));
        }
        if !self.cgroups.is_full() {
            return;
        }
        let mut needed: BTreeSet<u64> = self.traffic.iter().flat_map(Traffic::cgroups).collect();
        let parts = intervals.iter().filter_map(|interval| interval.traffic.as_ref());
        needed.extend(parts.flat_map(TrafficInterval::cgroups));
        let owners: BTreeSet<&Untrusted> =
            self.owned.iter().filter_map(|(_, ownership)| ownership.cgroup()).collect();
        self.cgroups.keep(&needed, |path| owners.contains(path));
    }

    fn traffic_until(&mut self, now: Traffic) -> TrafficInterval {
        let before = self.traffic.as_ref();
        let tick = before.map(|before| TrafficInterval::between(before, &now)).unwrap_or_default();
        self.traffic = Some(now);
        tick
    }

    fn kernel_until(&mut self, now: KernelCounts) -> KernelInterval {
        let before = self.kernel.as_ref();
        let tick = before.map(|before| KernelInterval::between(before, &now)).unwrap_or_default();
        self.kernel = Some(now);
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
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use pmu_common::io::net::NetCount;

    use super::{IoInterval, IoLedger, SLICES_MAX, Span, TrafficInterval};
    use crate::{
        drain::io::{
            IoDrain, Named, UncoreSlice,
            net::{Interface, NetOwner, NetRow},
            testing::{drains, header},
            traffic::Traffic,
        },
        machine::cgroup::CgroupId,
        untrusted::Untrusted,
    };

    fn slices(slices: Range<u64>) -> Vec<UncoreSlice> {
        let slice = |slice| UncoreSlice {
            slice,
            group: (slice % 3) as u32,
            counts: vec![slice],
            enabled_ns: 10,
            running_ns: 9,
            ..UncoreSlice::default()
        };
        slices.map(slice).collect()
    }

    #[test]
    fn a_long_run_is_folded_and_nothing_is_lost() {
        let mut total = IoInterval::default();
        for tick in 0..40 {
            total.append(IoInterval::of(slices(tick * 50..tick * 50 + 50), tick, tick + 1));
        }
        let rows = &total.uncore[&(0, 0)];
        assert!(rows.len() <= SLICES_MAX, "{}", rows.len());
        assert_eq!(rows.iter().flat_map(|row| &row.counts).sum::<u64>(), (0..2000).sum::<u64>());
        assert_eq!(
            rows.iter().map(|row| (row.time_ns, row.running_ns)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
            (20_000, 18_000)
        );
        assert_eq!((total.from_ns, total.to_ns), (0, 40));
    }

    #[test]
    fn an_uncore_pmu_s_span_is_from_its_first_slice_to_its_last() {
        let slice = |at, ended_ns| UncoreSlice { at, ended_ns, enabled_ns: 10, ..UncoreSlice::default() };
        let mut total = IoInterval::of(vec![slice(0, 12), slice(1, 15), slice(0, 22)], 0, 24);
        total.append(IoInterval::of(vec![slice(0, 32), slice(2, 4)], 24, 34));
        let span = |from_ns, to_ns| Span { from_ns, to_ns };
        // A recording that begins midway has slices that began before it.
        let expected = [((0, 0), span(2, 32)), ((0, 1), span(5, 15)), ((0, 2), span(-6, 4))];
        assert_eq!(total.spans, expected.into_iter().collect());
    }

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
    fn an_interval_has_what_was_lost_in_it() {
        let mut ledger = IoLedger::new(&header().plan);
        let lost = |count: u64| IoDrain { losses: vec![("x".to_owned(), count)], ..IoDrain::default() };
        let intervals = [2, 2, 5].map(|count| ledger.advance(lost(count)));
        let each = intervals.each_ref().map(|interval| interval.losses.get("x").copied());
        assert_eq!(each, [Some(2), None, Some(3)]);
        let mut total = IoInterval::default();
        intervals.into_iter().for_each(|interval| total.append(interval));
        assert_eq!(total.losses["x"], 5);
    }

    /// Returns a drain in which each of these cgroups sent one packet, with their names and their rows.
    fn sent(cgroups: Range<u64>) -> IoDrain {
        let named = |cgroup: u64| Named { cgroup, path: Untrusted::from(format!("/web/{cgroup}")) };
        let mut count = NetCount::ZERO;
        count.packets[0][0] = 1;
        let interface = Interface { namespace: 1, index: 2, name: Untrusted::from("eth0") };
        let row = |cgroup: u64| NetRow {
            interface: interface.clone(),
            owner: NetOwner::Cgroup(CgroupId(cgroup)),
            count,
        };
        let traffic = Traffic { net: cgroups.clone().map(row).collect(), ..Traffic::default() };
        IoDrain { names: cgroups.map(named).collect(), traffic: Some(traffic), ..IoDrain::default() }
    }

    #[test]
    fn names_are_bounded_where_nothing_moves() {
        let mut ledger = IoLedger::new(&header().plan);
        for at in 0..100_u64 {
            ledger.advance(IoDrain { traffic: None, ..sent(at * 100..at * 100 + 100) });
            ledger.fold(&mut []);
        }
        let kept = (0..10_000).filter(|&id| ledger.cgroups.path(id).is_some()).count();
        assert!(kept < 5000, "{kept}");
    }

    #[test]
    fn of_many_that_come_and_go_those_with_rows_keep_their_names() {
        let (mut ledger, mut total) = (IoLedger::new(&header().plan), IoInterval::default());
        ledger.advance(sent(0..0));
        // The first cgroup sends in every drain, and is named in the first one alone.
        for at in 0..700_u64 {
            let mut drain = sent(100 + at * 100..200 + at * 100);
            let first = sent(1..2);
            let names = if at == 0 { first.names } else { Vec::new() };
            drain.names.extend(names);
            drain.traffic.as_mut().unwrap().net.extend(first.traffic.unwrap().net);
            total.append(ledger.advance(drain));
            ledger.fold(&mut [&mut total]);
        }
        let ids = total.traffic.iter().flat_map(TrafficInterval::cgroups);
        assert!(ids.map(|id| ledger.cgroups.path(id)).all(|path| path.is_some()));
        assert!(ledger.cgroups.path(1).is_some());
        let kept = (100..70_100).filter(|&id| ledger.cgroups.path(id).is_some()).count();
        assert!(kept < 12_000, "{kept}");
    }
}
