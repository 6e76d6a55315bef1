//! Several sampling events on a simulated core PMU: the counts that their samples represent, against the
//! programmed rates.

use std::os::unix::fs::MetadataExt as _;

use serde_json::Value;

use crate::{
    simulated::Simulated,
    support::{Cgroup, Rows, Running, assert_close, output, text},
    workloads::workload,
};

/// Runs a command with these options of pmbpf.
fn rows(arguments: &[&str]) -> Rows {
    let output = output(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    Rows::parse(&output.stderr)
}

/// Returns the estimated count of an owner by event, corrected for samples lost to the emulator's late
/// interrupts. The summary reports their number.
fn count(rows: &Rows, event: &str, is: impl Fn(&Value) -> bool) -> f64 {
    let row = rows.event(event, is).expect("a row");
    let quality = rows.summary()["quality"]["events"].as_array().unwrap();
    let quality = quality.iter().find(|quality| quality["event"] == event).expect("its quality");
    let (seen, expected) = (quality["seen"].as_f64().unwrap(), quality["expected"].as_f64().unwrap());
    assert!(seen > 0.0 && seen <= expected * 1.1 + 4.0, "{quality}");
    row["value"].as_f64().unwrap() * (expected / seen).max(1.0)
}

fn is_target(owner: &Value) -> bool {
    owner["kind"] == "target"
}

#[test]
fn samples_of_several_periods_stand_for_the_programmed_counts() {
    let simulated = Simulated::load(&[]);
    simulated.write("rates", "cpu 3c ffff 1000000000\ncpu c0 ffff 2000000000\ncpu c5 ffff 10000000");
    let spin = workload("spin", &["-g"]);
    // A sample each 10, 20 and 15 ms.
    let events = "cycles/period=10000000/,instructions/period=40000000/,branch-misses/period=150000/";
    let rows = rows(&["-e", events, "--", &spin, "4"]);
    let seconds = rows.total("cpu_time") / 1e9;
    for (event, rate) in [("cycles", 1e9), ("instructions", 2e9), ("branch-misses", 1e7)] {
        assert_close(event, count(&rows, event, is_target), rate * seconds, 0.15, 0.0);
    }
    let hottest = rows.of_kind("hot").next().expect("something is hot");
    assert_eq!(hottest["frame"]["function"], "hot_leaf", "{hottest}");
    let ratio = |name: &str| {
        let ratio = &hottest["ratios"][name];
        let part = |part: &str| ratio[part].as_f64().unwrap_or_else(|| panic!("{name}: {hottest}"));
        (part("low"), part("high"))
    };
    // The interval covers chance. Late interrupts add to it.
    for (name, truth) in [("ipc", 2.0), ("branch-misses per 1,000 instructions", 5.0)] {
        let (low, high) = ratio(name);
        assert!(low * 0.85 < truth && truth < high * 1.15, "{name}: {low} {high}");
    }
}

#[test]
fn events_that_share_counters_are_right_by_their_weight() {
    let simulated = Simulated::load(&["gp=2", "fixed=0"]);
    let codes = [0x10_u64, 0x11, 0x12, 0x13];
    let lines: Vec<_> =
        codes.iter().map(|code| format!("cpu {code:x} ffff {}", code * 100_000_000)).collect();
    simulated.write("rates", &lines.join("\n"));
    let spin = workload("spin", &["-g"]);
    // A sample each 10 ms while the event counts.
    let name = |code: u64| format!("cpu/event={code:#x},period={}/", code * 1_000_000);
    let events: Vec<_> = codes.iter().map(|&code| name(code)).collect();
    let rows = rows(&["-e", &events.join(","), "--", &spin, "6"]);
    let seconds = rows.total("cpu_time") / 1e9;
    for code in codes {
        let event = name(code);
        let quality = rows.summary()["quality"]["events"].as_array().unwrap();
        let running =
            quality.iter().find(|one| one["event"] == event.as_str()).unwrap()["running"].as_f64().unwrap();
        assert!((0.3..0.7).contains(&running), "two counters for four events: {running}");
        assert_close(&event, count(&rows, &event, is_target), code as f64 * 1e8 * seconds, 0.25, 0.0);
    }
}

#[test]
fn owners_with_rates_of_their_own_have_counts_of_their_own() {
    let simulated = Simulated::load(&[]);
    simulated.write("rates", "cpu 3c ffff 1000000000");
    let groups = [Cgroup::new("slow"), Cgroup::new("fast")];
    for (group, rate) in groups.iter().zip([1_000_000_000_u64, 3_000_000_000]) {
        let folder = format!("/sys/fs/cgroup{}", group.path);
        let id = std::fs::metadata(folder).unwrap().ino();
        simulated.write("rates", &format!("cpu c0 ffff {rate} cgroup={id}"));
    }
    // Seldom enough that hardly any interrupt of the emulator is a period late: every 20 ms, and every 45 and
    // 15 ms.
    let events = "cycles/period=20000000/,instructions/period=45000000/";
    let running = Running::start(&["--cgroup", &groups[0].path, "--cgroup", &groups[1].path, "-e", events]);
    let spin = workload("spin", &["-g"]);
    let mut started: Vec<_> = groups.iter().map(|group| group.spawn(&format!("{spin} 6"))).collect();
    started.iter_mut().for_each(|one| drop(one.wait()));
    let rows = running.stop();
    for (group, rate) in groups.iter().zip([1.0, 3.0]) {
        assert_close("instructions per cycle", rows.of_cgroup("ratio.ipc", &group.path), rate, 0.3, 0.0);
    }
}

#[test]
fn a_configuration_samples_what_is_there_and_says_what_is_lost() {
    let simulated = Simulated::load(&[]);
    simulated.write("rates", "cpu 3c ffff 1000000000\ncpu c0 ffff 1500000000");
    let spin = workload("spin", &["-g"]);
    let rows = rows(&["--config", "assess", "--", &spin, "2"]);
    let header = rows.of_kind("header").next().unwrap();
    let lost = header["config"]["lost"].as_array().unwrap();
    assert!(lost.iter().any(|lost| lost["row"] == "misaligned" && lost["why"].is_string()), "{header}");
    let named = rows.of_kind("metric").filter(|row| is_target(&row["owner"]) && row["samples"].is_u64());
    let named: Vec<_> = named.collect();
    assert_eq!(named.len() + lost.len(), 7, "every row is there or lost: {header}");
}
