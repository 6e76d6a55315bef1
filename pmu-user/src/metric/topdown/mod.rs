//! Metrics of a CPU model for one owner: every node with its interval and its flag, and whether the tree is
//! consistent.
//!
//! The interval of a metric comes from evaluating its formula on every replicate of the counts, so it holds
//! for any formula. A node is marked mismeasured, not corrected, where it contradicts its parent by more than
//! their intervals.

mod counters;
mod layout;
mod report;
mod runs;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use self::layout::Layout;
pub use self::{
    counters::Counter,
    layout::Shape,
    report::{Around, Drilling, topdown},
    runs::{OneRun, Runs, Spread, Total},
};
use super::{
    OwnerOrTarget,
    estimate::{Estimates, EventIndex, REPLICATES},
    formulas::{Formulas, Inputs, Results},
    value::Value,
};
use crate::{
    drain::reading::SliceRow,
    plan::{
        metrics::{CoreType, CountsOf, Metrics},
        multiplexing::Multiplexing,
    },
    table::model::{Model, TaskForms},
};

/// Metrics of an interval, of cores of one kind.
#[derive(Clone, Debug)]
pub struct TopDown {
    /// Kind of the cores, where cores differ.
    pub core_type: Option<CoreType>,
    /// CPU model of the formulas.
    pub model: String,
    /// Source of the formulas.
    pub source: String,
    /// Version of the formulas.
    pub formulas: String,
    /// Notes about all of the metrics.
    pub notes: Vec<String>,
    /// Measured metrics, each below the one of which it is a part.
    pub shapes: Arc<[Shape]>,
    /// Counters of [`Tree::amounts`], which add up over owners and intervals.
    pub counters: Arc<[Counter]>,
    /// Tree of the target, then of its owners, most time first.
    pub owners: Vec<(OwnerOrTarget, Tree)>,
    /// Runs of the command that the target's tree is from, if there were several.
    pub runs: Option<Runs>,
}

impl TopDown {
    /// Returns the name of a metric among those of all cores. Where cores differ it has the core PMU, as perf
    /// writes events of one.
    pub fn named<'a>(&self, name: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
        let name = name.into();
        match &self.core_type {
            None => name,
            Some(CoreType { pmu, .. }) => Cow::Owned(format!("{pmu}/{name}/")),
        }
    }

    /// Returns the metric of instructions per cycle, which tables of small cores name after the core.
    pub fn ipc(&self) -> Option<&Shape> {
        ["Info_Thread_IPC", "Info_Core_IPC"]
            .iter()
            .find_map(|name| self.shapes.iter().find(|shape| shape.name == *name))
    }

    /// Returns the core PMU of the metrics, where cores differ.
    pub fn pmu(&self) -> Option<&str> {
        self.core_type.as_ref().map(|cores| cores.pmu.as_str())
    }
}

/// A model ready to be evaluated for many owners.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The model, with formulas for tasks.
    pub model: Model,
    /// Reason by metric why it does not belong to a single owner.
    shared: Vec<Option<String>>,
    formulas: Formulas,
    layout: Layout,
    counters: Arc<[Counter]>,
    /// Source of each operand: the event that counts it, or a number that is known without counting.
    sources: Vec<OperandSource>,
    /// Metrics that are to be measured, or the reason why not. `None` for one that is not requested.
    wanted: Vec<Option<Result<(), String>>>,
}

/// Source of an operand's count.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OperandSource {
    /// A planned event, by its index among all of them.
    Event(usize),
    /// A number from the table.
    Known(f64),
    /// No source at all.
    None,
}

/// Metrics of one owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// Nodes by metric of the model.
    pub nodes: Vec<Node>,
    /// Flagged nodes from the root to where most is lost.
    pub path: Vec<u32>,
    /// Number of nodes at the beginning of the path that are flagged at both ends of their intervals.
    pub sure: usize,
    /// Contradictions, in words.
    pub faults: Vec<String>,
    /// Value of every counter for the owner.
    pub amounts: Vec<Value>,
    /// Time that the owner ran on these cores, in ns.
    pub time_ns: u64,
    /// Share of the owner's time on these cores, in per cent, where cores differ.
    pub time_share: Option<Value>,
}

/// One metric of one owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Value of the metric, in its unit.
    pub value: Value,
    /// Set if the value is over its threshold. `None` if it has none.
    pub flagged: Option<bool>,
}

/// A model's formulas over an owner's counts.
struct Evaluated<'a> {
    estimates: &'a Estimates,
    results: Results,
    /// Results of the replicates, none where everything is exact.
    replicas: Option<Results<REPLICATES>>,
}

impl Prepared {
    /// Prepares a model for what `plan` measures with `turns`.
    pub fn new(forms: TaskForms, plan: &Metrics, turns: &Multiplexing) -> Self {
        let TaskForms { model, shared } = forms;
        let events: HashMap<&str, usize> = turns
            .always_events()
            .chain(turns.groups.iter().flat_map(|group| &group.events))
            .enumerate()
            // An event that always counts comes first, and is better than the same in a turn.
            .fold(HashMap::new(), |mut events, (index, event)| {
                events.entry(event.name.as_str()).or_insert(index);
                events
            });
        let latency = |operand: &String| {
            model
                .latencies
                .iter()
                .find(|(known, _)| known == operand)
                .map(|(_, cycles)| OperandSource::Known(*cycles))
        };
        let source = |operand: &String| match events.get(operand.as_str()) {
            Some(&index) => OperandSource::Event(index),
            None => latency(operand).unwrap_or(OperandSource::None),
        };
        let missing: BTreeMap<&str, &str> =
            plan.missing.iter().map(|(name, why)| (name.as_str(), why.as_str())).collect();
        let wanted = |name: &str| match missing.get(name) {
            Some(why) => Some(Err((*why).to_owned())),
            None => plan.measured.iter().any(|metric| metric.name == name).then_some(Ok(())),
        };
        let sources: Vec<OperandSource> = model.operands.iter().map(source).collect();
        let wanted: Vec<_> = model.metrics.iter().map(|metric| wanted(&metric.name)).collect();
        let event = |operand: u32| match sources[operand as usize] {
            OperandSource::Event(index) => Some(EventIndex(index)),
            OperandSource::Known(_) | OperandSource::None => None,
        };
        let is_wanted = |metric: u32| wanted[metric as usize].is_some();
        let counters = counters::of_plan(&model, plan, &shared);
        let needed: BTreeSet<u32> = counters.iter().flat_map(Counter::needs).collect();
        Self {
            layout: Layout::new(&model, event, is_wanted),
            formulas: Formulas::of(&model, |metric| is_wanted(metric) || needed.contains(&metric)),
            counters: counters.into(),
            sources,
            wanted,
            shared,
            model,
        }
    }

    /// Returns the metrics of an owner, or of all owners, that ran in these slices.
    pub fn tree(&self, turns: &Multiplexing, rows: &[SliceRow], around: &Around<'_>) -> Tree {
        let (estimates, time_ns) = (Estimates::new(turns, rows), report::time_ns(rows));
        let constant = |name: &String| match name.as_str() {
            // Running time of the owner, for which the kernel is a better source than any counter.
            "TASK_SECONDS" => time_ns as f64 / 1e9,
            name => around.constant(name),
        };
        let constants: Vec<f64> = self.model.constants.iter().map(constant).collect();
        let metrics = 0..self.model.metrics.len() as u32;
        let results = self.evaluate(&constants, |event| estimates.total(event).map(|total| [total]));
        // An exact value is the same in every replicate.
        let replicas =
            (!estimates.are_exact()).then(|| self.evaluate(&constants, |event| estimates.replicates(event)));
        let evaluated = Evaluated { estimates: &estimates, results, replicas };
        let node = |metric: u32| match &self.shared[metric as usize] {
            Some(why) if around.extent == CountsOf::Some && self.wanted[metric as usize].is_some() => {
                Node { value: Value::Missing(why.clone()), flagged: None }
            }
            _ => Node {
                value: self.value(metric, &evaluated),
                flagged: self.formulas.flagged(metric, &evaluated.results),
            },
        };
        let nodes: Vec<Node> = metrics.map(node).collect();
        Tree { amounts: self.amounts(&evaluated), time_ns, ..self.with_path(nodes) }
    }

    fn evaluate<const CASES: usize>(
        &self,
        constants: &[f64],
        count: impl Fn(EventIndex) -> Option<[f64; CASES]>,
    ) -> Results<CASES> {
        let number = |source: &OperandSource| match source {
            OperandSource::Event(index) => count(EventIndex(*index)).unwrap_or([f64::NAN; CASES]),
            OperandSource::Known(number) => [*number; CASES],
            OperandSource::None => [f64::NAN; CASES],
        };
        let counts: Vec<[f64; CASES]> = self.sources.iter().map(number).collect();
        self.formulas.evaluate(Inputs { counts: &counts, constants })
    }

    fn value(&self, metric: u32, evaluated: &Evaluated<'_>) -> Value {
        let Evaluated { estimates, results, replicas } = evaluated;
        match &self.wanted[metric as usize] {
            Some(Ok(())) => {}
            Some(Err(why)) => return Value::Missing(why.clone()),
            None => return Value::Missing("it was not asked for".to_owned()),
        }
        let events = &self.layout.events[metric as usize];
        if let Some(why) = events.iter().find_map(|&event| estimates.why_missing(event)) {
            return Value::Missing(why.to_owned());
        }
        match self.formulas.value(metric, results) {
            Some(estimate) => {
                let replicas = replicas.as_ref().and_then(|replicas| self.formulas.values(metric, replicas));
                let unit = self.model.metrics[metric as usize].unit;
                estimates.evaluated(events, estimate, replicas, unit)
            }
            None => Value::Missing(self.formulas.why(metric, &self.model, results).words(&self.model)),
        }
    }
}
