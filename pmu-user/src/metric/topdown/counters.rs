//! Counters of a model, which add up over owners, hosts and times, as shares do not: slots by what became of
//! them, cycles, instructions.
//!
//! A share of slots is multiplied by the owner's slots in the interval. The sum of these, divided by the sum
//! of all slots, is the share of all of them together.

use super::{Evaluated, Prepared};
use crate::{
    metric::{estimate::EventIndex, value::Value},
    plan::metrics::{Depth, Metrics},
    table::{model::Model, unit::Unit},
};

/// Deepest level with shares: below it they are of few slots, and counted in few turns.
const LEVEL_MAX: u32 = 2;

/// Metrics of a model that count, by the names of every table, with the name, help text and unit of their
/// counters.
const COUNTS: [(&str, &str, &str, Unit); 3] = [
    (CYCLES, "cycles", "Cycles of the owner's tasks.", Unit::Named("cycles")),
    ("Info_Inst_Mix_Instructions", "instructions", "Instructions that retired.", Unit::Named("instructions")),
    (SLOTS, "topdown.slots", "Slots of the pipeline: what its width could have done.", Unit::Named("slots")),
];
const CYCLES: &str = "Info_Thread_CLKS";
const SLOTS: &str = "Info_Thread_SLOTS";

/// Counter of a model, which adds up.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// Name of the counter: `cycles`, `topdown.retiring`.
    pub name: String,
    /// Help text of the counter, a sentence.
    pub says: String,
    /// Unit of the count.
    pub unit: Unit,
    of: Of,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    /// A metric that is a count.
    Count(u32),
    /// A share of what another metric counts.
    Share { metric: u32, whole: u32 },
    /// The whole count of a metric, where a share of it is not known.
    Unknown { whole: u32 },
}

/// Returns the counters of every owner in a plan. `shared` says which metrics belong to no owner.
pub(super) fn of_plan(model: &Model, plan: &Metrics, shared: &[Option<String>]) -> Vec<Counter> {
    let is_owners = |metric: &u32| shared.get(*metric as usize).is_none_or(Option::is_none);
    let find = |name: &str| model.metric(name).filter(is_owners);
    let counts = COUNTS.iter().filter_map(|&(metric, name, says, unit)| {
        Some(Counter { name: name.to_owned(), says: says.to_owned(), unit, of: Of::Count(find(metric)?) })
    });
    let level_max = match plan.depth {
        Depth::Level(level) => level.min(LEVEL_MAX),
        Depth::DrillDown => 1,
    };
    let wholes = [("Slots", SLOTS, "slots"), ("Clocks", CYCLES, "cycles")];
    let shares = wholes.iter().filter_map(|&(domain, whole, unit)| Some((domain, find(whole)?, unit)));
    let shares = shares.flat_map(|(domain, whole, unit)| {
        let is_share = |metric: &u32| {
            let of = &model.metrics[*metric as usize];
            let is_measured = plan.measured.iter().any(|measured| measured.name == of.name);
            is_measured && of.domain == domain && of.level <= level_max && is_owners(metric)
        };
        let metrics: Vec<u32> = (0..model.metrics.len() as u32).filter(is_share).collect();
        let unknown = (!metrics.is_empty()).then(|| unknown(whole, unit));
        let each = metrics.into_iter().map(move |metric| share(model, metric, whole, unit));
        each.chain(unknown).collect::<Vec<Counter>>()
    });
    counts.chain(shares).collect()
}

fn share(model: &Model, metric: u32, whole: u32, unit: &'static str) -> Counter {
    let name = model.metrics[metric as usize].name.to_ascii_lowercase();
    let name = name.strip_suffix(&format!("_{unit}")).unwrap_or(&name);
    Counter {
        name: format!("topdown.{name}"),
        says: format!("{}, as {unit}.", model.metrics[metric as usize].name.replace('_', " ")),
        unit: Unit::Named(unit),
        of: Of::Share { metric, whole },
    }
}

fn unknown(whole: u32, unit: &'static str) -> Counter {
    Counter {
        name: "topdown.unknown".to_owned(),
        says: format!("All {unit} of intervals in which too little was counted to say what became of them."),
        unit: Unit::Named(unit),
        of: Of::Unknown { whole },
    }
}

impl Counter {
    /// Returns the metrics that have to be evaluated for it.
    pub(super) fn needs(&self) -> impl Iterator<Item = u32> {
        match self.of {
            Of::Count(metric) => [Some(metric), None],
            Of::Share { metric, whole } => [Some(metric), Some(whole)],
            Of::Unknown { whole } => [Some(whole), None],
        }
        .into_iter()
        .flatten()
    }
}

impl Prepared {
    /// Returns what an owner has of every counter. If one share of a whole is not known, all of the whole is
    /// unknown: their sum is the whole.
    pub(super) fn amounts(&self, evaluated: &Evaluated<'_>) -> Vec<Value> {
        let amount = |counter: &Counter| match counter.of {
            Of::Count(metric) | Of::Unknown { whole: metric } => self.product(metric, None, evaluated),
            Of::Share { metric, whole } => self.product(whole, Some(metric), evaluated),
        };
        let mut amounts: Vec<Value> = self.counters.iter().map(amount).collect();
        let of_whole = |at: usize| match self.counters[at].of {
            Of::Share { whole, .. } => Some(whole),
            _ => None,
        };
        for unknown in 0..amounts.len() {
            let Of::Unknown { whole } = self.counters[unknown].of else { continue };
            let shares: Vec<usize> = (0..amounts.len()).filter(|&at| of_whole(at) == Some(whole)).collect();
            if shares.iter().all(|&share| amounts[share].known().is_some()) {
                amounts[unknown] = Value::exact(0.0);
            } else {
                let nothing = || Value::exact(0.0);
                shares.into_iter().for_each(|share| amounts[share] = nothing());
            }
        }
        amounts
    }

    /// Returns the count of a metric, times a share of it.
    fn product(&self, count: u32, share: Option<u32>, evaluated: &Evaluated<'_>) -> Value {
        let scale = share.map_or(1.0, |share| self.model.metrics[share as usize].scale);
        let of = |metric: u32| self.formulas.value(metric, &evaluated.results);
        let estimate = share.map_or(Some(1.0), of).zip(of(count)).map(|(share, count)| share / scale * count);
        let Some(estimate) = estimate else {
            return Value::Missing("it was not counted".to_owned());
        };
        let events = |metric: u32| self.layout.events[metric as usize].iter().copied();
        let events: Vec<EventIndex> = events(count).chain(share.into_iter().flat_map(events)).collect();
        let replicas = evaluated.replicas.as_ref().and_then(|replicas| {
            let mut product = *self.formulas.values(count, replicas)?;
            if let Some(shares) = share.and_then(|share| self.formulas.values(share, replicas)) {
                product.iter_mut().zip(shares).for_each(|(count, share)| *count *= share / scale);
            }
            Some(product)
        });
        evaluated.estimates.evaluated(&events, estimate, replicas.as_ref(), Unit::Counts)
    }
}
