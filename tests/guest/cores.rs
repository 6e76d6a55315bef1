//! Cores of two kinds, and PMUs of CPUs without a table, on simulated PMUs.

use serde_json::Value;

use crate::{
    counts::cgroup_id,
    simulated::Simulated,
    support::{Cgroup, Rows, Running, assert_close},
    topdown::{COMPUTING, NAMES, Shares, WAITING, rates},
    workloads::workload,
};

/// First level of the small cores: retiring, bad speculation, front end, back end, of five slots a cycle.
const SMALL: [[u64; 4]; 2] = [[50, 10, 25, 15], [20, 5, 15, 60]];
/// Cycles a second of either kind.
const CYCLES: u64 = 1_000_000_000;

/// What whoever runs in a cgroup does on small cores: events of a Gracemont.
fn small_rates(shares: [u64; 4], instructions: u64, owner: &str) -> String {
    let slots = 5 * CYCLES;
    let [retiring, _, front, back] = shares.map(|share| slots / 100 * share);
    [("3c", CYCLES), ("c0", instructions), ("71", front), ("74", back), ("c2", retiring), ("72", retiring)]
        .map(|(code, rate)| format!("cpu_atom {code} ffff {rate} {owner}"))
        .join("\n")
}

/// A number of a cgroup on the cores of a PMU.
fn number(rows: &Rows, path: &str, pmu: &str, name: &str) -> f64 {
    let wanted = format!("{pmu}/{name}/");
    let is = |row: &&Value| row["metric"] == wanted.as_str() && row["owner"]["path"] == path;
    let row = rows.of_kind("metric").find(is).unwrap_or_else(|| panic!("no {wanted} of {path}"));
    assert_eq!(row["pmu"], pmu, "{row}");
    row["value"].as_f64().unwrap_or_else(|| panic!("{row}"))
}

fn assert_first_level(rows: &Rows, path: &str, pmu: &str, shares: &[u64]) {
    for (name, share) in NAMES.iter().zip(shares) {
        assert_close(&format!("{path} {pmu} {name}"), number(rows, path, pmu, name), *share as f64, 0.0, 0.7);
    }
}

/// Two cgroups that do different things on each kind of core; one stays on a CPU of either kind, the other wanders.
#[test]
fn cores_of_two_kinds_are_counted_apart_with_plans_of_their_own() {
    let simulated = Simulated::load(&["hybrid=1"]);
    let groups = [Cgroup::new("pinned"), Cgroup::new("wandering")];
    let large: [&Shares; 2] = [&COMPUTING, &WAITING];
    for (at, group) in groups.iter().enumerate() {
        let owner = format!("cgroup={}", cgroup_id(group));
        let of_large = rates(large[at], [3, 1][at] * CYCLES, &owner).replace("cpu ", "cpu_core ");
        simulated.write("rates", &of_large);
        simulated.write("rates", &small_rates(SMALL[at], [2, 1][at] * CYCLES / 2, &owner));
    }
    let paths = groups.each_ref().map(|group| group.path.clone());
    let mut arguments = vec!["--no-sampling", "--cpu-model", "alderlake", "--level", "1"];
    paths.iter().for_each(|path| arguments.extend(["--cgroup", path]));
    let running = Running::start(&arguments);
    let spin = workload("spin", &["-g"]);
    let wander = format!(
        "taskset -c 0 {spin} 6 & p=$!; for at in 1 2; do sleep 1; taskset -pc 1 $p; sleep 1; taskset -pc 0 $p; done >&2; wait"
    );
    let mut started = [
        groups[0].spawn(&format!("taskset -c 0 {spin} 6")),
        groups[0].spawn(&format!("taskset -c 1 {spin} 6")),
        groups[1].spawn(&wander),
    ];
    started.iter_mut().for_each(|one| drop(one.wait()));
    let rows = running.stop();
    for (at, path) in paths.iter().enumerate() {
        let first: Vec<u64> = large[at][..4].to_vec();
        assert_first_level(&rows, path, "cpu_core", &first);
        assert_first_level(&rows, path, "cpu_atom", &SMALL[at]);
        let ipc = |pmu: &str| number(&rows, path, pmu, "Info_Thread_IPC");
        assert_close("IPC of large cores", ipc("cpu_core"), [3.0, 1.0][at], 0.01, 0.0);
        let small = number(&rows, path, "cpu_atom", "Info_Core_IPC");
        assert_close("IPC of small cores", small, [1.0, 0.5][at], 0.01, 0.0);
        // Its time on each kind of core is all of it, and what its counters ran.
        let shares = ["cpu_core", "cpu_atom"].map(|pmu| number(&rows, path, pmu, "time_share"));
        assert_close("time", shares[0] + shares[1], 100.0, 0.0, 0.01);
        assert!(shares.iter().all(|share| *share > 10.0), "{shares:?}");
        let cpu_time = {
            let is = |row: &&Value| row["metric"] == "cpu_time" && row["owner"]["path"] == path.as_str();
            rows.of_kind("metric").find(is).unwrap()["value"].as_f64().unwrap()
        };
        let cycles = number(&rows, path, "cpu_core", "Info_Thread_CLKS");
        assert_close("cycles", cycles, cpu_time * shares[0] / 100.0 * CYCLES as f64 / 1e9, 0.03, 0.0);
    }
    // It was on either kind for as long as it was put there.
    let share = number(&rows, &paths[1], "cpu_atom", "time_share");
    assert!((20.0..60.0).contains(&share), "{share}");
    let bottlenecks: Vec<&Value> = rows
        .of_kind("bottleneck")
        .filter(|row| row["owner"]["path"] == paths[1].as_str())
        .map(|row| &row["pmu"])
        .collect();
    assert_eq!(bottlenecks, ["cpu_core", "cpu_atom"]);
}

/// A CPU that no table is of: what the kernel has names for, and what a table would add.
#[test]
fn a_cpu_without_a_table_has_rates_of_the_events_that_the_kernel_names() {
    let simulated = Simulated::load(&[]);
    let group = Cgroup::new("unknown");
    let lines = [("3c", 2000), ("c0", 3000), ("c4", 500), ("c5", 25), ("4f2e", 60), ("412e", 15)];
    let lines = lines.map(|(code, millions)| format!("cpu {code} ffff {millions}000000"));
    simulated.write("rates", &lines.join("\n"));
    let running = Running::start(&["--no-sampling", "--cgroup", &group.path]);
    let mut started = group.spawn(&format!("{} 3", workload("spin", &["-g"])));
    drop(started.wait());
    let rows = running.stop();
    for (name, value) in [
        ("Info_Thread_IPC", 1.5),
        ("Info_System_Core_Frequency", 2.0),
        ("Info_Inst_Mix_IpBranch", 6.0),
        ("Info_Bad_Spec_Mispredict_Ratio", 5.0),
        ("Info_Memory_Cache_MPKI", 5.0),
        ("Info_Memory_Cache_Miss_Ratio", 25.0),
    ] {
        let is = |row: &&Value| row["metric"] == name && row["owner"]["path"] == group.path.as_str();
        let row = rows.of_kind("metric").find(is).unwrap_or_else(|| panic!("no {name}"));
        let found = row["value"].as_f64().unwrap_or_else(|| panic!("{row}"));
        assert_close(name, found, value, 0.01, 0.0);
        assert!(row["low"].as_f64().unwrap() <= found && found <= row["high"].as_f64().unwrap(), "{row}");
    }
    let note = rows.of_kind("bottleneck").find(|row| row["owner"]["path"] == group.path.as_str()).unwrap();
    assert!(note["notes"].to_string().contains("--perfmon-dir"), "{note}");
}
