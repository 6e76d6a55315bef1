//! Metrics of a CPU model that are to be measured for every owner, and the events that they take.
//!
//! What only uncore PMUs count is no owner's; what the PMU, the kernel or a hypervisor hides is not there. Both
//! are named with the reason before anything is opened.

mod groups;
mod operands;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::groups::{Depth, MetricsRequest, Multiplex};
use self::{
    groups::{fit, measured},
    operands::Operands,
};
use super::{
    multiplexing::{self, Host, Multiplexing},
    request::WantedMetrics,
    schedule::{Capacity, WantedMetric, drill},
};
use crate::{
    machine::{Machine, pmu::catalog::Catalog},
    table::model::{self, Model, TaskForms},
};

/// Metrics that will be measured, and those that will not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// The CPU model whose formulas are used.
    pub model: String,
    /// Where they come from.
    pub source: String,
    /// Their version.
    pub formulas: String,
    /// The user's perfmon directory, if they come from there.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// How deep into the tree.
    pub depth: Depth,
    /// Whether groups are multiplexed.
    #[serde(default)]
    pub multiplex: Multiplex,
    /// What is measured.
    pub measured: Vec<Measured>,
    /// What is not, and why.
    pub missing: Vec<(String, String)>,
    /// Who holds counters that are missing for it.
    pub holds: Vec<String>,
}

impl Metrics {
    /// Groups that have turns from the start: all, or those of the upper two levels and of what stands beside the tree
    /// where flagged nodes decide about the rest.
    pub fn first_groups(&self) -> Vec<u32> {
        let first = |metric: &&Measured| match self.depth {
            Depth::DrillDown => metric.level <= drill::Depth::default().always,
            Depth::Level(_) => true,
        };
        let mut groups: Vec<u32> =
            self.measured.iter().filter(first).flat_map(|metric| &metric.groups).copied().collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }
}

/// A metric that will be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// Its level.
    pub level: u32,
    /// Groups that must have had a turn; none if it is counted all the time.
    pub groups: Vec<u32>,
    /// Share of the time for which it is measured, if every group has as many turns.
    pub coverage: f64,
}

/// Is everything that runs counted?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountsOf {
    /// Yes: what threads of a core do together can be told of all owners together.
    Everyone,
    /// No: only what is some owner's own can be told.
    Some,
}

/// Why there are no metrics at all.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The machine has no core PMU.
    #[error("{0}")]
    NoPmu(String),
    /// No table is for this CPU.
    #[error("there are no formulas for this CPU ({0})")]
    NoTable(String),
    /// The table that was asked for.
    #[error(transparent)]
    Table(#[from] model::FindError),
    /// No metric has that name.
    #[error("{model} has no metric or group `{name}`{near}", near = crate::suggest::did_you_mean(.near))]
    NoMetric {
        /// The model.
        model: String,
        /// What was asked for.
        name: String,
        /// The nearest names.
        near: Vec<String>,
    },
}

/// Counters, the metrics they are for, or why there are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// What to count, by core PMU.
    pub turns: Vec<Multiplexing>,
    /// The metrics.
    pub metrics: Option<Metrics>,
    /// Why there are none, although they were wanted.
    pub why_none: Option<String>,
}

impl Choice {
    /// What is wanted, as far as it can be had on `machine`, whose files are below `root`.
    ///
    /// # Errors
    ///
    /// It was asked for, and cannot be had.
    pub fn new(
        wanted: &WantedMetrics,
        extent: CountsOf,
        machine: &Machine,
        root: &Path,
    ) -> Result<Self, MetricsError> {
        let (request, required) = match wanted {
            WantedMetrics::None => return Ok(Self::default()),
            WantedMetrics::IfPossible(request) => (request, false),
            WantedMetrics::Required(request) => (request, true),
        };
        let catalog = Catalog::read(root).unwrap_or_default();
        match plan(request, extent, machine, &catalog, root) {
            Ok((turns, metrics)) => Ok(Self { turns: vec![turns], metrics: Some(metrics), why_none: None }),
            Err(error) if required => Err(error),
            Err(error) => Ok(Self { why_none: Some(error.to_string()), ..Self::default() }),
        }
    }
}

/// Decides what to measure and how. Opens nothing; needs no privilege.
///
/// # Errors
///
/// Nothing at all can be measured, or a metric that was asked for by name does not exist.
pub fn plan(
    request: &MetricsRequest,
    extent: CountsOf,
    machine: &Machine,
    catalog: &Catalog,
    root: &Path,
) -> Result<(Multiplexing, Metrics), MetricsError> {
    let Some(pmu) = catalog.cores().next() else {
        let why = machine.no_core_pmu().unwrap_or_else(|| "no core PMU is listed".to_owned());
        return Err(MetricsError::NoPmu(why));
    };
    let forms = TaskForms::new(model_of(request, root)?, machine.topology.smt);
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
    let operands = Operands::of(model, &chosen, pmu, catalog, &mut missing);
    let wanted: Vec<WantedMetric> = operands.wanted(model);
    let capacity = Capacity::read(pmu, &machine.cpu, root);
    let schedule = fit(request, &operands.needs, &wanted, &capacity);
    let host = if machine.cpu.guest { Host::Guest } else { Host::Bare };
    let slice = multiplexing::slice(machine.cpu.online.len(), host);
    let turns = Multiplexing::new(&schedule, &operands.needs, &operands.events, &pmu.name, slice);
    let measured = measured(&schedule, &wanted, &operands.needs, &mut missing);
    let mut metrics = Metrics {
        model: model.name.clone(),
        source: model.source.clone(),
        formulas: model.formulas_version.clone(),
        folder: request.folder.clone(),
        depth: request.depth,
        multiplex: request.multiplex,
        measured,
        missing,
        holds: capacity.holds.iter().map(ToString::to_string).collect(),
    };
    if request.multiplex == Multiplex::Runs {
        metrics.without_turns();
    }
    Ok((turns, metrics))
}

/// The table that `wanted` names, or this machine's; `None` if there is none. Names of events come from it too.
pub fn table(wanted: &WantedMetrics, root: &Path) -> Option<Model> {
    let request = match wanted {
        WantedMetrics::None => &MetricsRequest::default(),
        WantedMetrics::IfPossible(request) | WantedMetrics::Required(request) => request,
    };
    model_of(request, root).ok()
}

fn model_of(request: &MetricsRequest, root: &Path) -> Result<Model, MetricsError> {
    let identity = crate::machine::cpu::identity(root).unwrap_or_else(|| "unknown".to_owned());
    let name = match (&request.model, &request.folder) {
        (Some(name), _) => Some(name.clone()),
        (None, Some(folder)) => model::of_folder(folder, &identity)?,
        (None, None) => model::for_machine(&identity).map(str::to_owned),
    };
    let name = name.ok_or(MetricsError::NoTable(identity))?;
    Ok(model::load(&name, request.folder.as_deref())?)
}

/// Indices of the wanted metrics: the tree as deep as asked, what stands beside it at its root, and what was named.
fn choose(request: &MetricsRequest, model: &Model) -> Result<Vec<u32>, MetricsError> {
    let deepest = match request.depth {
        Depth::DrillDown => u32::MAX,
        Depth::Level(level) => level,
    };
    let mut chosen: Vec<u32> = model
        .tree_nodes()
        .filter(|&index| model.metrics[index as usize].level <= deepest)
        .chain(BESIDE.iter().filter_map(|name| model.metric(name)))
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

/// What stands beside the tree, and takes counters that count all the time anyway.
const BESIDE: [&str; 4] = ["Info_Thread_IPC", "Info_Thread_CPI", "Info_Thread_CLKS", "Info_Thread_SLOTS"];
