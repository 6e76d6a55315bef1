//! Metrics computed from a file of counts (`pmbpf eval`), in every format.

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use super::{Format, json::SCHEMA};
use crate::{
    metric::{io::offline as of_io, offline, value::Value},
    table::{io::IoTable, model::Model, unit::Unit},
    untrusted::Untrusted,
};

/// Metrics of one table, with their results.
pub struct Evaluation<'a> {
    /// Title line of the text format.
    title: String,
    /// Facts on the table and the counts, by field.
    about: Map<String, Json>,
    /// Columns that a metric has in addition to its name, unit and value.
    columns: &'static [&'static str],
    metrics: Vec<Metric<'a>>,
    /// Width of the name column in the text format.
    name_width: usize,
}

struct Metric<'a> {
    name: &'a str,
    /// Steps below the root of a tree.
    depth: u32,
    unit: Unit,
    value: &'a Value,
    is_flagged: bool,
    /// Cells of the additional columns.
    details: Vec<Json>,
}

impl<'a> Evaluation<'a> {
    /// Returns the metrics of a CPU model: the tree first, then the others.
    #[must_use]
    pub fn of_cores(model: &'a Model, evaluated: &'a offline::Evaluated) -> Self {
        let Model { name, source, formulas_version: formulas, .. } = model;
        let metric = |(index, depth): (u32, u32)| {
            let (metric, result) = (&model.metrics[index as usize], &evaluated.metrics[index as usize]);
            let parent = metric.parent.map(|parent| model.metrics[parent as usize].name.as_str());
            let is_flagged = result.flagged == Some(true);
            Metric {
                name: &metric.name,
                depth,
                unit: metric.unit,
                value: &result.value,
                is_flagged,
                details: vec![json!(metric.level), json!(parent), json!(is_flagged)],
            }
        };
        Self {
            title: format!("{name}: formulas {formulas}, from {source}"),
            about: fields(
                json!({"model": name, "source": source, "formulas": formulas, "unknown": evaluated.unknown}),
            ),
            columns: &["level", "parent", "flagged"],
            metrics: model.tree().into_iter().map(metric).collect(),
            name_width: 52,
        }
    }

    /// Returns the I/O metrics of the CPU model `name`.
    #[must_use]
    pub fn of_io(
        name: &str,
        table: &IoTable,
        counted: &of_io::IoCounts,
        evaluated: &'a of_io::Evaluated,
    ) -> Self {
        let (source, seconds) = (&table.model.source, counted.seconds);
        let word = |text: &str| if text.is_empty() { Json::Null } else { json!(text) };
        let metric = |metric: &'a of_io::EvaluatedMetric| Metric {
            name: &metric.name,
            depth: 0,
            unit: metric.unit,
            value: &metric.value,
            is_flagged: false,
            details: vec![word(&metric.scope), word(&metric.definition)],
        };
        Self {
            title: format!("{name}: I/O metrics over {seconds} s, from {source}"),
            about: fields(
                json!({"model": name, "source": source, "seconds": seconds, "unknown": evaluated.unknown}),
            ),
            columns: &["scope", "definition"],
            metrics: evaluated.metrics.iter().map(metric).collect(),
            name_width: 40,
        }
    }

    /// Writes the metrics in `format`. An undefined value has its reason in every format.
    ///
    /// # Errors
    ///
    /// The stream cannot be written.
    pub fn write(&self, into: &mut dyn Write, format: Format) -> io::Result<()> {
        match format {
            Format::Text => self.text(into)?,
            Format::Json => self.json(into)?,
            Format::Csv => self.csv(into)?,
        }
        into.flush()
    }

    fn text(&self, into: &mut dyn Write) -> io::Result<()> {
        writeln!(into, "{}", self.title)?;
        for metric in &self.metrics {
            let name = format!("{}{}", "  ".repeat(metric.depth as usize), metric.name);
            let width = self.name_width;
            let line = match metric.value {
                Value::Known(known) => {
                    let value = known.estimate;
                    let value =
                        if value.abs() < 1e6 { format!("{value:.3}") } else { format!("{value:.4e}") };
                    let mark = if metric.is_flagged { "  <" } else { "" };
                    format!("{name:<width$} {value:>14} {}{mark}", metric.unit.name())
                }
                Value::Missing(why) => format!("{name:<width$} {:>14} {why}", "–"),
            };
            writeln!(into, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn json(&self, into: &mut dyn Write) -> io::Result<()> {
        let metrics = self.metrics.iter().map(|metric| {
            let mut row = fields(json!({
                "name": metric.name, "unit": metric.unit.name(), "value": metric.value.known().map(|known| known.estimate),
                "status": metric.status(), "reason": metric.value.reason(),
            }));
            let details = self.columns.iter().zip(&metric.details);
            row.extend(details.map(|(name, cell)| ((*name).to_owned(), cell.clone())));
            Json::Object(row)
        });
        let mut object =
            fields(json!({"schema": SCHEMA, "kind": "evaluation", "metrics": metrics.collect::<Vec<_>>()}));
        object.extend(self.about.clone());
        super::json::line(into, &object)
    }

    fn csv(&self, into: &mut dyn Write) -> io::Result<()> {
        let mut rows = csv::Writer::from_writer(into);
        rows.write_record(["name", "unit", "value", "status", "reason"].iter().chain(self.columns))?;
        for metric in &self.metrics {
            let value = metric.value.known().map_or_else(String::new, |known| known.estimate.to_string());
            let [name, reason] = [metric.name, metric.value.reason().unwrap_or_default()].map(text);
            let details = metric.details.iter().map(|cell| match cell {
                Json::Null => String::new(),
                Json::String(words) => text(words),
                cell => cell.to_string(),
            });
            let unit = metric.unit.name().to_owned();
            let cells = [name, unit, value, metric.status().to_owned(), reason];
            rows.write_record(cells.into_iter().chain(details))?;
        }
        rows.flush()
    }
}

impl Metric<'_> {
    const fn status(&self) -> &'static str {
        if self.value.known().is_some() { "known" } else { "missing" }
    }
}

fn fields(of: Json) -> Map<String, Json> {
    match of {
        Json::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn text(text: &str) -> String {
    Untrusted::from(text).csv().into_owned()
}
