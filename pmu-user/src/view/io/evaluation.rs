//! I/O metrics computed from a file of counts: a table, or one JSON object.

use std::io::{self, Write};

use serde::Serialize;

use crate::{
    metric::{
        io::offline::{Counted, Evaluated},
        value::Value,
    },
    table::{io::IoTable, unit::Unit},
    view::json::SCHEMA,
};

#[derive(Serialize)]
struct Object<'a> {
    schema: &'static str,
    kind: &'static str,
    model: &'a str,
    source: &'a str,
    seconds: f64,
    metrics: Vec<Row<'a>>,
    unknown: &'a [String],
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    unit: &'a str,
    value: Option<f64>,
    status: &'static str,
    reason: Option<&'a str>,
    scope: Option<&'a str>,
    definition: Option<&'a str>,
}

fn word(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Writes one JSON object about the CPU model `name`. A value that is undefined is `null`, with its reason.
///
/// # Errors
///
/// It cannot be written.
pub fn json(
    name: &str,
    table: &IoTable,
    counted: &Counted,
    evaluated: &Evaluated,
    into: &mut dyn Write,
) -> io::Result<()> {
    let rows = evaluated.metrics.iter().map(|metric| Row {
        name: &metric.name,
        unit: metric.unit.name(),
        value: metric.value.known().map(|known| known.estimate),
        status: if metric.value.known().is_some() { "known" } else { "missing" },
        reason: match &metric.value {
            Value::Known(_) => None,
            Value::Missing(why) => Some(why),
        },
        scope: word(&metric.scope),
        definition: word(&metric.definition),
    });
    let object = Object {
        schema: SCHEMA,
        kind: "evaluation",
        model: name,
        source: &table.model.source,
        seconds: counted.seconds,
        metrics: rows.collect(),
        unknown: &evaluated.unknown,
    };
    serde_json::to_writer(&mut *into, &object)?;
    writeln!(into)?;
    into.flush()
}

/// Writes a line a metric.
///
/// # Errors
///
/// It cannot be written.
pub fn text(
    name: &str,
    table: &IoTable,
    counted: &Counted,
    evaluated: &Evaluated,
    into: &mut dyn Write,
) -> io::Result<()> {
    writeln!(into, "{name}: I/O metrics over {} s, from {}", counted.seconds, table.model.source)?;
    for metric in &evaluated.metrics {
        match &metric.value {
            Value::Known(known) => {
                let value = known.estimate;
                let value = if value.abs() < 1e6 { format!("{value:.3}") } else { format!("{value:.4e}") };
                let unit = if metric.unit == Unit::Ratio { "" } else { metric.unit.name() };
                writeln!(into, "{}", format!("{:<40} {value:>14} {unit}", metric.name).trim_end())?;
            }
            Value::Missing(why) => writeln!(into, "{:<40} {:>14} {why}", metric.name, "–")?,
        }
    }
    into.flush()
}
