//! `pmbpf io` on the command line: its report of a disk and of the owners that use it.

use std::{
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{Loop, Zram, bytes, can_run, fio, fio_command};
use crate::support::{
    Cgroup, Rows, Scratch, Waiting, assert_close, pmbpf, signal, skipped, text, wait_until,
};

/// Bytes that each job reads or writes.
const BYTES: f64 = (32 << 20) as f64;
const OPTIONS: &str = "--bs=64k --iodepth=4 --io_size=32m --size=64m";

/// Starts pmbpf with enough time to start and to measure the workload.
fn start(arguments: &[&str]) -> Child {
    let mut command = pmbpf();
    command.args(["io", "--json", "--quiet", "--duration", "6s"]).args(arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_secs(2));
    child
}

fn rows(child: Child) -> Rows {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Rows::parse(&output.stdout)
}

/// Returns a disk's row.
fn of_disk<'a>(rows: &'a Rows, device: &Loop, operation: &str, metric: &str) -> &'a Value {
    let is = |row: &&Value| {
        let subject = &row["subject"];
        let is_it = subject["name"] == device.name() && subject["operation"] == operation;
        row["metric"] == metric && row["owner"].is_null() && is_it
    };
    rows.of_kind("metric").find(is).unwrap_or_else(|| panic!("no {metric} of {operation}"))
}

/// Returns an owner's row of a disk.
fn of_owner<'a>(
    rows: &'a Rows,
    device: &Loop,
    operation: &str,
    metric: &str,
    is: impl Fn(&Value) -> bool,
) -> &'a Value {
    let wanted = |row: &&Value| {
        let (owner, of) = (&row["owner"], &row["subject"]);
        row["metric"] == metric && of["name"] == device.name() && of["operation"] == operation && is(owner)
    };
    let all = rows.of_kind("metric").chain(rows.of_kind("histogram"));
    all.into_iter().find(wanted).unwrap_or_else(|| panic!("no {metric} of {operation} by an owner"))
}

#[test]
fn a_disk_has_its_bytes_and_each_cgroup_its_own() {
    if !can_run() {
        return;
    }
    let device = Loop::new("command", 64 << 20);
    let groups = [Cgroup::new("reads"), Cgroup::new("writes")];
    let before = device.kernel_counts();
    let running = start(&["--device", device.name()]);
    let mut jobs = [
        groups[0].spawn(&fio_command(&device.path, &format!("--rw=randread {OPTIONS}"))),
        groups[1].spawn(&fio_command(&device.path, &format!("--rw=randwrite {OPTIONS}"))),
    ];
    jobs.iter_mut().for_each(|job| drop(job.wait()));
    let rows = rows(running);
    let after = device.kernel_counts();
    for (index, (group, operation)) in groups.iter().zip(["read", "write"]).enumerate() {
        let truth = after[index].1 - before[index].1;
        assert_close(
            operation,
            bytes(of_disk(&rows, &device, operation, "block.bandwidth")),
            truth,
            // The kernel's counts include requests that no program saw. The length of the interval and the
            // time between two readings differ by moments: no block is missing.
            0.0,
            2048.0,
        );
        let path = |owner: &Value| owner["path"] == group.path.as_str();
        let row = of_owner(&rows, &device, operation, "block.bandwidth", path);
        assert_close(operation, bytes(row), BYTES, 0.01, 0.0);
        assert_eq!(row["label"], "measured", "{row}");
        let latency = of_owner(&rows, &device, operation, "block.latency", path);
        let p99 = &latency["quantiles"]["p99"];
        let bound = |field: &str| p99[field].as_f64().unwrap();
        assert!(bound("low") > 0.0 && bound("high") / bound("low") < 1.0626, "{p99}");
        let told_apart = of_disk(&rows, &device, operation, "block.told_apart")["value"].as_f64().unwrap();
        assert!(told_apart > 90.0, "{told_apart}");
    }
    let others = rows.of_kind("metric").find(|row| row["subject"]["kind"] == "interface");
    assert!(others.is_none(), "one device was asked for: {others:?}");
}

#[test]
fn a_process_has_its_share_and_the_disk_says_how_much_was_told_apart() {
    if !can_run() {
        return;
    }
    let device = Loop::new("share", 64 << 20);
    let waiting = Waiting::new(&fio_command(&device.path, &format!("--rw=randread {OPTIONS}")));
    let running = start(&["--pid", &waiting.pid().to_string()]);
    fio(&device.path, &format!("--rw=randread {OPTIONS}"));
    // The measurement ends with its target.
    waiting.go().wait();
    let rows = rows(running);
    let all = bytes(of_disk(&rows, &device, "read", "block.bandwidth"));
    assert_close("both", all, 2.0 * BYTES, 0.05, 0.0);
    let ours = rows.of_kind("metric").filter(|row| {
        let subject = &row["subject"];
        row["metric"] == "block.bandwidth"
            && row["owner"]["kind"] == "process"
            && subject["name"] == device.name()
            && subject["operation"] == "read"
    });
    assert_close("ours", ours.map(bytes).sum(), BYTES, 0.05, 0.0);
    let told_apart = of_disk(&rows, &device, "read", "block.told_apart")["value"].as_f64().unwrap();
    assert!(told_apart > 90.0, "{told_apart}");
}

#[test]
fn a_command_in_a_pid_namespace_has_its_share() {
    if !can_run() {
        return;
    }
    let device = Loop::new("inside", 64 << 20);
    let fio = fio_command(&device.path, &format!("--rw=randread {OPTIONS}"));
    let script = format!("exec \"$0\" io --json --quiet -o - --force -- {fio} --output=/dev/null");
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--", "sh", "-c", &script]);
    let output = unshare.arg(pmbpf().get_program()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stdout);
    let ours = rows.of_kind("metric").filter(|row| {
        let subject = &row["subject"];
        row["metric"] == "block.bandwidth"
            && row["owner"]["pid"].as_u64().is_some_and(|id| id < 1000)
            && subject["name"] == device.name()
            && subject["operation"] == "read"
    });
    assert_close("ours", ours.map(bytes).sum(), BYTES, 0.05, 0.0);
}

#[test]
fn what_is_not_here_is_missing_with_a_reason_and_never_0() {
    let output = pmbpf().args(["io", "--json", "--quiet", "--duration", "1s"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stdout);
    let header = rows.of_kind("header").next().unwrap();
    let has_instances = header["uncore"].as_array().is_some_and(|instances| !instances.is_empty());
    let missing = rows.summary()["missing"].as_array().unwrap();
    let why = |row: &Value| row["why"].as_str().is_some_and(|why| !why.is_empty());
    assert!(missing.iter().all(why), "{missing:?}");
    assert!(has_instances || !missing.is_empty(), "a host without uncore PMUs lacks something");
    for row in rows.of_kind("metric").filter(|row| row["value"].is_null()) {
        assert!(row["reason"].as_str().is_some_and(|why| !why.is_empty()), "{row}");
    }
}

#[test]
fn a_recording_reports_what_the_run_printed() {
    let recording = Scratch::new("io-recording");
    let record = || {
        let options = ["io", "--json", "--quiet", "-o", recording.as_str(), "--", "sleep", "0.3"];
        pmbpf().args(options).output().unwrap()
    };
    let output = record();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty(), "it is the command's");
    Rows::parse(&output.stderr).summary();
    let report = pmbpf().args(["report", "--json", recording.as_str()]).output().unwrap();
    assert!(report.status.success() && report.stdout == output.stderr);
    let again = record();
    let error = text(&again.stderr);
    assert!(again.status.code() == Some(2) && error.contains("--force replaces it"), "{error}");
}

#[test]
fn results_of_io_leave_standard_output_to_the_command() {
    let output = pmbpf().args(["io", "--json", "--quiet", "--", "echo", "mine"]).output().unwrap();
    assert_eq!(output.stdout, b"mine\n");
    Rows::parse(&output.stderr).summary();
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_names_it() {
    for (device, says) in [("99:1f.7", "0000:99:1f.7"), ("no-such-disk", "no device `no-such-disk`")] {
        let output = pmbpf().args(["io", "--duration", "1s", "--device", device]).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says) && output.stdout.is_empty(), "{error}");
    }
}

/// Measures a process that reads from a disk with requests that no program sees, and returns the disk's name,
/// too. Returns `None` without such a disk.
fn unseen_read() -> Option<(String, Rows)> {
    let disk = Zram::empty()?;
    let script = format!("dd if={} of=/dev/null bs=1M count=8 iflag=direct; exec sleep 60", disk.path());
    // The executed programs are in memory by then: requests for their files would be seen.
    let runs = Command::new("sh").args(["-c", "dd if=/dev/null of=/dev/null; sleep 0"]).status();
    assert!(runs.unwrap().success());
    let waiting = Waiting::new(&format!("sh -c '{script}'"));
    let accounts = format!("/proc/{}/io", waiting.pid());
    let running = start(&["--pid", &waiting.pid().to_string()]);
    // Disks that make no requests are detected when counting begins.
    disk.resize(16 << 20);
    let before = bytes_read(&accounts);
    let _target = waiting.go();
    wait_until("it has read", || bytes_read(&accounts) >= before + (8 << 20));
    signal(running.id(), "INT");
    Some((disk.0.clone(), rows(running)))
}

#[test]
fn a_target_that_read_while_nothing_of_it_was_seen_has_no_numbers() {
    if !can_run() {
        return;
    }
    // Now and then the kernel reads ahead for the executed program with a request, which is seen.
    let is_nothing_seen = |rows: &Rows| rows.of_kind("metric").all(|row| row["owner"].is_null());
    let runs = std::iter::from_fn(unseen_read).take(5);
    let mut runs = runs.skip_while(|(_, rows)| !is_nothing_seen(rows));
    let Some((disk, rows)) = runs.next() else {
        assert!(Zram::empty().is_none(), "something else was read in every run");
        skipped("this kernel has no zram");
        return;
    };
    if rows.of_kind("metric").any(|row| row["subject"]["name"] == disk.as_str()) {
        skipped("another disk makes no requests, so those of this one are seen");
        return;
    }
    let summary = rows.summary();
    assert_eq!(summary["losses"]["target_unseen"], 1, "{summary} {:?}", rows.0);
    let missing = summary["missing"].as_array().unwrap().last().unwrap();
    assert!(missing["what"].as_str().unwrap().starts_with("block requests of pid "), "{missing}");
    assert!(missing["why"].as_str().unwrap().contains("no request of it was seen"), "{missing}");
    let told_apart = rows.of_kind("metric").filter(|row| row["metric"] == "block.told_apart");
    assert!(told_apart.into_iter().all(|row| row["value"].is_null()), "{:?}", rows.0);
}

/// Returns `read_bytes` of a process and of its reaped children.
fn bytes_read(accounts: &str) -> u64 {
    let text = std::fs::read_to_string(accounts).unwrap();
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap().parse().unwrap()
}
