//! Metrics of every owner in an interval, and the groups of counters to multiplex next: those below flagged
//! nodes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Prepared, TopDown, Tree};
use crate::{
    drain::{TasksHeader, reading::SliceRow},
    machine::{
        Machine,
        topology::{Smt, Topology},
    },
    metric::{OwnerOrTarget, owners::Above, value::Value},
    model::{Interval, Ledger, OwnerIndex, slice::sums},
    plan::{
        extent,
        metrics::{CountsOf, Depth, Metrics},
        schedule::drill::{self, Drill, Room},
    },
    table::model::Model,
};

/// Returns the metrics of all owners in `interval`, by core PMU as `prepared` are.
pub fn topdown(
    prepared: &[Prepared],
    machine: &Machine,
    header: &TasksHeader,
    ledger: &Ledger,
    interval: &Interval,
) -> Vec<TopDown> {
    let each = prepared.iter().zip(&header.plan.metrics).enumerate();
    let mut all: Vec<TopDown> = each
        .map(|(at, (prepared, metrics))| {
            let around = Around {
                topology: &machine.topology,
                cpus: header.plan.cpus_of(metrics).len(),
                extent: extent(&header.plan.target),
                seconds: interval.length_ns() as f64 / 1e9,
            };
            let owners = prepared.owners((at, header), ledger, interval, &around);
            prepared.report(metrics, &around, owners)
        })
        .collect();
    if all.len() > 1 {
        share_time(&mut all);
    }
    all
}

/// Sets the share of time that each owner was on the cores of each kind.
fn share_time(all: &mut [TopDown]) {
    let mut times: BTreeMap<OwnerOrTarget, u64> = BTreeMap::new();
    for (who, tree) in all.iter().flat_map(|topdown| &topdown.owners) {
        let time = times.entry(who.clone()).or_default();
        *time = time.saturating_add(tree.time_ns);
    }
    for (who, tree) in all.iter_mut().flat_map(|topdown| &mut topdown.owners) {
        let whole = times.get(who).copied().filter(|time| *time > 0);
        tree.time_share = whole.map(|whole| Value::exact(100.0 * tree.time_ns as f64 / whole as f64));
    }
}

impl Prepared {
    /// Returns the trees of the target and of its owners on the cores of a core PMU, the plan's `at`th.
    fn owners(
        &self,
        (at, header): (usize, &TasksHeader),
        ledger: &Ledger,
        interval: &Interval,
        around: &Around<'_>,
    ) -> Vec<(OwnerOrTarget, Tree)> {
        let Some(turns) = header.plan.turns.get(at) else { return Vec::new() };
        let around_one = Around { extent: CountsOf::Some, ..*around };
        let is_its = |row: &&SliceRow| row.turns as usize == at;
        let everyone = sums(interval.slices.values().flatten().filter(is_its));
        let mut owners = vec![(OwnerOrTarget::Target, self.tree(turns, &everyone, around))];
        let above = Above::new(header, ledger);
        let mut by_owner: BTreeMap<OwnerIndex, Vec<&SliceRow>> = BTreeMap::new();
        for (&index, rows) in &interval.slices {
            above
                .with(index)
                .for_each(|owner| by_owner.entry(owner).or_default().extend(rows.iter().filter(is_its)));
        }
        let mut rows: Vec<(OwnerOrTarget, Vec<SliceRow>)> = by_owner
            .into_iter()
            .filter(|(_, rows)| !rows.is_empty())
            .map(|(index, rows)| (OwnerOrTarget::Owner(ledger.owner(index).clone()), sums(rows)))
            .collect();
        rows.sort_by_cached_key(|(who, rows)| (Reverse(time_ns(rows)), who.clone()));
        owners.extend(rows.into_iter().map(|(who, rows)| (who, self.tree(turns, &rows, &around_one))));
        owners
    }

    fn report(&self, plan: &Metrics, around: &Around<'_>, owners: Vec<(OwnerOrTarget, Tree)>) -> TopDown {
        let Model { name, source, formulas_version, .. } = &self.model;
        let mut notes = self.notes(around.topology);
        notes.extend(plan.notes.iter().cloned());
        TopDown {
            core_type: plan.core_type.clone(),
            model: name.clone(),
            source: source.clone(),
            formulas: formulas_version.clone(),
            notes,
            shapes: Arc::clone(&self.layout.shapes),
            counters: Arc::clone(&self.counters),
            owners,
            runs: None,
        }
    }

    /// Returns notes on the effect of several threads on a core.
    fn notes(&self, topology: &Topology) -> Vec<String> {
        if topology.smt != Smt::On {
            return Vec::new();
        }
        let halves = self.model.operands.iter().any(|operand| operand.ends_with(".ONE_THREAD_ACTIVE"))
            && self.model.event("CPU_CLK_UNHALTED.DISTRIBUTED").is_none();
        let note = if halves {
            "cores run two threads: an owner has half of its core's slots while something runs beside it, and may fill \
             more than its half"
        } else {
            "cores run two threads: shares of core cycles (ports, dividers, decoders) hold what ran beside it"
        };
        vec![note.to_owned()]
    }
}

/// Returns the time that an owner ran in these slices, in ns.
pub(super) fn time_ns(rows: &[SliceRow]) -> u64 {
    rows.iter().map(|row| row.time_ns).fold(0, u64::saturating_add)
}

/// Machine and interval of an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The machine's layout.
    pub topology: &'a Topology,
    /// CPUs that counted.
    pub cpus: usize,
    /// Extent of the counts.
    pub extent: CountsOf,
    /// Length of the interval, in s.
    pub seconds: f64,
}

impl Around<'_> {
    /// Returns a constant of a formula, NaN if the machine does not report it.
    pub(super) fn constant(&self, name: &str) -> f64 {
        let known = |number: Option<u32>| number.map_or(f64::NAN, f64::from);
        let topology = self.topology;
        match name {
            "HYPERTHREADING_ON" => match topology.smt {
                Smt::On => 1.0,
                Smt::Off => 0.0,
                Smt::Unknown => f64::NAN,
            },
            "THREADS_PER_CORE" => known(topology.threads_per_core),
            "CORES_PER_SOCKET" => known(topology.cores_per_socket),
            "SOCKET_COUNT" => known(topology.sockets),
            "CHAS_PER_SOCKET" => known(topology.caches_per_socket),
            "CPU_COUNT" => self.cpus as f64,
            "DURATIONTIMEINSECONDS" => self.seconds,
            "DURATIONTIMEINMILLISECONDS" => self.seconds * 1e3,
            "SYSTEM_TSC_FREQ" => topology.tsc_hz.unwrap_or(f64::NAN),
            "TSC_TICKS" => topology.tsc_hz.map_or(f64::NAN, |hz| hz * self.seconds),
            _ => f64::NAN,
        }
    }
}

/// Drill-down of a model's tree, interval by interval.
#[derive(Clone, Debug)]
pub struct Drilling {
    drill: Drill,
    /// Groups of the events of each metric of the model.
    groups: Vec<Vec<u32>>,
    /// Groups of metrics that are not in the tree.
    always: BTreeSet<u32>,
    /// Number of groups for which a tick has time.
    most: usize,
}

impl Drilling {
    /// Returns a drill-down that starts where the plan does. `most` groups have time between two decisions.
    /// `None` if the plan measures every level anyway.
    pub fn new(prepared: &Prepared, plan: &Metrics, most: usize) -> Option<Self> {
        if plan.depth != Depth::DrillDown {
            return None;
        }
        let metrics = &prepared.model.metrics;
        let groups = |name: &str| {
            let found = plan.measured.iter().find(|metric| metric.name == name);
            found.map(|metric| metric.groups.clone()).unwrap_or_default()
        };
        let tree: BTreeSet<u32> = prepared.model.tree_nodes().collect();
        let node = |index: u32| drill::Node {
            level: metrics[index as usize].level,
            parent: prepared.model.above(index).map(|above| above as usize),
        };
        let nodes = (0..metrics.len() as u32).map(node);
        let beside = (0..metrics.len() as u32).filter(|index| !tree.contains(index));
        Some(Self {
            drill: Drill::new(nodes.collect(), drill::Depth::default()),
            always: beside.flat_map(|index| groups(&metrics[index as usize].name)).collect(),
            groups: metrics.iter().map(|metric| groups(&metric.name)).collect(),
            most,
        })
    }

    /// Evaluates the results of an interval, and returns the groups that are to have turns in the next one.
    pub fn after(&mut self, topdown: &TopDown) -> Vec<u32> {
        let mut is_flagged = vec![false; self.groups.len()];
        let mut values = vec![0.0_f64; self.groups.len()];
        for (index, node) in topdown.owners.iter().flat_map(|(_, tree)| tree.nodes.iter().enumerate()) {
            let Some(known) = node.value.known() else { continue };
            is_flagged[index] |= node.flagged == Some(true);
            values[index] = values[index].max(known.estimate);
        }
        let flagged = is_flagged.iter().enumerate().filter(|(_, is_flagged)| **is_flagged);
        self.drill.after(&flagged.map(|(index, _)| index).collect::<Vec<usize>>());
        let room = Room { groups: &self.groups, always: &self.always, most: self.most };
        self.drill.groups(room, &values).into_iter().collect()
    }
}
