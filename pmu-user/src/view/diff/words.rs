//! Differences in words: the number of a side, a change, a probability.

use crate::{
    table::{metric::RUNQUEUE_CULPRIT, unit::Unit},
    untrusted::Untrusted,
    view::text::{count, duration, percent, three_digits},
};

/// A number and the ends of its 95 % interval.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
pub(in crate::view) struct Ends {
    pub(in crate::view) value: f64,
    pub(in crate::view) low: f64,
    pub(in crate::view) high: f64,
}

/// Names of the metric, the basis and the unit of what is compared.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct Of<'a> {
    pub(in crate::view) metric: &'a str,
    pub(in crate::view) basis: &'a str,
    pub(in crate::view) unit: &'a str,
}

/// Returns a number of a side in a fitting unit.
pub(in crate::view) fn number(of: Of<'_>, value: f64) -> String {
    let Of { metric, basis, unit } = of;
    match (basis, unit) {
        ("share", _) => return percent(value),
        (_, "ns/s") if metric == RUNQUEUE_CULPRIT.name => return format!("{}/s", duration(value)),
        // CPU time per second: 1 is one CPU.
        (_, "ns/s") => return format!("{} CPU", three_digits(value / 1e9)),
        (_, unit) if unit == Unit::Ns.name() => return duration(value),
        (_, unit) if unit == Unit::Percent.name() => return format!("{} %", three_digits(value)),
        _ => {}
    }
    let number = if value.abs() < 1000.0 { three_digits(value) } else { count(value) };
    // The name of the metric includes what is counted.
    match (basis, unit) {
        ("per_second", _) => format!("{number} /s"),
        ("total", _) => number,
        (_, unit) if unit == Unit::Ratio.name() => number,
        (_, unit) => format!("{number} {}", Untrusted::from(unit).terminal()),
    }
}

/// Returns the change and its interval, as a share of the first side where that is known.
pub(in crate::view) fn change(of: Of<'_>, difference: Ends, relative: Option<Ends>) -> (String, String) {
    if let Some(Ends { value, low, high }) = relative {
        let percent = |share: f64| {
            let number = share * 100.0;
            if number.abs() < 99.95 { format!("{number:+.1}") } else { format!("{number:+.0}") }
        };
        return (format!("{} %", percent(value)), format!("[{} – {}]", percent(low), percent(high)));
    }
    // The interval is symmetric.
    let Ends { value, high, .. } = difference;
    let sign = if value < 0.0 { "−" } else { "+" };
    let shown = |value| number(of, value);
    (format!("{sign}{}", shown(value.abs())), format!("±{}", shown(high - value)))
}

/// Returns a probability as text.
pub(in crate::view) fn chance(p: f64) -> String {
    if p < 0.0001 { "<0.0001".to_owned() } else { format!("{p:.4}") }
}
