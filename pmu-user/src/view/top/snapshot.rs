//! Snapshot: what the screen keeps of one interval's report, a few hundred bytes per owner.

use std::{collections::BTreeMap, sync::Arc};

use pmu_common::name::program;

use super::{
    io::{Traffic, devices, io_row, uncore},
    row::{Bounded, Culprits, Device, GapLine, Node, Own, OwnerRow, RATES, Sight, Uncore, Waits},
};
use crate::{
    drain::{Header, Owner},
    metric::{
        OwnerOrTarget, OwnerReport, Report, TasksReport,
        culprit::Waited,
        finding::{Finding, findings},
        topdown::{Shape, TopDown, Tree},
    },
    table::{metric, unit::Unit},
};

/// Maximum number of gaps that are kept of an interval.
const GAPS_MAX: usize = 16;
/// Maximum number of findings that are kept of an interval.
const FINDINGS_MAX: usize = 16;
/// Number of levels of the Top-Down tree that are kept.
const LEVELS: u32 = 2;
/// Data that the screen keeps of one interval.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) from_ns: u64,
    pub(super) length_ns: u64,
    /// Row of the whole target, where tasks are counted.
    pub(super) total: Option<OwnerRow>,
    pub(super) rows: Vec<OwnerRow>,
    /// Indexes of the rows in the order of their owners, for the search of an owner.
    by_owner: Vec<u32>,
    shapes: Option<Arc<[Shape]>>,
    /// Core PMU of the Top-Down metrics, where cores differ.
    pub(super) pmu: Option<String>,
    /// Indexes of the kept nodes among the shapes.
    kept: Vec<u32>,
    /// Reason why the Top-Down metrics are missing.
    pub(super) no_topdown: Option<String>,
    /// Whether I/O is measured.
    pub(super) has_io: bool,
    pub(super) devices: Vec<Device>,
    pub(super) uncore: Uncore,
    pub(super) sight: Sight,
    pub(super) lost: u64,
    pub(super) findings: Vec<Finding>,
    pub(super) own: Option<Own>,
}

impl Snapshot {
    /// Returns the snapshot of an interval's report.
    pub fn of(header: &Header, report: &Report) -> Self {
        let tasks = report.tasks.as_ref();
        let io = report.io.as_ref();
        let topdown = tasks.and_then(longest_on);
        let kept = topdown.map(kept_nodes).unwrap_or_default();
        let frames = tasks.map(|tasks| (tasks.from_ns, tasks.length_ns));
        let (from_ns, length_ns) = frames.or(io.map(|io| (io.from_ns, io.length_ns))).unwrap_or_default();
        let mut found = findings(header, report);
        found.truncate(FINDINGS_MAX);
        let traffic = io.map(|io| Traffic::of(header.io.as_ref(), io, &report.missing)).unwrap_or_default();
        let moved = traffic.total();
        let rows = rows(tasks, traffic, topdown, &kept);
        let mut by_owner: Vec<u32> = (0..rows.len() as u32).collect();
        by_owner.sort_by(|&a, &b| rows[a as usize].who.cmp(&rows[b as usize].who));
        let trees = tasks.zip(topdown).map(trees).unwrap_or_default();
        Self {
            from_ns,
            length_ns,
            total: tasks.map(|tasks| {
                let tree = trees.get(&OwnerOrTarget::Target).copied();
                let total = row(&tasks.total, tasks.length_ns, topdown.zip(tree), &kept);
                let waited = tasks.waited.first().filter(|waited| waited.who == total.who);
                let culprits = waited.map(Culprits::of).unwrap_or_default();
                OwnerRow { block: moved.0, net: moved.1, culprits, ..total }
            }),
            rows,
            by_owner,
            shapes: topdown.map(|topdown| topdown.shapes.clone()),
            pmu: topdown.and_then(TopDown::pmu).map(str::to_owned),
            kept,
            no_topdown: tasks.and_then(|tasks| tasks.topdown.as_ref().err().cloned()),
            has_io: io.is_some(),
            devices: io.map(devices).unwrap_or_default(),
            uncore: io.map(uncore).unwrap_or_default(),
            sight: tasks.map(sight).unwrap_or_default(),
            lost: report.losses.values().fold(0, |sum, count| sum.saturating_add(*count)),
            findings: found,
            own: report.cost.as_ref().map(|cost| Own {
                cpu_ns: cost.process.cpu_ns
                    + cost.programs_ns.known().map_or(0, |known| known.estimate as u64),
                switch_ns: cost
                    .programs
                    .iter()
                    .find(|one| one.name == program::SWITCH)
                    .and_then(|one| one.ns_per_run.known())
                    .map(|known| known.estimate as f32),
            }),
        }
    }

    /// Returns the row of an owner, if the owner was active.
    pub(super) fn row_of(&self, who: &OwnerOrTarget) -> Option<&OwnerRow> {
        if *who == OwnerOrTarget::Target {
            return self.total.as_ref();
        }
        let of = |&index: &u32| &self.rows[index as usize];
        let at = self.by_owner.binary_search_by(|index| of(index).who.cmp(who));
        match at {
            Ok(at) => self.by_owner.get(at).map(of),
            // In an interval in which one process of a program ran, the row is that of the process, and vice
            // versa.
            Err(_) => self.rows.iter().find(|row| is_same_program(&row.who, who)),
        }
    }

    /// Returns the nodes that are kept, in the order of [`OwnerRow::nodes`].
    pub(super) fn shapes(&self) -> impl Iterator<Item = &Shape> {
        let shapes = self.shapes.as_deref().unwrap_or_default();
        self.kept.iter().filter_map(|&at| shapes.get(at as usize))
    }

    /// Returns the room that the snapshot takes, in rows.
    pub(super) fn size(&self) -> usize {
        self.rows.len() + 1
    }
}

/// Returns whether one of the two is a program, and the other its only process.
fn is_same_program(one: &OwnerOrTarget, other: &OwnerOrTarget) -> bool {
    match (one.owner(), other.owner()) {
        (Some(Owner::Program { name, .. }), Some(Owner::Process { name: of, .. }))
        | (Some(Owner::Process { name: of, .. }), Some(Owner::Program { name, .. })) => name == of,
        _ => false,
    }
}

/// Returns the metrics of the cores on which the target ran longest. The screen has room for cores of one
/// kind.
fn longest_on(tasks: &TasksReport) -> Option<&TopDown> {
    let time = |topdown: &&TopDown| topdown.owners.first().map(|(_, tree)| tree.time_ns);
    tasks.topdown.iter().flatten().max_by_key(time)
}

/// Returns the nodes of the first levels of the tree.
fn kept_nodes(topdown: &TopDown) -> Vec<u32> {
    let is_kept = |shape: &Shape| {
        shape.unit == Unit::Percent && (1..=LEVELS).contains(&shape.level) && shape.depth < LEVELS
    };
    let shapes = topdown.shapes.iter().enumerate().filter(|(_, shape)| is_kept(shape));
    shapes.map(|(at, _)| at as u32).collect()
}

fn trees<'a>((tasks, topdown): (&'a TasksReport, &'a TopDown)) -> BTreeMap<&'a OwnerOrTarget, &'a Tree> {
    tasks.trees(topdown).map(|(who, tree)| (who, tree)).collect()
}

/// Returns a row for each owner of any source, those of tasks first.
fn rows(
    tasks: Option<&TasksReport>,
    mut traffic: Traffic<'_>,
    topdown: Option<&TopDown>,
    kept: &[u32],
) -> Vec<OwnerRow> {
    let trees = tasks.zip(topdown).map(trees).unwrap_or_default();
    let waited = tasks.iter().flat_map(|tasks| tasks.waited_by_program());
    let waited: BTreeMap<&OwnerOrTarget, &Waited> = waited.map(|waited| (&waited.who, waited)).collect();
    let mut rows = Vec::with_capacity(tasks.map_or(0, |tasks| tasks.owners.len()));
    for (owner, length_ns) in tasks.iter().flat_map(|t| t.rows().map(|owner| (owner, t.length_ns))) {
        let mut row = row(owner, length_ns, topdown.zip(trees.get(&owner.who).copied()), kept);
        if let Some(owner) = owner.who.owner() {
            (row.block, row.net) = traffic.take(owner);
            // This is the traffic of the program's processes.
            for member in tasks.iter().flat_map(|tasks| tasks.members_of(owner)) {
                let (block, net) = traffic.take(member);
                (row.block, row.net) = (plus(row.block, block), plus(row.net, net));
            }
        }
        row.culprits = waited.get(&owner.who).copied().map(Culprits::of).unwrap_or_default();
        rows.push(row);
    }
    let others: Vec<&Owner> = traffic.moved.keys().copied().collect();
    let mut only_io: Vec<OwnerRow> =
        others.into_iter().map(|owner| io_row(owner, traffic.take(owner))).collect();
    let sum = |row: &OwnerRow| [row.block, row.net].iter().flatten().map(|value| value.estimate).sum::<f32>();
    only_io.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
    rows.extend(only_io);
    rows
}

/// Returns the sum of both, or the one that is present.
fn plus(one: Option<Bounded>, other: Option<Bounded>) -> Option<Bounded> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.plus(other)),
        (one, other) => one.or(other),
    }
}

fn row(owner: &OwnerReport, length_ns: u64, tree: Option<(&TopDown, &Tree)>, kept: &[u32]) -> OwnerRow {
    let per_second = 1e9 / length_ns.max(1) as f64;
    let cpu = owner.value(&metric::CPU_TIME);
    let blind = owner.value(&metric::BLIND_TIME).zip(cpu).filter(|(_, cpu)| cpu.estimate > 0.0);
    let ipc = |(topdown, tree): (&TopDown, &Tree)| {
        tree.nodes.get(topdown.ipc()?.index as usize)?.value.known().map(Bounded::of)
    };
    let node = |(topdown, tree): (&TopDown, &Tree), at: u32| {
        let node = topdown.shapes.get(at as usize).and_then(|shape| tree.nodes.get(shape.index as usize));
        let value = node.and_then(|node| node.value.known()).map(Bounded::of);
        Node { value, is_flagged: node.is_some_and(|node| node.flagged == Some(true)) }
    };
    OwnerRow {
        who: owner.who.clone(),
        has_ended: owner.ended,
        cpu: cpu.map(|known| Bounded::scaled(known, 1.0 / length_ns.max(1) as f64)),
        waits: owner.waits.as_ref().ok().map(|found| Box::new(Waits::of(found))),
        culprits: Culprits::default(),
        ipc: tree.and_then(ipc),
        nodes: tree.map(|tree| kept.iter().map(|&at| node(tree, at)).collect()).unwrap_or_default(),
        block: None,
        net: None,
        rates: RATES.map(|(_, metric)| owner.value(&metric).map(|known| Bounded::scaled(known, per_second))),
        blind: blind.map(|(blind, cpu)| Bounded::scaled(blind, 1.0 / cpu.estimate)),
    }
}

fn sight(tasks: &TasksReport) -> Sight {
    let masked = tasks.blind.masked();
    let of_ns = masked.of_ns.max(1) as f64;
    let gaps = tasks.blind.gaps.iter().chain(&tasks.blind.others_gaps);
    let listed: Vec<GapLine> = gaps
        .clone()
        .take(GAPS_MAX)
        .map(|gap| GapLine {
            length_ns: gap.gap.row.late_ns,
            cpu: gap.gap.row.cpu.0,
            class: gap.class.name(),
            owner: gap.owner.clone(),
            code: gap.stack.first().cloned(),
        })
        .collect();
    Sight {
        masked: masked.time.known().map(|known| Bounded::scaled(known, 1.0 / of_ns)),
        why: masked.time.reason().map(str::to_owned),
        watched: Some(tasks.quality.ticks.coverage as f32),
        more_gaps: gaps.skip(GAPS_MAX).count() as u64 + tasks.blind.gaps_left_out,
        gaps: listed,
        switches: Some(tasks.quality.switch_coverage as f32),
    }
}
