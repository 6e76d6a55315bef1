//! Metrics of a CPU model to measure for every owner, and the events that they take.
//!
//! Counts of uncore PMUs cannot be attributed to an owner. Events that the PMU, the kernel or a hypervisor
//! hides are not available. Both are reported with the reason before anything is opened.

mod groups;
mod measured;
mod of_cpu;
mod operands;

use std::{path::Path, time::Duration};

pub use self::{
    groups::MetricsRequest,
    measured::{CoreType, Depth, Measured, Metrics, Multiplex},
};
use self::{
    groups::{fit, measured},
    of_cpu::model_of,
    operands::{OnPmu, Operands},
};
use super::{
    multiplexing::{self, Host, Multiplexing},
    request::WantedMetrics,
    schedule::{
        Capacity, WantedMetric,
        capacity::{Hold, Shares},
    },
};
use crate::{
    machine::{
        Machine,
        cpu::Cpu,
        pmu::catalog::{Catalog, Entry},
    },
    table::model::{self, Model, Tables, TaskForms},
};

/// Extent of the count: everything that runs, or some owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountsOf {
    /// Everything that runs: what threads of a core do together can be reported for all owners together.
    Everyone,
    /// Some owners: only metrics that can be attributed to a single owner are reported.
    Some,
}

/// Reason why there are no metrics at all.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The machine has no core PMU.
    #[error("{0}")]
    NoPmu(String),
    /// No table exists for this CPU.
    #[error("there are no formulas for this CPU ({0})")]
    NoTable(String),
    /// The requested table cannot be loaded.
    #[error(transparent)]
    Table(#[from] model::FindError),
    /// No metric has that name.
    #[error("{model} has no metric or group `{name}`{near}", near = crate::suggest::did_you_mean(.near))]
    NoMetric {
        /// Name of the model.
        model: String,
        /// Name that was requested.
        name: String,
        /// Names that are nearest to it.
        near: Vec<String>,
    },
}

/// Counters and the metrics they are for, or the reason why there are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// Groups to count, by core PMU.
    pub turns: Vec<Multiplexing>,
    /// Metrics of the groups, by core PMU as well.
    pub metrics: Vec<Metrics>,
    /// Reason why requested metrics are missing, on the host or on one of several core PMUs.
    pub why_none: Option<String>,
}

impl Choice {
    /// Chooses what is requested, as far as `machine` provides it. Its files are below `root`.
    ///
    /// # Errors
    ///
    /// The metrics are required and not available.
    pub fn new(
        wanted: &WantedMetrics,
        (extent, cpus, held): (CountsOf, &[Cpu], Holds<'_>),
        machine: &Machine,
        root: &Path,
    ) -> Result<Self, MetricsError> {
        let (request, required) = match wanted {
            WantedMetrics::None => return Ok(Self::default()),
            WantedMetrics::IfPossible(request) => (request, false),
            WantedMetrics::Required(request) => (request, true),
        };
        let catalog = Catalog::read(root).unwrap_or_default();
        if catalog.cores().next().is_none() {
            let why = machine.no_core_pmu().unwrap_or_else(|| "no core PMU is listed".to_owned());
            return if required { Err(MetricsError::NoPmu(why)) } else { Ok(Self::without(why)) };
        }
        let (mut choice, mut refused) = (Self::default(), Vec::new());
        let several = catalog.has_core_types();
        let around = Around { extent, cpus, held, machine, catalog: &catalog, root };
        for pmu in catalog.cores().filter(|pmu| !several || around.counts_on(pmu)) {
            match plan(request, pmu, &around) {
                Ok((turns, metrics)) => {
                    choice.turns.push(turns);
                    choice.metrics.push(metrics);
                }
                Err(error) => refused.push((pmu, error)),
            }
        }
        match refused.pop() {
            Some((_, error)) if required && choice.metrics.is_empty() => Err(error),
            Some((pmu, error)) if several => {
                Ok(Self { why_none: Some(format!("{}: {error}", pmu.name)), ..choice })
            }
            Some((_, error)) => Ok(Self::without(error.to_string())),
            None => Ok(choice),
        }
    }

    /// Adds notes about metrics without time in an interval, or in a tick, after which drill-down decides
    /// again.
    pub fn tell_room(&mut self, interval: Option<Duration>, tick: Duration) {
        for (turns, metrics) in self.turns.iter().zip(&mut self.metrics) {
            metrics.notes.extend(metrics.room_in(turns, (interval, tick)));
        }
    }

    fn without(why: String) -> Self {
        Self { why_none: Some(why), ..Self::default() }
    }
}

/// Counters of a core PMU that this run holds for other purposes.
pub type Holds<'a> = &'a dyn Fn(&Entry) -> Vec<Hold>;

/// Environment of a plan of metrics, in addition to the request.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// Extent of the count.
    pub extent: CountsOf,
    /// CPUs that count.
    pub cpus: &'a [Cpu],
    /// Further holders of counters of a core PMU.
    pub held: Holds<'a>,
    /// Description of the host.
    pub machine: &'a Machine,
    /// PMUs of the host.
    pub catalog: &'a Catalog,
    /// Root of the host's files.
    pub root: &'a Path,
}

impl Around<'_> {
    /// Returns whether cores of this PMU count.
    fn counts_on(&self, pmu: &Entry) -> bool {
        self.cpus.iter().any(|&cpu| pmu.is_on(cpu))
    }

    /// Returns the core type of a PMU's cores, where a host has several.
    fn core_type(&self, pmu: &Entry) -> Option<CoreType> {
        let cpus = || self.cpus.iter().copied().filter(|&cpu| pmu.is_on(cpu)).collect();
        self.catalog.has_core_types().then(|| CoreType { pmu: pmu.name.clone(), cpus: cpus() })
    }
}

/// Note on the events that replace shares.
const WITHOUT_SHARES: &str = "this PMU offers no slots and topdown-* events, as in many virtual machines: events on general counters stand in for them";

/// Decides which metrics of one core PMU to measure and how. Opens nothing and needs no privilege.
///
/// # Errors
///
/// Nothing at all can be measured, or a metric that was requested by name does not exist.
pub fn plan(
    request: &MetricsRequest,
    pmu: &Entry,
    around: &Around<'_>,
) -> Result<(Multiplexing, Metrics), MetricsError> {
    let &Around { extent, machine, catalog, root, .. } = around;
    let (mut model, mut note) = model_of(request, pmu, catalog, root)?;
    let probed = machine.probed(&pmu.name);
    let mut capacity = Capacity::of(pmu, machine, root);
    capacity.holds.extend((around.held)(pmu));
    let without_shares = capacity.shares == Shares::Missing && model.has_shares();
    if without_shares {
        model = model.without_shares();
        note = note.or_else(|| Some(WITHOUT_SHARES.to_owned()));
    }
    let forms = TaskForms::new(model, machine.topology.smt);
    let model = &forms.model;
    let (mut missing, mut chosen) = (Vec::new(), choose(request, model)?);
    if extent == CountsOf::Some {
        chosen.retain(|&metric| match forms.why_shared(metric) {
            None => true,
            Some(why) => {
                missing.push((model.metrics[metric as usize].name.clone(), why.to_owned()));
                false
            }
        });
    }
    let operands = Operands::of(model, &chosen, &OnPmu { pmu, catalog, probed }, &mut missing);
    let wanted: Vec<WantedMetric> = operands.wanted(model);
    let schedule = fit(request, &operands.needs, &wanted, &capacity);
    let host = if machine.cpu.guest { Host::Guest } else { Host::Bare };
    let slice = multiplexing::slice(machine.cpu.online.len(), host);
    let turns = Multiplexing::new(&schedule, &operands.needs, &operands.events, &pmu.name, slice);
    let measured = measured(&schedule, &wanted, &operands.needs, &mut missing);
    let mut metrics = Metrics {
        core_type: around.core_type(pmu),
        model: model.name.clone(),
        source: model.source.clone(),
        formulas: model.formulas_version.clone(),
        folder: request.folder.clone(),
        depth: request.depth,
        multiplex: request.multiplex,
        measured,
        missing,
        holds: capacity.holds.iter().map(ToString::to_string).collect(),
        without_shares,
        notes: note.into_iter().collect(),
    };
    if request.multiplex == Multiplex::Runs {
        metrics.without_turns();
    }
    let lost = metrics.lost_levels(model);
    metrics.notes.extend(lost);
    Ok((turns, metrics))
}

/// Returns the tables that name events here: the one that `wanted` names, or each core PMU's own.
pub fn tables(wanted: &WantedMetrics, root: &Path) -> Tables {
    let request = match wanted {
        WantedMetrics::None => &MetricsRequest::default(),
        WantedMetrics::IfPossible(request) | WantedMetrics::Required(request) => request,
    };
    let catalog = Catalog::read_cores(root).unwrap_or_default();
    if catalog.cores().next().is_none() {
        return of_cpu::of_host(request, root).map(Tables::of_any).unwrap_or_default();
    }
    let of_pmu = |pmu: &Entry| Some((pmu.name.clone(), model_of(request, pmu, &catalog, root).ok()?.0));
    catalog.cores().filter_map(of_pmu).collect()
}

/// Returns the indices of the requested metrics: the tree to the requested depth, metrics next to its root,
/// and those that were named.
fn choose(request: &MetricsRequest, model: &Model) -> Result<Vec<u32>, MetricsError> {
    let deepest = match request.depth {
        Depth::DrillDown => u32::MAX,
        Depth::Level(level) => level,
    };
    let mut chosen: Vec<u32> = model
        .tree_nodes()
        .filter(|&index| model.metrics[index as usize].level <= deepest)
        .chain(BESIDE.iter().filter_map(|name| model.metric(name)))
        .chain(model.named(BASIC))
        .collect();
    for name in &request.names {
        let found = model.named(name);
        if found.is_empty() {
            let names = model.metrics.iter().map(|metric| metric.name.clone());
            let near = crate::suggest::nearest(name, names, |name| name);
            return Err(MetricsError::NoMetric { model: model.name.clone(), name: name.clone(), near });
        }
        chosen.extend(found);
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

/// Group of metrics outside the tree, for where the tree says little or is missing.
const BASIC: &str = "Basic";

/// Metrics next to the tree's root, on counters that count all the time anyway.
const BESIDE: [&str; 5] =
    ["Info_Thread_IPC", "Info_Thread_CPI", "Info_Core_IPC", "Info_Thread_CLKS", "Info_Thread_SLOTS"];
