//! Tables of CPU models against the formulas of their sources, on made counts and with independent
//! evaluators. The evaluator below checks tables written by hand. `scripts/perfmon-values.py` evaluates the
//! ones imported from perfmon beforehand.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

use std::collections::BTreeMap;

use pmbpf::{
    metric::offline::{Evaluated, TaskCounts, evaluate},
    table::model::{Model, load},
};

const SOURCES: &str = include_str!("formulas/sources.txt");
/// Output of `scripts/perfmon-values.py`.
const PERFMON: &str = include_str!("formulas/perfmon.tsv");
/// Sets of made counts.
const SETS: u64 = 20;

/// Returns the count of an event with this code in a set, the same number on every call.
fn count(code: &str, set: u64) -> f64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ set.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in code.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    (hash >> 40) as f64 + 1.0
}

/// Evaluator of a source's formula, which consists of numbers, codes, `d_ratio`, parentheses and four
/// operators.
struct Source<'a> {
    rest: &'a str,
    set: u64,
}

impl<'a> Source<'a> {
    fn value(text: &'a str, set: u64) -> f64 {
        let mut source = Self { rest: text, set };
        let value = source.sum();
        assert_eq!(source.rest.trim(), "", "{text}");
        value
    }

    fn takes(&mut self, sign: char) -> bool {
        let rest = self.rest.trim_start();
        let taken = rest.strip_prefix(sign);
        self.rest = taken.unwrap_or(rest);
        taken.is_some()
    }

    fn sum(&mut self) -> f64 {
        let mut value = self.product();
        loop {
            if self.takes('+') {
                value += self.product();
            } else if self.takes('-') {
                value -= self.product();
            } else {
                return value;
            }
        }
    }

    fn product(&mut self) -> f64 {
        let mut value = self.atom();
        loop {
            if self.takes('*') {
                value *= self.atom();
            } else if self.takes('/') {
                value /= self.atom();
            } else {
                return value;
            }
        }
    }

    fn atom(&mut self) -> f64 {
        if self.takes('(') {
            let value = self.sum();
            assert!(self.takes(')'), "{}", self.rest);
            return value;
        }
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        if word == "d_ratio" {
            assert!(self.takes('('));
            let above = self.sum();
            assert!(self.takes(','));
            let below = self.sum();
            assert!(self.takes(')'));
            return above / below;
        }
        if word.starts_with('e') { count(word, self.set) } else { word.parse().unwrap() }
    }
}

/// Returns the code of an operand, as sources here have it.
fn code(model: &Model, operand: &str) -> String {
    let encoding = model.encoding(operand).unwrap();
    let terms: BTreeMap<&str, &str> =
        encoding.terms.split(',').filter_map(|term| term.split_once('=')).collect();
    let event = terms["event"].trim_start_matches("0x");
    let mask = terms.get("umask").map_or(String::new(), |mask| format!("u{}", mask.trim_start_matches("0x")));
    let least = terms.get("cmask").map_or(String::new(), |least| format!("c{least}"));
    format!("e{event}{mask}{least}")
}

#[test]
fn metrics_of_tables_written_by_hand_are_those_of_their_sources() {
    let mut compared: BTreeMap<&str, usize> = BTreeMap::new();
    for line in SOURCES.lines().filter(|line| !line.starts_with('#')) {
        let [name, metric, formula] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let model = load(name, None).unwrap();
        let index = model.metric(metric).unwrap_or_else(|| panic!("{line}")) as usize;
        for set in 0..SETS {
            let counted = |operand: &String| (operand.clone(), Some(count(&code(&model, operand), set)));
            let counts =
                TaskCounts { counts: model.operands.iter().map(counted).collect(), ..TaskCounts::default() };
            let found = evaluate(&model, &counts).metrics[index].value.known().unwrap().estimate;
            let mut expected = Source::value(formula, set);
            // A share that its own formula keeps from becoming negative.
            if model.metrics[index].formula.write(&model).starts_with("max(") {
                expected = expected.max(0.0);
            }
            let error = (found - expected).abs() / expected.abs().max(f64::MIN_POSITIVE);
            assert!(
                error < 1e-9 || found == expected,
                "{name} {metric}: {found}, not {expected} ({formula})"
            );
        }
        *compared.entry(name).or_default() += 1;
    }
    let models = [
        "zen1",
        "zen2",
        "zen3",
        "neoverse-n3",
        "neoverse-v3",
        "cortex-a72",
        "cortex-a76",
        "cortex-a78",
        "cortex-a720",
        "cortex-x4",
    ];
    assert!(models.iter().all(|model| compared[model] > 8) && compared.len() == models.len(), "{compared:?}");
}

/// Returns the input of perfmon's formulas, the same numbers as in `scripts/perfmon-values.py`.
fn counts_of_perfmon(set: u64) -> TaskCounts {
    let names = PERFMON.lines().filter_map(|line| line.strip_prefix("count\t"));
    let counted = |name: &str| match name.to_uppercase().as_str() {
        "HYPERTHREADING_ON" => (set % 2) as f64,
        upper => count(upper, set),
    };
    let counts: BTreeMap<String, Option<f64>> =
        names.map(|name| (name.to_owned(), Some(counted(name)))).collect();
    TaskCounts { constants: counts.clone(), counts }
}

#[test]
fn metrics_of_tables_from_perfmon_are_what_its_formulas_say() {
    let sets: Vec<TaskCounts> = (0..2).map(counts_of_perfmon).collect();
    let mut compared = 0;
    let tables = PERFMON.split("model\t").skip(1);
    for (name, rows) in tables.filter_map(|table| table.split_once('\n')) {
        let model = load(name, None).unwrap();
        assert_eq!(rows.lines().count(), model.metrics.len(), "{name}");
        let evaluated: Vec<Evaluated> = sets.iter().map(|counts| evaluate(&model, counts)).collect();
        for row in rows.lines() {
            let (metric, expected) = row.split_once('\t').unwrap();
            let index = model.metric(metric).unwrap_or_else(|| panic!("{name} has no {metric}")) as usize;
            for (found, expected) in evaluated.iter().zip(expected.split('\t')) {
                let found = found.metrics[index].value.known().map(|known| known.estimate);
                let is_equal = match (found, expected.parse::<f64>().ok()) {
                    (Some(found), Some(expected)) => {
                        (found - expected).abs() <= 1e-9 * expected.abs().max(1.0)
                    }
                    (found, expected) => found == expected,
                };
                assert!(is_equal, "{name} {metric}: {found:?}, not {expected}");
                compared += 1;
            }
        }
    }
    assert!(compared > 9_000, "{compared}");
}
