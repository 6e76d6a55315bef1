//! Metrics of a CPU model for one owner: every node with its interval, its flag, and whether the tree is consistent.
//!
//! The interval of a metric comes from evaluating its formula on every replicate of the counts, so that it holds for any
//! formula. A node is marked mismeasured, not corrected, where it contradicts its parent by more than their intervals.

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

/// The metrics of an interval, of cores of one kind.
#[derive(Clone, Debug)]
pub struct TopDown {
    /// Which kind, where cores differ.
    pub core_type: Option<CoreType>,
    /// The CPU model whose formulas were used.
    pub model: String,
    /// Where they come from.
    pub source: String,
    /// Their version.
    pub formulas: String,
    /// What to bear in mind about all of it.
    pub notes: Vec<String>,
    /// The measured metrics: each below the one it is a part of.
    pub shapes: Arc<[Shape]>,
    /// What adds up over owners and intervals: what [`Tree::amounts`] are of.
    pub counters: Arc<[Counter]>,
    /// The target together, then its owners, most time first.
    pub owners: Vec<(OwnerOrTarget, Tree)>,
    /// The runs of the command that the target's tree is from, if there were several.
    pub runs: Option<Runs>,
}

impl TopDown {
    /// What one of its metrics is called among those of all cores: with the core PMU, as perf writes events of one, where cores differ.
    pub fn named<'a>(&self, name: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
        let name = name.into();
        match &self.core_type {
            None => name,
            Some(CoreType { pmu, .. }) => Cow::Owned(format!("{pmu}/{name}/")),
        }
    }

    /// The metric of instructions per cycle, which tables of small cores call after the core.
    pub fn ipc(&self) -> Option<&Shape> {
        ["Info_Thread_IPC", "Info_Core_IPC"]
            .iter()
            .find_map(|name| self.shapes.iter().find(|shape| shape.name == *name))
    }

    /// The core PMU that it is of, where cores differ.
    pub fn pmu(&self) -> Option<&str> {
        self.core_type.as_ref().map(|cores| cores.pmu.as_str())
    }
}

/// A model ready to be evaluated for many owners.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The model, with formulas for tasks.
    pub model: Model,
    /// By metric: why it is no single owner's.
    shared: Vec<Option<String>>,
    formulas: Formulas,
    layout: Layout,
    counters: Arc<[Counter]>,
    /// By operand: the event that counts it, or a number that is known without counting.
    sources: Vec<OperandSource>,
    /// By metric: is it to be measured, or why not? `None` if nobody asked for it.
    wanted: Vec<Option<Result<(), String>>>,
}

/// Where an operand's count comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OperandSource {
    /// A planned event, by its index among all of them.
    Event(usize),
    /// A number out of the table.
    Known(f64),
    /// Nowhere.
    None,
}

/// The metrics of one owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// By metric of the model.
    pub nodes: Vec<Node>,
    /// The flagged nodes from the root to where most is lost.
    pub path: Vec<u32>,
    /// How many nodes at the beginning of the path are flagged at both ends of their intervals.
    pub sure: usize,
    /// What contradicts itself, in words.
    pub faults: Vec<String>,
    /// What the owner has of every counter.
    pub amounts: Vec<Value>,
    /// How long it ran on these cores, in ns.
    pub time_ns: u64,
    /// Which share of its time that is, in per cent, where cores differ.
    pub time_share: Option<Value>,
}

/// One metric of one owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its value, in its unit.
    pub value: Value,
    /// Is it over its threshold? `None` if it has none.
    pub flagged: Option<bool>,
}

/// A model's formulas over an owner's counts.
struct Evaluated<'a> {
    estimates: &'a Estimates,
    results: Results,
    /// None where everything is exact.
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
            // What is counted all the time comes first, and is better than the same in a turn.
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

    /// The metrics of an owner, or of everyone, who ran in these slices.
    pub fn tree(&self, turns: &Multiplexing, rows: &[SliceRow], around: &Around<'_>) -> Tree {
        let (estimates, time_ns) = (Estimates::new(turns, rows), report::time_ns(rows));
        let constant = |name: &String| match name.as_str() {
            // How long the owner ran, of which the kernel says more than any counter.
            "TASK_SECONDS" => time_ns as f64 / 1e9,
            name => around.constant(name),
        };
        let constants: Vec<f64> = self.model.constants.iter().map(constant).collect();
        let metrics = 0..self.model.metrics.len() as u32;
        let results = self.evaluate(&constants, |event| estimates.total(event).map(|total| [total]));
        // What is exact is the same in every replicate.
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
