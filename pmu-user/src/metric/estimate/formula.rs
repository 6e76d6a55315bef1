//! Metrics: a formula over totals, evaluated on the estimates and on every replicate of them.

use std::{array, cell::Cell};

use super::{Estimate, Estimates, EventIndex, REPLICATES, replicates::reach};
use crate::{
    metric::value::{How, Known, Value},
    table::unit::Unit,
};

/// A metric that is undefined in more replicates than this has no interval, hence no value.
const UNDEFINED_MAX: usize = REPLICATES / 4;

/// What a formula asked for, in all of its evaluations.
#[derive(Default)]
struct Asked {
    missing: Cell<Option<usize>>,
    coverage: Cell<Option<f64>>,
    freedom: Cell<Option<f64>>,
}

impl Asked {
    /// A value with the interval that its replicas say; one that is not finite is undefined.
    fn value(&self, estimate: f64, replicas: &[f64; REPLICATES]) -> Value {
        let deviations = replicas.map(|total| total - estimate);
        let defined = || deviations.iter().filter(|deviation| deviation.is_finite());
        if REPLICATES - defined().count() > UNDEFINED_MAX {
            return Value::Missing(
                "its events are too uncertain: within their error it is undefined".to_owned(),
            );
        }
        let farthest = defined().fold(0.0_f64, |farthest, deviation| farthest.max(deviation.abs()));
        let all = deviations.map(|deviation| if deviation.is_finite() { deviation } else { farthest });
        let reach = reach(&all, self.freedom.get().unwrap_or(1.0));
        let coverage = self.coverage.get().unwrap_or(1.0);
        Value::Known(Known {
            estimate,
            low: estimate - reach,
            high: estimate + reach,
            coverage,
            how: How::Scaled,
        })
    }
}

impl Estimates {
    /// The value of a formula over totals: `formula` gets what tells an event's total (`None` if it is missing), and
    /// returns `None` where it is undefined.
    ///
    /// The interval is the estimate ± t · the replicates' root mean square deviation from it, t with the degrees of
    /// freedom of the worst known event asked for. Coverage is the smallest of theirs. If the formula is undefined for the
    /// estimates, the value is missing; so it is if more than a quarter of the replicates are undefined. Fewer count
    /// as far off as the farthest that is defined. A formula over exact counts is exact.
    pub fn metric(&self, formula: impl Fn(&dyn Fn(EventIndex) -> Option<f64>) -> Option<f64>) -> Value {
        let asked = Asked::default();
        let defined = |number: &f64| number.is_finite();
        let Some(estimate) = formula(&|event| self.ask(event, None, &asked)).filter(defined) else {
            return Value::Missing(self.why_undefined(&asked));
        };
        if asked.freedom.get().is_none() {
            return Value::exact(estimate);
        }
        let replicas = array::from_fn(|replicate| {
            formula(&|event| self.ask(event, Some(replicate), &asked)).unwrap_or(f64::NAN)
        });
        asked.value(estimate, &replicas)
    }

    /// As [`Estimates::metric`], for a formula that somebody else has evaluated: over the totals of `events`, and over each
    /// of their replicates, where what is not finite is undefined; without those it is exact. Its interval is cut to what its
    /// unit can be.
    pub fn evaluated(
        &self,
        events: &[EventIndex],
        estimate: f64,
        replicas: Option<&[f64; REPLICATES]>,
        unit: Unit,
    ) -> Value {
        let asked = Asked::default();
        for &event in events {
            if self.ask(event, None, &asked).is_none() {
                return Value::Missing(self.why_undefined(&asked));
            }
        }
        let Some(replicas) = replicas.filter(|_| asked.freedom.get().is_some()) else {
            return Value::exact(estimate);
        };
        match asked.value(estimate, replicas) {
            Value::Known(known) => Value::Known(known.within(unit)),
            missing => missing,
        }
    }

    /// An event's total, in a replicate or by estimate, noting what was asked for.
    fn ask(&self, event: EventIndex, replicate: Option<usize>, asked: &Asked) -> Option<f64> {
        match self.events.get(event.0) {
            Some(Estimate::Exact(count)) => Some(*count as f64),
            Some(Estimate::Scaled(scaled)) => {
                let least = |cell: &Cell<Option<f64>>, number: f64| {
                    cell.set(Some(cell.get().map_or(number, |least| least.min(number))));
                };
                least(&asked.coverage, scaled.coverage);
                least(&asked.freedom, scaled.deviations.freedom);
                Some(replicate.map_or(scaled.total, |replicate| scaled.replicate(replicate)))
            }
            Some(Estimate::Missing(_)) | None => {
                asked.missing.set(asked.missing.get().or(Some(event.0)));
                None
            }
        }
    }

    fn why_undefined(&self, asked: &Asked) -> String {
        match asked.missing.get().map(|event| self.value(EventIndex(event))) {
            Some(Value::Missing(why)) => why,
            _ => "its formula is undefined for these counts, as a ratio over nothing is".to_owned(),
        }
    }
}
