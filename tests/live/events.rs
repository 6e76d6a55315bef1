//! Several events sampled at once: the counts that their samples represent, against the kernel's own counts.

use std::process::Command;

use serde_json::Value;

use crate::{
    support::{Rows, Started, in_guest, output, pmbpf, skipped, text, ways},
    workloads::workload,
};

/// Returns the row of an event for everything counted.
fn of_target<'a>(rows: &'a Rows, event: &str) -> &'a Value {
    let found = rows.event(event, |owner| owner["kind"] == "target");
    found.unwrap_or_else(|| panic!("no row of {event}"))
}

/// Asserts that the truth is within the interval, or within a share of the estimate.
#[track_caller]
fn assert_counts(row: &Value, truth: f64, share: f64) {
    let count = |name: &str| row[name].as_f64().unwrap();
    let (estimate, low, high) = (count("value"), count("low"), count("high"));
    let close = (estimate - truth).abs() <= truth * share;
    assert!(close || low <= truth && truth <= high, "{truth} is not {estimate} [{low} – {high}]: {row}");
}

#[test]
fn three_events_at_once_count_what_the_task_structs_count() {
    let forks = workload("forks", &[]);
    // The periods are not multiples of a tick. Tasks that take turns with others begin at one, and samples in
    // step with ticks would hit them too often. Nor are they multiples of a child's two or three switches,
    // since samples would always hit the same one.
    let events = "cpu-clock/period=1013000/,page-faults/period=7/,context-switches/period=5/";
    let output = output(&["-e", events, "--", &forks, "300"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stderr);
    let faults = rows.total("minor_faults") + rows.total("major_faults");
    // Each of 300 children touches 64 pages.
    assert!(faults > 300.0 * 64.0, "{faults}");
    assert_counts(of_target(&rows, "page-faults"), faults, 0.05);
    assert_counts(of_target(&rows, "context-switches"), rows.total("context_switches"), 0.1);
    // The emulator's host stops CPUs, so samples of a guest's clock come late or not at all. The coverage
    // shows this.
    if !in_guest() {
        // Some hundred samples: five standard errors, where the interval has two and misses in one run of
        // twenty.
        assert_counts(of_target(&rows, "cpu-clock"), rows.total("cpu_time"), 0.5);
    }
}

#[test]
fn what_a_counter_counted_says_how_many_samples_were_due() {
    let forks = workload("forks", &[]);
    let rows = Rows::parse(&output(&["-e", "page-faults", "-c", "10", "--", &forks, "200"]).stderr);
    let quality = &rows.summary()["quality"]["events"][0];
    let (seen, expected) = (quality["seen"].as_f64().unwrap(), quality["expected"].as_f64().unwrap());
    assert!(expected >= 200.0 * 6.4, "{quality}");
    assert!(seen >= expected * 0.95 && seen <= expected + 4.0, "{quality}");
    assert_eq!(quality["running"], 1.0, "a software event never takes turns: {quality}");
}

#[test]
fn a_targets_samples_are_held_against_its_own_counts() {
    // Other tasks switch too, and this kernel does not deliver all of their samples. That must not count
    // against the target.
    let forks = workload("forks", &[]);
    let _others = Started::new(&format!("exec {forks} 1000000"));
    let rows = Rows::parse(&output(&["-e", "context-switches", "-c", "1", "--", &forks, "300"]).stderr);
    let quality = &rows.summary()["quality"];
    let (target, machine) = (&quality["target"]["samples"][0], &quality["events"][0]);
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap();
    let switches = rows.total("context_switches");
    assert!((number(target, "expected") - switches).abs() < 0.5, "{target} of {switches}");
    assert!((number(target, "seen") - rows.total("samples")).abs() < 0.5, "{target}");
    // A switch that this kernel does not report has no sample either.
    assert!(number(target, "coverage") > 0.95 && number(target, "seen") <= switches + 2.0, "{target}");
    assert!(number(machine, "expected") > 1.1 * switches, "{machine} of {switches}");
    // The others go on to the end, so an excess of samples over switches would come from the time between two
    // readings.
    assert!(number(machine, "seen") <= number(machine, "expected"), "{machine}");
}

#[test]
fn each_event_has_hot_functions_of_its_own() {
    let forks = workload("forks", &[]);
    let events = "cpu-clock/period=1000000/,page-faults/period=5/";
    let rows = Rows::parse(&output(&["-e", events, "--", &forks, "300"]).stderr);
    let of = |row: &Value| row["events"][1]["samples"].as_u64().unwrap();
    let all: u64 = rows.of_kind("hot").map(of).sum();
    // The compiler may inline the function that touches the pages into its only caller.
    let touches = |row: &&Value| ["touch", "main"].iter().any(|name| row["frame"]["function"] == *name);
    let touching: u64 = rows.of_kind("hot").filter(touches).map(of).sum();
    assert!(all > 3000 && touching > all / 2, "{touching} of {all} faults are where pages are touched");
    for row in rows.of_kind("hot") {
        assert_eq!(row["samples"], row["events"][0]["samples"], "{row}");
    }
}

/// Returns whether perf can count tracepoints on this host.
fn perf_counts_tracepoints() -> bool {
    let perf = Command::new("perf").args(["stat", "-x,", "-e", "sched:sched_switch", "--", "true"]).output();
    perf.is_ok_and(|output| output.status.success() && !text(&output.stderr).contains('<'))
}

/// Returns the count of an event in the output of `perf stat -x,`.
fn counted(lines: &str, event: &str) -> f64 {
    let line =
        lines.lines().find(|line| line.contains(event)).unwrap_or_else(|| panic!("no {event}: {lines}"));
    line.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn a_tracepoint_is_sampled_as_often_as_perf_counts_it() {
    if !perf_counts_tracepoints() {
        return skipped("perf counts no tracepoints here");
    }
    // The same hits, in the same run: perf counts them for its command, and pmbpf for the process of that
    // name.
    let sleeps = "for i in $(seq 100); do read -r line < /dev/urandom & sleep 0.001; wait; done";
    for (way, _) in ways() {
        let shell = ["perf", "stat", "-x,", "--log-fd", "1", "-e", "sched:sched_switch", "--"];
        let arguments = ["--attach", way, "--stacks", "-e", "sched:sched_switch", "--"];
        let whole: Vec<&str> = arguments.into_iter().chain(shell).chain(["sh", "-c", sleeps]).collect();
        let output = output(&whole);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let rows = Rows::parse(&output.stderr);
        let mine: f64 = ["sh", "sleep", "seq"].iter().map(|name| rows.of_name("samples", name)).sum();
        let switches: f64 =
            ["sh", "sleep", "seq"].iter().map(|name| rows.of_name("context_switches", name)).sum();
        let perf = counted(&text(&output.stdout), "sched:sched_switch");
        // perf does not see a process's last switch, because its event is closed by then. There are some 300
        // processes.
        let close = |truth: f64, more: f64| mine >= truth * 0.97 - 3.0 && mine <= (truth + more) * 1.03 + 3.0;
        assert!(perf > 300.0 && close(perf, 310.0), "{way}: {mine} samples, perf counts {perf}");
        assert!(close(switches, 0.0), "{way}: {mine} samples of {switches} switches");
        let frames = |row: &Value, name: &str| {
            row["frames"].as_array().unwrap().iter().any(|frame| frame["function"] == name)
        };
        let samples = |row: &Value| row["samples"].as_f64().unwrap();
        let stacks: Vec<&Value> = rows.of_kind("stack").collect();
        let all: f64 = stacks.iter().map(|row| samples(row)).sum();
        let scheduling: f64 =
            stacks.iter().filter(|row| frames(row, "__schedule")).map(|row| samples(row)).sum();
        assert!(all >= mine && scheduling > all * 0.95, "{scheduling} of {all} stacks are the scheduler's");
    }
}

#[test]
fn every_hit_of_a_tracepoint_is_a_count_that_is_exact() {
    let forks = workload("forks", &[]);
    // Events of others before the command starts are not missed hits of the command.
    let _others = Started::new(&format!("exec {forks} 1000000"));
    for (way, _) in ways() {
        let arguments = ["--attach", way, "-e", "sched:sched_process_fork", "--", &forks, "300"];
        let rows = Rows::parse(&output(&arguments).stderr);
        let machine = &rows.summary()["quality"]["events"][0];
        let missing = machine["expected"].as_f64().unwrap() - machine["seen"].as_f64().unwrap();
        assert!(missing.abs() <= 1.0, "{way}: {machine}");
        let hits = rows.event("sched:sched_process_fork", |owner| owner["kind"] == "target").expect("a row");
        let number = |name: &str| hits[name].as_f64().unwrap();
        assert_eq!((number("value"), number("low")), (300.0, 300.0), "{way}: {hits}");
        assert!(number("high") <= 301.0, "{way}: {hits}");
    }
}

#[test]
fn a_sample_of_a_tracepoint_is_of_its_caller() {
    // A program of ours is attached to this tracepoint too, so the kernel calls both through a separate
    // function.
    let event = "sched:sched_switch/period=1/";
    let sleeps = "for i in $(seq 50); do sleep 0.001; done";
    for (way, _) in ways() {
        for unwind in ["fp", "dwarf"] {
            let arguments =
                ["--attach", way, "-e", event, "--stacks", "--unwind", unwind, "--", "sh", "-c", sleeps];
            let rows = Rows::parse(&output(&arguments).stderr);
            let samples = |row: &Value| row["samples"].as_u64().unwrap();
            let is_iterator = |frame: &Value| {
                frame["function"].as_str().is_some_and(|name| name.starts_with("__traceiter"))
            };
            let (all, of_caller) = rows.of_kind("hot").fold((0, 0), |(all, of_caller), row| {
                let is_caller = row["frame"]["function"] == "__schedule";
                (all + samples(row), of_caller + if is_caller { samples(row) } else { 0 })
            });
            assert!(all > 50 && of_caller == all, "{way} {unwind}: {of_caller} of {all}");
            let iterators = rows
                .of_kind("stack")
                .filter(|row| row["frames"].as_array().unwrap().iter().any(is_iterator))
                .count();
            assert!(rows.of_kind("stack").count() > 0 && iterators == 0, "{way} {unwind}: {iterators}");
        }
    }
}

#[test]
fn a_sample_of_a_system_call_is_of_the_code_that_made_it() {
    for (way, _) in ways() {
        for unwind in ["fp", "dwarf"] {
            let options = ["--attach", way, "-e", "syscalls:sys_enter_read", "--stacks", "--unwind", unwind];
            let command = ["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=500", "status=none"];
            let rows = Rows::parse(&output(&[&options[..], &command].concat()).stderr);
            let (all, reads) = rows.of_kind("hot").fold((0, 0), |(all, reads), row| {
                assert_eq!(row["mode"], "user", "{row}");
                let samples = row["samples"].as_u64().unwrap();
                let is_read = row["frame"]["function"].as_str().is_some_and(|name| name.contains("read"));
                (all + samples, reads + if is_read { samples } else { 0 })
            });
            assert!(all > 450 && reads * 10 > all * 9, "{way} {unwind}: {reads} of {all}");
            for row in rows.of_kind("stack") {
                let frames = row["frames"].as_array().unwrap();
                assert!(frames.iter().all(|frame| frame["module"] != "[kernel]"), "{row}");
            }
        }
    }
}

#[test]
fn a_tracepoints_period_takes_every_so_manieth_hit() {
    let rows = Rows::parse(
        &output(&["-e", "sched:sched_process_exit/period=10/", "--", &workload("forks", &[]), "300"]).stderr,
    );
    // The expected events are 300 children and forks itself.
    let samples = rows.total("samples");
    assert!((27.0..=33.0).contains(&samples), "{samples}");
    let quality = &rows.summary()["quality"]["events"][0];
    let (seen, expected) = (quality["seen"].as_f64().unwrap(), quality["expected"].as_f64().unwrap());
    assert!(expected >= 29.0 && (seen - expected).abs() <= 3.0, "{quality}");
}

#[test]
fn sampling_on_a_tracepoint_leaves_those_who_count_it_their_counts() {
    if !perf_counts_tracepoints() {
        return skipped("perf counts no tracepoints here");
    }
    let output = output(&[
        "-e",
        "sched:sched_switch",
        "--",
        "perf",
        "stat",
        "-x,",
        "--log-fd",
        "1",
        "-e",
        "sched:sched_switch,context-switches",
        "--",
        "sh",
        "-c",
        "for i in $(seq 50); do sleep 0.001; done",
    ]);
    let said = text(&output.stdout);
    let (hits, switches) = (counted(&said, "sched:sched_switch"), counted(&said, "context-switches"));
    assert!(hits > 50.0 && (hits - switches).abs() <= switches * 0.05 + 2.0, "{said}");
}

#[test]
fn what_is_no_tracepoint_to_sample_on_is_refused_with_the_reason() {
    let refused = |event: &str| {
        let output = pmbpf().args(["run", "-e", event, "--", "true"]).output().unwrap();
        assert!(!output.status.success(), "{event}");
        text(&output.stderr)
    };
    assert!(refused("sched:sched_switch:u").contains("in kernel mode"));
    assert!(refused("sched:sched_switch:ppp").contains("in kernel mode"));
    assert!(refused("sched:sched_swich").contains("did you mean sched_switch?"));
    assert!(refused("sched:sched_switch/periot=3/").contains("did you mean period?"));
}
