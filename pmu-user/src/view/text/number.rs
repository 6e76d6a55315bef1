//! Numbers in text: three significant digits and a fitting unit. JSON and CSV have the exact numbers.

use unicode_width::UnicodeWidthStr as _;

use crate::metric::value::{Known, Value};

/// Returns a time in ns as text.
pub fn duration(nanoseconds: f64) -> String {
    if nanoseconds == 0.0 {
        return "0".to_owned();
    }
    let (value, unit) = match nanoseconds.abs() {
        // A value that would be written as 1000 of a unit is 1 of the next.
        ns if ns < 999.5 => return format!("{nanoseconds:.0} ns"),
        ns if ns < 999.5e3 => (nanoseconds / 1e3, "µs"),
        ns if ns < 999.5e6 => (nanoseconds / 1e6, "ms"),
        _ => (nanoseconds / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Returns a count: whole up to a million, then with a suffix.
pub(in crate::view) fn count(count: f64) -> String {
    match count.abs() {
        n if n < 1e6 => format!("{count:.0}"),
        n if n < 999.5e6 => format!("{}M", three_digits(count / 1e6)),
        _ => format!("{}G", three_digits(count / 1e9)),
    }
}

/// Returns a share of 1 in per cent.
pub fn percent(share: f64) -> String {
    // The sum of no shares is -0.0. Adding 0.0 makes it 0.0.
    let percent = share * 100.0 + 0.0;
    if percent != 0.0 && percent.abs() < 0.1 { format!("{percent:.3} %") } else { format!("{percent:.1} %") }
}

/// Returns a number of bytes as text.
pub(in crate::view) fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        n if n < 1024.0 => format!("{n} B"),
        n if n < 1023.5 * 1024.0 => format!("{} KiB", three_digits(n / 1024.0)),
        n if n < 1023.5 * 1_048_576.0 => format!("{} MiB", three_digits(n / 1_048_576.0)),
        n => format!("{} GiB", three_digits(n / 1_073_741_824.0)),
    }
}

pub(in crate::view) fn three_digits(value: f64) -> String {
    let value = value + 0.0;
    match value.abs() {
        n if n >= 99.95 => format!("{value:.0}"),
        n if n >= 9.995 => format!("{value:.1}"),
        n if n >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Half width of an interval, as a share of the estimate, up to which it is not shown.
pub(in crate::view) const NARROW: f64 = 0.005;

/// Returns a number, and half the width of its interval: `3.7 %` and `±1.4`. If one side of the interval is
/// wider than the other by more than a fifth, returns its ends: `[0.2 – 1.1]`. A narrow interval yields an
/// empty text. The unit is written once.
pub(in crate::view) fn spread(known: &Known, show: impl Fn(f64) -> String) -> (String, String) {
    let estimate = show(known.estimate);
    let unit = estimate.find(' ').map_or("", |at| &estimate[at..]);
    let bare = |number: f64| {
        let number = show(number);
        number.strip_suffix(unit).map_or(number.clone(), str::to_owned)
    };
    let (down, up) = (known.estimate - known.low, known.high - known.estimate);
    let interval = if known.high - known.low <= 2.0 * NARROW * known.estimate.abs() {
        String::new()
    } else if down.max(up) > 1.2 * down.min(up) {
        format!("[{} – {}]", bare(known.low), bare(known.high))
    } else {
        format!("±{}", bare((known.high - known.low) / 2.0))
    };
    (estimate, interval)
}

/// Returns a number and its interval in one cell.
pub(in crate::view) fn spread_cell(known: &Known, show: impl Fn(f64) -> String) -> String {
    let (estimate, interval) = spread(known, show);
    if interval.is_empty() { estimate } else { format!("{estimate} {interval}") }
}

/// Returns title and cells of a column of numbers with intervals. Numbers end where the title ends, and
/// intervals begin behind it.
pub(super) fn aligned(title: &str, cells: &[(String, String)]) -> (String, Vec<String>) {
    let widest = |width: &dyn Fn(&(String, String)) -> usize| cells.iter().map(width).max().unwrap_or(0);
    let (numbers, intervals) = (widest(&|cell| cell.0.width()), widest(&|cell| cell.1.width()));
    let pad = |text: &str, width: usize| " ".repeat(width.saturating_sub(text.width()));
    let gap = if intervals > 0 { " " } else { "" };
    let cell = |(number, interval): &(String, String)| {
        format!("{}{number}{gap}{interval}{}", pad(number, numbers), pad(interval, intervals))
    };
    (format!("{title}{gap}{}", " ".repeat(intervals)), cells.iter().map(cell).collect())
}

/// Returns a number with its interval: `12.3 ms [8.10 17.9]`, or without one if it is exact.
pub(super) fn with_interval(known: &Known, show: fn(f64) -> String) -> String {
    let estimate = show(known.estimate);
    if known.low == known.high {
        estimate
    } else {
        format!("{estimate} [{} – {}]", show(known.low), show(known.high))
    }
}

/// Returns a number, or `–` where it is missing. The reason is shown elsewhere.
pub(in crate::view) fn cell(value: Option<&Known>, show: fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), |known| show(known.estimate))
}

/// Returns a number with its interval, or the reason why it is missing.
pub(super) fn sentence(value: &Value, show: fn(f64) -> String) -> String {
    match value {
        Value::Known(known) => with_interval(known, show),
        Value::Missing(why) => format!("not known: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, count, duration, percent};

    #[test]
    fn numbers_have_three_digits_and_a_unit_that_fits() {
        assert_eq!(duration(0.0), "0");
        assert_eq!(duration(999.0), "999 ns");
        assert_eq!(duration(1_234.0), "1.23 µs");
        assert_eq!(duration(99_960_000.0), "100 ms");
        assert_eq!(duration(5_000_123_456.0), "5.00 s");
        assert_eq!([999.6, 999_600.0, 999_600_000.0].map(duration), ["1.00 µs", "1.00 ms", "1.00 s"]);
        assert_eq!([999_400.0, -999_600.0].map(duration), ["999 µs", "-1.00 ms"]);
        assert_eq!(count(999_600_000.0), "1.00G");
        assert_eq!([1023 * 1024 + 600, 1023 * 1024 + 400].map(bytes), ["1.00 MiB", "1023 KiB"]);
        assert_eq!(count(123_456.0), "123456");
        assert_eq!(count(12_345_678.0), "12.3M");
        assert_eq!(percent(0.1234), "12.3 %");
        assert_eq!(percent(0.000_12), "0.012 %");
        assert_eq!(percent([0.0; 0].iter().sum()), "0.0 %");
        assert_eq!(bytes(6_651_884), "6.34 MiB");
    }
}
