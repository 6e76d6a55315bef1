//! Time at bandwidth: the time for which it was low, medium or high.

use std::io::{self, Write};

use serde_json::json;

use super::super::{
    json::{SCHEMA, SubjectCell, line},
    text::{COLUMNS, Style, TITLE, duration, percent, section, three_digits},
    words,
};
use crate::metric::io::{IoReport, Level, Subject};

/// Width of the longest bar.
const BAR_WIDTH: f64 = 40.0;
const NAMES: [&str; 3] = ["low", "medium", "high"];

/// Writes the section, if any bandwidth was watched.
pub(super) fn text(into: &mut dyn Write, style: &Style, report: &IoReport) -> io::Result<()> {
    if report.levels.is_empty() {
        return Ok(());
    }
    section(
        into,
        "TIME AT BANDWIDTH",
        "from the mean of each slice; limits are thirds of the maximum unless given",
    )?;
    report.levels.iter().try_for_each(|level| one(into, style, level))
}

fn one(into: &mut dyn Write, style: &Style, level: &Level) -> io::Result<()> {
    let seen = &level.seen;
    let (unit, of) = (seen.unit.name(), words::subject(&Subject::Scope(seen.place)));
    writeln!(
        into,
        "  {TITLE}{} of {of} {}{TITLE:#}  {COLUMNS}maximum {} {unit} ({}), highest seen {} {unit}, slices of {}{COLUMNS:#}",
        seen.name,
        words::place(seen.place),
        three_digits(level.maximum),
        level.basis.name(),
        three_digits(seen.observed_max),
        duration(seen.slice * 1e9),
    )?;
    let [low, high] = level.limits;
    let seconds = seen.thirds(low, high);
    let all: f64 = seconds.iter().sum();
    let ranges = [
        format!("< {}", three_digits(low)),
        format!("{} – {}", three_digits(low), three_digits(high)),
        format!("≥ {}", three_digits(high)),
    ];
    for ((name, range), seconds) in NAMES.iter().zip(ranges).zip(seconds) {
        let share = if all > 0.0 { seconds / all } else { 0.0 };
        let bar = if style.blocks { "█" } else { "#" }.repeat((share * BAR_WIDTH).ceil() as usize);
        let (share, time) = (percent(share), duration(seconds * 1e9));
        writeln!(into, "    {name:<7} {range:>16} {unit:<5} {time:>8} {share:>8}  {bar}")?;
    }
    Ok(())
}

/// Writes a row for each bandwidth.
pub(super) fn json(into: &mut dyn Write, report: &IoReport) -> io::Result<()> {
    report.levels.iter().try_for_each(|level| {
        let seen = &level.seen;
        let [low, medium, high] = seen.thirds(level.limits[0], level.limits[1]);
        line(
            into,
            &json!({
                "schema": SCHEMA, "kind": "levels", "t": report.from_ns, "dt": report.length_ns,
                "subject": SubjectCell(&Subject::Scope(seen.place)),
                "metric": seen.name, "unit": seen.unit.name(), "maximum": level.maximum, "basis": level.basis.name(),
                "observed_max": seen.observed_max, "limits": level.limits, "slice_s": seen.slice,
                "low_s": low, "medium_s": medium, "high_s": high, "bins": seen.bins,
            }),
        )
    })
}
