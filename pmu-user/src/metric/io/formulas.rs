//! A platform's I/O formulas, compiled once: counts by operand → metrics of a stack, a socket, a machine, or a part.

use crate::{
    metric::formulas::{Formulas, Inputs, Results},
    table::io::{IoTable, Of, SECONDS, Scope},
};

/// Names of events that a reason lists before it only counts.
const NAMED_MAX: usize = 3;

/// Formulas of a table and their last results.
#[derive(Clone, Debug)]
pub struct IoFormulas<'a> {
    table: &'a IoTable,
    formulas: Formulas,
    counts: Vec<f64>,
    of: Of,
    results: Results,
}

impl<'a> IoFormulas<'a> {
    /// Compiles the formulas of `table`.
    #[must_use]
    pub fn new(table: &'a IoTable) -> Self {
        let formulas = Formulas::new(&table.model);
        let counts = vec![f64::NAN; table.model.operands.len()];
        let mut all = Self { table, formulas, counts, of: Of::All, results: Results::default() };
        all.evaluate(&[], f64::NAN, Of::All);
        all
    }

    /// Computes everything for `of` from counts by operand over `seconds`; NaN is a count that is not known. Counts of several boxes
    /// are one: a sum, or their mean ([`IoTable::is_averaged`]).
    pub fn evaluate(&mut self, counts: &[f64], seconds: f64, of: Of) {
        self.counts = self.table.counts_of(counts, of);
        self.of = of;
        let constant = |name: &String| if name == SECONDS { seconds } else { f64::NAN };
        let constants: Vec<f64> = self.table.model.constants.iter().map(constant).collect();
        let inputs = Inputs { counts: &self.counts, constants: &constants };
        self.formulas.evaluate(inputs, &mut self.results);
    }

    /// Does a metric mean anything for what was asked about? A stack's metric is none of a part.
    #[must_use]
    pub fn answers(&self, metric: u32) -> bool {
        self.of == Of::All || self.table.scope(metric) == Some(Scope::Part)
    }

    /// A metric's value, in its unit.
    #[must_use]
    pub fn value(&self, metric: u32) -> Option<f64> {
        self.formulas.value(metric, &self.results)
    }

    /// Why a metric has no value. Meaningless if it has one.
    #[must_use]
    pub fn why(&self, metric: u32) -> String {
        let operands = self.table.model.operands_of(metric);
        let missing: Vec<&str> = operands
            .iter()
            .filter(|operand| self.counts.get(**operand as usize).is_none_or(|count| count.is_nan()))
            .filter_map(|operand| self.table.operand(*operand))
            .collect();
        let named = missing.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
        match missing.len() {
            0 => self.formulas.why(metric, &self.table.model, &self.results).words(&self.table.model),
            1 => format!("{named} was not counted"),
            count if count <= NAMED_MAX => format!("{named} were not counted"),
            count => format!("{named} and {} more were not counted", count - NAMED_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::IoFormulas;
    use crate::table::io::{Of, load};

    #[test]
    fn every_question_is_answered_from_its_own_counts() {
        let table = load("icelakex").unwrap();
        let index = |name: &str| table.model.operands.iter().position(|known| known == name).unwrap();
        let mut counts = vec![f64::NAN; table.model.operands.len()];
        counts[index("UNC_IIO_DATA_REQ_OF_CPU.MEM_READ.PART1")] = 500_000.0;
        let read = table.model.metric("pcie.inbound_read_bw").unwrap();
        let mut formulas = IoFormulas::new(&table);
        assert_eq!(formulas.value(read), None, "nothing was counted yet");
        formulas.evaluate(&counts, 2.0, Of::Part(1));
        assert_eq!(formulas.value(read), Some(1.0));
        formulas.evaluate(&counts, 2.0, Of::All);
        assert_eq!(formulas.value(read), None);
        assert!(formulas.why(read).contains("and 4 more"), "{}", formulas.why(read));
        assert!(formulas.answers(read));
        formulas.evaluate(&counts, 2.0, Of::Part(1));
        assert!(!formulas.answers(table.model.metric("vtd.iotlb_miss").unwrap()));
    }

    #[test]
    fn the_latency_of_two_stacks_is_not_half_of_one() {
        let table = load("icelakex").unwrap();
        let latency = table.model.metric("pcie.inbound_read_latency").unwrap();
        let operand =
            |name: &str| table.model.operands.iter().position(|known| known == name).unwrap() as u32;
        let stack = [
            ("UNC_IIO_CLOCKTICKS", 1e9),
            ("UNC_IIO_COMP_BUF_OCCUPANCY.CMPD.ALL_PARTS", 4e8),
            ("UNC_IIO_COMP_BUF_INSERTS.CMPD.ALL_PARTS", 1e6),
        ];
        let mut formulas = IoFormulas::new(&table);
        let mut of = |stacks: usize| {
            let mut counts = vec![f64::NAN; table.model.operands.len()];
            for (name, count) in stack {
                let operand = operand(name);
                let share = if table.is_averaged(operand) { stacks } else { 1 };
                counts[operand as usize] = count * stacks as f64 / share as f64;
            }
            formulas.evaluate(&counts, 1.0, Of::All);
            formulas.value(latency).unwrap()
        };
        assert_eq!((of(1), of(2)), (400.0, 400.0));
    }
}
