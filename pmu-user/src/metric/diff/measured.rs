//! Numbers of recordings in comparable form: the basis of a comparison, the known data, and the estimate of a
//! side from one recording or several.

use std::sync::Arc;

use super::{
    quantile,
    series::{Estimate, at_least, of_ratio, of_runs},
};
use crate::{model::histogram::Histogram, table::unit::Unit};

/// Basis on which a number is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Count over the run, per second: recordings may differ in length.
    PerSecond,
    /// Count over a run that ended by itself.
    Total,
    /// Number that does not grow with time: a ratio, a rate, a mean.
    Level,
    /// Quantile of a latency.
    Quantile,
    /// Share of samples.
    Share,
}

impl Basis {
    /// Returns its name in every output.
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

/// Number of one recording.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Unit of the number, before a rate per second is formed.
    pub(super) unit: String,
    pub(super) basis: Basis,
    pub(super) data: Data,
}

/// Data from which a number is estimated.
#[derive(Clone, Debug)]
pub(super) enum Data {
    Parts(Parts),
    /// Latencies of each part, and the quantile.
    Latency(Arc<[Histogram]>, f64),
    Missing(String),
}

/// Ratio of sums over the parts of a recording: of a count and time, or of weighted formula values and their
/// weights.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    /// Ratio of the whole.
    pub(super) value: f64,
    /// Half-width of the measured 95 % interval.
    pub(super) half_width: f64,
    /// Numerator and denominator of each part.
    pub(super) parts: Vec<(f64, f64)>,
    /// Number of occurrences, where a count is measured.
    pub(super) occurrences: Option<f64>,
    /// Count of the whole run.
    pub(super) total: Option<f64>,
}

/// Returns the number of a side, from one recording or several.
pub(super) fn estimate(side: &[Measured], basis: Basis) -> Option<Estimate> {
    if let [one] = side {
        return one.estimate(basis);
    }
    let each: Vec<Estimate> = side.iter().map(|one| one.estimate(basis)).collect::<Option<_>>()?;
    let values: Vec<f64> = each.iter().map(|one| one.value).collect();
    let (value, spread) = of_runs(&values);
    let count = side.len() as f64;
    // Where all runs happen to be alike, the measured number of each still has errors.
    let half = side.iter().map(|one| one.half_width(basis)).sum::<f64>() / count / count.sqrt();
    let poisson = side.iter().map(|one| one.poisson(basis)).sum::<f64>() / count / count;
    Some(Estimate { value, spread: Ok(at_least(spread, half, poisson)) })
}

impl Measured {
    /// Creates a share of samples.
    pub(super) fn share(data: Data) -> Self {
        Self { unit: Unit::Ratio.name().to_owned(), basis: Basis::Share, data }
    }

    /// Returns the estimate of one recording.
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

    /// Returns the half-width of the measured interval.
    fn half_width(&self, basis: Basis) -> f64 {
        match &self.data {
            Data::Parts(parts) => parts.half_width * parts.scale(basis),
            Data::Latency(..) | Data::Missing(_) => 0.0,
        }
    }

    /// Returns the variance of a count of independent occurrences.
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
    /// Returns the factor from a value to that of the whole.
    fn scale(&self, basis: Basis) -> f64 {
        match (basis, self.total) {
            (Basis::Total, Some(total)) if self.value != 0.0 => total / self.value,
            _ => 1.0,
        }
    }
}
