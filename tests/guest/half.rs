//! PMUs as clouds expose them: fewer counters, no fixed ones, no shares of Top-Down, events that count
//! nothing.

use serde_json::Value;

use crate::{
    simulated::Simulated,
    support::{Cgroup, Rows, Running, assert_close, pmbpf, text},
    topdown::{COMPUTING, NAMES, SLOTS, Shares, run_on},
    workloads::workload,
};

/// Returns rates of general counters of a Sapphire Rapids, or a large core of an Alder Lake, with the slots
/// of [`COMPUTING`].
fn rates() -> String {
    rates_of("cpu", &COMPUTING, "")
}

/// Returns the rates of a PMU for tasks of this `owner`.
pub(crate) fn rates_of(pmu: &str, shares: &Shares, owner: &str) -> String {
    let [retiring, bad, front, back, _, mispredicted, fetch, memory] =
        shares.map(|share| SLOTS / 100 * share);
    [
        ("3c", 1_000_000_000),
        ("c0", 3_000_000_000),
        // Slots and their uses. Nothing is dropped between front end and back end.
        ("1a4", SLOTS),
        ("2c2", retiring),
        ("4a4", bad),
        ("19c", front),
        ("600019c", fetch / 6),
        ("2a4", back),
        ("8a4", mispredicted),
        ("10a4", memory),
        ("10ad", 0),
    ]
    .map(|(code, rate)| format!("{pmu} {code} ff00ffff {rate} {owner}"))
    .join("\n")
}

/// Runs pmbpf on a cgroup that spins for some seconds.
fn run(arguments: &[&str], seconds: u32) -> (Cgroup, Rows) {
    let group = Cgroup::new("cloud");
    let rows = run_on(std::slice::from_ref(&group), &[&["--level", "2"], arguments].concat(), seconds);
    (group, rows)
}

fn row<'a>(rows: &'a Rows, group: &Cgroup, name: &str) -> &'a Value {
    let is = |row: &&Value| row["metric"] == name && row["owner"]["path"] == group.path.as_str();
    rows.of_kind("metric").find(is).unwrap_or_else(|| panic!("no {name}"))
}

/// Asserts that the two levels are right, or missing with a reason.
fn assert_levels(rows: &Rows, group: &Cgroup, missing: &[&str], error: f64) {
    for (name, share) in NAMES.iter().zip(COMPUTING) {
        let row = row(rows, group, name);
        if missing.contains(name) {
            assert!(row["value"].is_null() && !row["reason"].as_str().unwrap().is_empty(), "{row}");
        } else {
            assert_close(
                name,
                row["value"].as_f64().unwrap_or_else(|| panic!("{row}")),
                share as f64,
                0.0,
                error,
            );
        }
    }
    let told = rows.of_kind("bottleneck").next().unwrap()["notes"].to_string();
    assert!(missing.iter().all(|name| told.contains(name)), "{told}");
}

#[test]
fn events_on_general_counters_stand_in_for_shares_that_are_hidden() {
    let simulated = Simulated::load(&["topdown=0"]);
    simulated.write("rates", &rates());
    let (group, rows) = run(&[], 4);
    assert_levels(&rows, &group, &["Heavy_Operations"], 0.7);
    assert_eq!(row(&rows, &group, "Info_Thread_IPC")["value"].as_f64().map(f64::round), Some(3.0));
}

#[test]
fn two_counters_and_no_fixed_ones_measure_in_more_turns() {
    let simulated = Simulated::load(&["topdown=0", "gp=2", "fixed=0"]);
    simulated.write("rates", &rates());
    let (group, rows) = run(&[], 12);
    // Combined from turns of two counters each, with constant work.
    assert_levels(&rows, &group, &["Heavy_Operations"], 3.0);
    let output = pmbpf().args(["doctor", "--json"]).output().unwrap();
    let doctor = text(&output.stdout);
    assert!(doctor.contains("2 general counters"), "{doctor}");
}

/// Tests that the sampling event has a separate counter, and that every group gets its planned counters.
#[test]
fn what_samples_and_what_takes_turns_have_counters_of_their_own() {
    let simulated = Simulated::load(&["topdown=0", "gp=4"]);
    simulated.write("rates", &rates());
    let group = Cgroup::new("cloud");
    let arguments = ["--cpu-model", "sapphirerapids", "--level", "2", "--cgroup", &group.path];
    let running = Running::start(&arguments);
    let mut started = group.spawn(&format!("{} 6", workload("spin", &["-g"])));
    drop(started.wait());
    let rows = running.stop();
    assert_levels(&rows, &group, &["Heavy_Operations"], 3.0);
    let event = &rows.summary()["quality"]["events"][0];
    assert!(event["running"].as_f64().unwrap() > 0.99, "{event}");
    let groups = rows.of_kind("header").next().unwrap()["groups"].as_array().unwrap();
    let groups = groups.iter().filter(|group| group["always"] == false).count();
    let slots = row(&rows, &group, "Info_Thread_SLOTS");
    assert!(slots["coverage"].as_f64().unwrap() > 0.7 / groups as f64, "{groups} groups: {slots}");
}

#[test]
fn an_event_that_counts_nothing_is_found_out_and_what_needs_it_is_missing() {
    let simulated = Simulated::load(&[]);
    simulated.write("faults", "cpu c4 ffff dead");
    let (group, rows) = run(&["--metrics", "Info_Inst_Mix_IpBranch"], 2);
    let branches = row(&rows, &group, "Info_Inst_Mix_IpBranch");
    assert!(
        branches["reason"].as_str().unwrap().contains("`branch-instructions` counts nothing"),
        "{branches}"
    );
    assert!(row(&rows, &group, "Retiring")["value"].is_number());
    let output = pmbpf().args(["doctor"]).output().unwrap();
    assert!(text(&output.stdout).contains("no counts of branch-instructions"), "{}", text(&output.stdout));
}

#[test]
fn without_fixed_counters_general_ones_count_the_same() {
    let simulated = Simulated::load(&["fixed=0"]);
    simulated.write("rates", "cpu 3c ffff 1000000000\ncpu c0 ffff 2000000000");
    let (group, rows) = run(&[], 3);
    let found = row(&rows, &group, "Info_Thread_IPC")["value"].as_f64().unwrap();
    assert_close("IPC", found, 2.0, 0.01, 0.0);
}
