//! Formulas of a CPU model as one list of operations, so that shared parts are computed once.
//!
//! An undefined number is NaN inside and [`Undefined`] outside: an operand that is missing, or a division by
//! 0. It spreads to everything that depends on it, but not out of a branch that is not taken. A threshold
//! with an undefined part is not met, unless its other part decides.

mod compile;

use std::array;

use self::compile::Compiler;
use crate::table::{
    formula::{Binary, Expr, Names as _},
    model::Model,
};

/// Step of the list. Operands are earlier steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Bits of a number.
    Number(u64),
    Event(u32),
    Constant(u32),
    Binary(Binary, u32, u32),
    /// Condition, then, else.
    If(u32, u32, u32),
}

/// Formulas of a model, ready to be evaluated.
#[derive(Clone, Debug)]
pub struct Formulas {
    steps: Vec<Step>,
    /// Steps by metric; `None` for those that are not requested.
    metrics: Vec<Option<Compiled>>,
}

/// Steps that hold a metric's results.
#[derive(Clone, Copy, Debug)]
struct Compiled {
    value: u32,
    flagged: Option<u32>,
}

/// Inputs of the formulas, in one case or in several at once, which differ in counts. NaN: not known.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a, const CASES: usize = 1> {
    /// Counts of the model's operands, each in every case.
    pub counts: &'a [[f64; CASES]],
    /// Constants of the model.
    pub constants: &'a [f64],
}

/// Results of every step, in every case.
#[derive(Clone, Debug)]
pub struct Results<const CASES: usize = 1>(Vec<[f64; CASES]>);

/// Reason why a metric has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undefined {
    /// Operand that was not counted.
    Count(u32),
    /// Constant that is not known.
    Constant(u32),
    /// Divisor that is 0.
    Zero(String),
    /// Numbers too large or too small to compute with.
    Range,
}

impl Formulas {
    /// Compiles the formulas of `model`.
    pub fn new(model: &Model) -> Self {
        Self::of(model, |_| true)
    }

    /// Compiles the requested formulas of `model`, with their operands. The other metrics have neither value
    /// nor flag.
    pub fn of(model: &Model, is_wanted: impl Fn(u32) -> bool) -> Self {
        let mut compiler = Compiler::new(model);
        let all = 0..model.metrics.len() as u32;
        let metrics = all.map(|index| is_wanted(index).then(|| compiler.metric(index))).collect();
        Self { steps: compiler.into_steps(), metrics }
    }

    /// Computes all steps. 1,000 owners of 300 metrics take milliseconds. Many cases together take a fraction
    /// of the time that they take one by one: a step is decoded once, and its cases are computed side by
    /// side.
    pub fn evaluate<const CASES: usize>(&self, inputs: Inputs<'_, CASES>) -> Results<CASES> {
        let mut done: Vec<[f64; CASES]> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let at = |index: u32| &done[index as usize];
            let result = match *step {
                Step::Number(bits) => [f64::from_bits(bits); CASES],
                Step::Event(index) => inputs.counts.get(index as usize).copied().unwrap_or([f64::NAN; CASES]),
                Step::Constant(index) => {
                    [inputs.constants.get(index as usize).copied().unwrap_or(f64::NAN); CASES]
                }
                Step::Binary(operation, a, b) => each(operation, at(a), at(b)),
                Step::If(condition, then, otherwise) => {
                    let (condition, then, otherwise) = (at(condition), at(then), at(otherwise));
                    array::from_fn(|case| choose(condition[case], then[case], otherwise[case]))
                }
            };
            done.push(result);
        }
        Results(done)
    }

    /// Returns a metric's value, in its unit.
    pub fn value(&self, metric: u32, results: &Results) -> Option<f64> {
        let [value] = *self.values(metric, results)?;
        value.is_finite().then_some(value)
    }

    /// Returns a metric's values in every case, in its unit. A value that is not finite is missing. `None` if
    /// the metric is not requested.
    pub fn values<'a, const CASES: usize>(
        &self,
        metric: u32,
        results: &'a Results<CASES>,
    ) -> Option<&'a [f64; CASES]> {
        Some(&results.0[self.metrics[metric as usize]?.value as usize])
    }

    /// Returns whether a metric is above its threshold. `None` if it has none.
    pub fn flagged(&self, metric: u32, results: &Results) -> Option<bool> {
        let flagged = self.metrics[metric as usize]?.flagged?;
        // A threshold that is undefined is NaN, which is not 1.
        Some(results.at(flagged) == 1.0)
    }

    /// Returns the reason why a metric has no value. Meaningless if it has one, or is not requested.
    pub fn why(&self, metric: u32, model: &Model, results: &Results) -> Undefined {
        match self.metrics[metric as usize] {
            Some(compiled) => self.blame(compiled.value, model, results),
            None => Undefined::Range,
        }
    }

    /// Follows the first undefined operand down to its origin.
    fn blame(&self, mut step: u32, model: &Model, results: &Results) -> Undefined {
        let undefined = |index: u32| results.at(index).is_nan();
        loop {
            step = match self.steps[step as usize] {
                Step::Event(index) => return Undefined::Count(index),
                Step::Constant(index) => return Undefined::Constant(index),
                Step::Number(_) => return Undefined::Range,
                Step::Binary(_, a, _) if undefined(a) => a,
                Step::Binary(_, _, b) if undefined(b) => b,
                Step::Binary(Binary::Divide, _, b) if results.at(b) == 0.0 => {
                    return Undefined::Zero(self.text(b, model));
                }
                Step::Binary(..) => return Undefined::Range,
                Step::If(condition, then, otherwise) => {
                    let value = results.at(condition);
                    match value {
                        _ if value.is_nan() => condition,
                        0.0 => otherwise,
                        _ => then,
                    }
                }
            }
        }
    }

    /// Returns a step in words, or a placeholder where it is too long.
    fn text(&self, step: u32, model: &Model) -> String {
        const LENGTH_MAX: usize = 120;
        fn expr(steps: &[Step], step: u32, depth: u32) -> Option<Expr> {
            let inner = |step| if depth == 0 { None } else { expr(steps, step, depth - 1) };
            Some(match steps[step as usize] {
                Step::Number(bits) => Expr::Number(f64::from_bits(bits)),
                Step::Event(index) => Expr::Event(index),
                Step::Constant(index) => Expr::Constant(index),
                Step::Binary(operation, a, b) => Expr::binary(operation, inner(a)?, inner(b)?),
                Step::If(condition, then, otherwise) => {
                    Expr::If(Box::new([inner(condition)?, inner(then)?, inner(otherwise)?]))
                }
            })
        }
        // A formula that is deeper than this is not readable.
        let text = expr(&self.steps, step, 8).map(|expr| expr.write(model));
        text.filter(|text| text.len() <= LENGTH_MAX).unwrap_or_else(|| "a part of its formula".to_owned())
    }
}

impl<'a> Inputs<'a> {
    /// Returns the inputs of one case.
    pub const fn one(counts: &'a [f64], constants: &'a [f64]) -> Self {
        Self { counts: counts.as_chunks().0, constants }
    }
}

impl Results {
    const fn at(&self, step: u32) -> f64 {
        let [value] = self.0.as_slice()[step as usize];
        value
    }
}

/// Returns the value of `expr` where metrics have these `values` (NaN: not known). Events and constants in it
/// are not known.
pub fn over_values(expr: &Expr, values: &[f64]) -> f64 {
    match expr {
        Expr::Number(number) => *number,
        Expr::Event(_) | Expr::Constant(_) => f64::NAN,
        Expr::Metric(index) => values.get(*index as usize).copied().unwrap_or(f64::NAN),
        Expr::Binary(operation, operands) => {
            let [a, b] = operands.each_ref().map(|operand| over_values(operand, values));
            binary(*operation, a, b)
        }
        Expr::If(parts) => {
            let [condition, then, otherwise] = parts.each_ref().map(|part| over_values(part, values));
            choose(condition, then, otherwise)
        }
    }
}

/// Returns the branch that a condition selects: NaN if it is undefined.
const fn choose(condition: f64, then: f64, otherwise: f64) -> f64 {
    if condition.is_nan() {
        f64::NAN
    } else if condition == 0.0 {
        otherwise
    } else {
        then
    }
}

/// Applies an operation in every case. The frequent ones have separate loops, which processors vectorize. As
/// calls of [`binary`] the compiler would merge them into one loop again, in which each number is computed on
/// its own.
fn each<const CASES: usize>(operation: Binary, a: &[f64; CASES], b: &[f64; CASES]) -> [f64; CASES] {
    match operation {
        Binary::Add => array::from_fn(|case| a[case] + b[case]),
        Binary::Subtract => array::from_fn(|case| a[case] - b[case]),
        Binary::Multiply => array::from_fn(|case| a[case] * b[case]),
        Binary::Divide => array::from_fn(|case| binary(Binary::Divide, a[case], b[case])),
        _ => array::from_fn(|case| binary(operation, a[case], b[case])),
    }
}

/// Applies an operation to two numbers. NaN is undefined, and spreads.
fn binary(operation: Binary, a: f64, b: f64) -> f64 {
    let truth = |truth: bool| if a.is_nan() || b.is_nan() { f64::NAN } else { f64::from(u8::from(truth)) };
    match operation {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide if b == 0.0 => f64::NAN,
        Binary::Divide => a / b,
        Binary::Max if a.is_nan() || b.is_nan() => f64::NAN,
        Binary::Max => a.max(b),
        Binary::Min if a.is_nan() || b.is_nan() => f64::NAN,
        Binary::Min => a.min(b),
        Binary::Less => truth(a < b),
        Binary::LessOrEqual => truth(a <= b),
        Binary::Greater => truth(a > b),
        Binary::GreaterOrEqual => truth(a >= b),
        // One part may decide alone.
        Binary::And if a == 0.0 || b == 0.0 => 0.0,
        Binary::And => truth(true),
        Binary::Or if (a != 0.0 && !a.is_nan()) || (b != 0.0 && !b.is_nan()) => 1.0,
        Binary::Or => truth(false),
    }
}

impl Undefined {
    /// Returns the reason in words.
    pub fn words(&self, model: &Model) -> String {
        match self {
            Self::Count(index) => format!("{} was not counted", model.event_name(*index)),
            Self::Constant(index) => format!("{} is not known", model.constant_name(*index)),
            Self::Zero(what) => format!("division by 0: {what}"),
            Self::Range => "out of the range of numbers".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::array;

    use super::{Formulas, Inputs, Undefined};
    use crate::table::model::{Model, read};

    const TABLE: &str = "pmbpf table 1\n\
        model\ttest\n\
        metric\tRatio\t1\t-\tpercent\tTMA\t-\t-\t100\tA / B\t@Ratio > 20\t-\n\
        metric\tTwice\t2\tRatio\t-\tTMA\t-\t-\t1\t@Ratio * 2\t@Twice > 1 & @Ratio > 20\t-\n\
        metric\tEither\t1\t-\t-\tTMA\t-\t-\t1\tA / C if #SMT else B\t@Either > 0 | @Ratio > 20\t-\n\
        metric\tMost\t1\t-\t-\tTMA\t-\t-\t1\tmax(A / C, 0)\t-\t-\n";

    fn model() -> Model {
        read(TABLE).unwrap()
    }

    /// Returns values and flags for counts of A, B, C, and SMT.
    fn all(counts: [f64; 3], smt: f64) -> (Vec<Option<f64>>, Vec<Option<bool>>) {
        let formulas = Formulas::new(&model());
        let results = formulas.evaluate(Inputs::one(&counts, &[smt]));
        let values = (0..4).map(|metric| formulas.value(metric, &results)).collect();
        (values, (0..4).map(|metric| formulas.flagged(metric, &results)).collect())
    }

    fn why(counts: [f64; 3], smt: f64, metric: u32) -> Undefined {
        let formulas = Formulas::new(&model());
        let results = formulas.evaluate(Inputs::one(&counts, &[smt]));
        formulas.why(metric, &model(), &results)
    }

    #[test]
    fn cases_that_are_computed_together_are_as_if_alone() {
        let numbers = [3.0, 0.0, f64::NAN, -1.0, 1e300, 4.0];
        let formulas = Formulas::new(&model());
        for smt in [0.0, 1.0, f64::NAN] {
            let counts: [[f64; 6]; 3] =
                [0, 1, 2].map(|event| array::from_fn(|case| numbers[(case + 2 * event) % 6]));
            let together = formulas.evaluate(Inputs { counts: &counts, constants: &[smt] });
            for case in 0..6 {
                let (alone, _) = all(counts.map(|event| event[case]), smt);
                let values = (0..4).map(|metric| formulas.values(metric, &together).unwrap()[case]);
                let values: Vec<Option<f64>> =
                    values.map(|value| value.is_finite().then_some(value)).collect();
                assert_eq!(values, alone, "case {case}, {smt}");
            }
        }
    }

    #[test]
    fn a_metric_in_a_formula_is_not_scaled_and_in_a_threshold_it_is() {
        let (values, flags) = all([3.0, 4.0, 1.0], 0.0);
        assert_eq!(values, [Some(75.0), Some(1.5), Some(4.0), Some(3.0)]);
        assert_eq!(flags, [Some(true), Some(true), Some(true), None]);
    }

    #[test]
    fn division_by_zero_is_undefined_and_named() {
        let (values, flags) = all([3.0, 0.0, 0.0], 0.0);
        assert_eq!(values, [None, None, Some(0.0), None]);
        assert_eq!(flags[0], Some(false));
        assert_eq!(why([3.0, 0.0, 0.0], 0.0, 1), Undefined::Zero("B".to_owned()));
        assert_eq!(why([3.0, 1.0, 0.0], 0.0, 3), Undefined::Zero("C".to_owned()));
    }

    #[test]
    fn the_branch_that_is_not_taken_does_not_matter() {
        assert_eq!(all([3.0, 4.0, 0.0], 0.0).0[2], Some(4.0));
        assert_eq!(all([3.0, 4.0, 0.0], 1.0).0[2], None);
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(why([f64::NAN, 4.0, 1.0], 0.0, 1), Undefined::Count(0));
        assert_eq!(why([3.0, 4.0, 1.0], f64::NAN, 2), Undefined::Constant(0));
        assert_eq!(Undefined::Count(1).words(&model()), "B was not counted");
    }

    #[test]
    fn only_what_is_wanted_is_computed_with_what_it_needs() {
        let formulas = Formulas::of(&model(), |metric| metric == 1);
        let results = formulas.evaluate(Inputs::one(&[3.0, 4.0, 1.0], &[0.0]));
        let all = |metric| (formulas.value(metric, &results), formulas.flagged(metric, &results));
        assert_eq!([all(0), all(1), all(2)], [(None, None), (Some(1.5), Some(true)), (None, None)]);
        assert!(results.0.len() < Formulas::new(&model()).steps.len());
    }

    #[test]
    fn one_part_of_a_threshold_may_decide() {
        // Either is undefined, Ratio is not.
        assert_eq!(all([3.0, 4.0, 0.0], 1.0).1[2], Some(true));
        assert_eq!(all([0.0, 4.0, 0.0], 1.0).1[2], Some(false));
    }
}
