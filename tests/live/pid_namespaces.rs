//! PID namespaces, as in a container: ids are those of the namespace.

use std::{
    io::Read as _,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use crate::{
    containers::task_clock_ns,
    io::{Loop, bytes, can_run, moved},
    support::{Cgroup, Rows, Scratch, Started, assert_close, in_guest, pmbpf, text, tick_ns},
    workloads::workload,
};

/// Runs a shell script as the first process of a PID namespace, with `$PMBPF` and `$SPIN`.
fn inside(options: &[&str], script: &str) -> Output {
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child"]).args(options).args(["--", "sh", "-c", script]);
    unshare.env("PMBPF", pmbpf().get_program()).env("SPIN", workload("spin", &["-g"]));
    unshare.stdin(Stdio::null()).output().unwrap()
}

/// Runs a script with a separate /proc and returns the rows that it prints.
fn rows(script: &str) -> Rows {
    let output = inside(&["--mount-proc"], script);
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    Rows::parse(&output.stdout)
}

fn is_of(id: u64) -> impl Fn(&Value) -> bool {
    move |owner| owner["kind"] == "process" && owner["pid"] == id
}

/// Returns the functions of the samples.
fn names_of(rows: &Rows) -> Vec<&Value> {
    rows.of_kind("hot").map(|row| &row["frame"]["function"]).collect()
}

#[test]
fn a_process_of_a_pid_namespace_is_counted_by_the_id_that_it_has_there() {
    for option in ["-p", "-t"] {
        // The shell has id 1, so this has id 2. Its end ends the run.
        let rows = rows(&format!("$SPIN 2 & $PMBPF run --json --quiet {option} $!"));
        let (total, ours) = (rows.total("cpu_time"), rows.sum("cpu_time", is_of(2)));
        assert!(ours > 0.1e9 && ours < 2.1e9, "{option}: {ours}");
        assert_close(option, ours, total, 0.0, 1.0);
        assert!(names_of(&rows).iter().any(|name| *name == "hot_leaf"), "{option}: {:?}", names_of(&rows));
        assert_eq!(rows.summary()["stopped"], "target_gone");
    }
}

#[test]
fn a_command_in_a_pid_namespace_is_counted_as_outside_of_it() {
    let rows = rows("$PMBPF run --json --quiet -o - -- sh -c '$SPIN 0.4; :'");
    let end_ns = if in_guest() { 100e6 } else { 0.0 };
    assert_close("cpu time", rows.of_name("cpu_time", "sping"), 0.4e9, 0.05, end_ns);
    assert!(rows.summary()["losses"]["target_unseen"].is_null(), "{}", rows.summary());
}

#[test]
fn a_command_in_a_pid_namespace_takes_what_perf_and_cpu_stat_say() {
    let (cgroup, perf) = (Cgroup::new("namespace"), Scratch::new("perf"));
    let procs = cgroup.folder().join("cgroup.procs");
    let command = format!(
        "echo 0 > {}; exec perf stat -x, -o {} -e task-clock -- $SPIN 0.4",
        procs.display(),
        perf.as_str()
    );
    let rows = rows(&format!("$PMBPF run --json --quiet -o - -- sh -c '{command}'"));
    let usage = cgroup.settled_usage_ns();
    assert_close("cpu.stat", rows.total("cpu_time"), usage, 0.02, 20e6 + tick_ns());
    let report = std::fs::read_to_string(&perf.0).unwrap();
    // perf's clock runs on while a hypervisor has the CPU.
    let distance_ns = 30e6 + tick_ns();
    assert_close("perf", rows.of_name("cpu_time", "sping"), task_clock_ns(&report), 0.1, distance_ns);
}

#[test]
fn io_of_a_command_in_a_pid_namespace_is_the_commands() {
    if !can_run() {
        return;
    }
    let device = Loop::new("namespace", 32 << 20);
    let read = format!("dd if={} of=/dev/null bs=64k count=256 iflag=direct", device.path());
    let rows = rows(&format!("$PMBPF io --json --quiet -o - -- {read}"));
    let ours = moved(&rows, &device, |owner| owner["name"] == "dd").next();
    let ours = ours.unwrap_or_else(|| panic!("{:?}", rows.0));
    let owner = &ours["owner"];
    assert!(owner["host_pid"].is_null() && owner["pid"].as_u64().is_some_and(|id| id < 1000), "{owner}");
    assert_close("bytes", bytes(ours), 256.0 * 65536.0, 0.02, 0.0);
}

#[test]
fn the_first_process_of_a_pid_namespace_is_not_the_hosts() {
    let outside = Started::new(&format!("exec {} 60", workload("spin", &["-g"])));
    let rows = rows("$SPIN 60 & $PMBPF run --json --quiet -p 1 -d 1s; kill $!");
    assert!(rows.sum("cpu_time", is_of(2)) > 0.0, "{:?}", rows.0);
    let owners = rows.of_kind("metric").map(|row| &row["owner"]).filter(|owner| owner["kind"] == "process");
    for owner in owners {
        assert!(owner["host_pid"].is_null() && owner["pid"].as_u64().is_some_and(|id| id < 1000), "{owner}");
    }
    drop(outside);
}

#[test]
fn what_runs_outside_of_a_pid_namespace_has_no_id_in_it() {
    let outside = Started::new(&format!("exec {} 60", workload("spin", &["-g"])));
    let rows = rows("$SPIN 60 & $PMBPF run --json --quiet --all -d 1s; kill $!");
    assert!(rows.sum("cpu_time", is_of(2)) > 0.0, "{:?}", rows.0);
    let of_outside = |owner: &Value| owner["host_pid"] == outside.pid();
    assert!(rows.sum("cpu_time", of_outside) > 0.0, "{:?}", rows.0);
    let mut owners = rows.of_kind("metric").map(|row| &row["owner"]);
    assert!(owners.all(|owner| owner["pid"].is_null() || owner["host_pid"].is_null()));
    let others = rows.of_kind("hot").find(|row| of_outside(&row["owner"]) && row["mode"] == "user").unwrap();
    let why = others["reason"].as_str().unwrap();
    assert!(why.contains("outside of this PID namespace"), "{others}");
}

/// Commands of every measurement, with and without a target.
const MEASURES: [&str; 10] = [
    "run -d 1s",
    "run -d 1s -p 1",
    "run -- true",
    "run --runs -- true",
    "stat -d 1s",
    "stat -d 1s -p 1",
    "stat -- true",
    "io -d 1s",
    "io -d 1s -p 1",
    "io -- true",
];

/// Asserts that a command was refused because /proc has another namespace's ids.
fn assert_refused(what: &str, output: &Output) {
    let errors = text(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{what}: {errors}");
    let says_so = errors.contains("/proc is of another PID namespace") && errors.contains("--mount-proc");
    assert!(says_so, "{what}: {errors}");
}

#[test]
fn ids_that_cannot_be_told_are_an_error_that_says_so() {
    for what in MEASURES {
        assert_refused(what, &inside(&[], &format!("exec $PMBPF {what}")));
    }
    let doctor = text(&inside(&[], "exec $PMBPF doctor").stdout);
    let ids = doctor.lines().find(|line| line.starts_with("  missing  process ids ")).unwrap_or_default();
    assert!(ids.ends_with(" there") && ids.contains("  /proc is of another PID namespace"), "{doctor}");
}

#[test]
fn so_are_ids_of_a_namespace_below() {
    let mut below = Command::new("unshare");
    below.args([
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--",
        "sh",
        "-c",
        "echo ready; exec sleep 60",
    ]);
    let mut below = below.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    below.stdout.take().unwrap().read_exact(&mut ready).unwrap();
    // Enters its mounts but not its PID namespace, in which the caller has no id.
    let first = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", below.id())).unwrap();
    for what in MEASURES.into_iter().chain(["doctor"]) {
        let mut enter = Command::new("nsenter");
        enter.args(["--target", first.trim(), "--mount", "--"]).arg(pmbpf().get_program());
        assert_refused(what, &enter.args(what.split(' ')).output().unwrap());
    }
    below.kill().unwrap();
    below.wait().unwrap();
}

#[test]
fn doctor_works_in_a_pid_namespace_and_says_whose_ids_count() {
    let output = inside(&["--mount-proc"], "exec $PMBPF doctor --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let Rows(report) = Rows::parse(&output.stdout);
    let ids = report.iter().find(|check| check["name"] == "process ids").unwrap();
    assert!(ids["found"].as_str().unwrap().contains("ids are those of this namespace"), "{ids}");
}
