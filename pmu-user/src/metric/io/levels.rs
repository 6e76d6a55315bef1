//! Time that a bandwidth spent at each level, which the average over a run hides, and its maximum with the
//! source of that.
//!
//! Each slice of a kind of uncore PMU gives the mean bandwidth over its length, so bursts shorter than a
//! slice are smoothed.

use std::collections::BTreeMap;

use super::{
    IoMetrics, Row, Scope, Subject,
    scope::{WATCHED, Watched},
};
use crate::{
    drain::{io::IoHeader, reading::SliceRow},
    metric::value::Value,
    model::io::IoInterval,
    named::named,
    plan::io::IoPlan,
    table::{
        metric::{self, Metric},
        unit::Unit,
    },
};

/// Number of bins of a histogram: a bin is a two hundredth of the range, or narrower.
const BINS: usize = 400;
/// Initial width of a bin, in the unit of the bandwidth. It doubles until all values fit.
const WIDTH: f64 = 1e-3;

/// Time at each level so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Levels {
    series: BTreeMap<(usize, u32), Histogram>,
}

/// Time at each level of one bandwidth of one socket.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelReport {
    /// Scope of the bandwidth: a socket.
    pub place: Scope,
    /// Name of the bandwidth, such as `dram.bandwidth`.
    pub name: &'static str,
    /// Unit of the bandwidth.
    pub unit: Unit,
    /// Highest mean of a slice.
    pub observed_max: f64,
    /// Bins that are not empty: lower bound, upper bound, seconds.
    pub bins: Vec<(f64, f64, f64)>,
    /// Mean length of the slices, in s.
    pub slice: f64,
}

/// Time of a bandwidth at each level, with the limits of the levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Observed time at each level.
    pub seen: LevelReport,
    /// Maximum of the bandwidth, in its unit.
    pub maximum: f64,
    /// Source of the maximum.
    pub basis: Basis,
    /// Limits of the levels: low below the first, high from the second on.
    pub limits: [f64; 2],
}

named! {
    /// Source of a maximum.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Basis {
        Observed = "observed", "The largest rate that was seen; the limit is unknown.";
        Specification = "specification", "From what the parts are specified for.";
        Measured = "measured", "Measured before the run.";
        Given = "given", "The user said so.";
    }
}

impl Level {
    /// Returns `seen` with the maximum from the best source. `maxima` are of the same bandwidth and scope.
    /// The limits are thirds of the maximum unless they are given.
    pub fn new(seen: LevelReport, maxima: &[(f64, Basis)], limits: Option<[f64; 2]>) -> Self {
        let usable = maxima.iter().copied().filter(|(value, _)| value.is_finite() && *value > 0.0);
        let best = usable.max_by_key(|(_, basis)| *basis);
        let (maximum, basis) = best.unwrap_or((seen.observed_max, Basis::Observed));
        let limits = limits.unwrap_or([maximum / 3.0, maximum * 2.0 / 3.0]);
        Self { seen, maximum, basis, limits }
    }
}

/// Histogram of seconds by value, in bins of equal width from 0.
#[derive(Clone, Debug)]
struct Histogram {
    width: f64,
    seconds: Vec<f64>,
    largest: f64,
    slices: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { width: WIDTH, seconds: vec![0.0; BINS], largest: 0.0, slices: 0 }
    }
}

impl Histogram {
    fn add(&mut self, value: f64, seconds: f64) {
        if !(value >= 0.0 && value.is_finite()) {
            return;
        }
        while value >= self.width * BINS as f64 {
            self.width *= 2.0;
            let halved = self.seconds.chunks(2).map(|pair| pair.iter().sum());
            self.seconds = halved.chain(std::iter::repeat_n(0.0, BINS / 2)).collect();
        }
        self.seconds[(value / self.width) as usize] += seconds;
        self.largest = self.largest.max(value);
        self.slices += 1;
    }
}

impl Levels {
    /// Adds a tick.
    pub(super) fn add(&mut self, metrics: &IoMetrics, plan: &IoPlan, tick: &IoInterval) {
        for (at, (watched, asked)) in WATCHED.iter().zip(&metrics.watched).enumerate() {
            let Some(kind) = plan.kinds.iter().position(|kind| kind.name == watched.kind) else { continue };
            let Some(asked) = asked else { continue };
            let mut slices: BTreeMap<(u32, u64), Vec<&SliceRow>> = BTreeMap::new();
            for (number, site) in (0..).zip(&plan.kinds[kind].instances) {
                for slice in tick.uncore.get(&(kind as u32, number)).into_iter().flatten() {
                    slices.entry((site.die, slice.slice)).or_default().push(slice);
                }
            }
            for ((die, _), slices) in slices {
                // A sum over fewer instances would be too low.
                let instances = plan.kinds[kind].instances.iter().filter(|site| site.die == die).count();
                if slices.len() == instances
                    && let Some((value, seconds)) = metrics.of_slice(asked, &slices)
                {
                    self.series.entry((at, die)).or_default().add(value, seconds);
                }
            }
        }
    }

    /// Returns the time at each level so far.
    pub(super) fn report(&self, metrics: &IoMetrics) -> Vec<LevelReport> {
        let unit = |watched: &Watched| {
            let metric = metrics.table.model.metric(watched.metrics[0]);
            metric.map(|metric| metrics.table.model.metrics[metric as usize].unit)
        };
        let report = |(&(at, die), histogram): (&(usize, u32), &Histogram)| {
            let filled = (0..).zip(&histogram.seconds).filter(|(_, seconds)| **seconds > 0.0);
            let bin = |(bin, seconds): (u32, &f64)| {
                let from = f64::from(bin) * histogram.width;
                (from, from + histogram.width, *seconds)
            };
            LevelReport {
                place: Scope::Socket(die),
                name: WATCHED[at].name,
                unit: unit(&WATCHED[at]).unwrap_or(Unit::UNKNOWN),
                observed_max: histogram.largest,
                bins: filled.map(bin).collect(),
                slice: histogram.seconds.iter().sum::<f64>() / histogram.slices.max(1) as f64,
            }
        };
        self.series.iter().map(report).collect()
    }
}

impl LevelReport {
    /// Returns the time below, between and above two limits, in s. A bin counts where its middle lies.
    pub fn thirds(&self, low: f64, high: f64) -> [f64; 3] {
        self.bins.iter().fold([0.0; 3], |mut thirds, (from, to, seconds)| {
            let middle = f64::midpoint(*from, *to);
            thirds[usize::from(middle >= low) + usize::from(middle >= high)] += seconds;
            thirds
        })
    }
}

/// Returns the known maxima of a bandwidth of one socket, in its unit. Sockets are assumed to have equal
/// shares.
pub(super) fn maxima(header: &IoHeader, sockets: f64, name: &str) -> Vec<(f64, Basis)> {
    let report = &header.plan.report;
    match name {
        // A share of the link's capacity.
        "upi.utilization" => vec![(100.0, Basis::Specification)],
        "dram.bandwidth" => {
            let specified = header.platform.memory.bytes_per_second_max.known().map(|bytes| bytes / 1e9);
            let all = [
                (report.dram_max_gb_s, Basis::Given),
                (report.dram_measured_gb_s, Basis::Measured),
                (specified, Basis::Specification),
            ];
            all.into_iter().filter_map(|(most, basis)| Some((most? / sockets, basis))).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns rows of memory bandwidth as a share of its maximum, for sockets and the platform.
pub(super) fn utilization(rows: &[Row], header: &IoHeader, sockets: f64) -> Vec<Row> {
    let known = maxima(header, sockets, "dram.bandwidth");
    let best = known.iter().max_by_key(|(_, basis)| *basis);
    let row = |row: &Row| {
        let times = match row.subject {
            Subject::Scope(Scope::Socket(_)) => 1.0,
            Subject::Scope(Scope::Platform) => sockets,
            _ => return None,
        };
        let (value, note) = match (best, &row.value) {
            (Some((most, basis)), Value::Known(bandwidth)) => {
                let most = most * times;
                let note = format!("of {most:.1} GB/s ({})", basis.name());
                (Value::Known(bandwidth.times(100.0 / most)), Some(note))
            }
            (None, Value::Known(_)) => {
                let why =
                    "the most that memory can carry is not known; give --dram-max or --measure-max-bandwidth";
                (Value::Missing(why.to_owned()), None)
            }
            (_, missing) => (missing.clone(), None),
        };
        let Metric { name, unit, .. } = metric::DRAM_UTILIZATION;
        Some(Row { metric: name.to_owned(), unit, value, note, ..row.clone() })
    };
    rows.iter().filter(|row| row.metric == metric::DRAM_BW.name).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::{BINS, Histogram, LevelReport, Scope, Unit, WIDTH};

    fn report(histogram: &Histogram) -> LevelReport {
        let bin = |(bin, seconds): (usize, &f64)| {
            let from = bin as f64 * histogram.width;
            (from, from + histogram.width, *seconds)
        };
        LevelReport {
            place: Scope::Socket(0),
            name: "x",
            unit: Unit::UNKNOWN,
            observed_max: histogram.largest,
            bins: histogram.seconds.iter().enumerate().map(bin).collect(),
            slice: 1.0,
        }
    }

    #[test]
    fn time_is_kept_however_far_the_range_grows() {
        let mut histogram = Histogram::default();
        let values = [0.0, WIDTH * 1.5, 0.2, 7.0, 300.0, 120.0];
        values.iter().for_each(|value| histogram.add(*value, 0.5));
        histogram.add(f64::NAN, 1.0);
        histogram.add(-1.0, 1.0);
        assert_eq!(histogram.seconds.iter().sum::<f64>(), 3.0);
        assert_eq!((histogram.seconds.len(), histogram.largest), (BINS, 300.0));
        assert!(histogram.width * BINS as f64 > 300.0 && histogram.width * BINS as f64 <= 1200.0);
    }

    #[test]
    fn time_is_low_medium_or_high() {
        let mut histogram = Histogram::default();
        for (value, seconds) in [(10.0, 1.0), (50.0, 2.0), (90.0, 4.0), (91.0, 8.0)] {
            histogram.add(value, seconds);
        }
        assert_eq!(report(&histogram).thirds(33.0, 67.0), [1.0, 2.0, 12.0]);
    }
}
