//! Two recordings, or two groups of them, compared: every number that both have, with how likely chance alone makes its difference.
//!
//! Of one recording a side, how a number varied over the recording says how far it may be off ([`series`]); of several, how it
//! varied from one to the next (Welch's t). Neither assumes that ticks are independent or that sides vary alike.

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

/// Occurrences in both sides together below which a count is not compared: it would be as much luck as a die.
const OCCURRENCES_MIN: f64 = 10.0;
/// One number of both sides.
#[derive(Clone, Debug)]
pub struct Difference {
    /// What it is.
    pub key: Key,
    /// Its unit, without what a second makes of it.
    pub unit: String,
    /// What of it is compared.
    pub basis: Basis,
    /// Both sides' numbers; `None` where it is missing.
    pub sides: [Option<Estimate>; 2],
    /// What came out.
    pub outcome: Outcome,
}

/// What a comparison said, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It could be made.
    Tested(Tested),
    /// It could not.
    Untested(String),
}

impl Difference {
    /// What the comparison said, if it could be made.
    pub const fn tested(&self) -> Option<&Tested> {
        match &self.outcome {
            Outcome::Tested(tested) => Some(tested),
            Outcome::Untested(_) => None,
        }
    }

    /// Is it more than chance?
    pub fn is_significant(&self) -> bool {
        self.tested().is_some_and(Tested::is_significant)
    }
}

/// What only one side has.
#[derive(Clone, Debug, PartialEq)]
pub struct Only {
    /// Which side: 0 or 1.
    pub side: usize,
    /// Whose.
    pub whose: Whose,
    /// The numbers that only this side has; none where the owner itself is in this side alone.
    pub metrics: Vec<String>,
    /// CPU time of an owner in ns, in the first recording that has it.
    pub cpu_time_ns: Option<f64>,
}

/// A comparison.
#[derive(Clone, Debug)]
pub struct Diff {
    /// Numbers that both have: first what differs by more than chance, most surely first.
    pub differences: Vec<Difference>,
    /// What only one has.
    pub only: Vec<Only>,
    /// Functions, stacks and culprits that are not compared: of too few samples or too short waits, or beyond the 200 of each with
    /// the most.
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

    /// Numbers that could be compared.
    pub fn compared(&self) -> usize {
        self.differences.iter().filter(|difference| difference.tested().is_some()).count()
    }

    /// Those that differ by more than chance.
    pub fn significant(&self) -> usize {
        self.differences.iter().filter(|difference| difference.is_significant()).count()
    }

    /// Those that would, if only one had been compared.
    pub fn uncorrected(&self) -> usize {
        let below = |difference: &&Difference| difference.tested().is_some_and(|tested| tested.p < LEVEL);
        self.differences.iter().filter(below).count()
    }
}

/// Is it a number of samples, which the period decides?
fn is_of_period(key: &Key) -> bool {
    let of_samples = [metric::SAMPLES.name, metric::USER_SAMPLES.name, metric::KERNEL_SAMPLES.name];
    matches!(&key.what, What::Metric(metric) if of_samples.contains(&metric.as_str()))
}

/// What every recording of a side has.
fn keys(side: &[Recorded]) -> BTreeSet<&Key> {
    let mut all: BTreeSet<&Key> = side.first().into_iter().flat_map(|first| first.numbers.keys()).collect();
    all.retain(|key| side.iter().all(|one| one.numbers.contains_key(*key)));
    all
}

/// A number of both sides; `None` where a side took no samples in which it could be.
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
        // What happened on neither side is the same, and no comparison.
        _ if is_never => Outcome::Untested("it is 0 on both sides".to_owned()),
        _ if basis != Basis::Share && occurrences.is_some_and(|count| count < OCCURRENCES_MIN) => {
            Outcome::Untested("too few occurrences to be compared".to_owned())
        }
        (None, [Some(from), Some(to)]) => contrast(from, to).map_or_else(Outcome::Untested, Outcome::Tested),
        (None, _) => Outcome::Untested("it is not known".to_owned()),
    };
    Some(Difference { key: key.clone(), unit: first.unit.clone(), basis, sides: estimates, outcome })
}

/// What only one side has: owners, and numbers of owners that both have.
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
                // Code that was not hit, and who was not waited for, has 0, and is compared.
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

/// Unit of a difference, as it is compared.
pub fn unit_of(difference: &Difference) -> String {
    match difference.basis {
        Basis::PerSecond if difference.unit == Unit::Ns.name() => "ns/s".to_owned(),
        Basis::PerSecond => format!("{}/s", difference.unit),
        Basis::Total | Basis::Level | Basis::Quantile | Basis::Share => difference.unit.clone(),
    }
}
