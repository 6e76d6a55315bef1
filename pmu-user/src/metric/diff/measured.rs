//! A number of one recording as it is compared: what of it is, and what is known; and a side's number, of its one recording or its several.

use std::sync::Arc;

use super::{
    quantile,
    series::{Estimate, at_least, of_ratio, of_runs},
};
use crate::{model::histogram::Histogram, table::unit::Unit};

/// What of a number is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// A count over the run, a second: recordings may differ in length.
    PerSecond,
    /// A count over a run that went to its end.
    Total,
    /// A number that does not grow with time: a ratio, a rate, a mean.
    Level,
    /// A quantile of a latency.
    Quantile,
    /// A share of samples.
    Share,
}

impl Basis {
    /// Its word in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "per_second",
            Self::Total => "total",
            Self::Level => "level",
            Self::Quantile => "quantile",
            Self::Share => "share",
        }
    }
}

/// A number of one recording.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Its unit, without what a second makes of it.
    pub(super) unit: String,
    pub(super) basis: Basis,
    pub(super) data: Data,
}

/// What is known of it.
#[derive(Clone, Debug)]
pub(super) enum Data {
    Parts(Parts),
    /// The latencies of each part, and which quantile.
    Latency(Arc<[Histogram]>, f64),
    Missing(String),
}

/// A ratio of sums over the parts of a recording: of a count and time, of what formulas say and what they were weighted with.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    /// Of the whole.
    pub(super) value: f64,
    /// Half of what was measured as its 95 % interval.
    pub(super) half_width: f64,
    /// Of each part: numerator and denominator.
    pub(super) parts: Vec<(f64, f64)>,
    /// How often what is counted occurred, where it is a count.
    pub(super) occurrences: Option<f64>,
    /// The count of the whole run.
    pub(super) total: Option<f64>,
}

/// A side's number, from its one recording or its several.
pub(super) fn estimate(side: &[Measured], basis: Basis) -> Option<Estimate> {
    if let [one] = side {
        return one.estimate(basis);
    }
    let each: Vec<Estimate> = side.iter().map(|one| one.estimate(basis)).collect::<Option<_>>()?;
    let values: Vec<f64> = each.iter().map(|one| one.value).collect();
    let (value, spread) = of_runs(&values);
    let count = side.len() as f64;
    // Where all runs happen to be alike, what is known of each still has errors.
    let half = side.iter().map(|one| one.half_width(basis)).sum::<f64>() / count / count.sqrt();
    let poisson = side.iter().map(|one| one.poisson(basis)).sum::<f64>() / count / count;
    Some(Estimate { value, spread: Ok(at_least(spread, half, poisson)) })
}

impl Measured {
    /// A share of samples.
    pub(super) fn share(data: Data) -> Self {
        Self { unit: Unit::Ratio.name().to_owned(), basis: Basis::Share, data }
    }

    /// What one recording says.
    fn estimate(&self, basis: Basis) -> Option<Estimate> {
        match &self.data {
            Data::Missing(_) => None,
            Data::Latency(parts, share) => Some(quantile::of(parts, *share)),
            Data::Parts(parts) if basis == Basis::Total => {
                let why = "one run: variation from run to run unknown; record several a side";
                Some(Estimate { value: parts.total?, spread: Err(why.to_owned()) })
            }
            Data::Parts(parts) => {
                let floor = |spread| at_least(spread, self.half_width(basis), self.poisson(basis));
                Some(Estimate { value: parts.value, spread: of_ratio(&parts.parts).map(floor) })
            }
        }
    }

    pub(super) fn occurrences(&self) -> Option<f64> {
        match &self.data {
            Data::Parts(parts) => parts.occurrences,
            Data::Latency(..) | Data::Missing(_) => None,
        }
    }

    /// Half of the interval that was measured.
    fn half_width(&self, basis: Basis) -> f64 {
        match &self.data {
            Data::Parts(parts) => parts.half_width * parts.scale(basis),
            Data::Latency(..) | Data::Missing(_) => 0.0,
        }
    }

    /// The variance of a count of what occurs independently.
    fn poisson(&self, basis: Basis) -> f64 {
        let Data::Parts(parts) = &self.data else { return 0.0 };
        let Some(occurrences) = parts.occurrences else { return 0.0 };
        if basis == Basis::Share {
            let all: f64 = parts.parts.iter().map(|part| part.1).sum();
            return parts.value.max(1.0 / all) * (1.0 - parts.value).max(0.0) / all;
        }
        let unit = if occurrences > 0.0 { parts.value * parts.scale(basis) / occurrences } else { 0.0 };
        occurrences * unit * unit
    }
}

impl Parts {
    /// What a value of the whole is multiplied with.
    fn scale(&self, basis: Basis) -> f64 {
        match (basis, self.total) {
            (Basis::Total, Some(total)) if self.value != 0.0 => total / self.value,
            _ => 1.0,
        }
    }
}
