//! Cost budget of counting: optional parts of a run are stopped where it costs more. Earlier intervals keep
//! their numbers, and the rest is measured as before.

use serde_json::Value;

use crate::{
    support::{Cgroup, Rows, Running, run, tick_ns},
    workloads::workload,
};

/// Parts in the order in which they are stopped, until none is left.
const ORDER: [&str; 4] = ["interrupt handlers", "samples", "run-queue latency", "a cost within the budget"];
/// Metric of each of the first three, with the field of its number.
const METRICS: [(&str, &str); 3] =
    [("interrupts.time", "value"), ("samples", "value"), ("runqueue_latency", "count")];

/// Returns the stopped parts of a run, with their reasons.
fn stopped(rows: &Rows) -> Vec<(&str, &str)> {
    let missing = rows.summary()["missing"].as_array().unwrap();
    let told = missing.iter().map(|row| (row["what"].as_str().unwrap(), row["why"].as_str().unwrap()));
    told.filter(|(what, _)| ORDER.contains(what)).collect()
}

/// Returns the target's rows of a metric, by interval where there are several.
fn of_target<'a>(rows: &'a Rows, metric: &str) -> Vec<&'a Value> {
    rows.0.iter().filter(|row| row["owner"]["kind"] == "target" && row["metric"] == metric).collect()
}

/// Returns the number of measured runs of a program.
fn runs(rows: &Rows, program: &str) -> f64 {
    let programs = rows.summary()["self"]["programs"].as_array().unwrap();
    let found = programs.iter().find(|row| row["name"] == program);
    found.map_or(0.0, |row| row["runs"]["value"].as_f64().unwrap())
}

#[test]
fn work_is_stopped_in_order_as_long_as_counting_costs_too_much() {
    let cgroup = Cgroup::new("budget");
    let spins = cgroup.spawn(&format!("{} 600", workload("spin", &["-g"])));
    let options = ["--cgroup", &cgroup.path, "--interrupts", "--measure", "--budget", "0.001%"];
    let running = Running::start(&options);
    let before = cgroup.usage_ns();
    running.wait_for_drain("nothing is left to be stopped", |drain| {
        drain.tasks.as_ref().is_some_and(|tasks| tasks.shed.len() == ORDER.len())
    });
    let least = cgroup.usage_ns() - before;
    let (rows, replayed) = running.stop_and_replay(&["-I", "1s"]);
    let most = cgroup.usage_ns() - before;
    drop(spins);
    for rows in [&rows, &replayed] {
        let stopped = stopped(rows);
        assert_eq!(stopped.iter().map(|(what, _)| *what).collect::<Vec<_>>(), ORDER, "{stopped:?}");
        let is_why = |why: &str| why.contains(" of the CPUs, of a budget of 0.001 %");
        assert!(stopped.iter().all(|(_, why)| is_why(why)), "{stopped:?}");
        for (metric, number) in METRICS {
            let intervals = of_target(rows, metric);
            let (first, last) = (intervals.first().unwrap(), intervals.last().unwrap());
            assert_eq!(first[number].is_number(), intervals.len() > 1, "{metric}: {first}");
            assert!(last[number].is_null() && is_why(last["reason"].as_str().unwrap()), "{metric}: {last}");
        }
        let used = rows.total("cpu_time");
        assert!((least * 0.99 - tick_ns()..most + tick_ns()).contains(&used), "{used} of {least} to {most}");
    }
    // The programs are detached: the tick comes as often as before where a task spins, but is no longer seen.
    let [begins, timers] = ["softirq_begin", "timer"].map(|program| runs(&rows, program));
    assert!(begins > 0.0 && begins < timers / 2.0, "{begins} of {timers}");
}

#[test]
fn a_budget_that_is_kept_stops_nothing() {
    let rows = run(&["--interrupts", "-d", "3s", "--budget", "100%"]);
    assert_eq!(stopped(&rows), []);
    assert!(of_target(&rows, "interrupts.time").iter().all(|row| row["value"].is_number()));
}
