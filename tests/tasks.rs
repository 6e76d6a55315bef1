//! Metrics of one task or cgroup: formulas for whole cores, adapted to counters that run only with the task.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

use std::collections::BTreeMap;

use pmbpf::{
    machine::topology::Smt,
    metric::{
        offline::{TaskCounts, evaluate, evaluate_task},
        value::Value,
    },
    table::{
        formula::Expr,
        model::{self, CountScope, Model, TaskForms},
        unit::Unit,
    },
};

fn models() -> impl Iterator<Item = Model> {
    model::KNOWN.iter().map(|(name, _)| model::load(name, None).unwrap())
}

fn counted(counts: BTreeMap<String, f64>, threads: f64) -> TaskCounts {
    let constants = [
        ("HYPERTHREADING_ON", threads),
        ("DURATIONTIMEINSECONDS", 2.0),
        ("SYSTEM_TSC_FREQ", 2.5e9),
        ("TSC_TICKS", 5e9),
        ("CPU_COUNT", 64.0),
        ("SOCKET_COUNT", 2.0),
        ("CORES_PER_SOCKET", 16.0),
        ("CHAS_PER_SOCKET", 16.0),
    ];
    let constants = constants.map(|(name, value)| (name.to_owned(), Some(value))).into_iter().collect();
    TaskCounts { constants, counts: counts.into_iter().map(|(name, count)| (name, Some(count))).collect() }
}

fn value(model: &Model, counted: &TaskCounts, name: &str) -> Value {
    let (model, evaluated) = evaluate_task(model.clone(), counted);
    evaluated.metrics[model.metric(name).unwrap() as usize].value.clone()
}

/// Counts of a task on a single-socket Cascade Lake with hyper-threads, which had its core nearly to itself.
/// The counts are those of a public run of `perf stat` (linux-perf-users, 2023-05-01), and its clocks are in
/// the printed ratio.
const CASCADE_LAKE: [(&str, f64); 7] = [
    ("CPU_CLK_UNHALTED.THREAD", 9_553_472_893.0),
    ("CPU_CLK_UNHALTED.REF_XCLK", 9_553_472_893.0),
    ("CPU_CLK_UNHALTED.ONE_THREAD_ACTIVE", 9_556_499_489.0),
    ("UOPS_RETIRED.RETIRE_SLOTS", 22_893_372_651.0),
    ("UOPS_ISSUED.ANY", 24_180_375_299.0),
    ("INT_MISC.RECOVERY_CYCLES", 228_406_003.0),
    ("IDQ_UOPS_NOT_DELIVERED.CORE", 10_735_205_084.0),
];

#[test]
fn a_task_alone_on_its_core_retires_what_perf_says_and_not_twice_that() {
    let counts: BTreeMap<String, f64> = CASCADE_LAKE.map(|(name, count)| (name.to_owned(), count)).into();
    let model = model::load("cascadelakex", None).unwrap();
    let task = counted(counts.clone(), 1.0);
    let percent = |name: &str| value(&model, &task, name).known().unwrap().estimate;
    assert!((percent("Retiring") - 59.9).abs() < 0.05, "{}", percent("Retiring"));
    assert!((percent("Frontend_Bound") - 28.1).abs() < 0.05, "{}", percent("Frontend_Bound"));
    // Recovery is not halved for a task that is alone either. perf halves it, and prints 4.6 and 7.2.
    assert!((percent("Bad_Speculation") - 5.76).abs() < 0.01, "{}", percent("Bad_Speculation"));
    let all = ["Retiring", "Frontend_Bound", "Bad_Speculation", "Backend_Bound"].map(percent);
    assert!((all.iter().sum::<f64>() - 100.0).abs() < 1e-9, "{all:?}");

    // The formula for whole CPUs, applied to a task's counter of the whole core.
    let any = ("CPU_CLK_UNHALTED.THREAD_ANY".to_owned(), counts["CPU_CLK_UNHALTED.THREAD"]);
    let cpus = evaluate(&model, &counted(counts.into_iter().chain([any]).collect(), 1.0));
    let wrong = cpus.metrics[model.metric("Retiring").unwrap() as usize].value.known().unwrap().estimate;
    assert!((wrong - 119.8).abs() < 0.05, "{wrong}");
}

#[test]
fn no_metric_of_a_task_uses_what_counts_for_more_than_a_thread() {
    for model in models() {
        for smt in [Smt::On, Smt::Unknown] {
            let TaskForms { model, shared } = TaskForms::new(model.clone(), smt);
            for (index, metric) in
                model.metrics.iter().enumerate().filter(|(index, _)| shared[*index].is_none())
            {
                for operand in model.operands_of(index as u32) {
                    let operand = &model.operands[operand as usize];
                    let model::Metric { name, .. } = metric;
                    assert_eq!(
                        model.scope(operand),
                        CountScope::Thread,
                        "{}: {name} uses {operand}",
                        model.name
                    );
                    let terms = model.encoding(operand).unwrap().terms;
                    assert!(!terms.contains("any="), "{}: {name} uses {operand}", model.name);
                }
            }
        }
    }
}

#[test]
fn what_is_no_task_s_is_missing_with_the_event_that_makes_it_so() {
    let shared = |name: &str, smt: Smt| {
        let TaskForms { model, shared } = TaskForms::new(model::load(name, None).unwrap(), smt);
        let names = model.metrics.iter().map(|metric| metric.name.clone());
        let is_core = |(name, why): (String, Option<String>)| Some((name, why?));
        let found: Vec<(String, String)> = names.zip(shared).filter_map(is_core).collect();
        found
    };
    let of_cores = |name: &str, smt: Smt| -> Vec<String> {
        let found = shared(name, smt).into_iter().filter(|(_, why)| why.contains("both threads"));
        found.map(|(name, _)| name).collect()
    };
    let licences = [0, 1, 2].map(|level| format!("Info_System_Power_License{level}_Utilization"));
    let expected: Vec<String> = ["SQ_Full".to_owned()].into_iter().chain(licences).collect();
    for name in ["skylakex", "cascadelakex"] {
        let found = of_cores(name, Smt::On);
        assert!(expected.iter().all(|metric| found.contains(metric)), "{found:?}");
        // Bottlenecks that contain SQ_Full.
        let rest: Vec<&String> = found.iter().filter(|metric| !expected.contains(metric)).collect();
        assert!(rest.iter().all(|metric| metric.starts_with("Bottleneck_")), "{rest:?}");
        assert_eq!(of_cores(name, Smt::Off), [""; 0]);
    }
    for name in ["icelakex", "sapphirerapids", "emeraldrapids", "graniterapids"] {
        assert_eq!(of_cores(name, Smt::On), ["Info_Thread_Slots_Utilization"], "{name}");
        assert_eq!(of_cores(name, Smt::Off), [""; 0], "{name}");
    }
    let power = shared("skylakex", Smt::Off);
    let (_, why) = power.iter().find(|(name, _)| name == "Info_System_Power").unwrap();
    assert_eq!(why, "FREERUN_DRAM_ENERGY_STATUS is counted by `power`, for all tasks together");
    let (_, why) = power.iter().find(|(name, _)| name == "memory_bandwidth_total").unwrap();
    assert_eq!(why, "UNC_M_CAS_COUNT.RD is counted by `imc`, for all tasks together");
    for name in ["zen4", "zen5", "neoverse-n1", "neoverse-v1", "neoverse-n2", "neoverse-v2"] {
        assert_eq!(shared(name, Smt::On), [], "{name}");
    }
}

/// Returns the counts of one thread for every operand of a model in either form, `alone` being the share of
/// its time without a sibling. An operand of the core counts the same as its thread's.
fn of_thread(model: &Model, alone: f64) -> BTreeMap<String, f64> {
    let tasks = TaskForms::new(model.clone(), Smt::On).model;
    let operands = model.operands.iter().chain(&tasks.operands);
    let count = |operand: &String| {
        let own = match operand.strip_prefix("UOPS_EXECUTED.CORE_CYCLES_GE_") {
            Some(least) => format!("UOPS_EXECUTED.THREAD:c{least}"),
            None if model.scope(operand) == CountScope::Core => operand.trim_end_matches("_ANY").to_owned(),
            None => operand.clone(),
        };
        // Unequal values, with more cycles than anything else.
        let any = 1e6 + 1e3 * f64::from(crc(&own) % 1000);
        match own.as_str() {
            "CPU_CLK_UNHALTED.THREAD" | "CPU_CLK_UNHALTED.THREAD_P" => 9e6,
            "CPU_CLK_UNHALTED.DISTRIBUTED" => 9e6 * (1.0 + alone) / 2.0,
            "CPU_CLK_UNHALTED.REF_XCLK" => 4e5,
            "CPU_CLK_UNHALTED.ONE_THREAD_ACTIVE" => 4e5 * alone,
            "CPU_CLK_UNHALTED.REF_DISTRIBUTED" => 4e5 * (1.0 + alone) / 2.0,
            _ => any,
        }
    };
    operands.map(|operand| (operand.clone(), count(operand))).collect()
}

fn crc(text: &str) -> u32 {
    text.bytes().fold(17, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
}

/// Returns the joint counts of both CPUs of a core, idle or not. One of them counts `one`, the other the same
/// or nothing itself.
fn of_core(model: &Model, one: &BTreeMap<String, f64>, other_runs: bool) -> BTreeMap<String, f64> {
    let count = |(operand, count): (&String, &f64)| {
        // A latency is a mean.
        let is_count = !operand.ends_with(":retire_latency");
        let twice = is_count && (other_runs || model.scope(operand) == CountScope::Core);
        (operand.clone(), if twice { 2.0 * count } else { *count })
    };
    one.iter().map(count).collect()
}

/// Returns the metrics for which the task form and the core formula differ.
fn differing(
    model: &Model,
    alone: f64,
    holds: impl Fn(&model::Metric) -> bool,
) -> Vec<(String, Value, Value)> {
    let one = of_thread(model, alone);
    let whole = evaluate(model, &counted(of_core(model, &one, alone == 0.0), 1.0));
    let (tasks, evaluated) = evaluate_task(model.clone(), &counted(one, 1.0));
    let shared = TaskForms::new(model.clone(), Smt::On).shared;
    // perfmon's formulas of Meteor, Lunar and Arrow Lake take a latency from all loads of a kind together,
    // not from each. That is a constant in a sum of counts.
    let error = if ["meteorlake/", "lunarlake/", "arrowlake/"].iter().any(|of| model.name.starts_with(of)) {
        1e-6
    } else {
        1e-9
    };
    let same = |a: &Value, b: &Value| match (a.known(), b.known()) {
        (Some(a), Some(b)) => (a.estimate - b.estimate).abs() <= error * a.estimate.abs().max(1.0),
        (a, b) => a.is_none() && b.is_none(),
    };
    let all = tasks.metrics.iter().zip(whole.metrics.iter().zip(evaluated.metrics)).zip(shared);
    let all = all.filter(|((metric, _), shared)| shared.is_none() && holds(metric));
    all.filter(|((_, (core, task)), _)| !same(&core.value, &task.value))
        .map(|((metric, (core, task)), _)| (metric.name.clone(), core.value.clone(), task.value))
        .collect()
}

#[test]
fn a_task_that_is_alone_is_told_what_its_core_is_told() {
    for model in models() {
        assert_eq!(differing(&model, 1.0, |_| true), [], "{}", model.name);
    }
}

#[test]
fn two_tasks_that_do_the_same_are_told_what_their_core_is_told() {
    for model in models() {
        // Sums are half of each task.
        assert_eq!(differing(&model, 0.0, |metric| metric.unit == Unit::Percent), [], "{}", model.name);
    }
}

#[test]
fn what_is_known_about_threads_is_decided_before_anything_is_counted() {
    let conditions = |smt: Smt| {
        let model = TaskForms::new(model::load("skylakex", None).unwrap(), smt).model;
        let mut found = 0;
        let mut see = |part: &Expr| {
            if let Expr::Constant(index) = part {
                found += usize::from(model.constants[*index as usize] == "HYPERTHREADING_ON");
            }
        };
        model.metrics.iter().for_each(|metric| metric.formula.visit(&mut see));
        found
    };
    assert_eq!((conditions(Smt::On), conditions(Smt::Off)), (0, 0));
    assert!(conditions(Smt::Unknown) > 8);
}
