//! Recordings in comparable form: every number with its variation, from the report of the whole and those of
//! its parts.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    super::{
        Report, TasksReport,
        number::{Content, Number},
        stat::Beside,
        value::{Distribution, How, Value},
    },
    key::{Key, What, Whose, matched},
    measured::{Basis, Data, Measured, Parts},
};
use crate::{
    drain::Owner,
    model::histogram::Histogram,
    table::{metric, unit::Unit},
};

/// Quantiles of latencies that are compared.
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

/// Recording in comparable form.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Name of the recording.
    pub name: String,
    /// Length of the recording in s.
    pub seconds: f64,
    /// Number of parts with known variation.
    pub parts: usize,
    /// Whether a command ran to its end.
    pub ended: bool,
    pub(super) numbers: BTreeMap<Key, Measured>,
    /// Number of samples in each part.
    pub(super) samples: Vec<f64>,
    /// Lengths of the parts in s.
    pub(super) lengths: Vec<f64>,
}

/// Number of one report, before it becomes part of a series.
struct Entry {
    unit: String,
    basis: Basis,
    found: Found,
}

enum Found {
    /// Value, half-width, weight, and occurrences.
    Number([f64; 3], Option<f64>),
    Latency(Histogram),
    Missing(String),
}

impl Recorded {
    /// Creates a recording from the report of the `whole` and the reports of its `parts` in order. `ended`:
    /// whether its command ran to its end.
    pub(super) fn new(name: String, whole: &Report, parts: &[Report], ended: bool) -> Self {
        let seconds = length(whole);
        let entries: Vec<_> = parts.iter().map(entries).collect();
        let lengths: Vec<f64> = parts.iter().map(length).collect();
        let mut numbers = BTreeMap::new();
        for (key, entry) in self::entries(whole) {
            add(&mut numbers, key, entry, seconds, (&entries, &lengths));
        }
        if ended {
            let value = Parts { total: Some(seconds * 1e9), value: seconds * 1e9, ..Parts::default() };
            let elapsed =
                Measured { unit: Unit::Ns.name().to_owned(), basis: Basis::Total, data: Data::Parts(value) };
            numbers.entry(of_target("elapsed")).or_insert(elapsed);
        }
        let parts_count = parts.len();
        let mut recorded =
            Self { name, seconds, parts: parts_count, ended, numbers, samples: Vec::new(), lengths };
        if let Some(tasks) = &whole.tasks {
            let parts: Vec<_> = parts.iter().filter_map(|part| part.tasks.as_ref()).collect();
            recorded.add_samples(tasks, &parts);
        }
        recorded
    }

    /// Adds the shares of functions and of stacks.
    fn add_samples(&mut self, whole: &TasksReport, parts: &[&TasksReport]) {
        let shares: Vec<_> = parts.iter().map(|part| shares(part)).collect();
        self.samples = parts.iter().map(|part| samples(part)).collect();
        for (key, hit) in self::shares(whole) {
            let all = samples(whole);
            let value = Parts {
                value: hit / all,
                parts: shares
                    .iter()
                    .zip(&self.samples)
                    .map(|(shares, all)| (shares.get(&key).copied().unwrap_or(0.0), *all))
                    .collect(),
                occurrences: Some(hit),
                ..Parts::default()
            };
            self.numbers.insert(key, Measured::share(Data::Parts(value)));
        }
    }

    /// Returns the number of a key; 0 for code without samples, and for a culprit without waits, where that
    /// is known.
    pub(super) fn number(&self, key: &Key) -> Option<Measured> {
        let none_of = |each: &[f64]| each.iter().map(|&of| (0.0, of)).collect();
        self.numbers.get(key).cloned().or_else(|| match &key.what {
            What::Metric(_) => None,
            What::Culprit(_) => {
                let parts = none_of(&self.lengths);
                let data = Data::Parts(Parts { parts, total: Some(0.0), ..Parts::default() });
                let unit = metric::RUNQUEUE_CULPRIT.unit.name().to_owned();
                self.tells_culprits().then_some(Measured { unit, basis: Basis::PerSecond, data })
            }
            What::Function(..) | What::Stack(_) => {
                let parts = none_of(&self.samples);
                let value = Parts { parts, occurrences: Some(0.0), ..Parts::default() };
                (self.samples.iter().sum::<f64>() > 0.0).then(|| Measured::share(Data::Parts(value)))
            }
        })
    }

    /// Returns whether the recording contains the culprits of its owners' waits for CPUs.
    fn tells_culprits(&self) -> bool {
        let target = Whose::target();
        self.numbers.keys().any(|key| key.whose == target && matches!(key.what, What::Culprit(_)))
    }
}

/// Returns the key of the target's metric of this name.
pub(super) fn of_target(metric: &str) -> Key {
    Key { whose: Whose::target(), subject: None, event: None, what: What::Metric(metric.to_owned()) }
}

/// Returns the length in s, over all sources.
fn length(report: &Report) -> f64 {
    let mut longest = 0_u64;
    let _ = report.by_source::<std::convert::Infallible>(|(_, length_ns), _| {
        longest = longest.max(length_ns);
        Ok(())
    });
    longest as f64 / 1e9
}

/// Combines a number of the whole with those of the parts.
fn add(
    numbers: &mut BTreeMap<Key, Measured>,
    key: Key,
    entry: Entry,
    seconds: f64,
    (parts, lengths): (&[BTreeMap<Key, Entry>], &[f64]),
) {
    let Entry { unit, basis, found } = entry;
    let of_parts = || parts.iter().zip(lengths).map(|(part, length)| (part.get(&key), *length));
    let data = match found {
        Found::Missing(why) => Data::Missing(why),
        Found::Latency(_) => {
            let part = |entry: Option<&Entry>| match entry.map(|entry| &entry.found) {
                Some(Found::Latency(histogram)) => histogram.clone(),
                _ => Histogram::default(),
            };
            let parts: Arc<[Histogram]> = of_parts().map(|(entry, _)| part(entry)).collect();
            for (name, share) in QUANTILES {
                let What::Metric(metric) = &key.what else { continue };
                let key = Key { what: What::Metric(format!("{metric}.{name}")), ..key.clone() };
                let data = Data::Latency(Arc::clone(&parts), share);
                numbers.insert(key, Measured { unit: unit.clone(), basis, data });
            }
            return;
        }
        Found::Number([value, half, _], occurrences) => {
            let divisor = if basis == Basis::PerSecond { seconds } else { 1.0 };
            let part = |(entry, length): (Option<&Entry>, f64)| match (basis, entry.map(|one| &one.found)) {
                (Basis::PerSecond, Some(Found::Number([value, ..], _))) => (*value, length),
                // An owner without a row in a part did nothing in it.
                (Basis::PerSecond, None) => (0.0, length),
                (_, Some(Found::Number([value, _, weight], _))) => (value * weight, *weight),
                _ => (0.0, 0.0),
            };
            Data::Parts(Parts {
                value: value / divisor,
                half_width: half / divisor,
                parts: of_parts().map(part).collect(),
                occurrences,
                total: (basis != Basis::Level).then_some(value),
            })
        }
    };
    numbers.insert(key, Measured { unit, basis, data });
}

/// Returns the numbers of a report, with those of owners of one name combined.
fn entries(report: &Report) -> BTreeMap<Key, Entry> {
    let cpu_times = cpu_times(report);
    let mut entries: BTreeMap<Key, Entry> = BTreeMap::new();
    let _ = report.by_source::<std::convert::Infallible>(|(_, length_ns), numbers| {
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        for number in numbers {
            if number.metric.starts_with("runs.") {
                continue;
            }
            let whose = Whose::of(number.whose);
            let weight = weight(&number, cpu_times.get(&whose).copied(), &counts, length_ns);
            let entry = entry(&number, weight);
            if let Found::Number([value, ..], _) = entry.found {
                counts.insert(number.metric.to_string(), value);
            }
            let what = match number.details.culprit {
                Some(culprit) => What::Culprit(Whose::culprit(culprit)),
                None => What::Metric(name(&number)),
            };
            let key = Key { whose, subject: number.subject.cloned(), event: event(&number), what };
            match entries.entry(key) {
                std::collections::btree_map::Entry::Occupied(mut there) => there.get_mut().merge(entry),
                std::collections::btree_map::Entry::Vacant(free) => drop(free.insert(entry)),
            }
        }
        Ok(())
    });
    entries
}

/// Returns CPU time by owner: the weight of metrics of the CPU model.
fn cpu_times(report: &Report) -> BTreeMap<Whose, f64> {
    let mut times = BTreeMap::new();
    let owners = report.tasks.iter().flat_map(|tasks| std::iter::once(&tasks.total).chain(&tasks.owners));
    for owner in owners {
        let time = owner.value(&metric::CPU_TIME).map_or(0.0, |known| known.estimate);
        *times.entry(Whose::of((&owner.who).into())).or_default() += time;
    }
    times
}

/// Returns the weight of a level relative to those of other parts: the divisor of its formula, as far as it
/// is known.
fn weight(number: &Number<'_>, cpu_time: Option<f64>, counts: &BTreeMap<String, f64>, length_ns: u64) -> f64 {
    let is_of_cpu = number.details.node.is_some() || number.metric.starts_with("ratio.");
    if let (true, Some(time)) = (is_of_cpu, cpu_time) {
        return time;
    }
    let Content::Value(value) = &number.content else { return length_ns as f64 };
    // A metric that is derived from an event is that event's count divided by something.
    let parent = number.parent.as_ref().and_then(|parent| counts.get(parent.as_ref()));
    match (parent, value.known()) {
        (Some(count), Some(known)) if number.subject.is_none() && known.estimate * count > 0.0 => {
            count / known.estimate
        }
        _ => length_ns as f64,
    }
}

/// Returns the metric's name; for an event that PMUs of several kinds count, with the name of the PMU.
fn name(number: &Number<'_>) -> String {
    match number.details.counters {
        Some(row) if row.beside == Beside::Others => format!("{}@{}", number.metric, row.pmu),
        _ => number.metric.to_string(),
    }
}

/// Returns the event of which a number is a rate.
fn event(number: &Number<'_>) -> Option<String> {
    const RATES: [&str; 3] = ["cpu_rate", "rate", "power"];
    let event = number.parent.as_ref()?.strip_prefix("event.")?;
    RATES.contains(&number.metric.as_ref()).then(|| event.to_owned())
}

/// Returns the basis of a number: whether it grows with time.
fn basis(number: &Number<'_>) -> Basis {
    let of_tasks = || {
        metric::TASKS
            .iter()
            .chain(&metric::OFF_CPU)
            .chain(&metric::INTERRUPTS)
            .any(|metric| metric.name == number.metric)
    };
    let times = ["elapsed", "user_time", "system_time"];
    if times.contains(&number.metric.as_ref()) {
        Basis::Total
    } else if number.metric.starts_with("event.")
        || number.details.culprit.is_some()
        || number.subject.is_none() && of_tasks()
    {
        Basis::PerSecond
    } else {
        Basis::Level
    }
}

fn entry(number: &Number<'_>, weight: f64) -> Entry {
    let unit = number.unit.to_owned();
    match &number.content {
        Content::Distribution(found) => {
            let found = match found {
                Ok(Distribution { histogram, .. }) => Found::Latency(histogram.clone()),
                Err(why) => Found::Missing((*why).to_owned()),
            };
            Entry { unit, basis: Basis::Quantile, found }
        }
        Content::Value(value) => {
            let basis = basis(number);
            let found = match &**value {
                Value::Missing(why) => Found::Missing(why.clone()),
                Value::Known(known) => {
                    let half = (known.high - known.low) / 2.0;
                    let half = if half.is_finite() { half } else { 0.0 };
                    let is_time = number.unit == Unit::Ns.name();
                    let is_count = basis == Basis::PerSecond && known.how == How::Counted && !is_time;
                    Found::Number([known.estimate, half, weight], is_count.then_some(known.estimate))
                }
            };
            Entry { unit, basis, found }
        }
    }
}

impl Entry {
    /// Adds the numbers of another owner of the same name, as far as they add up.
    fn merge(&mut self, other: Self) {
        let is_rate = self.basis == Basis::PerSecond || self.unit.ends_with("/s");
        self.found = match (std::mem::replace(&mut self.found, Found::Missing(String::new())), other.found) {
            (Found::Number([value, half, weight], some), Found::Number([more, wider, _], others))
                if is_rate =>
            {
                let occurrences = some.zip(others).map(|(some, others)| some + others);
                Found::Number([value + more, half + wider, weight], occurrences)
            }
            (Found::Latency(mut all), Found::Latency(more)) => {
                all.merge(&more);
                Found::Latency(all)
            }
            (found, Found::Missing(_)) | (Found::Missing(_), found) => found,
            _ => Found::Missing("several of one name have it, and it cannot be added up".to_owned()),
        };
    }
}

/// Returns the number of samples of the target.
fn samples(tasks: &TasksReport) -> f64 {
    tasks.hot.iter().map(|function| function.samples as f64).sum()
}

/// Returns the samples of every function and stack, by a key that matches across recordings.
fn shares(tasks: &TasksReport) -> BTreeMap<Key, f64> {
    let all = samples(tasks);
    let mut shares = BTreeMap::new();
    let mut add = |owner: &Owner, what: Option<What>, share: f64| {
        let Some(what) = what else { return };
        let key = Key { whose: Whose::owner(owner), subject: None, event: None, what };
        *shares.entry(key).or_default() += share * all;
    };
    for function in &tasks.hot {
        let what = matched(&function.frame).map(|frame| What::Function(frame, function.kernel));
        add(&function.owner, what, function.share.estimate);
    }
    for stack in &tasks.stacks {
        let frames: Option<Vec<_>> = stack.frames.iter().map(matched).collect();
        add(&stack.owner, frames.map(What::Stack), stack.share.estimate);
    }
    shares
}

/// Returns the CPU time of an owner, for a list of those that only one recording has.
pub(super) fn cpu_time(owners: &BTreeMap<Key, Measured>, whose: &Whose) -> Option<f64> {
    let key = Key {
        whose: whose.clone(),
        subject: None,
        event: None,
        what: What::Metric(metric::CPU_TIME.name.to_owned()),
    };
    match &owners.get(&key)?.data {
        Data::Parts(parts) => parts.total,
        Data::Latency(..) | Data::Missing(_) => None,
    }
}
