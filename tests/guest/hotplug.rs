//! CPUs that go offline and come back while they are sampled.

use std::{fs, thread::sleep, time::Duration};

use crate::{
    support::{Rows, Running},
    workloads::workload,
};

fn online(text: &str) {
    fs::write("/sys/devices/system/cpu/cpu1/online", text).unwrap();
}

fn paranoid(level: &str) {
    fs::write("/proc/sys/kernel/perf_event_paranoid", level).unwrap();
}

/// Runs everything by process. CPU 1 is offline for `away` and then runs a pinned program.
fn run(away: Duration, arguments: &[&str]) -> Rows {
    // At Debian's level only CAP_SYS_ADMIN opens events, and pmbpf drops it once counting has begun.
    paranoid("2");
    let running = Running::start(&[&["--by", "process"][..], arguments].concat());
    online("0");
    sleep(away);
    online("1");
    // Drains come every second.
    sleep(Duration::from_millis(2500));
    let spin = workload("spin", &["-g"]);
    let spinner = std::process::Command::new("taskset").args(["-c", "1", &spin, "3"]).status().unwrap();
    assert!(spinner.success());
    running.stop()
}

/// Returns whether the owner is `spin`. File names in guests include their options.
fn is_spin(owner: &serde_json::Value) -> bool {
    owner["name"].as_str().is_some_and(|name| name.starts_with("spin"))
}

#[track_caller]
fn assert_sampled_again(rows: &Rows, away: Duration) {
    let (samples, cpu_time_ns) = (rows.sum("samples", is_spin), rows.sum("cpu_time", is_spin));
    // 199 a second. An emulator's CPU stands still now and then.
    assert!(samples > cpu_time_ns / 1e9 * 199.0 * 0.5, "{samples} samples in {cpu_time_ns} ns");
    assert_eq!(rows.summary()["losses"]["cpu_offline"], 1, "{}", rows.summary());
    let uncovered = rows.summary()["quality"]["uncovered"].as_array().unwrap();
    let [row] = &uncovered[..] else { panic!("one CPU was away: {uncovered:?}") };
    assert_eq!(row["cpu"], 1);
    let uncovered_ns = row["ns"].as_f64().unwrap();
    let away_ns = away.as_nanos() as f64;
    assert!(uncovered_ns > away_ns * 0.5 && uncovered_ns < away_ns + 4e9, "{uncovered_ns} ns");
}

#[test]
fn a_cpu_that_is_away_for_less_than_a_tick_is_sampled_again() {
    let away = Duration::from_millis(50);
    assert_sampled_again(&run(away, &["-F", "199"]), away);
}

#[test]
fn a_cpu_that_is_away_for_longer_is_sampled_again() {
    let away = Duration::from_millis(2500);
    assert_sampled_again(&run(away, &["-F", "199"]), away);
}

/// Tests that the plan includes a CPU that was offline when counting began.
#[test]
fn a_cpu_that_comes_later_counts_and_is_sampled() {
    paranoid("2");
    online("0");
    let running = Running::start(&["--by", "process", "-F", "199"]);
    sleep(Duration::from_millis(1500));
    online("1");
    sleep(Duration::from_millis(2500));
    let spin = workload("spin", &["-g"]);
    let before = std::time::Instant::now();
    let spinner = std::process::Command::new("taskset").args(["-c", "1", &spin, "3"]).status().unwrap();
    assert!(spinner.success());
    let longest_ns = before.elapsed().as_nanos() as f64;
    let rows = running.stop();
    let (samples, cpu_time_ns) = (rows.sum("samples", is_spin), rows.sum("cpu_time", is_spin));
    assert!(cpu_time_ns > 3e9 && cpu_time_ns < longest_ns, "{cpu_time_ns} of {longest_ns} ns");
    assert!(samples > cpu_time_ns / 1e9 * 199.0 * 0.5, "{samples} samples in {cpu_time_ns} ns");
    let summary = rows.summary();
    assert_eq!(summary["losses"]["cpu_uncounted"], serde_json::Value::Null, "{summary}");
    let [row] = &summary["quality"]["uncovered"].as_array().unwrap()[..] else { panic!("{summary}") };
    assert_eq!(row["cpu"], 1);
    // The CPU came a second and a half after counting began, and was found at the next drain.
    assert!((1e9..5e9).contains(&row["ns"].as_f64().unwrap()), "{row}");
}

/// Tests that the separate function through which the kernel calls a tracepoint's programs is not reported as
/// a caller.
#[test]
fn samples_of_a_tracepoint_are_of_their_callers_on_a_cpu_that_comes_later() {
    paranoid("2");
    online("0");
    let running = Running::start(&["--by", "process", "-e", "sched:sched_switch/period=1/"]);
    sleep(Duration::from_millis(1500));
    online("1");
    sleep(Duration::from_millis(2500));
    let forks = workload("forks", &[]);
    assert!(
        std::process::Command::new("taskset").args(["-c", "1", &forks, "100"]).status().unwrap().success()
    );
    let rows = running.stop();
    let is_of_forks = |row: &&serde_json::Value| {
        row["owner"]["name"].as_str().is_some_and(|name| name.starts_with("forks"))
    };
    let (all, of_caller) = rows.of_kind("hot").filter(is_of_forks).fold((0, 0), |(all, of_caller), row| {
        let samples = row["samples"].as_u64().unwrap();
        (all + samples, of_caller + if row["frame"]["function"] == "__schedule" { samples } else { 0 })
    });
    assert!(all > 100 && of_caller == all, "{of_caller} of {all}: {:?}", rows.of_kind("hot").next());
}

#[test]
fn groups_of_events_are_sampled_again() {
    let away = Duration::from_millis(50);
    let events = "{context-switches/period=1/,page-faults/period=1/},cpu-clock/period=5000000/";
    let rows = run(away, &["-e", events]);
    let uncovered = rows.summary()["quality"]["uncovered"].as_array().unwrap();
    assert_eq!(uncovered.len(), 1, "{uncovered:?}");
    let is_event = |row: &&serde_json::Value| row["samples"].is_u64() && is_spin(&row["owner"]);
    let events: Vec<_> = rows.of_kind("metric").filter(is_event).collect();
    // The clock samples it on CPU 1 only, because it runs nowhere else.
    let clock = events.iter().find(|row| row["metric"].as_str().unwrap().starts_with("event.cpu-clock"));
    assert!(clock.is_some_and(|row| row["samples"].as_u64() > Some(200)), "{events:?}");
    // So do most of the switches of its start and end, and the kernel's count continues from where it was.
    let quality = rows.summary()["quality"]["events"].as_array().unwrap();
    assert!(quality.iter().all(|event| event["seen"].as_u64() <= event["expected"].as_u64()), "{quality:?}");
}

#[test]
fn events_that_may_not_be_opened_again_are_told() {
    paranoid("3");
    let running = Running::start(&["--by", "process", "-F", "199"]);
    online("0");
    online("1");
    sleep(Duration::from_millis(2500));
    let rows = running.stop();
    let summary = rows.summary();
    let is_sampled = summary["losses"]["cpu_uncounted"].is_null();
    // Only Debian's kernels know the level, and refuse events without CAP_SYS_ADMIN.
    let uncovered_ns = summary["quality"]["uncovered"][0]["ns"].as_f64().unwrap();
    assert!(is_sampled || uncovered_ns > 2e9, "{summary}");
    assert_eq!(summary["losses"]["cpu_offline"], 1, "{summary}");
}

#[test]
fn nothing_is_uncovered_where_every_cpu_stays() {
    let spin = workload("spin", &["-g"]);
    let running = Running::start(&["--by", "process", "-F", "199"]);
    assert!(std::process::Command::new(&spin).arg("4").status().unwrap().success());
    let rows = running.stop();
    assert_eq!(rows.summary()["quality"]["uncovered"], serde_json::json!([]));
    assert_eq!(rows.summary()["losses"]["cpu_offline"], serde_json::Value::Null);
}
