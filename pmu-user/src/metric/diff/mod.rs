//! Comparison of two recordings, or of two groups of them: every number in both, with the probability of its
//! difference by chance alone.
//!
//! With one recording a side, the variation of a number over the recording determines its error ([`series`]).
//! With several, their variation from one to the next does (Welch's t). Neither assumes that ticks are
//! independent or that sides vary alike.

mod chosen;
mod conditions;
mod contrast;
mod key;
mod measured;
mod quantile;
mod recorded;
mod regress;
mod run;
pub mod series;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use self::{
    chosen::{code, culprits},
    contrast::{contrast, correct},
    measured::{Data, Measured, estimate},
};
pub use self::{
    conditions::{Condition, Facts, differing, facts},
    contrast::{Bounded, LEVEL, METHOD, Tested, interval},
    key::{Key, What, Whose},
    measured::Basis,
    recorded::Recorded,
    regress::{Judgement, judge, less_is_worse},
    run::Run,
    series::Estimate,
};
use crate::table::{metric, unit::Unit};

/// Number of occurrences in both sides together below which a count is not compared: chance would dominate
/// it.
const OCCURRENCES_MIN: f64 = 10.0;
/// Comparison of one number of both sides.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Key of the number.
    pub key: Key,
    /// Unit of the number, before a rate per second is formed.
    pub unit: String,
    /// Basis on which the number is compared.
    pub basis: Basis,
    /// Numbers of both sides; `None` where one is missing.
    pub sides: [Option<Estimate>; 2],
    /// Result of the comparison.
    pub outcome: Outcome,
}

/// Result of a comparison, or the reason why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Comparison was possible.
    Tested(Tested),
    /// Comparison was not possible, with the reason.
    Untested(String),
}

impl Difference {
    /// Returns the result of the comparison, if it was possible.
    pub const fn tested(&self) -> Option<&Tested> {
        match &self.outcome {
            Outcome::Tested(tested) => Some(tested),
            Outcome::Untested(_) => None,
        }
    }

    /// Returns whether the difference exceeds chance.
    pub fn is_significant(&self) -> bool {
        self.tested().is_some_and(Tested::is_significant)
    }
}

/// Numbers that only one side has.
#[derive(Clone, Debug, PartialEq)]
pub struct Only {
    /// Index of the side: 0 or 1.
    pub side: usize,
    /// Owner of the numbers.
    pub whose: Whose,
    /// Names of the numbers that only this side has; empty where the owner itself is in this side alone.
    pub metrics: Vec<String>,
    /// CPU time of an owner in ns, in the first recording that has it.
    pub cpu_time_ns: Option<f64>,
}

/// Comparison of two sides.
#[derive(Clone, Debug)]
pub struct Diff {
    /// Numbers of both sides: first those that differ by more than chance, most significant first.
    pub differences: Vec<Difference>,
    /// Numbers that only one side has.
    pub only: Vec<Only>,
    /// Number of functions, stacks and culprits that are not compared: with too few samples or too short
    /// waits, or beyond the 200 largest of each kind.
    pub rare: usize,
}

impl Diff {
    /// Compares the recordings of two sides: one each, or at least two each.
    pub fn new(sides: [&[Recorded]; 2], conditions: &[Condition]) -> Self {
        let keys = sides.map(|side| keys(side));
        let (code, rare_code) = code(sides);
        let (culprits, rare_culprits) = culprits(sides, &keys);
        let differs = |what: &str| conditions.iter().any(|condition| condition.what == what);
        let (sampling, owners) = (differs("sampling"), differs("owners"));
        let is_metric = |key: &&Key| matches!(key.what, What::Metric(_));
        let mut differences = Vec::new();
        for key in keys[0].intersection(&keys[1]).copied().filter(is_metric).chain(code).chain(culprits) {
            let is_of_owner = !matches!(key.whose.kind, "target" | "host");
            if owners && (is_of_owner || matches!(key.what, What::Culprit(_))) {
                continue;
            }
            let unlike = sampling && is_of_period(key);
            differences.extend(difference(key, sides, unlike));
        }
        let mut tested: Vec<&mut Tested> = differences
            .iter_mut()
            .filter_map(|difference| match &mut difference.outcome {
                Outcome::Tested(tested) => Some(tested),
                Outcome::Untested(_) => None,
            })
            .collect();
        correct(&mut tested);
        differences.sort_by(|left, right| {
            let rank = |one: &Difference| one.tested().map_or(2.0, |tested| tested.p);
            rank(left).total_cmp(&rank(right)).then_with(|| left.key.cmp(&right.key))
        });
        Self { differences, only: only(sides, &keys), rare: rare_code + rare_culprits }
    }

    /// Returns the number of comparisons that were possible.
    pub fn compared(&self) -> usize {
        self.differences.iter().filter(|difference| difference.tested().is_some()).count()
    }

    /// Returns the number of differences that exceed chance.
    pub fn significant(&self) -> usize {
        self.differences.iter().filter(|difference| difference.is_significant()).count()
    }

    /// Returns the number of differences that would be significant without the correction.
    pub fn uncorrected(&self) -> usize {
        let below = |difference: &&Difference| difference.tested().is_some_and(|tested| tested.p < LEVEL);
        self.differences.iter().filter(below).count()
    }
}

/// Returns whether it is a number of samples, which depends on the period.
fn is_of_period(key: &Key) -> bool {
    let of_samples = [metric::SAMPLES.name, metric::USER_SAMPLES.name, metric::KERNEL_SAMPLES.name];
    matches!(&key.what, What::Metric(metric) if of_samples.contains(&metric.as_str()))
}

/// Returns the keys that every recording of a side has.
fn keys(side: &[Recorded]) -> BTreeSet<&Key> {
    let mut all: BTreeSet<&Key> = side.first().into_iter().flat_map(|first| first.numbers.keys()).collect();
    all.retain(|key| side.iter().all(|one| one.numbers.contains_key(*key)));
    all
}

/// Returns the comparison of a number; `None` where a side did not take the samples that could contain it.
fn difference(key: &Key, sides: [&[Recorded]; 2], unlike: bool) -> Option<Difference> {
    let found = |one: &Recorded| one.number(key);
    let [from, to] = sides.map(|side| side.iter().map(found).collect::<Option<Vec<_>>>());
    let (from, to) = (from?, to?);
    let first = from.first()?;
    let all_ended = sides.iter().all(|side| side.len() > 1 && side.iter().all(|one| one.ended));
    let basis = match first.basis {
        Basis::PerSecond if all_ended => Basis::Total,
        basis => basis,
    };
    let missing = from.iter().chain(&to).find_map(|number| match &number.data {
        Data::Missing(why) => Some(why.clone()),
        Data::Parts(_) | Data::Latency(..) => None,
    });
    let estimates = [&from, &to].map(|side| estimate(side, basis));
    let occurrences: Option<f64> = from.iter().chain(&to).map(Measured::occurrences).sum();
    let is_never = estimates.iter().flatten().all(|estimate| estimate.value == 0.0);
    let outcome = match (missing, &estimates) {
        (Some(why), _) => Outcome::Untested(why),
        _ if unlike => Outcome::Untested("samples are not as frequent in both".to_owned()),
        // A number that is 0 on both sides is equal, which is not a comparison.
        _ if is_never => Outcome::Untested("it is 0 on both sides".to_owned()),
        _ if basis != Basis::Share && occurrences.is_some_and(|count| count < OCCURRENCES_MIN) => {
            Outcome::Untested("too few occurrences to be compared".to_owned())
        }
        (None, [Some(from), Some(to)]) => contrast(from, to).map_or_else(Outcome::Untested, Outcome::Tested),
        (None, _) => Outcome::Untested("it is not known".to_owned()),
    };
    Some(Difference { key: key.clone(), unit: first.unit.clone(), basis, sides: estimates, outcome })
}

/// Returns the content of one side only: owners, and numbers of owners that both have.
fn only(sides: [&[Recorded]; 2], keys: &[BTreeSet<&Key>; 2]) -> Vec<Only> {
    let owners = keys.each_ref().map(|keys| keys.iter().map(|key| &key.whose).collect::<BTreeSet<_>>());
    let mut only = Vec::new();
    for (side, other) in [(0, 1), (1, 0)] {
        let mut numbers: BTreeMap<&Whose, BTreeSet<String>> = BTreeMap::new();
        for key in keys[side].difference(&keys[other]) {
            let names = match &key.what {
                _ if !owners[other].contains(&key.whose) => numbers.entry(&key.whose).or_default(),
                What::Metric(metric) => {
                    numbers.entry(&key.whose).or_default().insert(metric.clone());
                    continue;
                }
                // Code without samples and culprits without waits count as 0, and are compared.
                What::Culprit(_) | What::Function(..) | What::Stack(_) => continue,
            };
            names.clear();
        }
        let cpu_time = |whose| recorded::cpu_time(&sides[side].first()?.numbers, whose);
        let mut of_side: Vec<Only> = numbers
            .into_iter()
            .map(|(whose, metrics)| Only {
                side,
                whose: whose.clone(),
                metrics: metrics.into_iter().collect(),
                cpu_time_ns: cpu_time(whose),
            })
            .collect();
        of_side.sort_by(|left, right| {
            right.cpu_time_ns.unwrap_or(0.0).total_cmp(&left.cpu_time_ns.unwrap_or(0.0))
        });
        only.extend(of_side);
    }
    only
}

/// Returns the unit of a difference, as it is compared.
pub fn unit_of(difference: &Difference) -> String {
    match difference.basis {
        Basis::PerSecond if difference.unit == Unit::Ns.name() => "ns/s".to_owned(),
        Basis::PerSecond => format!("{}/s", difference.unit),
        Basis::Total | Basis::Level | Basis::Quantile | Basis::Share => difference.unit.clone(),
    }
}
