//! Metrics computed from a file of counts: a table, or one JSON object.

use std::io::{self, Write};

use serde::Serialize;

use super::json::SCHEMA;
use crate::{
    metric::{offline::Evaluated, value::Value},
    table::model::Model,
};

#[derive(Serialize)]
struct Object<'a> {
    schema: &'static str,
    kind: &'static str,
    model: &'a str,
    source: &'a str,
    formulas: &'a str,
    metrics: Vec<Row<'a>>,
    unknown: &'a [String],
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    level: u32,
    parent: Option<&'a str>,
    unit: &'a str,
    value: Option<f64>,
    status: &'static str,
    reason: Option<&'a str>,
    flagged: bool,
}

/// Writes one JSON object. A value that is undefined is `null`, with its reason.
///
/// # Errors
///
/// It cannot be written.
pub fn json(model: &Model, evaluated: &Evaluated, into: &mut dyn Write) -> io::Result<()> {
    let rows = model.metrics.iter().zip(&evaluated.metrics).map(|(metric, result)| Row {
        name: &metric.name,
        level: metric.level,
        parent: metric.parent.map(|parent| model.metrics[parent as usize].name.as_str()),
        unit: metric.unit.name(),
        value: result.value.known().map(|known| known.estimate),
        status: if result.value.known().is_some() { "known" } else { "missing" },
        reason: match &result.value {
            Value::Known(_) => None,
            Value::Missing(why) => Some(why),
        },
        flagged: result.flagged == Some(true),
    });
    let object = Object {
        schema: SCHEMA,
        kind: "evaluation",
        model: &model.name,
        source: &model.source,
        formulas: &model.formulas_version,
        metrics: rows.collect(),
        unknown: &evaluated.unknown,
    };
    serde_json::to_writer(&mut *into, &object)?;
    writeln!(into)?;
    into.flush()
}

/// Writes a line a metric: the tree first, with flagged nodes marked, then the others.
///
/// # Errors
///
/// It cannot be written.
pub fn text(model: &Model, evaluated: &Evaluated, into: &mut dyn Write) -> io::Result<()> {
    writeln!(into, "{}: formulas {}, from {}", model.name, model.formulas_version, model.source)?;
    for (index, depth) in model.tree() {
        let (metric, result) = (&model.metrics[index as usize], &evaluated.metrics[index as usize]);
        let name = format!("{}{}", "  ".repeat(depth as usize), metric.name);
        let unit = metric.unit.name();
        let mark = if result.flagged == Some(true) { "  <" } else { "" };
        match &result.value {
            Value::Known(known) => {
                let value = known.estimate;
                let value = if value.abs() < 1e6 { format!("{value:.3}") } else { format!("{value:.4e}") };
                let line = format!("{name:<52} {value:>14} {unit}{mark}");
                writeln!(into, "{}", line.trim_end())?;
            }
            Value::Missing(why) => writeln!(into, "{name:<52} {:>14} {why}", "–")?,
        }
    }
    into.flush()
}
