//! Evaluation of every metric of a model from the counts in a file.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{
    formulas::{Formulas, Inputs},
    value::Value,
};
use crate::{
    machine::topology::Smt,
    table::model::{Model, TaskForms},
};

/// Contents of a file of counts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct TaskCounts {
    /// Constants of the machine and the interval, named as in the model's source: `HYPERTHREADING_ON`.
    #[serde(default)]
    pub constants: BTreeMap<String, Option<f64>>,
    /// Counts by event, with modifiers as formulas write them; `null` if it was not counted.
    pub counts: BTreeMap<String, Option<f64>>,
}

/// Values of all metrics, and names in the file that were not used.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluated {
    /// Values by metric of the model.
    pub metrics: Vec<EvaluatedMetric>,
    /// Events that no formula contains.
    pub unknown: Vec<String>,
}

/// Value of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluatedMetric {
    /// Value in the metric's unit.
    pub value: Value,
    /// Whether it is over its threshold; `None` if it has none.
    pub flagged: Option<bool>,
}

/// Constants that the source describes instead of naming them: our name and the description.
const DESCRIBED: [(&str, &str); 1] = [("CPU_COUNT", "system.sockets[0].cpus.count * system.socket_count")];

/// Constant that states whether cores run two threads.
const TWO_THREADS: &str = "HYPERTHREADING_ON";

/// Constants that follow from others: name, other name, factor. A file's TSC ticks are those of its
/// frequency, as in the source's formulas.
const FOLLOWING: [(&str, &str, f64); 3] = [
    ("DURATIONTIMEINSECONDS", "DURATIONTIMEINMILLISECONDS", 1e-3),
    ("DURATIONTIMEINMILLISECONDS", "DURATIONTIMEINSECONDS", 1e3),
    ("TSC_TICKS", "SYSTEM_TSC_FREQ", 1.0),
];

/// Computes every metric of `model`.
pub fn evaluate(model: &Model, counted: &TaskCounts) -> Evaluated {
    let mut used = BTreeSet::new();
    let counts = named(&model.operands, &counted.counts, &mut used);
    let constants: Vec<f64> =
        model.constants.iter().map(|name| constant(name, &counted.constants, &mut used)).collect();
    let formulas = Formulas::new(model);
    let results = formulas.evaluate(Inputs::one(&counts, &constants));
    let metric = |index: u32| EvaluatedMetric {
        value: match formulas.value(index, &results) {
            Some(value) => Value::exact(value),
            None => Value::Missing(formulas.why(index, model, &results).words(model)),
        },
        flagged: formulas.flagged(index, &results),
    };
    // Constants belong to the machine: not every model uses every one.
    let unknown = counted.counts.keys().filter(|name| !used.contains(*name)).cloned().collect();
    Evaluated { metrics: (0..model.metrics.len() as u32).map(metric).collect(), unknown }
}

/// Computes every metric of `model` for a task or a cgroup, with counters that ran only while it did. A
/// metric that cannot belong to a task is missing.
pub fn evaluate_task(model: Model, counted: &TaskCounts) -> (Model, Evaluated) {
    let smt = match constant(TWO_THREADS, &counted.constants, &mut BTreeSet::new()) {
        0.0 => Smt::Off,
        threads if threads.is_nan() => Smt::Unknown,
        _ => Smt::On,
    };
    let TaskForms { model, shared } = TaskForms::new(model, smt);
    let mut evaluated = evaluate(&model, counted);
    for (metric, why) in evaluated.metrics.iter_mut().zip(shared) {
        if let Some(why) = why {
            *metric = EvaluatedMetric { value: Value::Missing(why), flagged: None };
        }
    }
    (model, evaluated)
}

/// Returns a name in lower case, with its modifiers in sorted order and modes in one spelling. Formulas have
/// `:SUP` and `:USER`, perf has `:k` and `:u`.
fn spelled(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let modes = name.split(':').map(|part| match part {
        "sup" => "k",
        "user" => "u",
        part => part,
    });
    let mut parts: Vec<&str> = modes.collect();
    // The event is the first part.
    parts[1..].sort_unstable();
    parts.join(":")
}

/// Returns values by index. A name is looked up exactly, then in any case and with perf's modifiers, then
/// without the suffix for counting slots.
fn named(names: &[String], values: &BTreeMap<String, Option<f64>>, used: &mut BTreeSet<String>) -> Vec<f64> {
    let small: BTreeMap<String, &String> = values.keys().map(|name| (spelled(name), name)).collect();
    let value = |name: &String| {
        let plain = name.trim_end_matches(":perf_metrics");
        let spelled = [spelled(name), spelled(plain)];
        let found = values.get_key_value(name).map(|(name, _)| name);
        let found = found.or_else(|| spelled.iter().find_map(|name| small.get(name).copied()))?;
        used.insert(found.clone());
        values.get(found).copied().flatten()
    };
    names.iter().map(value).map(|value| value.unwrap_or(f64::NAN)).collect()
}

fn constant(name: &str, values: &BTreeMap<String, Option<f64>>, used: &mut BTreeSet<String>) -> f64 {
    let mut given = |name: &str| {
        let value = values.get(name).copied().flatten();
        if value.is_some() {
            used.insert(name.to_owned());
        }
        value
    };
    let described = DESCRIBED.iter().find(|(ours, _)| *ours == name).map(|(_, theirs)| *theirs);
    let following = || FOLLOWING.iter().find(|(ours, ..)| *ours == name);
    let found = given(name)
        .or_else(|| given(described?))
        .or_else(|| following().and_then(|(_, other, factor)| given(other).map(|value| value * factor)));
    found.unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::{TaskCounts, evaluate};
    use crate::{metric::value::Value, table::model::read};

    const TABLE: &str = "pmbpf table 1\n\
        metric\tRate\t1\t-\t-\tTMA\t-\t-\t1\tA:c1 / #DURATIONTIMEINSECONDS\t-\t-\n\
        metric\tSlots\t1\t-\t-\tTMA\t-\t-\t1\tTOPDOWN.SLOTS:perf_metrics\t@Slots > 1\t-\n";

    fn values(json: &str) -> (Vec<Value>, Vec<String>) {
        let counted: TaskCounts = serde_json::from_str(json).unwrap();
        let evaluated = evaluate(&read(TABLE).unwrap(), &counted);
        (evaluated.metrics.into_iter().map(|metric| metric.value).collect(), evaluated.unknown)
    }

    #[test]
    fn names_are_taken_in_any_case_and_seconds_from_milliseconds() {
        let (values, unknown) = values(
            r#"{"constants": {"DURATIONTIMEINMILLISECONDS": 500}, "counts": {"a:C1": 3, "TOPDOWN.SLOTS": 7, "B": 1}}"#,
        );
        assert_eq!(values, [Value::exact(6.0), Value::exact(7.0)]);
        assert_eq!(unknown, ["B"]);
    }

    #[test]
    fn modifiers_are_taken_in_any_order() {
        const TABLE: &str = "pmbpf table 1\n\
            metric\tIdle\t1\t-\t-\tTMA\t-\t-\t1\tUOPS_EXECUTED.CORE:i1:c1\t-\t-\n";
        let model = read(TABLE).unwrap();
        for name in ["UOPS_EXECUTED.CORE:i1:c1", "UOPS_EXECUTED.CORE:c1:i1", "uops_executed.core:C1:I1"] {
            let counted: TaskCounts =
                serde_json::from_str(&format!(r#"{{"counts": {{"{name}": 5}}}}"#)).unwrap();
            let evaluated = evaluate(&model, &counted);
            assert_eq!(
                (&evaluated.metrics[0].value, evaluated.unknown.len()),
                (&Value::exact(5.0), 0),
                "{name}"
            );
        }
        let other: TaskCounts =
            serde_json::from_str(r#"{"counts": {"UOPS_EXECUTED.CORE:c1:i2": 5}}"#).unwrap();
        assert_eq!(evaluate(&model, &other).unknown, ["UOPS_EXECUTED.CORE:c1:i2"]);
    }

    #[test]
    fn modes_are_taken_as_perf_spells_them_too() {
        const KERNEL: &str = "pmbpf table 1\n\
            metric\tKernel\t1\t-\t-\tTMA\t-\t-\t1\tA:SUP / B:USER\t-\t-\n";
        let model = read(KERNEL).unwrap();
        for json in [
            r#"{"counts": {"A:k": 6, "b:U": 2}}"#,
            r#"{"counts": {"A:SUP": 6, "B:USER": 2}}"#,
            r#"{"counts": {"a:sup": 6, "B:u": 2}}"#,
        ] {
            let evaluated = evaluate(&model, &serde_json::from_str::<TaskCounts>(json).unwrap());
            assert_eq!(evaluated.metrics[0].value, Value::exact(3.0), "{json}");
            assert!(evaluated.unknown.is_empty());
        }
        let other: TaskCounts = serde_json::from_str(r#"{"counts": {"A:u": 6, "B:u": 2}}"#).unwrap();
        assert!(evaluate(&model, &other).metrics[0].value.known().is_none());
    }

    #[test]
    fn what_is_not_there_is_missing_by_name() {
        let missing = |json: &str| match &values(json).0[0] {
            Value::Missing(why) => why.clone(),
            Value::Known(known) => panic!("{known:?}"),
        };
        assert_eq!(missing(r#"{"counts": {"A:c1": null}}"#), "A:c1 was not counted");
        assert_eq!(missing(r#"{"counts": {"A:c1": 1}}"#), "DURATIONTIMEINSECONDS is not known");
    }
}
