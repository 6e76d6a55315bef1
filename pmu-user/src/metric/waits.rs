//! Run-queue latency: percentiles with the bounds of their bucket.

use super::value::{How, Known};
use crate::model::{Counts, histogram::Within};

/// The quantiles that are reported, with their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// Run-queue latencies of an owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Waits {
    /// Times a task got a CPU.
    pub count: u64,
    /// Sum of the latencies in ns.
    pub sum_ns: u64,
    /// p50, p90, p99 and p99.9 in ns.
    pub quantiles: Vec<(&'static str, Known)>,
    /// The longest in ns.
    pub max_ns: Known,
    /// Buckets that hold something: bounds in ns (inclusive) and count.
    pub buckets: Vec<(u64, u64, u64)>,
}

impl Waits {
    /// The latencies of `counts`; `None` if no task got a CPU anew.
    pub(super) fn of(counts: &Counts, coverage: f64) -> Option<Self> {
        let count = counts.waits.count();
        if count == 0 {
            return None;
        }
        let (max_low, max_high) = counts.wait_max_ns;
        let known = |estimate: u64, low: u64, high: u64| Known {
            estimate: estimate as f64,
            low: low as f64,
            high: high as f64,
            coverage,
            how: How::Counted,
        };
        let cap = |within: Within| {
            (within.middle.min(max_high), within.low.min(max_high), within.high.min(max_high))
        };
        let values = counts.waits.quantiles(&QUANTILES.map(|(_, quantile)| quantile));
        let quantiles = QUANTILES.iter().zip(values).map(|(&(name, _), within)| {
            let (middle, low, high) = cap(within);
            (name, known(middle, low, high))
        });
        let middle = max_low + (max_high - max_low) / 2;
        Some(Self {
            count,
            sum_ns: counts.wait_ns,
            quantiles: quantiles.collect(),
            max_ns: known(middle, max_low, max_high),
            buckets: counts.waits.iter().map(|(within, count)| (within.low, within.high, count)).collect(),
        })
    }

    /// A quantile by its name.
    #[must_use]
    pub fn quantile(&self, name: &str) -> Option<&Known> {
        self.quantiles.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}
