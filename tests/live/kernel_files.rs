//! Kernel accounting files: reports agree with them.

use std::{
    fs,
    process::{Child, Command},
};

use serde_json::Value;

use crate::{
    io::{Loop, can_run, fio},
    support::{Cgroup, Running, assert_close, skipped, wait_until},
    workloads::workload,
};

/// Returns a row's share of time, as time in ns.
fn time_ns(row: &Value) -> f64 {
    row["value"].as_f64().unwrap_or_else(|| panic!("{row}")) / 100.0 * row["dt"].as_f64().unwrap()
}

#[test]
fn tasks_of_a_cgroup_stood_still_for_as_long_as_its_cpu_pressure_says() {
    let group = Cgroup::new("pressed");
    let total_us = || {
        let text = fs::read_to_string(group.folder().join("cpu.pressure")).ok()?;
        let line = text.lines().find(|line| line.starts_with("some "))?.to_owned();
        line.split_once("total=")?.1.parse::<f64>().ok()
    };
    if total_us().is_none() {
        return skipped("the kernel accounts no pressure of cgroups here");
    }
    let running = Running::start(&["--cgroup", &group.path]);
    let spin = workload("spin", &["-g"]);
    let mut spinning = [0, 1].map(|_| group.spawn(&format!("taskset -c 1 {spin} 0.4")));
    spinning.iter_mut().for_each(|one| drop(one.wait()));
    let theirs = total_us().unwrap() * 1e3;
    let rows = running.stop();
    // The kernel updates the displayed sum every two seconds, unless tasks switch, so some of the past time
    // comes later.
    let after = total_us().unwrap() * 1e3;
    let row = rows
        .of_kind("metric")
        .find(|row| row["metric"] == "pressure.cpu.some" && row["owner"]["path"] == group.path.as_str());
    assert!(theirs > 3e8, "two share a CPU: {theirs}");
    let ours = time_ns(row.unwrap());
    let (least, most) = (theirs * 0.99 - 1e6, after * 1.01 + 1e6);
    assert!(least <= ours && ours <= most, "{ours}, by the kernel {theirs} to {after}");
    let of_host =
        rows.of_kind("metric").find(|row| row["metric"] == "pressure.io.some" && row["owner"].is_null());
    assert!(of_host.is_some(), "the host has pressure, too");
}

#[test]
fn a_disk_was_in_use_for_as_long_as_the_kernel_counts() {
    if !can_run() {
        return;
    }
    let device = Loop::new("in-use", 32 << 20);
    let nobody = Cgroup::new("nobody");
    let in_use_ms = || {
        let text = fs::read_to_string(format!("/sys/block/{}/stat", device.name())).unwrap();
        let fields: Vec<f64> = text.split_whitespace().map(|field| field.parse().unwrap()).collect();
        [fields[9], fields[10]]
    };
    let running = Running::start(&["--io", "--no-sampling", "--cgroup", &nobody.path]);
    let before = in_use_ms();
    fio(device.path(), "--rw=randread --bs=64k --size=32m --iodepth=16 --time_based --runtime=1");
    let after = in_use_ms();
    let rows = running.stop();
    let row = |metric: &str| {
        let is = |row: &&Value| row["metric"] == metric && row["subject"]["name"] == device.name();
        rows.of_kind("metric").find(is).unwrap_or_else(|| panic!("no {metric}"))
    };
    let busy = row("block.utilization");
    assert_eq!(
        (busy["subject"]["operation"].as_str(), busy["label"].as_str()),
        (Some("all"), Some("system"))
    );
    // Requests by other programs, such as those that probe new disks, come to milliseconds.
    assert_close("busy", time_ns(busy), (after[0] - before[0]) * 1e6, 0.01, 1e8);
    let depth = row("block.queue_depth");
    let queue_ns = depth["value"].as_f64().unwrap() * depth["dt"].as_f64().unwrap();
    assert_close("in the queue", queue_ns, (after[1] - before[1]) * 1e6, 0.02, 2e8);
    assert!(queue_ns > 1e9, "sixteen requests were in flight: {depth}");
}

/// Shell in a separate network namespace with one address of a network. The other addresses do not respond.
struct Network(Child);

impl Network {
    fn new() -> Option<Self> {
        Command::new("ip").arg("-V").output().ok()?;
        let script = "ip link set lo up && ip address add 10.9.0.1/32 dev lo && ip route add 10.9.0.0/24 dev lo && \
                      while :; do { : >/dev/tcp/10.9.0.2/9; } 2>/dev/null; done";
        let child = Command::new("unshare").args(["--net", "bash", "-c", script]).spawn().ok()?;
        let mut network = Self(child);
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let pid = network.0.id().to_string();
        wait_until("the shell is in its own namespace, or is gone", || {
            network.0.try_wait().unwrap().is_some() || namespace(&pid) != namespace("self")
        });
        network.0.try_wait().unwrap().is_none().then_some(network)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_target_in_a_network_of_its_own_has_its_segments_that_were_sent_again() {
    let Some(network) = Network::new() else {
        return skipped("unshare, ip or a network namespace is missing");
    };
    let pid = network.0.id();
    let running = Running::start(&["--io", "--no-sampling", "--pid", &pid.to_string()]);
    let retransmitted = || {
        let text = fs::read_to_string(format!("/proc/{pid}/net/snmp")).unwrap();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, numbers) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split(' ').position(|name| name == "RetransSegs").unwrap();
        numbers.split(' ').nth(at).unwrap().parse::<u64>().unwrap()
    };
    let before = retransmitted();
    // An unanswered connection is retried after a second.
    wait_until("a segment was sent again", || retransmitted() > before);
    let rows = running.stop();
    let of_it = |metric: &str| {
        let is = |row: &&Value| row["metric"] == metric && row["owner"]["pid"] == pid;
        rows.of_kind("metric").find(is).unwrap_or_else(|| panic!("no {metric}")).clone()
    };
    let again = of_it("net.tcp_retransmitted");
    assert!(again["value"].as_f64().unwrap() >= 1.0, "{again}");
    assert!(again["note"].as_str().unwrap().contains("network namespace"), "{again}");
    assert_eq!(of_it("net.drops")["subject"]["name"], "lo");
}
