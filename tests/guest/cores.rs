//! Cores of two kinds, and PMUs of CPUs without a table, on simulated PMUs.

use std::{fs, thread, time::Duration};

use serde_json::Value;

use crate::{
    counts::cgroup_id,
    half::rates_of,
    simulated::Simulated,
    support::{Cgroup, Rows, Running, Started, assert_close},
    topdown::{COMPUTING, NAMES, Shares, WAITING, rates},
    workloads::workload,
};

/// First-level shares of the small cores: retiring, bad speculation, front end, back end, of five slots a
/// cycle.
const SMALL: [[u64; 4]; 2] = [[50, 10, 25, 15], [20, 5, 15, 60]];
/// Cycles a second of either kind.
const CYCLES: u64 = 1_000_000_000;

/// Returns rates for tasks of a cgroup on small cores: events of a Gracemont.
fn small_rates(shares: [u64; 4], instructions: u64, owner: &str) -> String {
    let slots = 5 * CYCLES;
    let [retiring, _, front, back] = shares.map(|share| slots / 100 * share);
    [("3c", CYCLES), ("c0", instructions), ("71", front), ("74", back), ("c2", retiring), ("72", retiring)]
        .map(|(code, rate)| format!("cpu_atom {code} ffff {rate} {owner}"))
        .join("\n")
}

/// Returns a number of a cgroup on the cores of a PMU.
fn number(rows: &Rows, path: &str, pmu: &str, name: &str) -> f64 {
    let row = row(rows, Some(path), pmu, name);
    row["value"].as_f64().unwrap_or_else(|| panic!("{row}"))
}

/// Returns the row of a cgroup, or of the whole target.
fn row<'a>(rows: &'a Rows, path: Option<&str>, pmu: &str, name: &str) -> &'a Value {
    let wanted = format!("{pmu}/{name}/");
    let is_its = |owner: &Value| path.map_or(owner["kind"] == "target", |path| owner["path"] == path);
    let is = |row: &&Value| row["metric"] == wanted.as_str() && is_its(&row["owner"]);
    let row = rows.of_kind("metric").find(is).unwrap_or_else(|| panic!("no {wanted} of {path:?}"));
    assert_eq!(row["pmu"], pmu, "{row}");
    row
}

fn assert_first_level(rows: &Rows, path: &str, pmu: &str, shares: &[u64]) {
    for (name, share) in NAMES.iter().zip(shares) {
        assert_close(&format!("{path} {pmu} {name}"), number(rows, path, pmu, name), *share as f64, 0.0, 0.7);
    }
}

/// Tests two cgroups with different work on each kind of core. One stays on a CPU of either kind, the other
/// moves.
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
        // The times on both kinds of core add up to all of it, and to the running time of its counters.
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
    // It was on either kind for as long as it was pinned there.
    let share = number(&rows, &paths[1], "cpu_atom", "time_share");
    assert!((20.0..60.0).contains(&share), "{share}");
    let bottlenecks: Vec<&Value> = rows
        .of_kind("bottleneck")
        .filter(|row| row["owner"]["path"] == paths[1].as_str())
        .map(|row| &row["pmu"])
        .collect();
    assert_eq!(bottlenecks, ["cpu_core", "cpu_atom"]);
}

/// Tests a CPU without a table: metrics of the events that the kernel names, and the note on what a table
/// would add.
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

/// Number of runs with checked intervals: 11 each.
const ROUNDS: usize = 4;

/// Runs one task in each of two cgroups below one, on a CPU of either kind, by random turns, and returns the
/// CPU time in each part.
fn by_turns(parts: &[[Cgroup; 2]; 2], seed: &mut u64) -> [[f64; 2]; 2] {
    let before = parts.each_ref().map(|of_cpu| of_cpu.each_ref().map(Cgroup::settled_usage_ns));
    let spin = workload("spin", &["-g"]);
    let freeze = |part: usize, is_frozen: bool| {
        let state = if is_frozen { "1" } else { "0" };
        parts
            .iter()
            .for_each(|of_cpu| fs::write(of_cpu[part].folder().join("cgroup.freeze"), state).unwrap());
    };
    let mut started: Vec<Started> = Vec::new();
    for (cpu, of_cpu) in parts.iter().enumerate() {
        started.extend(of_cpu.iter().map(|part| part.spawn(&format!("taskset -c {cpu} {spin} 1.5"))));
    }
    for turn in 0..24 {
        freeze(turn % 2, true);
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        thread::sleep(Duration::from_millis(20 + *seed % 180));
        freeze(turn % 2, false);
    }
    started.iter_mut().for_each(|one| drop(one.wait()));
    let mut used = parts.each_ref().map(|of_cpu| of_cpu.each_ref().map(Cgroup::settled_usage_ns));
    for (used, before) in used.as_flattened_mut().iter_mut().zip(before.as_flattened()) {
        *used -= before;
    }
    used
}

/// Tests few counters with work that changes with every slice: intervals contain the truth about as often as
/// they claim.
#[test]
fn intervals_on_cores_of_two_kinds_hold_what_was_programmed() {
    let simulated = Simulated::load(&["hybrid=1", "topdown=0", "gp=2", "atom_gp=2"]);
    let whole = Cgroup::new("whole");
    let parts = [0, 1].map(|cpu| ["computing", "waiting"].map(|part| whole.below(&format!("{part}-{cpu}"))));
    for (at, shares) in [COMPUTING, WAITING].iter().enumerate() {
        let owner = |cpu: usize| format!("cgroup={}", cgroup_id(&parts[cpu][at]));
        simulated.write("rates", &rates_of("cpu_core", shares, &owner(0)));
        simulated.write("rates", &small_rates(SMALL[at], CYCLES, &owner(1)));
    }
    let arguments = ["--no-sampling", "--cpu-model", "alderlake", "--level", "2", "--cgroup", &whole.path];
    let (mut held, mut missed, mut seed) = (0, Vec::new(), 0x9e37_79b9_7f4a_7c15);
    for _ in 0..ROUNDS {
        let running = Running::start(&arguments);
        let used = by_turns(&parts, &mut seed);
        let rows = running.stop();
        let mixed = |cpu: usize, shares: [u64; 2]| {
            let [one, other] = used[cpu];
            (one * shares[0] as f64 + other * shares[1] as f64) / (one + other)
        };
        let large =
            [0, 1, 2, 3, 5, 6, 7].map(|at| ("cpu_core", NAMES[at], mixed(0, [COMPUTING[at], WAITING[at]])));
        let small = [0, 1, 2, 3].map(|at| ("cpu_atom", NAMES[at], mixed(1, [SMALL[0][at], SMALL[1][at]])));
        for (pmu, name, truth) in large.into_iter().chain(small) {
            let row = row(&rows, None, pmu, name);
            let bound = |which: &str| row[which].as_f64().unwrap_or_else(|| panic!("{row}"));
            if (bound("low") - 0.05..=bound("high") + 0.05).contains(&truth) {
                held += 1;
            } else {
                missed.push(format!(
                    "{pmu} {name}: {truth:.2} not in {:.2} to {:.2}",
                    bound("low"),
                    bound("high")
                ));
            }
        }
    }
    let share = f64::from(held) / (f64::from(held) + missed.len() as f64);
    // In 24 rounds 259 of 264 intervals contained the truth.
    assert!(share > 0.85, "{held} hold it, {share}: {missed:#?}");
}
