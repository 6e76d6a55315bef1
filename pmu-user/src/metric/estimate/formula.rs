//! Metrics: a formula over totals, evaluated on the estimates and on every replicate of them.

use std::cell::Cell;

use super::{Estimate, Estimates, EventIndex, REPLICATES, replicates::reach};
use crate::metric::value::{How, Known, Value};

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
    /// A value with the interval that its replicas say.
    fn value(&self, estimate: f64, replicas: impl Iterator<Item = Option<f64>>) -> Value {
        let deviations: Vec<f64> =
            replicas.flatten().map(|total| total - estimate).take(REPLICATES).collect();
        if REPLICATES - deviations.len() > UNDEFINED_MAX {
            return Value::Missing(
                "its events are too uncertain: within their error it is undefined".to_owned(),
            );
        }
        let farthest = deviations.iter().fold(0.0_f64, |farthest, deviation| farthest.max(deviation.abs()));
        let mut all = [farthest; REPLICATES];
        all[..deviations.len()].copy_from_slice(&deviations);
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
        let replicas = (0..REPLICATES)
            .map(|replicate| formula(&|event| self.ask(event, Some(replicate), &asked)).filter(defined));
        asked.value(estimate, replicas)
    }

    /// As [`Estimates::metric`], for a formula that somebody else has evaluated: over the totals of `events`, and over each
    /// of their replicates. Its interval is cut to what its unit can be.
    pub fn evaluated(
        &self,
        events: &[EventIndex],
        estimate: f64,
        replicas: impl Iterator<Item = Option<f64>>,
        unit: &str,
    ) -> Value {
        let asked = Asked::default();
        for &event in events {
            if self.ask(event, None, &asked).is_none() {
                return Value::Missing(self.why_undefined(&asked));
            }
        }
        if asked.freedom.get().is_none() {
            return Value::exact(estimate);
        }
        match asked.value(estimate, replicas.map(|value| value.filter(|value| value.is_finite()))) {
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
                replicate.map_or(Some(scaled.total), |replicate| self.replicate(event, replicate))
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
