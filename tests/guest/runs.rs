//! Command that runs once for each group of counters, on the simulated core PMU.

use std::{fs, process::Output};

use serde_json::Value;

use crate::{
    simulated::Simulated,
    support::{Rows, Scratch, assert_close, pmbpf, text},
    topdown::{WAITING, rates},
    workloads::workload,
};

/// Two levels, and metrics that need two further groups: `Divider` is in one, `L2_Bound` in the other.
const METRICS: &str = "L2_Bound,Store_Bound,DTLB_Load,Divider,ICache_Misses";

/// Loads PMUs in which half of the slots wait for memory, 30 % of the clocks for the second cache, a quarter
/// for the divider.
fn waiting() -> Simulated {
    let simulated = Simulated::load(&[]);
    simulated.write("rates", &rates(&WAITING, 500_000_000, ""));
    // MEMORY_ACTIVITY.STALLS_L1D_MISS, _L2_MISS, ARITH.DIV_ACTIVE.
    simulated.write("rates", "cpu 347 ffff 500000000\ncpu 547 ffff 200000000\ncpu 9b0 ffff 250000000");
    simulated
}

/// Runs a shell's `command` once per group.
fn runs_of(command: &str) -> Output {
    let mut pmbpf = pmbpf();
    pmbpf.args(["run", "--json", "-o", "-", "--runs", "--no-sampling", "--cpu-model", "sapphirerapids"]);
    pmbpf.args(["--metrics", METRICS, "--", "sh", "-c", command]).output().unwrap()
}

fn metric<'a>(rows: &'a Rows, name: &str) -> &'a Value {
    let is = |row: &&Value| row["metric"] == name && row["owner"]["kind"] == "target";
    rows.of_kind("metric").find(is).unwrap_or_else(|| panic!("no {name}"))
}

fn assert_exact(rows: &Rows, name: &str, expected: f64) {
    let row = metric(rows, name);
    let value = row["value"].as_f64().unwrap_or_else(|| panic!("{row}"));
    assert_close(name, value, expected, 0.0, 0.5);
    assert_eq!((row["how"].as_str(), row["coverage"].as_f64()), (Some("counted"), Some(1.0)), "{row}");
}

#[test]
fn runs_of_a_command_measure_a_group_each_and_scale_nothing() {
    let _simulated = waiting();
    let (spin, ran) = (workload("spin", &["-g"]), Scratch::new("ran"));
    let output = runs_of(&format!("echo >>{}; {spin} 1", ran.as_str()));
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    let rows = Rows::parse(&output.stdout);
    for (name, share) in
        [("Backend_Bound", 70.0), ("Memory_Bound", 50.0), ("L2_Bound", 30.0), ("Divider", 25.0)]
    {
        assert_exact(&rows, name, share);
    }
    let bottleneck = rows.of_kind("bottleneck").next().unwrap();
    assert_eq!(bottleneck["path"], serde_json::json!(["Backend_Bound", "Memory_Bound", "L2_Bound"]));
    assert_eq!(bottleneck["mismeasured"], serde_json::json!([]));
    let runs = rows.of_kind("runs").next().unwrap();
    assert_eq!((&runs["planned"], &runs["ended"]), (&2.into(), &2.into()), "{runs}");
    assert_eq!(fs::read_to_string(&ran.0).unwrap().lines().count(), 2);
    let spread = |what: &str| runs["spread"].as_array().unwrap().iter().find(|one| one["what"] == what);
    let time = spread("cpu time").unwrap();
    assert!(
        time["least"].as_f64() > Some(0.9e9) && time["most"].as_f64() >= time["least"].as_f64(),
        "{time}"
    );
    assert!(spread("INST_RETIRED.ANY").is_some(), "{runs}");
}

#[test]
fn the_runs_end_with_one_that_fails_and_those_before_it_are_reported() {
    let _simulated = waiting();
    let (spin, ran) = (workload("spin", &["-g"]), Scratch::new("ran"));
    let file = ran.as_str();
    let output = runs_of(&format!("echo >>{file}; {spin} 0.5; [ $(wc -l <{file}) -lt 2 ] || exit 7"));
    assert_eq!(output.status.code(), Some(7));
    let errors = text(&output.stderr);
    assert!(errors.contains("run 2 of 2 exited with 7: the report is of the run before it"), "{errors}");
    let rows = Rows::parse(&output.stdout);
    assert_exact(&rows, "Divider", 25.0);
    let row = metric(&rows, "L2_Bound");
    assert_eq!(row["value"], Value::Null, "{row}");
    assert_eq!(row["reason"], "run 2, which counts its events, did not end well");
    assert_eq!(rows.of_kind("runs").next().unwrap()["ended"], 1);
}
