//! `pmbpf stat` and `list` on this kernel: against `perf stat` on the same commands, and as a command line.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
};

use pmbpf::{machine::Machine, metric::estimate::student_quantile};
use serde_json::Value;

use crate::{
    support::{Cgroup, Rows, Scratch, assert_close, in_guest, pmbpf, signal, text},
    workloads::workload,
};

/// Script that forks exactly 200 times and touches memory the same way each time.
const FORKS: &str = "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done";
/// Script that waits 200 times for a process that waits for the clock.
const SLEEPS: &str = "i=0; while [ $i -lt 200 ]; do sleep 0.002; i=$((i+1)); done";

/// Runs `pmbpf stat --json` with results on stdout, and returns exit code, rows and messages.
pub(crate) fn counted(arguments: &[&str]) -> (Option<i32>, Rows, String) {
    let output = pmbpf().args(["stat", "--json", "-o", "-"]).args(arguments).output().unwrap();
    (output.status.code(), Rows::parse(&output.stdout), text(&output.stderr))
}

/// Returns the rows of a run that succeeds.
#[track_caller]
pub(crate) fn count(arguments: &[&str]) -> Rows {
    let (code, rows, said) = counted(arguments);
    assert_eq!(code, Some(0), "{said}");
    rows
}

#[track_caller]
pub(crate) fn event<'a>(rows: &'a Rows, name: &str) -> &'a Value {
    rows.event(name, |_| true).unwrap_or_else(|| panic!("no {name} in {:?}", rows.0))
}

/// Returns a count, added up over intervals.
#[track_caller]
pub(crate) fn value(rows: &Rows, name: &str) -> f64 {
    event(rows, name);
    rows.sum(&format!("event.{name}"), |_| true)
}

/// Returns the value derived from an event's count.
#[track_caller]
fn derived<'a>(rows: &'a Rows, event: &str) -> &'a Value {
    let parent = format!("event.{event}");
    rows.of_kind("metric").find(|row| row["parent"] == parent.as_str()).expect("a row")
}

/// Returns the value column of `perf stat`.
fn perf_stat(events: &str, script: &str) -> Vec<f64> {
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ";", "-e", events, "--", "sh", "-c", script]).env("LC_ALL", "C");
    let output = perf.output().expect("the live ring needs perf");
    let lines = text(&output.stderr);
    assert!(output.status.success(), "{lines}");
    lines.lines().filter_map(|line| line.split(';').next()?.parse().ok()).collect()
}

#[test]
fn a_command_counts_what_perf_stat_counts() {
    let counts = Scratch::new("perf-stat");
    let ours = count(&["-e", "page-faults,minor-faults", "--", "sh", "-c", FORKS]);
    let perfs = perf_stat("page-faults,minor-faults", FORKS);
    assert_close("page faults", value(&ours, "page-faults"), perfs[0], 0.02, 0.0);
    assert_close("minor faults", value(&ours, "minor-faults"), perfs[1], 0.02, 0.0);
    // The number of preemptions depends on other load, so all methods count one run. Our count includes the
    // switches of perf's own process, which are few on an idle host and many on a busy one. The kernel has
    // the sum.
    let (usage, all) = (workload("usage", &[]), Scratch::new("usage"));
    let perf = ["perf", "stat", "-x", ";", "-e", "context-switches", "-o", counts.as_str(), "--"];
    let command = [&[usage.as_str(), all.as_str()], &perf[..], &["sh", "-c", SLEEPS]].concat();
    let ours = count(&[&["-e", "context-switches", "--"], &command[..]].concat());
    let perfs = fs::read_to_string(&counts.0).unwrap();
    let perfs: f64 = perfs.lines().find_map(|line| line.split(';').next()?.parse().ok()).expect("a count");
    assert!(perfs >= 400.0, "each round waits twice: {perfs}");
    let (ours, all) = (value(&ours, "context-switches"), fs::read_to_string(&all.0).unwrap());
    let all: f64 = all.trim().parse().unwrap();
    assert!(perfs <= ours, "switches: {ours} of all is less than {perfs} of some");
    // The last switch of each of 202 processes comes after its events have been closed, and so may some
    // before it.
    assert!(
        (all - 240.0..=all - 202.0).contains(&ours),
        "switches: {ours} is not {all}, less the last of each process"
    );
}

#[test]
fn the_usual_events_hold_a_clock_that_agrees_with_the_command_s_cpu_time() {
    let spin = workload("spin", &["-g"]);
    let row = count(&["--", &spin, "0.5"]);
    let clock_ns = value(&row, "task-clock");
    // The process's own count includes its wait to become `spin`. Ours does not.
    assert!((0.2e9..0.55e9).contains(&clock_ns), "{clock_ns}");
    let usage_ns = row.total("user_time") + row.total("system_time");
    // The event's clock goes on while a hypervisor has the CPU. The scheduler's does not.
    let slack = if in_guest() { 100e6 } else { 20e6 };
    let is_near = usage_ns < clock_ns * 1.05 + slack && usage_ns > clock_ns / 1.5 - slack;
    assert!(is_near, "user and system time: {usage_ns} is not {clock_ns}");
    let used = derived(&row, "task-clock");
    assert_eq!(used["metric"], "cpus_utilized");
    let expected = clock_ns / row.total("elapsed");
    assert_close("CPUs utilized", used["value"].as_f64().unwrap(), expected, 1e-9, 0.0);
}

#[test]
fn several_runs_give_their_mean_and_its_interval() {
    let row = count(&["-r", "5", "-e", "page-faults,task-clock", "--", "true"]);
    assert_eq!(row.summary()["runs"], 5);
    for name in ["page-faults", "task-clock"] {
        let event = event(&row, name);
        let runs: Vec<f64> =
            event["of_runs"].as_array().unwrap().iter().map(|run| run.as_f64().unwrap()).collect();
        let mean = runs.iter().sum::<f64>() / 5.0;
        assert_eq!(runs.len(), 5);
        assert_close(name, event["value"].as_f64().unwrap(), mean, 1e-9, 0.0);
        let squares: f64 = runs.iter().map(|run| (run - mean).powi(2)).sum();
        let half = student_quantile(4.0) * (squares / 4.0 / 5.0).sqrt();
        assert_close(name, event["high"].as_f64().unwrap(), mean + half, 1e-9, 0.0);
    }
    let printed = pmbpf().args(["stat", "-r", "5", "--", "true"]).output().unwrap();
    let printed = text(&printed.stderr);
    assert!(printed.contains("mean of 5 runs") && printed.contains('±'), "{printed}");
}

/// Returns the report of a recording in a format, and its messages.
fn reported(recording: &Scratch, format: &[&str]) -> (String, String) {
    let output = pmbpf().arg("report").arg(&recording.0).args(format).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_recording_gives_the_report_of_the_run() {
    let events = ["-e", "{page-faults,context-switches}", "-e", "task-clock:u", "-e", "cycles"];
    let ways: [(&[&str], &[&str]); 3] = [
        (&[], &["--", "sh", "-c", FORKS]),
        (&["-r", "3"], &["--", "true"]),
        (&["-I", "50ms", "-d", "220ms"], &["--cgroup", "/"]),
    ];
    for (how, whom) in ways {
        for format in [&[][..], &["--json"], &["--csv"]] {
            let recording = Scratch::new("counts");
            let mut pmbpf = pmbpf();
            pmbpf.args(["stat", "-o", recording.as_str()]).args(events).args(how).args(format).args(whom);
            let live = pmbpf.output().unwrap();
            assert!(live.status.success(), "{}", text(&live.stderr));
            // With a command, results went to stderr, between messages.
            let printed = text(&live.stdout) + &text(&live.stderr);
            let (report, _) = reported(&recording, format);
            assert!(!report.is_empty() && printed.contains(&report), "{printed}\nreport:\n{report}");
        }
    }
}

#[test]
fn a_run_that_fails_ends_the_runs_with_its_code() {
    let (marks, recording) = (Scratch::new("runs"), Scratch::new("counts-of-runs"));
    let script = format!("echo x >>{0}; test $(wc -l <{0}) -lt 3 || exit 9", marks.as_str());
    let mut pmbpf = pmbpf();
    pmbpf.args(["stat", "--json", "-r", "8", "-o", recording.as_str(), "--", "sh", "-c", &script]);
    let output = pmbpf.output().unwrap();
    assert_eq!(output.status.code(), Some(9));
    let (report, said) = reported(&recording, &["--json"]);
    let rows = Rows::parse(report.as_bytes());
    for said in [text(&output.stderr), said] {
        assert!(said.contains("run 3 of 8 exited with 9"), "{said}");
    }
    assert_eq!(fs::read_to_string(&marks.0).unwrap().lines().count(), 3, "it went on");
    assert_eq!(rows.summary()["runs"], 2, "the failed run is not in the mean");
}

#[test]
fn a_count_passes_the_command_s_exit_code_on() {
    let code = |words: &[&str]| counted(&[&["--"][..], words].concat()).0;
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -SEGV $$"]), Some(128 + 11));
    assert_eq!(code(&["/no/such/program"]), Some(127));
    assert_eq!(code(&["/etc/passwd"]), Some(126));
}

#[test]
fn a_count_leaves_standard_output_to_the_command() {
    let output = pmbpf().args(["stat", "--json", "--", "echo", "mine"]).output().unwrap();
    assert_eq!(text(&output.stdout), "mine\n");
    assert_eq!(Rows::parse(&output.stderr).of_kind("summary").count(), 1);
}

#[test]
fn ctrl_c_ends_a_count_and_prints_it() {
    let mut pmbpf = pmbpf();
    pmbpf.args(["stat", "--json", "-I", "50ms", "-e", "cpu-clock,context-switches"]);
    let mut child = pmbpf.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    let is_count = |line: &str| line.contains("event.context-switches");
    while !is_count(&first) {
        first.clear();
        printed.read_line(&mut first).unwrap();
    }
    signal(child.id(), "INT");
    let mut rest = String::new();
    printed.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let rows = Rows::parse(format!("{first}{rest}").as_bytes());
    assert_eq!(rows.summary()["stopped"], "SIGINT");
    let clocks = rows.of_kind("metric").filter(|row| row["metric"] == "event.cpu-clock");
    let ends = clocks.map(|row| row["t"].as_u64().unwrap() + row["dt"].as_u64().unwrap());
    let duration = rows.summary()["duration_ns"].as_u64().unwrap();
    // Intervals are reported to the end, each in whole nanoseconds.
    assert!(ends.max().unwrap().abs_diff(duration) < 100, "{:?}", rows.0);
    assert!(value(&rows, "context-switches") > 0.0);
}

#[test]
fn an_event_that_this_host_lacks_has_a_row_with_the_reason() {
    let Some(why) = Machine::read(std::path::Path::new("/")).unwrap().no_core_pmu() else { return };
    let row = count(&["-e", "{cycles,instructions},page-faults", "--", "true"]);
    for name in ["cycles", "instructions"] {
        let event = event(&row, name);
        assert!(event["value"].is_null() && event["status"] == "unsupported", "{event}");
        assert!(event["reason"].as_str().unwrap().contains(&why), "{event}");
    }
    assert!(value(&row, "page-faults") > 0.0);
    let (code, _, said) = counted(&["--fail-on", "unsupported", "-e", "cycles", "-d", "10ms"]);
    assert_eq!(code, Some(3), "{said}");
    let usual = count(&["--", "true"]);
    assert!(usual.summary()["missing"][0]["why"].as_str().unwrap().contains(&why), "{}", usual.summary());
}

#[test]
fn a_cgroup_counts_its_own_and_one_in_which_nothing_runs_is_missing() {
    let (busy, idle) = (Cgroup::new("stat-busy"), Cgroup::new("stat-idle"));
    let spin = workload("spin", &["-g"]);
    let _busy = busy.spawn(&format!("{spin} 60"));
    let names = ["--cgroup", &busy.path, "--cgroup", &idle.path, "-d", "500ms"];
    let row = count(&names);
    let of = |cgroup: &Cgroup| row.event("cpu-clock", |owner| owner["path"] == cgroup.path.as_str()).unwrap();
    assert!(of(&busy)["value"].as_f64().unwrap() > 50e6, "{}", of(&busy));
    assert!(of(&idle)["value"].is_null() && of(&idle)["status"] == "missing", "{}", of(&idle));
}

/// Returns the exit code of `pmbpf list`, and its rows.
fn listed(arguments: &[&str]) -> (Option<i32>, Rows) {
    let output = pmbpf().args(["list", "--json"]).args(arguments).output().unwrap();
    (output.status.code(), Rows::parse(&output.stdout))
}

#[test]
fn every_event_is_listed_as_countable_or_with_the_reason() {
    let (code, rows) = listed(&["events"]);
    assert_eq!(code, Some(0));
    let find = |name: &str| rows.of_kind("listed_event").find(|row| row["name"] == name).unwrap();
    assert_eq!(find("page-faults")["status"], "ok");
    let lacks_pmu = Machine::read(std::path::Path::new("/")).unwrap().no_core_pmu();
    assert_eq!(find("cycles")["status"] == "ok", lacks_pmu.is_none());
    for row in rows.of_kind("listed_event") {
        assert_eq!(row["status"] == "unsupported", row["reason"].is_string(), "{row}");
    }
    assert!(lacks_pmu.is_none() || rows.of_kind("note").any(|row| row["text"] == lacks_pmu.clone().unwrap()));
}

#[test]
fn software_events_that_are_listed_as_countable_can_be_counted() {
    let (_, rows) = listed(&["events", "software"]);
    let countable = rows.of_kind("listed_event").filter(|row| row["status"] == "ok");
    let names: Vec<&str> = countable.filter_map(|row| row["notation"].as_str()).collect();
    assert!(names.len() > 5, "{names:?}");
    let row = count(&["-e", &names.join(","), "--", "true"]);
    assert!(row.of_kind("metric").all(|row| row["status"] != "unsupported"), "{:?}", row.0);
}

#[test]
fn a_cgroup_is_listed_with_its_tasks() {
    let group = Cgroup::new("listed");
    let _sleeping = group.spawn("sleep 60");
    let (code, rows) = listed(&["cgroups", &group.path]);
    let row = rows.of_kind("listed_cgroup").next().unwrap();
    assert_eq!((code, &row["path"], &row["tasks"]), (Some(0), &Value::from(group.path.clone()), &1.into()));
}

#[test]
fn a_pattern_that_nothing_matches_is_told_and_exits_with_1() {
    let output = pmbpf().args(["list", "events", "page-fualts"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("nothing matches `page-fualts`; did you mean page-faults?"), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_system_s_count_covers_every_cpu() {
    let row = count(&["-e", "cpu-clock", "-d", "300ms"]);
    let cpus = Machine::read(std::path::Path::new("/")).unwrap().cpu.online.len() as f64;
    let used = derived(&row, "cpu-clock")["value"].as_f64().unwrap();
    assert_close("CPUs", used, cpus, if in_guest() { 0.2 } else { 0.02 }, 0.0);
}
