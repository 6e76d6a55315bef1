//! Numbers and bars in markup.

use std::fmt::Write as _;

use super::rows::Number;
use crate::{
    metric::value::{How, Known},
    untrusted::Untrusted,
    view::text::{bytes, count, duration, spread, three_digits},
};

/// Returns text of any origin as markup.
pub(super) fn text(text: &str) -> String {
    Untrusted::from(text).html().into_owned()
}

/// Returns the name of a metric, which may break between its words.
pub(super) fn broken(name: &str) -> String {
    text(name).replace('_', "_<wbr>").replace('.', ".<wbr>")
}

/// Returns a number in its unit.
pub(super) fn show(value: f64, unit: &str) -> String {
    match unit {
        "ns" => duration(value),
        "%" => format!("{} %", three_digits(value)),
        "1" | "" => three_digits(value),
        "B" if value >= 0.0 => bytes(value as u64),
        "switches" | "migrations" | "faults" | "samples" | "requests" | "counts" => count(value),
        _ if value.abs() >= 1e6 => format!("{} {unit}", count(value)),
        _ => format!("{} {unit}", three_digits(value)),
    }
}

/// Returns whether a number is weak: its coverage is below one half, or its interval is wider than the number
/// itself.
pub(super) fn is_weak(known: &Known) -> bool {
    known.coverage < 0.5 || known.high - known.low > known.estimate.abs()
}

/// Returns the known value of a number, for a distribution its 99th percentile.
pub(super) fn known(number: &Number) -> Option<Known> {
    let coverage = number.coverage.unwrap_or(1.0);
    if let Some(bound) = number.quantiles.as_ref().and_then(|quantiles| quantiles.get("p99")) {
        let high = bound.high.unwrap_or(f64::INFINITY);
        return Some(Known { estimate: bound.value, low: bound.low, high, coverage, how: How::Counted });
    }
    let (estimate, low, high) = (number.value?, number.low?, number.high?);
    Some(Known { estimate, low, high, coverage, how: How::Counted })
}

/// Returns a number with its interval as the content of a cell.
pub(super) fn content(known: &Known, unit: &str) -> String {
    let (number, interval) = spread(known, |value| show(value, unit));
    let number = text(&number);
    if interval.is_empty() { number } else { format!("{number} <small>{}</small>", text(&interval)) }
}

/// Appends a table cell, with a dash where the value is not known.
pub(super) fn cell(number: Option<&Number>, into: &mut String) {
    let found = number.and_then(|number| Some((number, known(number)?)));
    let Some((number, known)) = found else {
        into.push_str("<td class=\"n none\">–</td>");
        return;
    };
    let weak = if is_weak(&known) { " weak" } else { "" };
    let _ = write!(into, "<td class=\"n{weak}\">{}</td>", content(&known, &number.unit));
}

/// Returns a bar from 0 to 100 with a line from one end of the interval to the other.
pub(super) fn bar(known: &Known, full: f64) -> String {
    let at = |value: f64| (value / full * 100.0).clamp(0.0, 100.0);
    let (low, high) = (at(known.low), at(known.high));
    let whisker = if high - low < 0.5 {
        String::new()
    } else {
        format!("<rect class=\"whisker\" x=\"{low:.2}\" y=\"4\" width=\"{:.2}\" height=\"2\"/>", high - low)
    };
    format!(
        "<svg class=\"bar\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"fill\" y=\"1\" width=\"{:.2}\" height=\"8\"/>{whisker}</svg>",
        at(known.estimate)
    )
}

/// Appends the head of a table: its caption and the titles of its columns, numbers to the right.
pub(super) fn head(caption: &str, titles: &[(&str, bool)], into: &mut String) {
    let _ = write!(
        into,
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{0}\"><table><caption>{0}</caption><thead><tr>",
        text(caption)
    );
    for (title, is_number) in titles {
        let class = if *is_number { " class=\"n\"" } else { "" };
        // A column of pictures has no title, and an empty title does not count as one.
        let _ = match *title {
            "" => write!(into, "<td></td>"),
            title => write!(into, "<th scope=\"col\"{class}>{}</th>", broken(title)),
        };
    }
    into.push_str("</tr></thead><tbody>");
}

/// Markup that ends a table.
pub(super) const TAIL: &str = "</tbody></table></div>";
