//! Expressions over lists of events → a model's metrics.

use std::collections::{BTreeMap, BTreeSet};

use crate::table::{
    formula::{Binary, Expr, parse},
    io::SECONDS,
    model::{Metric, Model},
    unit::Unit,
};

/// A metric that is to be in a table.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) scope: String,
    /// Whose definition it is.
    pub(super) group: String,
    /// Over names of inputs, `t` for seconds, or events; `EVENT.PART*` is the sum over all parts.
    pub(super) formula: String,
    /// Names of inputs, and the events that each is the sum of.
    pub(super) inputs: BTreeMap<String, Vec<String>>,
}

impl Wanted {
    /// Events that a name of the formula is the sum of.
    pub(super) fn events(&self, name: &str, model: &Model) -> Vec<String> {
        if let Some(events) = self.inputs.get(name) {
            return events.clone();
        }
        match name.strip_suffix('*') {
            Some(stem) => {
                let is = |event: &&String| {
                    event.strip_prefix(stem).is_some_and(|part| part.parse::<u32>().is_ok())
                };
                model.events.iter().map(|event| &event.name).filter(is).cloned().collect()
            }
            None => vec![name.to_owned()],
        }
    }
}

/// Adds metrics to a model that has none yet.
///
/// # Errors
///
/// A formula cannot be read.
pub(super) fn add(model: &mut Model, wanted: &[Wanted]) -> Result<(), String> {
    let mut operands = BTreeSet::new();
    for metric in wanted {
        // Whatever is wrong with a formula shows when it is read for good.
        let _ = read(&metric.formula, &mut |name| {
            operands.extend(metric.events(name, model));
            Ok(Expr::Number(0.0))
        });
    }
    model.operands = operands.into_iter().collect();
    model.constants = vec![SECONDS.to_owned()];
    for metric in wanted {
        let formula = read(&metric.formula, &mut |name| {
            let index = |event: &String| {
                model.operands.binary_search(event).ok().map(|index| Expr::Event(index as u32))
            };
            let events = metric.events(name, model);
            let sum = events.iter().filter_map(index).reduce(|a, b| Expr::binary(Binary::Add, a, b));
            sum.ok_or_else(|| format!("`{name}` is no event"))
        });
        let Wanted { name, unit, scope, group, .. } = metric.clone();
        model.metrics.push(Metric {
            formula: formula.map_err(|what| format!("{name}: {what}"))?,
            name,
            level: 1,
            parent: None,
            unit: Unit::of(&unit),
            category: "io".to_owned(),
            domain: scope,
            groups: vec![group],
            scale: 1.0,
            threshold: None,
            locate: Vec::new(),
        });
    }
    Ok(())
}

/// `t` is the length of the interval.
fn read(formula: &str, events: &mut dyn FnMut(&str) -> Result<Expr, String>) -> Result<Expr, String> {
    // What a sum over parts is called must be read as one name.
    let formula = formula.replace(".PART*", ".PART@");
    let expr = parse(&formula, &mut |name| match name {
        "t" => Ok(Expr::Constant(0)),
        _ => events(&name.replace(".PART@", ".PART*")),
    });
    expr.map_err(|error| error.to_string())
}
