//! Findings of staged situations: the right one comes first, and ordinary programs have none.

use std::{
    cmp::Reverse,
    fs,
    path::{Path, PathBuf},
};

use pmbpf::machine::cgroup::Layout;
use serde_json::Value;

use crate::{
    support::{Cgroup, Rows, Running, assert_close, in_guest, output, skipped, text},
    workloads::workload,
};

/// Returns the findings of a run in order.
fn findings(rows: &Rows) -> Vec<&Value> {
    rows.of_kind("finding").collect()
}

/// Returns the findings of one of our workloads.
fn of_command(command: &str, arguments: &[&str]) -> Vec<Value> {
    let program = workload(command, &[]);
    of_program(&[&[program.as_str()], arguments].concat())
}

/// Returns the findings of a command, without the effects of other guests of the host or the host itself.
fn of_program(command: &[&str]) -> Vec<Value> {
    let output = output(&[&["--"], command].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stderr);
    let outside = ["steal", "masked", "masked_span", "samples_missing"];
    findings(&rows)
        .into_iter()
        .filter(|finding| !outside.contains(&finding["finding"].as_str().unwrap()))
        .cloned()
        .collect()
}

fn first(found: &[Value]) -> &Value {
    found.first().unwrap_or_else(|| panic!("nothing was found"))
}

/// Asserts that the number is above the threshold and that the sentence contains these words.
fn assert_says(finding: &Value, what: &str, words: &str) {
    assert_eq!(finding["finding"], what, "{finding}");
    assert_eq!(finding["rank"], 1, "{finding}");
    assert!(finding["low"].as_f64() > finding["threshold"].as_f64(), "{finding}");
    assert!(finding["says"].as_str().unwrap().contains(words), "{finding}");
}

#[test]
fn memory_that_is_mapped_and_touched_over_and_over_is_a_fault_storm() {
    if in_guest() {
        return skipped("an emulated CPU takes too long for a fault to take many");
    }
    assert_says(first(&of_command("storms", &["faults", "1"])), "fault_storm", "page faults per second");
}

#[test]
fn a_task_that_moves_between_cpus_is_a_migration_storm() {
    let found = of_command("storms", &["migrations", "1"]);
    assert_says(first(&found), "migration_storm", "migrations per second");
}

#[test]
fn processes_that_begin_and_end_are_a_fork_storm() {
    if in_guest() {
        return skipped("an emulated CPU takes milliseconds for a process");
    }
    let shell = output(&["-a", "--", "sh", "-c", "for i in $(seq 1500); do /bin/true; done"]);
    let rows = Rows::parse(&shell.stderr);
    let found = findings(&rows);
    let storm = found.iter().find(|finding| finding["finding"] == "fork_storm");
    let storm = storm.unwrap_or_else(|| panic!("{found:?}"));
    assert!(storm["says"].as_str().unwrap().ends_with("of them true"), "{storm}");
}

#[test]
fn what_happens_once_as_a_short_command_starts_and_ends_is_no_storm() {
    for command in [&["--", "true"][..], &["--", "sh", "-c", "/bin/true; /bin/true"], &["-a", "--", "true"]] {
        let rows = Rows::parse(&output(command).stderr);
        let found = findings(&rows);
        let is_of_a_rate = |finding: &&&Value| {
            let what = finding["finding"].as_str().unwrap();
            what == "steal" || what.ends_with("_storm")
        };
        assert_eq!(found.iter().find(is_of_a_rate), None, "{command:?}");
    }
}

#[test]
fn a_cgroup_whose_cpu_others_use_waited_and_they_are_named() {
    let spin = workload("spin", &["-g"]);
    let (victim, noisy) = (Cgroup::new("victim"), Cgroup::new("noisy"));
    let running = Running::start(&["--all-cgroups"]);
    let mut started = vec![victim.spawn(&format!("taskset -c 1 {spin} 0.5"))];
    started.extend((0..3).map(|_| noisy.spawn(&format!("taskset -c 1 {spin} 0.5"))));
    started.iter_mut().for_each(|one| drop(one.wait()));
    let rows = running.stop();
    let found = findings(&rows);
    let of_victim = |finding: &&&Value| {
        finding["finding"] == "cpu_wait" && finding["owner"]["path"] == victim.path.as_str()
    };
    let waited = found.iter().find(of_victim).unwrap_or_else(|| panic!("{found:?}"));
    let beside = waited["evidence"].as_array().unwrap().iter().filter(|number| number.get("owner").is_some());
    let beside: Vec<&Value> = beside.collect();
    assert!(beside.iter().all(|number| number["metric"] == "runqueue_latency.culprit"), "{waited}");
    assert!(beside.is_sorted_by_key(|number| Reverse(number["value"].as_u64())), "{waited}");
    // Tasks in the root, such as a build next to the tests, may have had that CPU for longer.
    let first = beside.iter().find(|number| number["owner"]["path"] != "/");
    let first = first.unwrap_or_else(|| panic!("{waited}"));
    assert_eq!(first["owner"]["path"], noisy.path.as_str(), "{waited}");
    // Two spinners share a CPU by halves until one of them ends. The waiting one waited at least half of the
    // time.
    assert!(waited["value"].as_f64().unwrap() > 40.0, "{waited}");
}

/// Guard that enables limits of CPU time for cgroups below the root while it exists.
pub(crate) struct WithLimits(Option<PathBuf>);

impl WithLimits {
    pub(crate) fn new(group: &Cgroup) -> Self {
        let control = group.folder().parent().unwrap().join("cgroup.subtree_control");
        let is_on = fs::read_to_string(&control).unwrap().split_whitespace().any(|word| word == "cpu");
        if !is_on {
            fs::write(&control, "+cpu").unwrap();
        }
        Self((!is_on).then_some(control))
    }
}

impl Drop for WithLimits {
    fn drop(&mut self) {
        self.0.iter().for_each(|control| drop(fs::write(control, "-cpu")));
    }
}

#[test]
fn a_cgroup_that_uses_up_its_limit_of_cpu_time_was_throttled() {
    if !Layout::read(Path::new("/")).unwrap().limits_cpu_time() {
        return skipped("the v2 hierarchy has no cpu controller here");
    }
    let group = Cgroup::new("limited");
    let _limits = WithLimits::new(&group);
    fs::write(group.folder().join("cpu.max"), "20000 100000").unwrap();
    let running = Running::start(&["--cgroup", &group.path]);
    group.spawn(&format!("{} 0.4", workload("spin", &["-g"]))).wait();
    let stat = fs::read_to_string(group.folder().join("cpu.stat")).unwrap();
    let rows = running.stop();
    let held_us = stat.lines().find_map(|line| line.strip_prefix("throttled_usec ")).unwrap();
    let held_ns = held_us.parse::<f64>().unwrap() * 1e3;
    let found = findings(&rows);
    assert_eq!(found[0]["finding"], "throttled", "{found:?}");
    assert_eq!(found[0]["owner"]["path"], group.path.as_str(), "{found:?}");
    // For CPUs on which it waits when it is read, the kernel adds the time later.
    assert_close("throttled", rows.of_cgroup("throttled_time", &group.path), held_ns, 0.05, 1e8);
    assert!(held_ns > 5e8, "{held_ns}");
}

#[test]
fn the_function_that_a_program_spends_its_time_in_is_hot() {
    let spin = workload("spin", &["-g"]);
    let output = output(&["-F", "999", "--", &spin, "1"]);
    let rows = Rows::parse(&output.stderr);
    let found = findings(&rows);
    let hot = found.iter().find(|finding| finding["finding"] == "hot_function");
    let hot = hot.unwrap_or_else(|| panic!("{found:?}"));
    assert!(hot["says"].as_str().unwrap().contains("hot_leaf"), "{hot}");
}

/// Ordinary programs, which must have no findings.
const ORDINARY: [&[&str]; 9] = [
    &["sleep", "0.5"],
    &["sh", "-c", "for i in 1 2 3; do ls -R /usr/share/doc; sleep 0.1; done"],
    &["sh", "-c", "tar cf - /usr/share/doc 2>/dev/null | wc -c; sleep 0.3"],
    &["sh", "-c", "grep -rc kernel /usr/include/linux | wc -l; sleep 0.3"],
    &["sh", "-c", "seq 30000 | sort -R | sort -n | uniq | wc -l; sleep 0.2"],
    &["sh", "-c", "head -c 1000000 /dev/urandom | gzip -1 | wc -c; sleep 0.3"],
    &["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do /bin/true; sleep 0.05; done"],
    &[
        "sh",
        "-c",
        "dd if=/dev/zero of=/dev/shm/pmbpf-test-ordinary bs=64k count=60 2>/dev/null; rm /dev/shm/pmbpf-test-ordinary; sleep 0.3",
    ],
    &["sh", "-c", "echo | cat | cat | cat | wc; sleep 0.5"],
];

#[test]
fn ordinary_programs_stand_out_nowhere() {
    // `cargo xtask nightly` requests more than one round.
    let rounds: u32 = std::env::var("PMBPF_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    let bursts = [workload("storms", &[]), "bursts".to_owned(), "0.5".to_owned()];
    let bursts: Vec<&str> = bursts.iter().map(String::as_str).collect();
    for round in 0..rounds {
        for program in ORDINARY.iter().copied().chain([bursts.as_slice()]) {
            let found = of_program(program);
            // Neighbours may have the CPU when the program wakes up. Any other finding is wrong.
            let other: Vec<&Value> =
                found.iter().filter(|finding| finding["finding"] != "cpu_wait").collect();
            assert!(other.is_empty(), "round {round}, {program:?}: {other:?}");
        }
    }
}
