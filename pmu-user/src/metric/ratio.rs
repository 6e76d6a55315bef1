//! Counts and ratios from samples. A sample stands for its period times its weight. Ratios are computed after
//! that, never before.

use super::{
    Quality, shed,
    value::{How, Known, Value, poisson_bounds, share_bounds},
};
use crate::{
    drain::{TasksHeader, Work},
    model::{CpuCounts, Interval, OwnerEvent, WeightedSamples},
    plan::Sampling,
    table::{
        event::Counts,
        quantity::{Quantity, RATIOS},
    },
};

/// Weight and completeness of an event's samples in an interval.
#[derive(Clone, Debug)]
pub(super) struct Worth {
    /// Name of the event.
    pub(super) name: String,
    period: f64,
    /// Mean weight of a sample, for tallies without samples.
    weight: f64,
    /// Share of its time during which the event had a counter, times the share of the due samples that were
    /// taken.
    coverage: f64,
    /// Number of occurrences on all CPUs without a sample, where each should have one; `None` where samples
    /// are fewer than occurrences.
    missing: Option<u64>,
    /// Reason why its samples are not usable.
    absent: Option<String>,
}

/// Pair of events that make a ratio.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    name: String,
    parts: [usize; 2],
    scale: f64,
}

/// Ratio of an owner or a function.
#[derive(Clone, Debug, PartialEq)]
pub struct RatioReport {
    /// Name: one of [`RATIOS`], or of an event per 1,000 instructions.
    pub name: String,
    /// Value with the 95 % interval of a ratio of two Poisson counts.
    pub value: Value,
}

/// Estimate of one event for an owner.
#[derive(Clone, Debug, PartialEq)]
pub struct EventReport {
    /// Name of the event.
    pub name: String,
    /// Number of samples.
    pub samples: u64,
    /// Estimated number of occurrences.
    pub count: Value,
    /// Occurrences in user mode.
    pub user: Value,
    /// Occurrences in kernel mode.
    pub kernel: Value,
}

/// Data that turn samples into counts and ratios.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    pub(super) events: Vec<Worth>,
    pub(super) pairs: Vec<Pair>,
}

impl Scale {
    pub(super) fn new(header: &TasksHeader, interval: &Interval, quality: &Quality) -> Self {
        let sampling = &header.plan.sampling;
        if !header.plan.samples_events() {
            return Self { events: Vec::new(), pairs: Vec::new() };
        }
        let cpus = interval.all_cpus();
        let stopped = shed::why(header, interval, Work::Samples);
        let worth = |(event, sampling): (usize, &Sampling)| {
            let came = quality.sample_coverages().nth(event);
            let worth = Worth::new(event, sampling, &cpus, came.unwrap_or(1.0));
            let each_is_one = sampling.period == 1 && worth.weight <= 1.0;
            let of = quality.samples.get(event).filter(|_| each_is_one);
            let missing = of.and_then(|of| Some(of.expected?.saturating_sub(of.seen)));
            Worth { absent: stopped.clone().or(worth.absent), missing, ..worth }
        };
        Self { events: sampling.iter().enumerate().map(worth).collect(), pairs: pairs(sampling) }
    }

    /// Returns the estimate of every event for an owner; empty where only a clock samples.
    pub(super) fn events(&self, of: impl Fn(usize) -> OwnerEvent) -> Vec<EventReport> {
        let report = |(event, worth): (usize, &Worth)| {
            let samples = of(event);
            let all = samples.all();
            EventReport {
                name: worth.name.clone(),
                samples: all.samples,
                count: worth.count(&all),
                user: worth.count(&samples.user),
                kernel: worth.count(&samples.kernel),
            }
        };
        self.events.iter().enumerate().map(report).collect()
    }

    /// Returns whether every occurrence of the event is a sample, and every one was seen.
    pub(super) fn is_exact(&self, event: usize) -> bool {
        self.events.get(event).is_some_and(Worth::is_exact)
    }

    /// Returns every ratio of the samples that `of` returns for each event.
    pub(super) fn ratios(&self, of: impl Fn(usize) -> WeightedSamples) -> Vec<RatioReport> {
        let report = |pair: &Pair| {
            let [over, under] = pair.parts.map(|event| (&self.events[event], of(event)));
            RatioReport { name: pair.name.clone(), value: ratio(over, under, pair.scale) }
        };
        self.pairs.iter().map(report).collect()
    }
}

impl Worth {
    fn new(event: usize, sampling: &Sampling, cpus: &CpuCounts, came: f64) -> Self {
        let ran = cpus.events.get(event).and_then(|event| event.ran);
        let (running, absent) = match ran {
            Some(ran) if ran.enabled_ns > 0 && ran.running_ns == 0 => {
                (0.0, Some("the event never got a counter; others held them all the time".to_owned()))
            }
            Some(ran) if ran.enabled_ns > 0 => {
                ((ran.running_ns as f64 / ran.enabled_ns as f64).min(1.0), None)
            }
            _ => (1.0, None),
        };
        let weight = if running > 0.0 { 1.0 / running } else { 1.0 };
        Self {
            name: sampling.event.clone(),
            period: sampling.period as f64,
            weight,
            coverage: running * came,
            missing: None,
            absent,
        }
    }

    /// Returns whether every occurrence is a sample, and every one was seen.
    fn is_exact(&self) -> bool {
        self.missing == Some(0) && self.absent.is_none()
    }

    /// Returns the count that a tally stands for.
    pub(super) fn count(&self, tally: &WeightedSamples) -> Value {
        if let Some(why) = &self.absent {
            return Value::Missing(why.clone());
        }
        if let Some(missing) = self.missing {
            // All missing samples may belong here.
            let (low, high) = (tally.samples as f64, tally.samples.saturating_add(missing) as f64);
            let coverage = self.coverage;
            return Value::Known(Known { estimate: low, low, high, coverage, how: How::Counted });
        }
        let (effective, each) = self.effective(tally);
        let (low, high) = poisson_bounds(effective);
        Value::Known(Known {
            estimate: tally.weighted * self.period,
            low: low * each,
            high: high * each,
            coverage: self.coverage,
            how: How::Sampled,
        })
    }

    /// Returns the number of samples of equal weight with the same information, and the count that each
    /// stands for.
    fn effective(&self, tally: &WeightedSamples) -> (f64, f64) {
        if tally.samples == 0 {
            return (0.0, self.weight * self.period);
        }
        (tally.weighted * tally.weighted / tally.squares, tally.squares / tally.weighted * self.period)
    }
}

/// Returns the ratio of two events' counts. Given their sum, the share of the first is binomial. Its score
/// interval (Wilson) yields the ratio's interval.
fn ratio(over: (&Worth, WeightedSamples), under: (&Worth, WeightedSamples), scale: f64) -> Value {
    for (worth, _) in [&over, &under] {
        if let Some(why) = &worth.absent {
            return Value::Missing(format!("{}: {why}", worth.name));
        }
    }
    if under.1.samples == 0 {
        return Value::Missing(format!("no sample of {} hit it", under.0.name));
    }
    let (above, above_each) = over.0.effective(&over.1);
    let (below, below_each) = under.0.effective(&under.1);
    let (low, high) = share_bounds(above, above + below);
    let worth = above_each / below_each * scale;
    Value::Known(Known {
        estimate: above / below * worth,
        low: low / (1.0 - low) * worth,
        high: high / (1.0 - high) * worth,
        coverage: over.0.coverage.min(under.0.coverage),
        how: How::Sampled,
    })
}

/// Returns the ratios that the events allow: of quantities, and of each event to the instructions. Both parts
/// count in the same modes on the same cores.
fn pairs(sampling: &[Sampling]) -> Vec<Pair> {
    let alike = |a: &Sampling, b: &Sampling| a.modes == b.modes && a.cpus == b.cpus;
    let find = |quantity: Quantity, like: Option<&Sampling>| {
        sampling
            .iter()
            .position(|event| event.quantity == Some(quantity) && like.is_none_or(|like| alike(like, event)))
    };
    let mut pairs = Vec::new();
    for (over, event) in sampling.iter().enumerate() {
        let Some(quantity) = event.quantity else { continue };
        for ratio in RATIOS.iter().filter(|ratio| ratio.numerator == quantity) {
            if let Some(under) = find(ratio.denominator, Some(event)) {
                pairs.push(Pair { name: named(ratio.name, event), parts: [over, under], scale: 1.0 });
            }
        }
    }
    // In the order of the table, regardless of the order of the events.
    let place = |pair: &Pair| RATIOS.iter().position(|ratio| pair.name.ends_with(ratio.name));
    pairs.sort_by_key(place);
    for (over, event) in sampling.iter().enumerate() {
        let plain = matches!(event.quantity, Some(Quantity::Cycles | Quantity::Instructions));
        if plain || event.counts == Counts::WallNs {
            continue;
        }
        if let Some(under) = find(Quantity::Instructions, Some(event)) {
            let name = format!("{} per 1,000 instructions", event.event);
            pairs.push(Pair { name, parts: [over, under], scale: 1000.0 });
        }
    }
    pairs
}

/// Returns the name of a ratio, preceded by the kind of core where there are several.
fn named(ratio: &str, event: &Sampling) -> String {
    match event.event.split_once('/') {
        Some((pmu, _)) if !event.cpus.is_empty() => format!("{pmu}/{ratio}"),
        _ => ratio.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Worth, ratio};
    use crate::{
        metric::{
            testing::Random,
            value::{How, Known, Value},
        },
        model::WeightedSamples,
    };

    fn worth(period: f64) -> Worth {
        Worth { name: "cycles".to_owned(), period, weight: 1.0, coverage: 1.0, missing: None, absent: None }
    }

    fn known(value: &Value) -> Known {
        *value.known().unwrap()
    }

    #[test]
    fn an_event_whose_every_occurrence_is_a_sample_is_counted_and_not_estimated() {
        let count = |missing| {
            let worth = Worth { missing: Some(missing), ..worth(1.0) };
            let Value::Known(count) = worth.count(&WeightedSamples::new(2859, 1.0)) else { panic!("known") };
            assert_eq!((count.estimate, count.how), (2859.0, How::Counted));
            (count.low, count.high)
        };
        assert_eq!(count(0), (2859.0, 2859.0));
        assert_eq!(count(60), (2859.0, 2919.0), "those that are missing may be the owner's");
    }

    #[test]
    fn a_sample_stands_for_its_period_times_its_weight() {
        let mut tally = WeightedSamples::new(100, 1.0);
        tally.merge(&WeightedSamples::new(50, 4.0));
        let count = known(&worth(1000.0).count(&tally));
        assert_eq!(count.estimate, 300_000.0);
        // The standard deviation is √(100 + 50 · 16) samples.
        assert!((count.high - count.low - 2.0 * 1.96 * 30_000.0).abs() < 5_000.0, "{count:?}");
    }

    #[test]
    fn no_sample_is_not_nothing() {
        let count = known(&Worth { weight: 4.0, ..worth(1000.0) }.count(&WeightedSamples::default()));
        assert!(count.estimate == 0.0 && count.low == 0.0 && count.high > 14_000.0, "{count:?}");
    }

    #[test]
    fn ratios_are_of_counts_and_not_of_samples() {
        let (cycles, instructions) = (worth(1000.0), worth(5000.0));
        // Half of the time each: the samples have the same weight, but different periods.
        let ipc = known(&ratio(
            (&instructions, WeightedSamples::new(400, 2.0)),
            (&cycles, WeightedSamples::new(1000, 2.0)),
            1.0,
        ));
        assert!((ipc.estimate - 2.0).abs() < 1e-12 && ipc.low < 2.0 && ipc.high > 2.0, "{ipc:?}");
        // Only one of them shared its counter.
        let ipc = known(&ratio(
            (&instructions, WeightedSamples::new(100, 4.0)),
            (&cycles, WeightedSamples::new(1000, 1.0)),
            1.0,
        ));
        assert!((ipc.estimate - 2.0).abs() < 1e-12, "{ipc:?}");
    }

    #[test]
    fn a_ratio_over_no_sample_is_missing() {
        let value = ratio(
            (&worth(1.0), WeightedSamples::new(4, 1.0)),
            (&worth(1.0), WeightedSamples::default()),
            1.0,
        );
        assert_eq!(value, Value::Missing("no sample of cycles hit it".to_owned()));
        let absent = Worth { absent: Some("why".to_owned()), ..worth(1.0) };
        assert!(matches!(absent.count(&WeightedSamples::default()), Value::Missing(why) if why == "why"));
    }

    #[test]
    fn few_samples_make_a_wide_interval() {
        let few = known(&ratio(
            (&worth(1.0), WeightedSamples::new(2, 1.0)),
            (&worth(1.0), WeightedSamples::new(2, 1.0)),
            1.0,
        ));
        assert!(few.low < 0.2 && few.high > 5.0, "{few:?}");
    }

    #[test]
    fn the_interval_covers_the_ratio() {
        let mut random = Random(17);
        for (over, under, weight) in [(5.0, 20.0, 1.0), (60.0, 40.0, 3.0), (300.0, 30.0, 1.5)] {
            let truth = over * weight / under;
            let runs = 4_000;
            let covered = (0..runs).filter(|_| {
                let over = WeightedSamples::new(random.poisson(over), weight);
                let under = WeightedSamples::new(random.poisson(under), 1.0);
                match ratio((&worth(1.0), over), (&worth(1.0), under), 1.0) {
                    Value::Known(known) => known.low <= truth && truth <= known.high,
                    Value::Missing(_) => true,
                }
            });
            let share = covered.count() as f64 / f64::from(runs);
            assert!((0.93..0.99).contains(&share), "{over} / {under}: {share}");
        }
    }
}
