//! Comparison of free-running counters with metrics of multiplexed events. Uncore PMUs of stacks and of
//! memory have free-running counters of bytes, which count regardless of other events.
//!
//! They distinguish directions but not requesters. Inbound bytes of a port are writes of its device and
//! completions to CPUs. Outbound bytes are completions to the device's reads, and writes of CPUs. Traffic
//! between devices is in these counters alone.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    IoMetrics, Label, Row, Scope, Subject, UncoreCounts, devices::added, free_running, scope::ScopeClass,
};
use crate::{
    metric::value::Value,
    plan::io::{IoPlan, UncoreInstance, UncoreKind},
    table::unit::Unit,
};

/// Share by which a counter may be outside of an estimate's interval, because it includes messages and
/// traffic between devices.
const TOLERANCE: f64 = 0.05;
/// Bandwidth in MB/s below which nothing is compared: interrupts and completions of a million requests a
/// second stay below it. They are shorter than the unit of these counters. Whether each is counted as a whole
/// unit is not documented.
const BANDWIDTH_MIN: f64 = 100.0;
const LITTLE: &str = "less than 100 MB/s, which is little to compare";
/// Relative distance within which a ratio matches a factor.
const NEAR: f64 = 0.1;
/// Factors by which units of counters are mistaken, with the units in bytes.
const UNITS: [(f64, &str); 3] = [
    (2.0, "a unit of 64 bytes taken for 32"),
    (8.0, "a unit of 32 bytes taken for 4"),
    (16.0, "a unit of 64 bytes taken for 4"),
];

/// Free-running counters, and metrics that measure the same.
struct Pair {
    /// Name of the counters, before the number of a port.
    counter: &'static str,
    /// Kind of uncore PMU of the counters.
    always: &'static str,
    /// Kind of uncore PMU on which the metrics' events count.
    kind: &'static str,
    extent: ScopeClass,
    /// Metrics that are added up: of each list the first that the table has.
    metrics: &'static [&'static [&'static str]],
    /// MB/s in the unit of the metrics.
    unit: f64,
}

/// Metrics of CPU reads from devices, by completions or else by requests.
const OUTBOUND_READ: &[&str] = &["pcie.outbound_read_bw", "pcie.outbound_read_bw.by_cpu"];

const STACK: Pair = Pair {
    counter: "",
    always: free_running::BOXES,
    kind: "iio",
    extent: ScopeClass::Part,
    metrics: &[],
    unit: 1.0,
};
/// Memory controllers. Their free-running uncore PMUs are not those of channels and are numbered differently,
/// so only sums of a die compare.
const MEMORY: Pair =
    Pair { always: "imc_free_running", kind: "imc", extent: ScopeClass::Channel, unit: 1e3, ..STACK };

const PAIRS: [Pair; 4] = [
    Pair { counter: "bw_in", metrics: &[&["pcie.inbound_write_bw"], OUTBOUND_READ], ..STACK },
    Pair { counter: "bw_out", metrics: &[&["pcie.inbound_read_bw"], &["pcie.outbound_write_bw"]], ..STACK },
    Pair { counter: "read", metrics: &[&["dram.read_bw"]], ..MEMORY },
    Pair { counter: "write", metrics: &[&["dram.write_bw"]], ..MEMORY },
];

/// Comparison of a free-running counter with metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Scope of the comparison: a part of a stack; a stack, whose parts are counted together; or a die, for
    /// its memory.
    pub place: Scope,
    /// Name of the counter: `bw_in`, `bw_out`, `read` or `write`.
    pub counter: &'static str,
    /// Bandwidth by the metrics, in MB/s.
    pub metrics: Value,
    /// Bandwidth by the counter, in MB/s.
    pub always: Value,
    /// Number of ticks that agreed, and number of ticks that could be compared. Set for the whole run only.
    pub ticks: (u64, u64),
}

/// Verdict of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The counter is in the metrics' interval, or not far from it.
    Agrees,
    /// The counter is outside of it, with the known mistake that this looks like, if any.
    Differs(Option<&'static str>),
    /// No verdict, because little was moved.
    Little,
    /// No verdict, because one of the two is missing, with the reason.
    Missing(String),
}

impl Verdict {
    /// Returns the word for the verdict in every output.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs(_) => "differs",
            Self::Little => "little",
            Self::Missing(_) => "missing",
        }
    }
}

impl Check {
    /// Returns why there is no verdict, if there is none.
    pub fn silence(&self) -> Option<String> {
        match self.verdict() {
            Verdict::Agrees | Verdict::Differs(_) => None,
            Verdict::Little => Some(LITTLE.to_owned()),
            Verdict::Missing(why) => Some(why),
        }
    }

    /// Returns the verdict of the comparison.
    pub fn verdict(&self) -> Verdict {
        let (metrics, always) = match (&self.metrics, &self.always) {
            (Value::Known(metrics), Value::Known(always)) => (metrics, always.estimate),
            (Value::Missing(why), _) | (_, Value::Missing(why)) => return Verdict::Missing(why.clone()),
        };
        if metrics.estimate < BANDWIDTH_MIN && always < BANDWIDTH_MIN {
            return Verdict::Little;
        }
        if (metrics.low * (1.0 - TOLERANCE)..=metrics.high * (1.0 + TOLERANCE)).contains(&always) {
            return Verdict::Agrees;
        }
        let ratio = metrics.estimate / always;
        let near = |factor: f64| (ratio.max(ratio.recip()) / factor - 1.0).abs() <= NEAR;
        Verdict::Differs(UNITS.iter().find(|(factor, _)| near(*factor)).map(|(_, words)| *words))
    }

    /// Returns the ratio of the metrics to the counter. 1 is in its interval if they agree.
    pub fn ratio(&self) -> Value {
        match (&self.metrics, &self.always, self.silence()) {
            (.., Some(why)) => Value::Missing(why),
            (Value::Known(metrics), Value::Known(always), _) if always.estimate > 0.0 => {
                Value::Known(metrics.times(always.estimate.recip()))
            }
            _ => Value::Missing("the counter that always runs counted nothing".to_owned()),
        }
    }

    /// Returns the ratio as a row of its scope.
    pub fn row(&self) -> Row {
        let value = self.ratio();
        let note = "ratio: what metrics say over what the counter says, 1 if they agree";
        Row {
            subject: Subject::Scope(self.place),
            metric: format!("free.{}.ratio", self.counter),
            unit: Unit::Ratio,
            note: value.known().map(|_| note.to_owned()),
            value,
            distribution: None,
            label: Label::System,
        }
    }
}

/// Number of ticks in which each check agreed.
#[derive(Clone, Debug, Default)]
pub(super) struct Ticks(BTreeMap<(Scope, &'static str), (u64, u64)>);

impl Ticks {
    /// Adds a tick.
    pub(super) fn add(&mut self, checks: &[Check]) {
        for check in checks {
            let (agreed, compared) = self.0.entry((check.place, check.counter)).or_default();
            match check.verdict() {
                Verdict::Agrees => (*agreed, *compared) = (*agreed + 1, *compared + 1),
                Verdict::Differs(_) => *compared += 1,
                Verdict::Little | Verdict::Missing(_) => {}
            }
        }
    }

    /// Sets the number of ticks that agreed in each check of a whole run.
    pub(super) fn tell(&self, checks: &mut [Check]) {
        for check in checks {
            check.ticks = self.0.get(&(check.place, check.counter)).copied().unwrap_or_default();
        }
    }
}

impl IoMetrics {
    /// Returns a check of every free-running counter that measures the same as metrics. Each side covers the
    /// time for which its own uncore PMUs counted.
    pub(super) fn checks(&self, counts: &UncoreCounts<'_>) -> Vec<Check> {
        let of_pair = |pair: &'static Pair| {
            let check = move |place: Scope| Check {
                place,
                counter: pair.counter,
                metrics: self.by_metrics(pair, counts, place),
                always: self.by_counter(pair, counts, place),
                ticks: (0, 0),
            };
            pair.places(counts.plan).into_iter().map(check)
        };
        PAIRS.iter().flat_map(of_pair).collect()
    }

    fn by_metrics(&self, pair: &Pair, counts: &UncoreCounts<'_>, place: Scope) -> Value {
        let measured = Self::measured(counts, place, |kind| kind == pair.kind);
        let values = self.evaluate(&measured, pair.extent, place.of());
        let value = |names: &&[&str]| {
            let wanted = names.iter().find_map(|name| self.table.model.metric(name));
            let found = wanted.and_then(|wanted| values.iter().find(|(metric, _)| *metric == wanted));
            found.map_or_else(
                || Value::Missing(format!("{} is not measured", names[0])),
                |(_, value)| value.clone(),
            )
        };
        match pair.metrics.iter().map(value).reduce(|sum, next| added(&sum, &next)) {
            Some(Value::Known(known)) => Value::Known(known.times(pair.unit)),
            missing => missing.unwrap_or_else(|| Value::Missing("no metric measures it".to_owned())),
        }
    }

    fn by_counter(&self, pair: &Pair, counts: &UncoreCounts<'_>, place: Scope) -> Value {
        let measured = Self::measured(counts, place, |kind| kind == pair.always);
        let counters = self.always_running(counts.plan, &measured, place.of()).into_iter();
        let of_pair = counters.filter(|(name, ..)| pair.is(name)).map(|(.., value)| value);
        let sum = of_pair.reduce(|sum, next| added(&sum, &next));
        sum.unwrap_or_else(|| Value::Missing("the counter that always runs was not read".to_owned()))
    }
}

impl Pair {
    /// Returns whether `name` is one of its counters, with or without the number of a port.
    fn is(&self, name: &str) -> bool {
        name.strip_prefix(self.counter).is_some_and(|rest| rest.is_empty() || rest.starts_with("_port"))
    }

    /// Returns the smallest scopes for which both sides are counted.
    fn places(&self, plan: &IoPlan) -> BTreeSet<Scope> {
        let counts = |kind: &UncoreKind| {
            let mut events = kind.turns.groups.iter().flat_map(|group| &group.events);
            kind.name == self.always && events.any(|event| self.is(&event.name))
        };
        let mut places = BTreeSet::new();
        if !plan.kinds.iter().any(counts) {
            return places;
        }
        for kind in plan.kinds.iter().filter(|kind| kind.name == self.kind) {
            for &UncoreInstance { die, unit, .. } in &kind.instances {
                match (self.extent, &kind.parts) {
                    (ScopeClass::Part, Some(parts)) => {
                        places.extend(parts.iter().map(|&part| Scope::Part(die, unit, part)));
                    }
                    (ScopeClass::Part, None) => drop(places.insert(Scope::Stack(die, unit))),
                    _ => drop(places.insert(Scope::Socket(die))),
                }
            }
        }
        places
    }
}
