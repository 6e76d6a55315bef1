//! Metrics of a CPU model for one owner: every node with its interval, its flag, and whether the tree is consistent.
//!
//! The interval of a metric comes from evaluating its formula on every replicate of the counts, so that it holds for any
//! formula. A node is marked mismeasured, not corrected, where it contradicts its parent by more than their intervals.

use std::collections::{BTreeMap, HashMap};

use super::{
    estimate::{Estimates, EventIndex, REPLICATES},
    formulas::{Formulas, Inputs, Results},
    value::{Known, Value},
};
use crate::{
    drain::slice::SliceRow,
    machine::topology::{Smt, Topology},
    plan::{metrics::Metrics, turns::Turns},
    table::model::Model,
};

/// A model ready to be evaluated for many owners.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The model.
    pub model: Model,
    formulas: Formulas,
    /// By operand: the event that counts it, or a number that is known without counting.
    sources: Vec<Source>,
    /// By metric: is it to be measured, or why not?
    wanted: Vec<Result<(), String>>,
}

/// Where an operand's count comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    /// A planned event, by its index among all of them.
    Event(usize),
    /// A number out of the table.
    Known(f64),
    /// Nowhere.
    None,
}

/// What is known about the machine and the interval.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The machine's layout.
    pub topology: &'a Topology,
    /// CPUs that counted.
    pub cpus: usize,
    /// Length of the interval.
    pub seconds: f64,
}

/// The metrics of one owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// By metric of the model.
    pub nodes: Vec<Node>,
    /// The flagged nodes from the root to where most is lost.
    pub path: Vec<u32>,
    /// What contradicts itself, in words.
    pub faults: Vec<String>,
}

/// One metric of one owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its value, in its unit.
    pub value: Value,
    /// Is it over its threshold? `None` if it has none.
    pub flagged: Option<bool>,
}

impl Prepared {
    /// Prepares `model` for what `plan` measures with `turns`.
    #[must_use]
    pub fn new(model: Model, plan: &Metrics, turns: &Turns) -> Self {
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
                .map(|(_, cycles)| Source::Known(*cycles))
        };
        let source = |operand: &String| match events.get(operand.as_str()) {
            Some(&index) => Source::Event(index),
            None => latency(operand).unwrap_or(Source::None),
        };
        let missing: BTreeMap<&str, &str> =
            plan.missing.iter().map(|(name, why)| (name.as_str(), why.as_str())).collect();
        let wanted = |name: &str| match missing.get(name) {
            Some(why) => Err((*why).to_owned()),
            None if plan.measured.iter().any(|metric| metric.name == name) => Ok(()),
            None => Err("it was not asked for".to_owned()),
        };
        Self {
            sources: model.operands.iter().map(source).collect(),
            wanted: model.metrics.iter().map(|metric| wanted(&metric.name)).collect(),
            formulas: Formulas::new(&model),
            model,
        }
    }

    /// The metrics of an owner that ran in these slices.
    #[must_use]
    pub fn tree(&self, turns: &Turns, rows: &[SliceRow], around: &Around<'_>) -> Tree {
        let estimates = Estimates::new(turns, rows);
        let constants: Vec<f64> = self.model.constants.iter().map(|name| around.constant(name)).collect();
        let evaluate = |count: &dyn Fn(EventIndex) -> Option<f64>| {
            let mut results = Results::default();
            self.evaluate(&constants, count, &mut results);
            results
        };
        let results = evaluate(&|event| estimates.value(event).known().map(|known| known.estimate));
        let replicas: Vec<Results> = (0..REPLICATES)
            .map(|replicate| evaluate(&|event| estimates.replicate(event, replicate)))
            .collect();
        let nodes: Vec<Node> = (0..self.model.metrics.len() as u32)
            .map(|metric| Node {
                value: self.value(metric, &estimates, &results, &replicas),
                flagged: self.formulas.flagged(metric, &results),
            })
            .collect();
        let faults = self.faults(&nodes);
        Tree { path: self.path(&nodes), faults, nodes }
    }

    fn evaluate(&self, constants: &[f64], count: &dyn Fn(EventIndex) -> Option<f64>, results: &mut Results) {
        let number = |source: &Source| match source {
            Source::Event(index) => count(EventIndex(*index)).unwrap_or(f64::NAN),
            Source::Known(number) => *number,
            Source::None => f64::NAN,
        };
        let counts: Vec<f64> = self.sources.iter().map(number).collect();
        self.formulas.evaluate(Inputs { counts: &counts, constants }, results);
    }

    fn value(&self, metric: u32, estimates: &Estimates, results: &Results, replicas: &[Results]) -> Value {
        if let Err(why) = &self.wanted[metric as usize] {
            return Value::Missing(why.clone());
        }
        let events: Vec<EventIndex> = self.events_of(metric).collect();
        if let Some(Value::Missing(why)) =
            events.iter().map(|&event| estimates.value(event)).find(|value| value.known().is_none())
        {
            return Value::Missing(why);
        }
        match self.formulas.value(metric, results) {
            Some(estimate) => {
                let replicas = replicas.iter().map(|replica| self.formulas.value(metric, replica));
                estimates.evaluated(&events, estimate, replicas)
            }
            None => Value::Missing(self.formulas.why(metric, &self.model, results).words(&self.model)),
        }
    }

    /// Planned events in a metric's formula.
    fn events_of(&self, metric: u32) -> impl Iterator<Item = EventIndex> {
        let operands = self.model.operands_of(metric).into_iter();
        operands.filter_map(|operand| match self.sources[operand as usize] {
            Source::Event(index) => Some(EventIndex(index)),
            _ => None,
        })
    }

    /// Roots of the tree.
    fn roots(&self) -> Vec<u32> {
        let is_root = |&index: &u32| self.model.metrics[index as usize].parent.is_none();
        self.model.tree_nodes().filter(is_root).collect()
    }

    fn children(&self, of: u32) -> impl Iterator<Item = u32> {
        let all = self.model.metrics.iter().enumerate();
        all.filter(move |(_, metric)| metric.parent == Some(of)).map(|(index, _)| index as u32)
    }

    /// From the root down, always to the largest of the flagged nodes.
    fn path(&self, nodes: &[Node]) -> Vec<u32> {
        let worst = |among: &mut dyn Iterator<Item = u32>| {
            let flagged = among.filter(|&index| nodes[index as usize].flagged == Some(true));
            let known =
                flagged.filter_map(|index| Some((nodes[index as usize].value.known()?.estimate, index)));
            known.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, index)| index)
        };
        let mut path = Vec::new();
        // Doing useful work is no bottleneck, though a high share of it is flagged as well.
        let lost = |index: &u32| self.model.metrics[*index as usize].name != "Retiring";
        let mut next = worst(&mut self.roots().into_iter().filter(lost))
            .or_else(|| worst(&mut self.roots().into_iter()));
        while let Some(node) = next.filter(|_| path.len() < self.model.metrics.len()) {
            path.push(node);
            next = worst(&mut self.children(node));
        }
        path
    }

    /// What cannot be: roots that do not add up to everything, parts larger than the whole.
    fn faults(&self, nodes: &[Node]) -> Vec<String> {
        let known = |index: u32| nodes[index as usize].value.known();
        let name = |index: u32| self.model.metrics[index as usize].name.as_str();
        let mut faults = Vec::new();
        let roots = self.roots();
        let values: Option<Vec<&Known>> = roots.iter().map(|&index| known(index)).collect();
        if let Some(values) = values.filter(|values| !values.is_empty()) {
            let sum: f64 = values.iter().map(|known| known.estimate).sum();
            let error =
                values.iter().map(|known| ((known.high - known.low) / 2.0).powi(2)).sum::<f64>().sqrt();
            if (sum - WHOLE).abs() > error + TOLERANCE {
                faults.push(format!(
                    "the first level adds up to {sum:.1} % (± {error:.1}), not to 100: mismeasured"
                ));
            }
        }
        for (index, metric) in self.model.metrics.iter().enumerate() {
            let Some(parent) = metric.parent else { continue };
            let (Some(part), Some(whole)) = (known(index as u32), known(parent)) else { continue };
            // What is estimated by assumed latencies, or counts something else than its parent, may be larger.
            let comparable =
                metric.domain == self.model.metrics[parent as usize].domain && metric.domain == "Slots";
            if comparable && part.low > whole.high + TOLERANCE {
                let (part, whole) = (part.estimate, whole.estimate);
                faults.push(format!(
                    "{} ({part:.1} %) is more than {} ({whole:.1} %)",
                    name(index as u32),
                    name(parent)
                ));
            }
        }
        faults
    }
}

/// All slots, in per cent.
const WHOLE: f64 = 100.0;
/// What rounding may make of it: a share is kept in 8 bits by the hardware.
const TOLERANCE: f64 = 1.5;

impl Around<'_> {
    /// A constant of a formula; NaN if the machine does not say.
    fn constant(&self, name: &str) -> f64 {
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
