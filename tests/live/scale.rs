//! Scale: as many cgroups as large hosts have, and more that come and go, with thousands of short processes a
//! second. Counts add up to the kernel's accounts, and what could not be distinguished is reported.

use std::{collections::BTreeMap, fs};

use serde_json::Value;

use crate::{
    support::{
        Cgroup, Scratch, Started, assert_close, counts, in_guest, pmbpf, signal, skipped, usage_ns,
        wait_until,
    },
    workloads::workload,
};

const STANDING: usize = 10_000;
/// Cgroups made and removed per second.
const MADE: usize = 100;
/// Processes started per second.
const PROCESSES: usize = 5_000;
/// Depth of the deep cgroup, as in tests/workloads/scale.c.
const DEPTH: usize = 60;

/// Returns the CPU time by owner path, and the summary: the compared parts of hundreds of thousands of rows.
fn read(printed: &str) -> (BTreeMap<String, f64>, Value) {
    let mut times = BTreeMap::new();
    let mut summary = Value::Null;
    for line in printed.lines() {
        if line.contains(r#""metric":"cpu_time""#) {
            let row: Value = serde_json::from_str(line).unwrap();
            if let (Some(path), Some(time)) = (row["owner"]["path"].as_str(), row["value"].as_f64()) {
                times.insert(path.to_owned(), time);
            }
        } else if line.contains(r#""kind":"summary""#) {
            summary = serde_json::from_str(line).unwrap();
        }
    }
    (times, summary)
}

#[test]
fn ten_thousand_cgroups_and_thousands_of_processes_a_second_add_up() {
    if in_guest() {
        return skipped("an emulated CPU starts no thousand processes a second");
    }
    // `cargo xtask nightly` requests more than one round, and has a minute.
    let seconds = if std::env::var("PMBPF_ROUNDS").is_ok_and(|rounds| rounds != "1") { "60" } else { "5" };
    let base = Cgroup::new("scale");
    (0..STANDING).for_each(|number| fs::create_dir(base.folder().join(number.to_string())).unwrap());
    let deep = base.below(
        &["deep"].into_iter().chain(std::iter::repeat_n("d", DEPTH - 1)).collect::<Vec<_>>().join("/"),
    );
    let recording = Scratch::new("recording");
    let mut running = Started::new(&format!(
        "exec {} run --json --quiet --no-sampling --cgroup {} -o {}",
        pmbpf().get_program().display(),
        base.path,
        recording.as_str()
    ));
    wait_until("pmbpf counts", || counts(&recording));
    let folder = base.folder().to_str().unwrap();
    let scale = workload("scale", &[]);
    let (standing, made, processes) = (STANDING.to_string(), MADE.to_string(), PROCESSES.to_string());
    let did = base.spawn(&[&scale, folder, &standing, &made, &processes, seconds].join(" ")).wait();
    let accounted = base.settled_usage_ns();
    signal(running.pid(), "INT");
    let (times, summary) = read(&running.wait());
    let losses = &summary["losses"];
    let of = |path: &str| times.get(path).copied().unwrap_or(0.0);
    let all = of(&base.path);
    assert_close(&format!("{did}: all of it, {losses}"), all, accounted, 0.001, 0.0);
    let deep_ns = deep.usage_ns();
    assert_close("the deepest", of(&deep.path), deep_ns, 0.001, 20e3);
    let each = (0..STANDING).map(|number| {
        let path = format!("{}/{number}", base.path);
        (of(&path), usage_ns(&base.folder().join(number.to_string())))
    });
    let wrong: Vec<_> = each.filter(|(ours, kernel)| (ours - kernel).abs() > 1e3 + kernel * 0.001).collect();
    assert!(
        wrong.len() * 1_000 <= STANDING,
        "{} of {STANDING} are others than the kernel's: {:?}, {losses}",
        wrong.len(),
        &wrong[..5.min(wrong.len())]
    );
    let counts: Vec<u64> = did.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(counts[0] > 1_000 && counts[1] > MADE as u64, "{did}");
}
