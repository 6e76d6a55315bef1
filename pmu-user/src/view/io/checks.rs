//! Checks of free-running counters against metrics.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde_json::json;

use super::{
    super::{
        json::{Number, SCHEMA, SubjectCell, line},
        text::{COLUMNS, Style, WARNING, three_digits},
        words,
    },
    number,
};
use crate::{
    metric::{
        io::{Check, IoReport, Subject, Verdict},
        value::Value,
    },
    table::unit::Unit,
};

/// Writes a line for each check with a result. Differences come first, as warnings. Checks without a result
/// are counted by reason.
pub(super) fn text(into: &mut dyn Write, style: &Style, report: &IoReport) -> io::Result<()> {
    let verdicts = || report.checks.iter().map(|check| (check, check.verdict()));
    for (check, verdict) in verdicts().filter(|(_, verdict)| matches!(verdict, Verdict::Differs(_))) {
        writeln!(into, "  {WARNING}{}{WARNING:#}", sentence(check, &verdict))?;
    }
    let agrees: Vec<_> = verdicts().filter(|(_, verdict)| *verdict == Verdict::Agrees).collect();
    let mut shown = agrees.iter().take(style.rows_max);
    shown.try_for_each(|(check, verdict)| writeln!(into, "  {}", sentence(check, verdict)))?;
    if agrees.len() > style.rows_max {
        writeln!(
            into,
            "  {COLUMNS}{} more agree; --top shows them{COLUMNS:#}",
            agrees.len() - style.rows_max
        )?;
    }
    let mut silent: BTreeMap<String, Vec<&Check>> = BTreeMap::new();
    for check in &report.checks {
        if let Some(why) = check.silence() {
            silent.entry(why).or_default().push(check);
        }
    }
    silent.iter().try_for_each(|(why, checks)| match checks.as_slice() {
        [check] => writeln!(into, "  {} says nothing: {why}", name(check)),
        checks => writeln!(into, "  {} checks say nothing: {why}", checks.len()),
    })
}

fn name(check: &Check) -> String {
    format!(
        "check of {} {}: {}",
        words::subject(&Subject::Scope(check.place)),
        words::place(check.place),
        check.counter
    )
}

fn sentence(check: &Check, verdict: &Verdict) -> String {
    let figure = |value: &Value| {
        value.known().map(|known| number(known, Unit::MegabytesPerSecond)).unwrap_or_default()
    };
    let (agreed, compared) = check.ticks;
    let times =
        estimate(&check.ratio()).map(|ratio| format!(" (×{})", three_digits(ratio))).unwrap_or_default();
    let (metrics, always) = (figure(&check.metrics), figure(&check.always));
    let figures = format!("metrics say {metrics} MB/s, the counter that always runs {always}{times}");
    let ticks = format!("in {agreed} of {compared} ticks");
    let name = name(check);
    match verdict {
        Verdict::Differs(Some(likely)) => format!("{name} differs: {figures}, like {likely}; agrees {ticks}"),
        Verdict::Differs(None) => format!("{name} differs: {figures}; agrees {ticks}"),
        _ => format!("{name} agrees {ticks}: {figures}"),
    }
}

fn estimate(value: &Value) -> Option<f64> {
    value.known().map(|known| known.estimate)
}

/// Writes a row for each check.
pub(super) fn json(into: &mut dyn Write, report: &IoReport) -> io::Result<()> {
    report.checks.iter().try_for_each(|check| {
        let verdict = check.verdict();
        let likely = if let Verdict::Differs(likely) = verdict { likely } else { None };
        let metrics = check.metrics.known();
        line(
            into,
            &json!({
                "schema": SCHEMA, "kind": "check", "t": report.from_ns, "dt": report.length_ns,
                "subject": SubjectCell(&Subject::Scope(check.place)),
                "counter": check.counter, "unit": "MB/s", "verdict": verdict.name(), "likely": likely,
                "reason": check.silence(), "metrics": metrics.map(|known| Number(known.estimate)),
                "low": metrics.map(|known| Number(known.low)), "high": metrics.map(|known| Number(known.high)),
                "always": estimate(&check.always).map(Number), "ratio": estimate(&check.ratio()).map(Number),
                "ticks": {"agreed": check.ticks.0, "compared": check.ticks.1},
            }),
        )
    })
}
