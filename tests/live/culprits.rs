//! Who had the CPU while a task waited for it.

use serde_json::Value;

use crate::{
    support::{Cgroup, Rows, Running, assert_close},
    workloads::workload,
};

/// What an owner's waits are charged with, by whoever `is` the culprit, in ns.
fn charged<'a>(rows: &'a Rows, path: &'a str, is: impl Fn(&Value) -> bool) -> f64 {
    let rows = rows.of_kind("culprit").filter(|row| row["owner"]["path"] == path && is(&row["culprit"]));
    rows.map(|row| row["wait_ns"].as_f64().unwrap()).sum()
}

/// Sum of the run-queue latencies that the rows of an owner are of, in ns.
fn waited(rows: &Rows, path: &str) -> f64 {
    let mut rows = rows.of_kind("culprit").filter(|row| row["owner"]["path"] == path);
    rows.next().unwrap_or_else(|| panic!("nothing of {path}"))["of_ns"].as_f64().unwrap()
}

/// Tasks of three cgroups on one CPU, of which one needs half the time of the others: every wait is for the others' turns, however the
/// kernel shares the CPU out.
#[test]
fn waits_are_charged_to_whoever_had_the_cpu_and_add_up() {
    let spin = workload("spin", &["-g"]);
    let groups = [("victim", 0.5), ("other", 0.25), ("hog", 0.5)].map(|(name, s)| (Cgroup::new(name), s));
    let running = Running::start(&["--all-cgroups"]);
    let mut started = groups.each_ref().map(|(group, s)| group.spawn(&format!("taskset -c 1 {spin} {s}")));
    started.iter_mut().for_each(|one| drop(one.wait()));
    let (rows, replayed) = running.stop_and_replay();
    for rows in [&rows, &replayed] {
        for (Cgroup { path, .. }, _) in &groups {
            let [all, unknown] =
                [charged(rows, path, |_| true), charged(rows, path, |by| by["kind"] == "unknown")];
            assert_eq!(all, waited(rows, path), "{path}");
            assert!(unknown < 0.001 * all, "{unknown} of {all} is nobody's");
        }
        let of =
            |culprit: &Cgroup| charged(rows, &groups[0].0.path, |by| by["path"] == culprit.path.as_str());
        let [itself, other, hog] = groups.each_ref().map(|(group, _)| of(group));
        assert_eq!(itself, 0.0, "the only task of a cgroup does not wait for it");
        // The victim is done no sooner than they are, and waits while they run.
        assert_close("the other's time", other, 0.25e9, 0.15, 30e6);
        assert_close("the hog's time", hog, 0.5e9, 0.15, 30e6);
        let all = waited(rows, &groups[0].0.path);
        assert!(hog + other > 0.8 * all, "{hog} and {other} of {all}");
    }
}

#[test]
fn tasks_that_were_not_asked_for_are_outside() {
    let spin = workload("spin", &["-g"]);
    let (victim, noisy) = (Cgroup::new("asked"), Cgroup::new("unasked"));
    let running = Running::start(&["--cgroup", victim.path.as_str()]);
    let mut started = [&victim, &noisy].map(|group| group.spawn(&format!("taskset -c 1 {spin} 0.3")));
    started.iter_mut().for_each(|one| drop(one.wait()));
    let rows = running.stop();
    let outside = charged(&rows, &victim.path, |by| by["kind"] == "outside");
    let all = waited(&rows, &victim.path);
    assert!(outside > 0.9 * all, "{outside} of {all}");
    assert_eq!(charged(&rows, &victim.path, |by| by["path"] == noisy.path.as_str()), 0.0);
}
