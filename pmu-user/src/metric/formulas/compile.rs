//! Compiler of a model's formulas into steps, each of them once.

use std::collections::HashMap;

use super::{Compiled, Step};
use crate::table::{
    formula::{Binary, Expr},
    model::Model,
};

/// Compiler of expressions into steps. Equal expressions become the same step.
pub(super) struct Compiler<'a> {
    model: &'a Model,
    steps: Vec<Step>,
    known: HashMap<Step, u32>,
    /// Results of metrics, not scaled.
    plain: HashMap<u32, u32>,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(model: &'a Model) -> Self {
        Self { model, steps: Vec::new(), known: HashMap::new(), plain: HashMap::new() }
    }

    pub(super) fn into_steps(self) -> Vec<Step> {
        self.steps
    }

    pub(super) fn metric(&mut self, index: u32) -> Compiled {
        let value = self.scaled(index);
        let threshold = self.model.metrics[index as usize].threshold.as_ref();
        let flagged = threshold.map(|threshold| self.expr(threshold, Self::scaled));
        Compiled { value, flagged }
    }

    fn plain(&mut self, index: u32) -> u32 {
        if let Some(&step) = self.plain.get(&index) {
            return step;
        }
        let model = self.model;
        let step = match model.metrics.get(index as usize) {
            Some(metric) => {
                // A formula that leads back to itself is undefined. Sound tables have none.
                let undefined = self.step(Step::Number(f64::NAN.to_bits()));
                self.plain.insert(index, undefined);
                self.expr(&metric.formula, Self::plain)
            }
            None => self.step(Step::Number(f64::NAN.to_bits())),
        };
        self.plain.insert(index, step);
        step
    }

    fn scaled(&mut self, index: u32) -> u32 {
        let scale = self.model.metrics.get(index as usize).map_or(1.0, |metric| metric.scale);
        let plain = self.plain(index);
        if scale == 1.0 {
            return plain;
        }
        let scale = self.step(Step::Number(scale.to_bits()));
        self.step(Step::Binary(Binary::Multiply, scale, plain))
    }

    /// Compiles an expression. `metric` selects which result of a metric it means.
    fn expr(&mut self, expr: &Expr, metric: fn(&mut Self, u32) -> u32) -> u32 {
        let step = match expr {
            Expr::Number(number) => Step::Number(number.to_bits()),
            Expr::Event(index) => Step::Event(*index),
            Expr::Constant(index) => Step::Constant(*index),
            Expr::Metric(index) => return metric(self, *index),
            Expr::Binary(operation, operands) => {
                let [a, b] = operands.each_ref().map(|operand| self.expr(operand, metric));
                Step::Binary(*operation, a, b)
            }
            Expr::If(parts) => {
                let [condition, then, otherwise] = parts.each_ref().map(|part| self.expr(part, metric));
                Step::If(condition, then, otherwise)
            }
        };
        self.step(step)
    }

    fn step(&mut self, step: Step) -> u32 {
        *self.known.entry(step).or_insert_with(|| {
            self.steps.push(step);
            self.steps.len() as u32 - 1
        })
    }
}
