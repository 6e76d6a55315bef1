//! `pmbpf run --io`: task counts and I/O on one clock, in one recording and one report.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Loop, can_run, fio_command, is_root};
use crate::support::{Cgroup, Rows, Running, Scratch, assert_close, pmbpf, skipped, text, tick_ns};

/// Bytes that a job reads or writes.
const BYTES: f64 = (48 << 20) as f64;

/// Returns a cgroup's number that does not belong to a single device.
fn of_owner<'a>(rows: &'a Rows, metric: &str, path: &str) -> &'a Value {
    let is = |row: &&Value| {
        let of = &row["subject"]["kind"];
        row["metric"] == metric && row["owner"]["path"] == path && (of.is_null() || of == "platform")
    };
    let found: Vec<_> = rows.of_kind("metric").chain(rows.of_kind("histogram")).filter(is).collect();
    assert_eq!(found.len(), 1, "{metric} of {path}: one row of an owner: {found:?}");
    found[0]
}

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{row}"))
}

#[test]
fn a_cgroup_s_row_holds_its_cpu_time_and_what_it_moved() {
    if !can_run() {
        return;
    }
    let devices = ["reads", "writes"].map(|name| Loop::new(name, 64 << 20));
    let groups = ["reads", "writes"].map(Cgroup::new);
    let before = devices.each_ref().map(Loop::kernel_counts);
    let running = Running::start(&["--io", "--cgroup", &groups[0].path, "--cgroup", &groups[1].path]);
    let jobs = groups.iter().zip(&devices).zip(["read", "write"]).map(|((group, device), operation)| {
        let options =
            format!("--rw=rand{operation} --bs=64k --iodepth=4 --io_size=48m --size=64m --rate=24m");
        let work = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        group.spawn(&format!("sh -c '( {work} ) & {}; wait'", fio_command(device.path(), &options)))
    });
    jobs.collect::<Vec<_>>().iter_mut().for_each(|job| drop(job.wait()));
    let (rows, recorded) = running.stop_and_replay(&[]);
    for (index, (group, name)) in groups.iter().zip(["read", "write"]).enumerate() {
        let cpu_time = number(of_owner(&rows, "cpu_time", &group.path), "value");
        assert_close("cpu.stat", cpu_time, group.settled_usage_ns(), 0.01, 2.0 * tick_ns());
        let moved = of_owner(&rows, &format!("block.{name}_bw"), &group.path);
        let moved = number(moved, "value") * 1e6 * number(moved, "dt") / 1e9;
        let truth = devices[index].kernel_counts()[index].1 - before[index][index].1;
        assert_close(name, moved, truth, 0.01, 0.0);
        assert_close(name, moved, BYTES, 0.01, 0.0);
        let waits = number(of_owner(&rows, "runqueue_latency", &group.path), "count");
        let requests = number(of_owner(&rows, &format!("block.{name}_latency"), &group.path), "count");
        assert!(waits > 0.0 && requests > 0.0, "{waits} waits, {requests} requests");
    }
    for kind in ["header", "summary"] {
        let all: Vec<_> = rows.of_kind(kind).collect();
        assert_eq!(all.len(), 1, "one {kind}");
    }
    let header = rows.of_kind("header").next().unwrap();
    assert!(header["attach"].is_string() && header["uncore"].is_array(), "{header}");
    assert_eq!(recorded.0, rows.0, "the recording says what the run said");
}

#[test]
fn a_command_is_measured_by_both_sources_from_its_first_instruction() {
    if !can_run() {
        return;
    }
    let device = Loop::new("command", 8 << 20);
    let dd =
        ["dd", &format!("if={}", device.path()), "of=/dev/null", "bs=64k", "iflag=direct", "status=none"];
    let run = ["run", "--io", "--json", "-o", "-", "--quiet", "--"];
    let output = pmbpf().args(run).args(dd).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stdout);
    let row = |metric: &str| {
        let is = |row: &&Value| row["metric"] == metric && row["owner"]["name"] == "dd";
        rows.of_kind("metric").find(is).unwrap_or_else(|| panic!("no {metric} of dd"))
    };
    let moved = row("block.read_bw");
    assert_eq!(moved["owner"], row("cpu_time")["owner"], "one owner, whichever source");
    let bytes = number(moved, "value") * 1e6 * number(moved, "dt") / 1e9;
    assert_close("dd", bytes, f64::from(8 << 20), 0.01, 0.0);
}

#[test]
fn with_intervals_each_has_both_sources() {
    if !can_run() {
        return;
    }
    let arguments = ["run", "--io", "--json", "--quiet", "-I", "300ms", "-d", "1s", "--all-cgroups"];
    let output = pmbpf().args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stdout);
    let starts = |metric: &str| {
        let of = rows.of_kind("metric").filter(|row| row["metric"] == metric).map(|row| number(row, "t"));
        let mut starts: Vec<f64> = of.collect();
        starts.dedup();
        starts
    };
    let cpu = starts("cpu_time");
    assert!((3..=5).contains(&cpu.len()), "{cpu:?}");
    let told_apart = starts("block.told_apart");
    for start in &told_apart {
        // Both are drained at a tick, one after the other.
        let near = cpu.iter().any(|of_tasks| (of_tasks - start).abs() < 50e6);
        assert!(near, "{start} is no tick of {cpu:?}");
    }
}

#[test]
fn what_does_not_go_together_is_a_usage_error() {
    for (arguments, says) in [
        (&["run", "--io", "-t", "1"][..], "--io cannot be used with --tid"),
        (&["run", "--io", "-C", "0"], "--io cannot be used with --cpu"),
        (&["run", "--device", "lo"], "--device is about I/O: add --io"),
        (&["run", "--group-by", "package"], "--group-by is about I/O: add --io"),
    ] {
        let output = pmbpf().args(arguments).output().unwrap();
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(says), "{arguments:?}: {error}");
    }
}

#[test]
fn both_objects_are_loaded_with_the_kernel_s_types_read_once() {
    if !is_root() {
        return;
    }
    let trace = Scratch::new("trace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "trace=openat", "-o", trace.as_str()]).arg(pmbpf().get_program());
    let output = strace.args(["run", "--io", "-d", "50ms"]).stdin(Stdio::null()).output();
    let Ok(output) = output else {
        skipped("strace is missing");
        return;
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let trace = std::fs::read_to_string(&trace.0).unwrap();
    let opens = trace.lines().filter(|line| line.contains("/sys/kernel/btf/vmlinux\""));
    // aya's loader opens it too, each time one is made.
    let opened: Vec<_> = opens.filter(|line| !line.contains(" = -1 EACCES ")).collect();
    assert_eq!(opened.len(), 1, "{opened:#?}");
}
