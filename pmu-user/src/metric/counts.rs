//! Scaling of counters that ran part of the time to counts of all of it.
//!
//! The kernel multiplexes when events outnumber counters: a count of n in the running time R of the enabled
//! time E is scaled by E / R. The counted part is certain, only the rest is estimated. If occurrences fall
//! into the running time by chance, n of N is binomial with the share R / E. The interval is Wilson's score
//! interval of that, solved for N. It covers chance only: work with phases in step with the kernel's rotation
//! is off by more than the interval states.

use super::value::{How, Known, Value, Z};
use crate::drain::reading::Reading;

/// Returns the count for all the enabled time, from one counter.
pub fn scaled(value: u64, enabled_ns: u64, running_ns: u64) -> Value {
    if running_ns == 0 {
        let why = if enabled_ns == 0 {
            "what was to be counted never ran"
        } else {
            "the event never got a counter; others held them all the time"
        };
        return Value::Missing(why.to_owned());
    }
    if running_ns >= enabled_ns {
        return Value::counted(value, 1.0);
    }
    let (counted, share) = (value as f64, running_ns as f64 / enabled_ns as f64);
    let (low, high) = thinned_interval(counted, share);
    Value::Known(Known { estimate: counted / share, low, high, coverage: share, how: How::Scaled })
}

/// Returns the 95 % interval of a number of occurrences, of which `seen` were seen, each with the probability
/// `share`.
///
/// The N for which (seen − share·N)² = z²·N·share·(1 − share); never less than `seen`.
fn thinned_interval(seen: f64, share: f64) -> (f64, f64) {
    let counted = seen / share;
    let shift = Z * Z * (1.0 - share) / (2.0 * share);
    let (middle, half) = (counted + shift, (shift * (shift + 2.0 * counted)).sqrt());
    ((middle - half).max(seen), middle + half)
}

/// Adds up several counters of the same event, each scaled by its own times. A counter that was never
/// enabled, because its thread or cgroup never ran there, adds nothing. One that was enabled but never ran
/// makes the sum missing.
pub fn sum<'a>(readings: impl IntoIterator<Item = &'a Reading>) -> Value {
    let (mut exact, mut total, mut below, mut above) = (0_u64, 0.0, 0.0_f64, 0.0_f64);
    let (mut enabled, mut running, mut how) = (0.0, 0.0, How::Counted);
    for reading in readings {
        if reading.enabled_ns == 0 {
            continue;
        }
        let known = match scaled(reading.value, reading.enabled_ns, reading.running_ns) {
            Value::Known(known) => known,
            Value::Missing(why) => return Value::Missing(format!("{why}{}", place(reading))),
        };
        if known.how == How::Scaled {
            how = How::Scaled;
        }
        exact = exact.saturating_add(reading.value);
        total += known.estimate;
        // Independent errors add up by their squares.
        below += (known.estimate - known.low).powi(2);
        above += (known.high - known.estimate).powi(2);
        enabled += reading.enabled_ns as f64;
        running += reading.running_ns.min(reading.enabled_ns) as f64;
    }
    match how {
        _ if enabled == 0.0 => scaled(0, 0, 0),
        How::Scaled => Value::Known(Known {
            estimate: total,
            low: total - below.sqrt(),
            high: total + above.sqrt(),
            coverage: running / enabled,
            how,
        }),
        _ => Value::counted(exact, 1.0),
    }
}

fn place(reading: &Reading) -> String {
    match (reading.cpu, reading.thread) {
        (Some(cpu), _) => format!(" of {} on cpu {}", reading.pmu, cpu.0),
        (None, Some(thread)) => format!(" of {} for thread {thread}", reading.pmu),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{scaled, sum};
    use crate::{
        drain::reading::Reading,
        machine::cpu::Cpu,
        metric::value::{How, Known, Value},
    };

    const MS: u64 = 1_000_000;

    fn known(value: &Value) -> Known {
        *value.known().unwrap()
    }

    fn reading(value: u64, enabled_ns: u64, running_ns: u64) -> Reading {
        Reading {
            index: 0,
            event: "cycles".to_owned(),
            pmu: "cpu".to_owned(),
            cpu: Some(Cpu(3)),
            thread: None,
            value,
            enabled_ns,
            running_ns,
        }
    }

    #[test]
    fn ten_thousand_in_three_fifths_of_the_time_are_16667() {
        let number = known(&scaled(10_000, 500 * MS, 300 * MS));
        assert_eq!(number.estimate.round(), 16_667.0);
        assert_eq!((number.how, number.coverage), (How::Scaled, 0.6));
        // ± 1.96 · √(10,000 · ⅔ · 5/3), and a little more above than below.
        assert!((16_455.0..16_475.0).contains(&number.low), "{number:?}");
        assert!((16_865.0..16_885.0).contains(&number.high), "{number:?}");
    }

    #[test]
    fn what_ran_all_the_time_is_the_raw_count() {
        let number = known(&scaled(123, 500, 500));
        assert_eq!((number.estimate, number.low, number.high), (123.0, 123.0, 123.0));
        assert_eq!((number.how, number.coverage), (How::Counted, 1.0));
    }

    #[test]
    fn what_never_ran_is_missing_and_not_nothing() {
        assert!(matches!(scaled(0, 500, 0), Value::Missing(why) if why.contains("never got a counter")));
        assert!(matches!(scaled(0, 0, 0), Value::Missing(why) if why.contains("never ran")));
    }

    #[test]
    fn nothing_seen_in_part_of_the_time_may_be_something() {
        let number = known(&scaled(0, 500, 250));
        assert_eq!((number.estimate, number.low), (0.0, 0.0));
        assert!(number.high > 3.0, "{number:?}");
    }

    #[test]
    fn counters_add_up_each_by_its_own_times() {
        let number = known(&sum(&[reading(10, 100, 100), reading(10, 100, 50), reading(0, 0, 0)]));
        assert_eq!((number.estimate, number.coverage, number.how), (30.0, 0.75, How::Scaled));
        assert!(number.low < 30.0 && number.high > 30.0);
        let exact = known(&sum(&[reading(1 << 60, 5, 5), reading(1, 7, 7)]));
        assert_eq!((exact.how, exact.low), (How::Counted, exact.high));
    }

    #[test]
    fn a_counter_that_never_ran_leaves_a_hole_in_the_sum() {
        let value = sum(&[reading(10, 100, 100), reading(0, 100, 0)]);
        assert!(matches!(value, Value::Missing(why) if why.ends_with("of cpu on cpu 3")));
        assert!(matches!(sum(&[reading(0, 0, 0)]), Value::Missing(why) if why.contains("never ran")));
        assert!(matches!(sum(&[]), Value::Missing(_)));
    }

    /// Returns the next number of xorshift64* (Vigna 2016), the same on every run.
    fn uniform(state: &mut u64) -> f64 {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    #[test]
    fn the_interval_covers_the_truth_where_chance_decides() {
        let mut random = 13;
        for (truth, running) in [(12, 500), (60, 100), (400, 750), (2_000, 30)] {
            let runs = 4_000;
            let covered = (0..runs).filter(|_| {
                let seen = (0..truth).filter(|_| uniform(&mut random) * 1000.0 < f64::from(running)).count();
                let number = known(&scaled(seen as u64, 1000, running as u64));
                (number.low..=number.high).contains(&f64::from(truth))
            });
            let share = covered.count() as f64 / f64::from(runs);
            assert!((0.93..0.985).contains(&share), "{truth} in {running} ‰: {share}");
        }
    }

    proptest! {
        #[test]
        fn a_scaled_count_lies_between_its_bounds_and_is_no_less_than_was_seen(
            value in any::<u64>(), bits in 0..64_u32, enabled in 1..u64::MAX, share in 1..1000_u64,
        ) {
            let (value, running) = (value >> bits, (enabled / 1000 * share).max(1).min(enabled));
            let number = known(&scaled(value, enabled, running));
            prop_assert!(number.low <= number.estimate * (1.0 + 1e-12) && number.estimate <= number.high * (1.0 + 1e-12));
            prop_assert!(number.low >= value as f64 * (1.0 - 1e-12));
            prop_assert!((0.0..=1.0).contains(&number.coverage) && number.high.is_finite());
        }
    }
}
