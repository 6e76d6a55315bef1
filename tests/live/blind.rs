//! Blind time: masked sections made without any privilege are found, with where interrupts came back on.

use serde_json::Value;

use crate::support::{Rows, output, text, workload};

/// Gaps of one generator, with the longest call it timed itself, in ns.
fn gaps(generator: &str, n: &str) -> (Rows, f64) {
    let masked = workload("masked", &[]);
    let output = output(&["-F", "1999", "--gap-min", "300us", "--", &masked, generator, n, "30", "1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let longest = text(&output.stdout).lines().map(|line| line.parse::<f64>().unwrap()).fold(0.0, f64::max);
    (Rows::parse(&output.stderr), longest)
}

fn of_class<'a>(rows: &'a Rows, class: &'a str) -> Vec<&'a Value> {
    rows.of_kind("gap").filter(|gap| gap["class"] == class && gap["comm"] == "masked").collect()
}

fn leads_to(gap: &Value, function: &str) -> bool {
    gap["stack"].as_array().unwrap().iter().any(|frame| frame.as_str().unwrap().contains(function))
}

/// Gaps that the generator made: as long as its own calls say, and from where it made them.
fn assert_found(generator: &str, n: &str, functions: &[&str]) {
    let (rows, longest_ns) = gaps(generator, n);
    let masked = of_class(&rows, "masked");
    let made: Vec<&&Value> =
        masked.iter().filter(|gap| functions.iter().any(|name| leads_to(gap, name))).collect();
    assert!(
        made.len() >= 5,
        "{} of {} masked gaps lead to {functions:?}: {masked:?}",
        made.len(),
        masked.len()
    );
    for gap in made {
        let late_ns = gap["late_ns"].as_f64().unwrap();
        assert!(late_ns <= longest_ns * 1.5 + 1e6, "{late_ns} of {longest_ns}");
        assert_eq!(gap["owner"]["name"], "masked");
    }
}

#[test]
fn many_waiters_on_one_eventfd_are_found() {
    assert_found("epoll", "10000", &["eventfd_write", "eventfd_read"]);
}

#[test]
fn a_flush_of_queued_signals_is_found() {
    assert_found("signals", "20000", &["do_sigaction"]);
}

#[test]
fn a_storm_of_timers_is_found_as_a_long_interrupt() {
    let (rows, longest_ns) = gaps("timers", "10000");
    let found = rows.of_kind("gap").filter(|gap| gap["class"] == "interrupt" && gap["cpu"] == 1);
    let longest_late = found.filter_map(|gap| gap["late_ns"].as_f64()).fold(0.0, f64::max);
    assert!(
        longest_late > longest_ns * 0.3 && longest_late < longest_ns * 1.5 + 1e6,
        "{longest_late} of {longest_ns}"
    );
}

#[test]
fn blind_time_is_estimated_with_an_interval_that_holds_it() {
    let masked = workload("masked", &[]);
    let output = output(&["--", &masked, "epoll", "10000", "200", "1"]);
    // Each repeat masks once in the write, which it times, and about as long in the read.
    let truth_ns: f64 = text(&output.stdout).lines().map(|line| 2.0 * line.parse::<f64>().unwrap()).sum();
    let rows = Rows::parse(&output.stderr);
    let row = rows
        .of_kind("metric")
        .find(|row| row["metric"] == "blind_time" && row["owner"]["name"] == "masked")
        .expect("the generator has a row");
    let bound = |name: &str| row[name].as_f64().unwrap();
    assert_eq!(row["how"], "sampled");
    assert!(bound("value") > 0.0, "{row}");
    // Three intervals wide: the truth itself is known to a few per cent only, and spans below 50 us do not show.
    let (low, high) = (
        bound("value") - 2.0 * (bound("value") - bound("low")),
        bound("value") + 2.0 * (bound("high") - bound("value")),
    );
    assert!(low <= truth_ns && truth_ns <= high, "{truth_ns} not in {low}..{high}: {row}");
}

#[test]
fn nothing_masked_is_not_zero_but_at_most_so_much() {
    let spin = workload("spin", &["-g"]);
    let rows = Rows::parse(&output(&["--", &spin, "1"]).stderr);
    let row = rows
        .of_kind("metric")
        .find(|row| row["metric"] == "blind_time" && row["owner"]["kind"] == "target")
        .expect("a row for the target");
    assert!(row["high"].as_f64() > Some(0.0), "{row}");
    assert!(row["coverage"].as_f64() > Some(0.0), "{row}");
}
