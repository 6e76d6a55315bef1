//! Differences in words: a side's number, a change, a chance.

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

/// What is compared: names of its metric, basis and unit.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct Of<'a> {
    pub(in crate::view) metric: &'a str,
    pub(in crate::view) basis: &'a str,
    pub(in crate::view) unit: &'a str,
}

/// A number of a side in a unit that fits.
pub(in crate::view) fn number(of: Of<'_>, value: f64) -> String {
    let Of { metric, basis, unit } = of;
    match (basis, unit) {
        ("share", _) => return percent(value),
        (_, "ns/s") if metric == RUNQUEUE_CULPRIT.name => return format!("{}/s", duration(value)),
        // Time on CPUs a second: 1 is one CPU.
        (_, "ns/s") => return format!("{} CPU", three_digits(value / 1e9)),
        (_, unit) if unit == Unit::Ns.name() => return duration(value),
        (_, unit) if unit == Unit::Percent.name() => return format!("{} %", three_digits(value)),
        _ => {}
    }
    let number = if value.abs() < 1000.0 { three_digits(value) } else { count(value) };
    // What is counted stands in the metric's name.
    match (basis, unit) {
        ("per_second", _) => format!("{number} /s"),
        ("total", _) => number,
        (_, unit) if unit == Unit::Ratio.name() => number,
        (_, unit) => format!("{number} {}", Untrusted::from(unit).terminal()),
    }
}

/// The change, as a share of the first side where that is known, and its interval.
pub(in crate::view) fn change(of: Of<'_>, difference: Ends, relative: Option<Ends>) -> (String, String) {
    if let Some(Ends { value, low, high }) = relative {
        let percent = |share: f64| {
            let number = share * 100.0;
            if number.abs() < 99.95 { format!("{number:+.1}") } else { format!("{number:+.0}") }
        };
        return (format!("{} %", percent(value)), format!("[{} – {}]", percent(low), percent(high)));
    }
    // As far to either side.
    let Ends { value, high, .. } = difference;
    let sign = if value < 0.0 { "−" } else { "+" };
    let shown = |value| number(of, value);
    (format!("{sign}{}", shown(value.abs())), format!("±{}", shown(high - value)))
}

/// A probability.
pub(in crate::view) fn chance(p: f64) -> String {
    if p < 0.0001 { "<0.0001".to_owned() } else { format!("{p:.4}") }
}
