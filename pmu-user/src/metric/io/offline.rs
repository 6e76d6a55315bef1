//! I/O metrics of a platform and the utilization of a link, from uncore PMU counts in a file.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{
    link::{self, Link, SpeedError, Traffic},
    scope::{Asked, ScopeClass},
};
use crate::{
    metric::value::Value,
    table::{
        io::{IoTable, Of},
        unit::Unit,
    },
};

/// Number of event names that a reason lists. Further ones are only counted.
const NAMED_MAX: usize = 3;

/// Contents of a file of counts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct IoCounts {
    /// Time of counting in s.
    pub seconds: f64,
    /// Link that carried all of the traffic, if utilization is requested.
    #[serde(default)]
    pub link: Option<Link>,
    /// Counts by event, `null` if the event was not counted.
    pub counts: BTreeMap<String, Option<f64>>,
}

/// Error in a file of counts.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum IoCountsError {
    /// Time in which nothing can be counted.
    #[error("`seconds` must be more than 0, not {0}")]
    Seconds(f64),
    /// Count that no counter can have.
    #[error("`{0}` cannot be {1}: a count is 0 or more")]
    Count(String, f64),
    /// Speed of the link.
    #[error("link: {0}")]
    Speed(#[from] SpeedError),
}

/// Metrics of a file, and events of it that were not used.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluated {
    /// Metrics of the table, metrics that its platforms cannot measure, then figures about the link.
    pub metrics: Vec<EvaluatedMetric>,
    /// Events that the table does not contain.
    pub unknown: Vec<String>,
}

/// Metric with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluatedMetric {
    /// Name of the metric.
    pub name: String,
    /// Unit of its value.
    pub unit: Unit,
    /// Scope for which it can be computed: `part`, `stack`, …; `link` for figures about the link.
    pub scope: String,
    /// Source of the definition: `cookbook` or another one.
    pub definition: String,
    /// Value of the metric.
    pub value: Value,
}

/// Computes every metric of `table`. An event that is absent from the file or `null` makes each metric
/// missing that needs it: a part that was not counted may still have had traffic.
///
/// # Errors
///
/// The time, a count or the speed of the link is invalid.
pub fn evaluate(table: &IoTable, counted: &IoCounts) -> Result<Evaluated, IoCountsError> {
    if !(counted.seconds > 0.0 && counted.seconds.is_finite()) {
        return Err(IoCountsError::Seconds(counted.seconds));
    }
    if let Some((name, count)) =
        counted.counts.iter().find_map(|(name, count)| Some((name, count.filter(|count| *count < 0.0)?)))
    {
        return Err(IoCountsError::Count(name.clone(), count));
    }
    let mut used = BTreeSet::new();
    let counts = named(table, &counted.counts, &mut used);
    let mut metrics = values(table, &counts, counted.seconds, Of::All);
    metrics.extend(table.absent.iter().map(|absent| EvaluatedMetric {
        name: absent.name.clone(),
        unit: absent.unit,
        scope: String::new(),
        definition: String::new(),
        value: Value::Missing(absent.why.clone()),
    }));
    if let Some(link) = &counted.link {
        let figures = link::figures(&link.rate()?, &traffic(&metrics));
        metrics.extend(figures.into_iter().map(|figure| EvaluatedMetric {
            name: figure.name.to_owned(),
            unit: figure.unit,
            scope: "link".to_owned(),
            definition: figure.definition.to_owned(),
            value: figure.value,
        }));
    }
    let unknown = counted.counts.keys().filter(|name| !used.contains(*name)).cloned().collect();
    Ok(Evaluated { metrics, unknown })
}

/// Returns every metric that can be computed for `of` from counts by operand over `seconds`. NaN is an
/// unknown count.
pub fn values(table: &IoTable, counts: &[f64], seconds: f64, of: Of) -> Vec<EvaluatedMetric> {
    let asked = Asked::new(table, if of == Of::All { ScopeClass::Whole } else { ScopeClass::Part });
    let counts = table.counts_of(counts, of);
    let results = asked.evaluate(counts.as_chunks::<1>().0, seconds);
    let why = |metric: u32, operands: &[u32]| {
        uncounted(table, &counts, operands).unwrap_or_else(|| asked.why(metric, &table.model, &results))
    };
    let evaluated = |(index, operands): &(u32, Vec<u32>)| {
        let value = asked.value(*index, &results);
        let metric = &table.model.metrics[*index as usize];
        EvaluatedMetric {
            name: metric.name.clone(),
            unit: metric.unit,
            scope: metric.domain.clone(),
            definition: metric.groups.join(" "),
            value: value.map_or_else(|| Value::Missing(why(*index, operands)), Value::exact),
        }
    };
    asked.metrics.iter().map(evaluated).collect()
}

/// Returns a list of the operands of a metric that were not counted, if any.
fn uncounted(table: &IoTable, counts: &[f64], operands: &[u32]) -> Option<String> {
    let unknown = |operand: &&u32| counts.get(**operand as usize).is_none_or(|count| count.is_nan());
    let missing: Vec<&str> =
        operands.iter().filter(unknown).filter_map(|operand| table.operand(*operand)).collect();
    let named = missing.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    match missing.len() {
        0 => None,
        1 => Some(format!("{named} was not counted")),
        count if count <= NAMED_MAX => Some(format!("{named} were not counted")),
        count => Some(format!("{named} and {} more were not counted", count - NAMED_MAX)),
    }
}

/// Returns the counts by operand, matched by the exact name, else regardless of case.
fn named(table: &IoTable, counts: &BTreeMap<String, Option<f64>>, used: &mut BTreeSet<String>) -> Vec<f64> {
    let small: BTreeMap<String, &String> =
        counts.keys().map(|name| (name.to_ascii_lowercase(), name)).collect();
    let of = |name: &String| {
        let found = counts.get_key_value(name).map(|(name, _)| name);
        found.or_else(|| small.get(&name.to_ascii_lowercase()).copied())
    };
    // An event that no formula uses is still known.
    used.extend(table.model.events.iter().filter_map(|event| of(&event.name)).cloned());
    let value = |name: &String| of(name).and_then(|name| counts[name]).unwrap_or(f64::NAN);
    table.model.operands.iter().map(value).collect()
}

/// Returns the traffic of the link. If completions of CPU reads are not counted, their requests are used.
fn traffic(metrics: &[EvaluatedMetric]) -> Traffic {
    let find = |names: &[&str]| {
        let found = names.iter().find_map(|name| metrics.iter().find(|metric| metric.name == *name));
        let none = || Value::Missing(format!("this platform does not count {}", names[0]));
        found.map_or_else(none, |metric| metric.value.clone())
    };
    Traffic {
        inbound_read: find(&["pcie.inbound_read_bw"]),
        inbound_write: find(&["pcie.inbound_write_bw"]),
        outbound_read: find(&["pcie.outbound_read_bw", "pcie.outbound_read_bw.by_cpu"]),
        outbound_write: find(&["pcie.outbound_write_bw"]),
    }
}

#[cfg(test)]
mod tests {
    use super::{Evaluated, IoCounts, IoCountsError, evaluate, values};
    use crate::{
        metric::value::Value,
        table::io::{IoTable, Of, load},
    };

    fn counted(json: &str) -> IoCounts {
        serde_json::from_str(json).unwrap()
    }

    fn of(evaluated: &Evaluated, name: &str) -> Value {
        evaluated.metrics.iter().find(|metric| metric.name == name).unwrap().value.clone()
    }

    fn memory_controllers(json: &str) -> Evaluated {
        evaluate(&load("graniterapids").unwrap(), &counted(json)).unwrap()
    }

    #[test]
    fn a_sum_is_missing_without_one_of_its_parts() {
        let all = r#""UNC_M_CAS_COUNT_SCH0.RD": 1e9, "UNC_M_CAS_COUNT_SCH1.RD": 5e8"#;
        let evaluated = memory_controllers(&format!(r#"{{"seconds": 2, "counts": {{{all}}}}}"#));
        assert_eq!(of(&evaluated, "dram.read_bw"), Value::exact(48.0));
        let missing =
            r#"{"seconds": 2, "counts": {"UNC_M_CAS_COUNT_SCH0.RD": 1e9, "UNC_M_CAS_COUNT_SCH1.RD": null}}"#;
        let why = Value::Missing("UNC_M_CAS_COUNT_SCH1.RD was not counted".to_owned());
        assert_eq!(of(&memory_controllers(missing), "dram.read_bw"), why);
    }

    #[test]
    fn a_reason_names_some_events_and_counts_the_rest() {
        let evaluated = memory_controllers(r#"{"seconds": 1, "counts": {}}"#);
        let Value::Missing(why) = of(&evaluated, "pcie.inbound_read_bw") else { panic!("{evaluated:?}") };
        assert!(why.ends_with("MEM_READ.PART2 and 5 more were not counted"), "{why}");
        let Value::Missing(why) = of(&evaluated, "dram.read_bw") else { panic!("{evaluated:?}") };
        assert_eq!(why, "UNC_M_CAS_COUNT_SCH0.RD, UNC_M_CAS_COUNT_SCH1.RD were not counted");
    }

    #[test]
    fn nothing_divided_by_nothing_is_missing() {
        let counts =
            r#"{"seconds": 1, "counts": {"UNC_I_MISC1.LOST_FWD": 0, "unc_i_transactions.wr_pref": 0}}"#;
        let evaluated = memory_controllers(counts);
        let why = "division by 0: UNC_I_TRANSACTIONS.WR_PREF".to_owned();
        assert_eq!(of(&evaluated, "io.cpu_conflicts"), Value::Missing(why));
        assert_eq!(evaluated.unknown, [""; 0], "names are taken in any case");
    }

    /// Returns counts of Ice Lake, with `count(part)` read and written by each part.
    fn parts(table: &IoTable, count: impl Fn(u32) -> f64) -> Vec<f64> {
        let part = |event: &String| crate::table::io::part_of(event).map_or(f64::NAN, &count);
        table.model.operands.iter().map(part).collect()
    }

    #[test]
    fn a_part_is_computed_from_its_own_events() {
        let table = load("icelakex").unwrap();
        let counts = parts(&table, |part| if part == 5 { f64::NAN } else { f64::from(part) * 250_000.0 });
        let third = values(&table, &counts, 1.0, Of::Part(3));
        let value = |name: &str| third.iter().find(|metric| metric.name == name).unwrap().value.clone();
        assert_eq!(value("pcie.inbound_read_bw"), Value::exact(3.0));
        assert!(third.iter().all(|metric| metric.scope == "part"), "a stack's metric is none of a part");
        let fifth = values(&table, &counts, 1.0, Of::Part(5));
        let why = "UNC_IIO_DATA_REQ_OF_CPU.MEM_READ.PART5 was not counted".to_owned();
        assert_eq!(fifth[0].value, Value::Missing(why));
    }

    #[test]
    fn requests_of_cpus_stand_in_where_completions_are_not_counted() {
        let utilization = |model: &str, read: &str| {
            let table = load(model).unwrap();
            let traffic =
                [("OF_CPU.MEM_READ", 0), ("OF_CPU.MEM_WRITE", 0), ("BY_CPU.MEM_WRITE", 0), (read, 250_000)];
            let mut counts = Vec::new();
            for (name, count) in traffic {
                let count = |part| format!(r#""UNC_IIO_DATA_REQ_{name}.PART{part}": {count}"#);
                counts.extend((0..table.parts).map(count));
            }
            let link = r#"{"speed": "16.0 GT/s PCIe", "width": 16}"#;
            let json = format!(r#"{{"seconds": 1, "link": {link}, "counts": {{{}}}}}"#, counts.join(", "));
            of(&evaluate(&table, &counted(&json)).unwrap(), "link.utilization.from_device")
        };
        assert_eq!(utilization("icelakex", "OF_CPU.CMPD"), Value::exact(0.025));
        assert_eq!(utilization("sierraforest", "BY_CPU.MEM_READ"), Value::exact(0.025));
        assert!(utilization("icelakex", "BY_CPU.MEM_READ").known().is_none());
    }

    #[test]
    fn what_a_platform_cannot_measure_says_why() {
        let json = r#"{"seconds": 2, "link": {"speed": "8.0 GT/s PCIe", "width": 8}, "counts": {"umc_cas_cmd.rd": 1e9}}"#;
        let evaluated = evaluate(&load("zen5").unwrap(), &counted(json)).unwrap();
        let why = Value::Missing("no public event counts what CPUs write to devices".to_owned());
        assert_eq!(of(&evaluated, "pcie.outbound_write_bw"), why);
        assert_eq!(of(&evaluated, "dram.read_bw"), Value::exact(32.0));
        assert!(of(&evaluated, "link.max_bw").known().is_some());
    }

    #[test]
    fn a_file_that_cannot_be_is_refused() {
        let error = |json: &str| evaluate(&load("icelakex").unwrap(), &counted(json)).unwrap_err();
        assert_eq!(error(r#"{"seconds": 0, "counts": {}}"#), IoCountsError::Seconds(0.0));
        assert_eq!(error(r#"{"seconds": -1, "counts": {}}"#), IoCountsError::Seconds(-1.0));
        let negative = error(r#"{"seconds": 1, "counts": {"UNC_I_FAF_INSERTS": -5}}"#);
        assert_eq!(negative.to_string(), "`UNC_I_FAF_INSERTS` cannot be -5: a count is 0 or more");
        let speed = error(r#"{"seconds": 1, "counts": {}, "link": {"speed": "fast", "width": 1}}"#);
        assert_eq!(speed.to_string(), "link: `fast` is not a link speed, as `16.0 GT/s PCIe` is one");
    }

    /// Returns the value of a metric by name, or none if it does not apply to `of`.
    fn answer(table: &IoTable, counts: &[f64], seconds: f64, of: Of, name: &str) -> Option<Value> {
        let evaluated = values(table, counts, seconds, of);
        evaluated.into_iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }

    fn operand(table: &IoTable, name: &str) -> u32 {
        table.model.operands.iter().position(|known| known == name).unwrap() as u32
    }

    #[test]
    fn every_question_is_answered_from_its_own_counts() {
        let table = load("icelakex").unwrap();
        let mut counts = vec![f64::NAN; table.model.operands.len()];
        let read = "pcie.inbound_read_bw";
        let of = |counts: &[f64], of: Of| answer(&table, counts, 2.0, of, read).unwrap();
        assert!(of(&counts, Of::Part(1)).known().is_none(), "nothing was counted yet");
        counts[operand(&table, "UNC_IIO_DATA_REQ_OF_CPU.MEM_READ.PART1") as usize] = 500_000.0;
        assert_eq!(of(&counts, Of::Part(1)), Value::exact(1.0));
        let Value::Missing(why) = of(&counts, Of::All) else { panic!("other parts were not counted") };
        assert!(why.contains("and 4 more"), "{why}");
        assert_eq!(answer(&table, &counts, 2.0, Of::Part(1), "vtd.iotlb_miss"), None);
    }

    #[test]
    fn the_latency_of_two_stacks_is_not_half_of_one() {
        let table = load("icelakex").unwrap();
        let stack = [
            ("UNC_IIO_CLOCKTICKS", 1e9),
            ("UNC_IIO_COMP_BUF_OCCUPANCY.CMPD.ALL_PARTS", 4e8),
            ("UNC_IIO_COMP_BUF_INSERTS.CMPD.ALL_PARTS", 1e6),
        ];
        let latency = |stacks: u32| {
            let mut counts = vec![f64::NAN; table.model.operands.len()];
            for (name, count) in stack {
                let operand = operand(&table, name);
                let share = if table.is_averaged(operand) { stacks } else { 1 };
                counts[operand as usize] = count * f64::from(stacks) / f64::from(share);
            }
            answer(&table, &counts, 1.0, Of::All, "pcie.inbound_read_latency").unwrap()
        };
        assert_eq!((latency(1), latency(2)), (Value::exact(400.0), Value::exact(400.0)));
    }
}
