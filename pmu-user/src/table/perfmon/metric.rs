//! Import of perfmon's metrics into expressions over events, constants and other metrics.
//!
//! Each metric has its formula twice: `Formula`, over letters and fully expanded, and `BaseFormula`, over
//! event names and other metrics. The short one is used if it expands to the same, otherwise the long one.

use std::collections::{BTreeSet, HashMap};

use super::{
    file,
    lists::{Lists, TICKS},
    threshold::threshold,
};
use crate::table::{
    formula::{Binary, Expr, parse},
    model::{Metric, Model},
    unit::Unit,
};

/// A constant that one file describes instead of naming: logical CPUs of the host.
const CPUS_DESCRIBED: &str = "system.sockets[0].cpus.count * system.socket_count";
/// Our name for that constant.
const CPUS: &str = "CPU_COUNT";
const FREQUENCY: &str = "SYSTEM_TSC_FREQ";

/// Maximum depth of metrics made of metrics.
const CHAIN_MAX: usize = 64;
/// Maximum height of a metric's formula, with those of the metrics in it expanded.
const REACH_MAX: usize = 512;

/// Fills in a model's operands, constants and metrics.
pub(super) fn import(model: &mut Model, metrics: &[file::Metric]) -> Result<(), String> {
    let mut operands = BTreeSet::new();
    let mut constants = BTreeSet::from([TICKS.to_owned(), FREQUENCY.to_owned(), SECONDS.to_owned()]);
    for metric in metrics {
        operands.extend(metric.events.iter().map(|event| event.name.clone()));
        let named = metric.constants.iter().map(|constant| constant_name(&constant.name));
        constants.extend(named.filter(|name| name.parse::<f64>().is_err()).map(str::to_owned));
    }
    let lists = Lists::new(metrics, operands.into_iter().collect(), constants.into_iter().collect());
    let mut done: Vec<Option<Formula>> = metrics.iter().map(|_| None).collect();
    for index in 0..metrics.len() {
        formula_of(index, metrics, &lists, &mut done, 0)?;
    }
    for (metric, formula) in metrics.iter().zip(done) {
        let formula = formula.expect("every metric was visited");
        model.metrics.push(metric_of(metric, formula, &lists)?);
    }
    keep_used(model, &lists);
    Ok(())
}

const SECONDS: &str = "DURATIONTIMEINSECONDS";

fn constant_name(name: &str) -> &str {
    if name == CPUS_DESCRIBED { CPUS } else { name }
}

/// A formula in its final form, and expanded.
#[derive(Clone)]
struct Formula {
    kept: Expr,
    spelled: Expr,
    scale: f64,
    /// Height with the metrics in it expanded, all the way down.
    reach: usize,
}

/// Parses the formulas of the metric at `index`, those of the metrics in it first.
fn formula_of(
    index: usize,
    metrics: &[file::Metric],
    lists: &Lists,
    done: &mut Vec<Option<Formula>>,
    depth: usize,
) -> Result<(), String> {
    let metric = &metrics[index];
    if done[index].is_some() {
        return Ok(());
    }
    if depth > metrics.len() {
        return Err(format!("`{}` is a part of itself", metric.name));
    }
    let too_deep = || format!("`{}`: its formula is nested too deep", metric.name);
    if depth > CHAIN_MAX {
        return Err(too_deep());
    }
    let long = long_formula(metric, lists)?;
    let (scale, long) = unscaled(metric, long);
    let mut reach = long.height();
    let mut short = metric.base_formula.as_deref().and_then(|text| short_formula(text, metric, lists));
    if let Some(expr) = &short {
        let mut inner = Vec::new();
        expr.visit(&mut |part| {
            if let Expr::Metric(other) = part {
                inner.push(*other as usize);
            }
        });
        let mut below = 0;
        for other in inner {
            formula_of(other, metrics, lists, done, depth + 1)?;
            below = below.max(done[other].as_ref().map_or(0, |formula| formula.reach));
        }
        reach = reach.max(expr.height() + below);
        let spelled = spell(expr, done);
        let frequency = lists.constant(FREQUENCY);
        let comparable = replace(&spelled, &lists.constant(TICKS), &frequency);
        // The files write the same metric in both forms, or they would contradict themselves.
        if comparable != replace(&long, &lists.constant(TICKS), &frequency) {
            short = None;
        }
    }
    if reach > REACH_MAX {
        return Err(too_deep());
    }
    let kept = short.unwrap_or_else(|| long.clone());
    done[index] = Some(Formula { kept, spelled: long, scale, reach });
    Ok(())
}

fn long_formula(metric: &file::Metric, lists: &Lists) -> Result<Expr, String> {
    let mut meaning = |name: &str| {
        let constant = metric.constants.iter().find(|constant| constant.alias == name);
        let event = metric.events.iter().find(|event| event.alias == name);
        let found = match (event, constant) {
            (Some(event), _) => lists.event(&event.name),
            (None, Some(constant)) => match constant.name.parse::<f64>() {
                Ok(number) => Some(Expr::Number(number)),
                Err(_) => Some(lists.constant(constant_name(&constant.name))),
            },
            (None, None) if name == SECONDS => Some(lists.constant(SECONDS)),
            _ => None,
        };
        found.ok_or_else(|| format!("`{name}` is undefined"))
    };
    parse(&metric.formula, &mut meaning).map_err(|error| format!("`{}`: {error}", metric.name))
}

/// Removes `100 *` from a fraction that is shown in percent.
fn unscaled(metric: &file::Metric, long: Expr) -> (f64, Expr) {
    match long {
        Expr::Binary(Binary::Multiply, operands)
            if metric.unit_of_measure == "percent" && operands[0] == Expr::Number(100.0) =>
        {
            let [_, fraction] = *operands;
            (100.0, fraction)
        }
        other => (1.0, other),
    }
}

fn short_formula(text: &str, metric: &file::Metric, lists: &Lists) -> Option<Expr> {
    let mut meaning = |name: &str| {
        let constant = metric.constants.iter().find(|constant| constant.alias == name);
        let found = match constant {
            Some(constant) if constant.name != name => match constant.name.parse::<f64>() {
                Ok(number) => Some(Expr::Number(number)),
                Err(_) => Some(lists.constant(constant_name(&constant.name))),
            },
            _ => None,
        };
        found.or_else(|| lists.by_small.get(name).cloned()).ok_or_else(String::new)
    };
    parse(text, &mut meaning).ok()
}

/// Returns `expr` with every metric in it expanded.
fn spell(expr: &Expr, done: &[Option<Formula>]) -> Expr {
    match expr {
        Expr::Metric(index) => match &done[*index as usize] {
            Some(formula) => formula.spelled.clone(),
            None => expr.clone(),
        },
        Expr::Binary(operation, operands) => {
            let [a, b] = &**operands;
            Expr::binary(*operation, spell(a, done), spell(b, done))
        }
        Expr::If(parts) => Expr::If(Box::new(parts.each_ref().map(|part| spell(part, done)))),
        _ => expr.clone(),
    }
}

fn replace(expr: &Expr, from: &Expr, to: &Expr) -> Expr {
    match expr {
        _ if expr == from => to.clone(),
        Expr::Binary(operation, operands) => {
            let [a, b] = &**operands;
            Expr::binary(*operation, replace(a, from, to), replace(b, from, to))
        }
        Expr::If(parts) => Expr::If(Box::new(parts.each_ref().map(|part| replace(part, from, to)))),
        _ => expr.clone(),
    }
}

fn metric_of(metric: &file::Metric, formula: Formula, lists: &Lists) -> Result<Metric, String> {
    let groups = metric.metric_group.as_deref().unwrap_or_default().split(';');
    let parent = match metric.parent_category.as_deref() {
        None | Some("") => None,
        Some(name) => {
            let index = lists.by_name.get(name).copied();
            Some(index.ok_or_else(|| format!("`{}`: its parent `{name}` is missing", metric.name))?)
        }
    };
    Ok(Metric {
        name: metric.name.clone(),
        level: metric.level,
        parent,
        unit: Unit::of(metric.unit_of_measure.trim()),
        category: metric.category.trim().to_owned(),
        domain: metric.count_domain.clone().unwrap_or_default(),
        groups: groups.map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect(),
        scale: formula.scale,
        formula: formula.kept,
        threshold: threshold(metric, lists)?,
        locate: located(metric.locate_with.as_deref().unwrap_or_default()),
    })
}

/// Returns the events of a list such as ` A.B;C.D `; `#NA` in the files stands for none.
fn located(list: &str) -> Vec<String> {
    let names = list.split([';', ',']).map(str::trim).filter(|name| !name.is_empty() && *name != "#NA");
    names.map(str::to_owned).collect()
}

/// Keeps the operands and constants that the kept formulas use, so that the text form says the same.
fn keep_used(model: &mut Model, lists: &Lists) {
    let (mut events, mut constants) = (BTreeSet::new(), BTreeSet::new());
    for metric in &model.metrics {
        metric.formula.visit(&mut |part| match part {
            Expr::Event(index) => drop(events.insert(*index)),
            Expr::Constant(index) => drop(constants.insert(*index)),
            _ => {}
        });
    }
    let kept = |used: &BTreeSet<u32>, names: &[String]| -> Vec<String> {
        used.iter().filter_map(|index| names.get(*index as usize).cloned()).collect()
    };
    (model.operands, model.constants) = (kept(&events, &lists.operands), kept(&constants, &lists.constants));
    let place = |used: &BTreeSet<u32>| -> HashMap<u32, u32> {
        used.iter().enumerate().map(|(new, old)| (*old, new as u32)).collect()
    };
    let (events, constants) = (place(&events), place(&constants));
    for metric in &mut model.metrics {
        metric.formula = renumber(&metric.formula, &events, &constants);
    }
}

fn renumber(expr: &Expr, events: &HashMap<u32, u32>, constants: &HashMap<u32, u32>) -> Expr {
    let new = |map: &HashMap<u32, u32>, old: &u32| map.get(old).copied().unwrap_or(*old);
    match expr {
        Expr::Event(index) => Expr::Event(new(events, index)),
        Expr::Constant(index) => Expr::Constant(new(constants, index)),
        Expr::Binary(operation, operands) => {
            let [a, b] = &**operands;
            Expr::binary(*operation, renumber(a, events, constants), renumber(b, events, constants))
        }
        Expr::If(parts) => Expr::If(Box::new(parts.each_ref().map(|part| renumber(part, events, constants)))),
        _ => expr.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::{CHAIN_MAX, Model, import};

    /// Imports metrics that each are made of the next one; the last is an event. Expanded, all of them are
    /// that event.
    fn chain(length: usize) -> Result<(), String> {
        let metric = |index: usize| {
            let short = if index + 1 < length { format!("tma_m{}", index + 1) } else { "e".to_owned() };
            serde_json::from_value(serde_json::json!({
                "MetricName": format!("M{index}"), "Formula": "a", "BaseFormula": short,
                "Events": [{"Name": "E", "Alias": "a"}],
            }))
        };
        let metrics: Vec<_> = (0..length).map(|index| metric(index).unwrap()).collect();
        import(&mut Model::default(), &metrics)
    }

    #[test]
    fn metrics_made_of_metrics_are_no_deeper_than_a_stack() {
        chain(CHAIN_MAX).unwrap();
        for length in [CHAIN_MAX + 2, 20_000] {
            assert!(chain(length).unwrap_err().contains("nested too deep"));
        }
    }
}
