//! Forms of a model's formulas for a task or a cgroup, with counts of the times when it ran.
//!
//! Intel's formulas halve what both threads of a core count (`CPU_CLK_UNHALTED.THREAD_ANY / 2`). This is
//! right for the sum of two CPUs that always count, idle or not. A task's counters run only while it does.
//! Halved, a task that is alone on its core has half as many slots as it filled, and its tree says that 119.8
//! % of them retired. A task's part of a core's cycles is half of those in which both threads were active,
//! and all of those in which only its own was:
//!
//! ```text
//! THREAD / 2 * (1 + ONE_THREAD_ACTIVE / REF_XCLK)
//! ```
//!
//! This is perf's form for tasks (`tma_info_core_core_clks` of its Skylake and Cascade Lake servers, v6.12).
//! It holds for every other count of a core's cycles, with the thread's own event in its place. A task that
//! is alone, and two that do the same, get the result of the formula for the core. From Ice Lake on
//! `CPU_CLK_UNHALTED.DISTRIBUTED` counts a thread's own part of the cycles.

use super::{CountScope, Model, operand::adds_up_threads};
use crate::{
    machine::topology::Smt,
    table::formula::{Binary, Expr},
};

/// Constant in formulas for whether cores run two threads.
const TWO_THREADS: &str = "HYPERTHREADING_ON";

/// Model with formulas that hold for tasks, as far as there are such.
#[derive(Clone, Debug)]
pub struct TaskForms {
    /// Model with these formulas. New operands are at the end of its list.
    pub model: Model,
    /// Reason why each metric is not a task's, but only that of all owners together. `None` if it holds for
    /// tasks.
    pub shared: Vec<Option<String>>,
}

impl TaskForms {
    /// Returns the forms of `model` for tasks on a machine with cores that run two threads, or one.
    pub fn new(mut model: Model, smt: Smt) -> Self {
        let mut metrics = std::mem::take(&mut model.metrics);
        let part = match smt {
            Smt::Off => None,
            Smt::On | Smt::Unknown => part(&mut model),
        };
        let condition = model.constants.iter().position(|name| name == TWO_THREADS);
        let condition = condition.map(|index| Expr::Constant(index as u32));
        let mut form = Form { model: &mut model, smt, condition, part };
        for metric in &mut metrics {
            metric.formula = form.of(&metric.formula);
        }
        model.metrics = metrics;
        let shared = (0..model.metrics.len() as u32).map(|metric| shared(&model, metric, smt)).collect();
        Self { model, shared }
    }

    /// Returns the reason why a metric is not a task's; `None` if it is.
    pub fn why_shared(&self, metric: u32) -> Option<&str> {
        self.shared.get(metric as usize)?.as_deref()
    }
}

/// Returns the reason why a metric of a model for tasks is not theirs.
fn shared(model: &Model, metric: u32, smt: Smt) -> Option<String> {
    model.operands_of(metric).into_iter().find_map(|operand| {
        let operand = model.operands.get(operand as usize)?;
        match model.scope(operand) {
            CountScope::Thread => None,
            CountScope::Core if adds_up_threads(operand) => {
                Some(format!("{operand} adds up both threads of a core, and a task runs on one"))
            }
            CountScope::Core if smt == Smt::Off => None,
            CountScope::Core => {
                Some(format!("{operand} counts what both threads of a core do, and a task runs on one"))
            }
            CountScope::Socket => {
                let unit = model.encoding(operand).map_or_else(|_| "?".to_owned(), |encoding| encoding.unit);
                Some(format!("{operand} is counted by `{unit}`, for all tasks together"))
            }
        }
    })
}

/// Returns the part of a thread's cycles that its core had for it alone: 1 where the other thread was idle,
/// half where it was not. Returns `None` where nothing counts that.
fn part(model: &mut Model) -> Option<Expr> {
    let event = |model: &mut Model, name: &str| model.event(name).is_some().then(|| model.intern(name));
    if let Some(distributed) = event(model, "CPU_CLK_UNHALTED.DISTRIBUTED") {
        return Some(Expr::binary(Binary::Divide, distributed, event(model, "CPU_CLK_UNHALTED.THREAD")?));
    }
    let named = |model: &mut Model, name: &str| {
        let families = ["CPU_CLK_UNHALTED", "CPU_CLK_THREAD_UNHALTED"];
        families.iter().find_map(|family| event(model, &format!("{family}.{name}")))
    };
    let (alone, all) = (named(model, "ONE_THREAD_ACTIVE")?, named(model, "REF_XCLK")?);
    let alone = Expr::binary(Binary::Add, Expr::Number(1.0), Expr::binary(Binary::Divide, alone, all));
    Some(Expr::binary(Binary::Divide, alone, Expr::Number(2.0)))
}

impl Model {
    /// Returns the operand of that name, added at the end if it is new.
    pub(super) fn intern(&mut self, operand: &str) -> Expr {
        let known = self.operands.iter().position(|known| known == operand);
        let index = known.unwrap_or_else(|| {
            self.operands.push(operand.to_owned());
            self.operands.len() - 1
        });
        Expr::Event(index as u32)
    }
}

/// Rewriter of expressions. The model has no metrics while it is in use.
struct Form<'a> {
    model: &'a mut Model,
    smt: Smt,
    /// Condition for whether cores run two threads, if any formula has it.
    condition: Option<Expr>,
    part: Option<Expr>,
}

impl Form<'_> {
    /// Returns the form of `expr` for tasks. Conditions on threads are decided here where the answer is
    /// known, so that nothing is counted for the other case.
    fn of(&mut self, expr: &Expr) -> Expr {
        match expr {
            Expr::If(parts) if Some(&parts[0]) == self.condition.as_ref() => match self.smt {
                Smt::On => self.of(&parts[1]),
                Smt::Off => self.of(&parts[2]),
                Smt::Unknown => {
                    let [then, otherwise] = [&parts[1], &parts[2]].map(|part| self.of(part));
                    Expr::If(Box::new([parts[0].clone(), then, otherwise]))
                }
            },
            Expr::If(parts) => Expr::If(Box::new(parts.each_ref().map(|part| self.of(part)))),
            Expr::Binary(Binary::Divide, operands)
                if operands[1] == Expr::Number(2.0) && self.is_of_core(&operands[0]) =>
            {
                match self.part.clone() {
                    Some(part) => Expr::binary(Binary::Multiply, self.own(&operands[0]), part),
                    None => expr.clone(),
                }
            }
            Expr::Binary(operation, operands) => {
                Expr::Binary(*operation, Box::new(operands.each_ref().map(|part| self.of(part))))
            }
            _ => expr.clone(),
        }
    }

    /// Returns whether `expr` counts for both threads of a core.
    fn is_of_core(&self, expr: &Expr) -> bool {
        let mut found = false;
        expr.visit(&mut |part| {
            if let Expr::Event(index) = part
                && let Some(operand) = self.model.operands.get(*index as usize)
            {
                found |= self.model.scope(operand) == CountScope::Core && !adds_up_threads(operand);
            }
        });
        found
    }

    /// Returns `expr` with the thread's own events in place of its core's, where they exist. The part of a
    /// core's cycles that belongs to a task is right for those of the core too, summed over every task.
    fn own(&mut self, expr: &Expr) -> Expr {
        match expr {
            Expr::Event(index) => {
                let operand = self.model.operands.get(*index as usize);
                let own = operand.filter(|operand| self.model.scope(operand) == CountScope::Core);
                match own.and_then(|operand| self.model.of_thread(operand)) {
                    Some(own) => self.model.intern(&own),
                    None => expr.clone(),
                }
            }
            Expr::Binary(operation, operands) => {
                Expr::Binary(*operation, Box::new(operands.each_ref().map(|part| self.own(part))))
            }
            _ => expr.clone(),
        }
    }
}
