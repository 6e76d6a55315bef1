//! A model as text: one fact a line, fields between tabs, sorted where the order has no meaning.
//!
//! ```text
//! pmbpf table 1
//! model     icelakex
//! cpus      GenuineIntel-6-6A GenuineIntel-6-6C
//! source    …
//! versions  1.30  1.2
//! event     NAME  unit  terms  counters  period  precise
//! latency   NAME:retire_latency  cycles
//! metric    Name  level  parent  unit  category  domain  groups  scale  formula  threshold  locate
//! ```
//!
//! An empty field is `-`. In formulas an event is written plainly, a metric as `@Name`, a constant as
//! `#NAME`.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{Counters, Metric, Model, ModelEvent, Precise};
use crate::table::{
    formula::{Expr, parse},
    unit::Unit,
};

const HEAD: &str = "pmbpf table 1";

/// Error for a text that is not a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("table, line {line}: {what}")]
pub struct TextError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Description of the fault.
    pub what: String,
}

/// Returns the text of `model`.
pub fn write(model: &Model) -> String {
    let mut text = format!("{HEAD}\nmodel\t{}\n", field(&model.name));
    let _ = writeln!(text, "cpus\t{}", field(&model.cpus.join(" ")));
    let _ = writeln!(text, "source\t{}", field(&model.source));
    let _ = writeln!(text, "versions\t{}\t{}", field(&model.events_version), field(&model.formulas_version));
    for event in &model.events {
        let ModelEvent { name, unit, terms, period, .. } = event;
        let (counters, precise) = (counters(event.counters), precise(event.precise));
        let _ = writeln!(text, "event\t{name}\t{unit}\t{}\t{counters}\t{period}\t{precise}", field(terms));
    }
    for (operand, cycles) in &model.latencies {
        let _ = writeln!(text, "latency\t{operand}\t{cycles}");
    }
    for metric in &model.metrics {
        let Metric { name, level, unit, category, domain, groups, scale, locate, .. } = metric;
        let parent = metric.parent.and_then(|parent| model.metrics.get(parent as usize));
        let fields =
            [parent.map_or("", |parent| &parent.name), unit.name(), category, domain, &groups.join(" ")];
        let fields = fields.map(field).join("\t");
        let formula = metric.formula.write(model);
        let threshold = metric.threshold.as_ref().map_or("-".to_owned(), |threshold| threshold.write(model));
        let locate = locate.join(" ");
        let located = field(&locate);
        let _ =
            writeln!(text, "metric\t{name}\t{level}\t{fields}\t{scale}\t{formula}\t{threshold}\t{located}");
    }
    text
}

fn field(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn unfield(text: &str) -> String {
    if text == "-" { String::new() } else { text.to_owned() }
}

/// Returns the words of a list.
fn words(list: &str) -> Vec<String> {
    unfield(list).split_whitespace().map(str::to_owned).collect()
}

fn counters(counters: Counters) -> String {
    match counters {
        Counters::Any => "any".to_owned(),
        Counters::General(mask) => format!("{mask:#x}"),
        Counters::Fixed(index) => format!("fixed{index}"),
        Counters::Share => "share".to_owned(),
    }
}

fn uncounters(text: &str) -> Option<Counters> {
    Some(match text {
        "any" => Counters::Any,
        "share" => Counters::Share,
        _ => match text.strip_prefix("fixed") {
            Some(index) => Counters::Fixed(index.parse().ok()?),
            None => Counters::General(u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()?),
        },
    })
}

const PRECISE: [(Precise, &str); 3] =
    [(Precise::No, "-"), (Precise::Yes, "precise"), (Precise::Only, "only")];

fn precise(precise: Precise) -> &'static str {
    PRECISE.iter().find(|(one, _)| *one == precise).map_or("-", |(_, word)| word)
}

/// Reads a model from text.
///
/// # Errors
///
/// Returns the first line that is wrong, and the fault.
pub fn read(text: &str) -> Result<Model, TextError> {
    let fail = |line: usize, what: String| TextError { line: line + 1, what };
    let mut lines = text.lines().enumerate();
    if lines.next().map(|(_, line)| line) != Some(HEAD) {
        return Err(fail(0, format!("it does not begin with `{HEAD}`")));
    }
    let mut model = Model::default();
    let mut metrics: Vec<(usize, Vec<&str>)> = Vec::new();
    for (number, line) in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields[0] == "metric" {
            metrics.push((number, fields));
        } else {
            fact(&mut model, &fields).map_err(|what| fail(number, what))?;
        }
    }
    metrics_of(&mut model, &metrics).map_err(|(number, what)| fail(number, what))?;
    Ok(model)
}

fn fact(model: &mut Model, fields: &[&str]) -> Result<(), String> {
    match *fields {
        ["model", name] => model.name = unfield(name),
        ["cpus", list] => model.cpus = words(list),
        ["source", source] => model.source = unfield(source),
        ["versions", events, formulas] => {
            (model.events_version, model.formulas_version) = (unfield(events), unfield(formulas));
        }
        ["latency", operand, cycles] => {
            let cycles = cycles.parse().map_err(|_| format!("`{cycles}` is not a number"))?;
            model.latencies.push((operand.to_owned(), cycles));
        }
        ["event", name, unit, terms, counters, period, precise] => model.events.push(ModelEvent {
            name: name.to_owned(),
            unit: unit.to_owned(),
            terms: unfield(terms),
            counters: uncounters(counters).ok_or_else(|| format!("`{counters}` names no counters"))?,
            period: period.parse().map_err(|_| format!("`{period}` is not a period"))?,
            precise: PRECISE
                .iter()
                .find(|(_, word)| *word == precise)
                .map(|(precise, _)| *precise)
                .ok_or_else(|| format!("`{precise}` is not a precise level"))?,
        }),
        _ => return Err(format!("`{}` with {} fields", fields[0], fields.len() - 1)),
    }
    Ok(())
}

/// Reads the metrics. They name each other, so all names come first.
fn metrics_of(model: &mut Model, lines: &[(usize, Vec<&str>)]) -> Result<(), (usize, String)> {
    let mut names = Vec::with_capacity(lines.len());
    for (number, fields) in lines {
        if fields.len() != 12 {
            return Err((*number, format!("a metric with {} fields", fields.len() - 1)));
        }
        names.push(fields[1]);
    }
    let named = |name: &str| names.iter().position(|known| *known == name).map(|index| index as u32);
    let (mut operands, mut constants) = (BTreeSet::new(), BTreeSet::new());
    for (_, fields) in lines {
        // A fault shows when the formula is read for good.
        let _ = parse(fields[9], &mut |name| {
            match name.as_bytes().first() {
                Some(b'@') => {}
                Some(b'#') => drop(constants.insert(name[1..].to_owned())),
                _ => drop(operands.insert(name.to_owned())),
            }
            Ok(Expr::Number(0.0))
        });
    }
    model.operands = operands.into_iter().collect();
    model.constants = constants.into_iter().collect();
    let index = |list: &[String], name: &str| list.binary_search_by(|known| known.as_str().cmp(name)).ok();
    let mut meaning = |name: &str| {
        let found = match name.as_bytes().first() {
            Some(b'@') => named(&name[1..]).map(Expr::Metric),
            Some(b'#') => index(&model.constants, &name[1..]).map(|index| Expr::Constant(index as u32)),
            _ => index(&model.operands, name).map(|index| Expr::Event(index as u32)),
        };
        found.ok_or_else(|| format!("`{name}` is not in the table"))
    };
    for (number, fields) in lines {
        let metric = metric(fields, &named, &mut meaning).map_err(|what| (*number, what))?;
        model.metrics.push(metric);
    }
    Ok(())
}

fn metric(
    fields: &[&str],
    named: &dyn Fn(&str) -> Option<u32>,
    meaning: &mut dyn FnMut(&str) -> Result<Expr, String>,
) -> Result<Metric, String> {
    let number = |text: &str| text.parse::<f64>().map_err(|_| format!("`{text}` is not a number"));
    let mut formula = |text: &str| parse(text, meaning).map_err(|error| error.to_string());
    Ok(Metric {
        name: fields[1].to_owned(),
        level: fields[2].parse().map_err(|_| format!("`{}` is not a level", fields[2]))?,
        parent: match fields[3] {
            "-" => None,
            name => Some(named(name).ok_or_else(|| format!("the parent `{name}` is not a metric"))?),
        },
        unit: Unit::of(&unfield(fields[4])),
        category: unfield(fields[5]),
        domain: unfield(fields[6]),
        groups: words(fields[7]),
        scale: number(fields[8])?,
        formula: formula(fields[9])?,
        threshold: match fields[10] {
            "-" => None,
            text => Some(formula(text)?),
        },
        locate: words(fields[11]),
    })
}
