//! Top-Down per cgroup on the simulated core PMU, which has the events of a Sapphire Rapids.

use std::{thread, time::Duration};

use serde_json::Value;

use crate::{
    counts::cgroup_id,
    scraped::{Scrape, get},
    simulated::Simulated,
    support::{Cgroup, Rows, Running, Started, assert_close, pmbpf, wait_until},
    workloads::workload,
};

/// Shares of the slots, in per cent: retiring, bad speculation, front end, back end. Then the parts of each:
/// heavy operations, mispredicted branches, fetch latency, memory.
pub(crate) type Shares = [u64; 8];

pub(crate) const COMPUTING: Shares = [60, 10, 20, 10, 5, 8, 12, 4];
pub(crate) const WAITING: Shares = [15, 5, 10, 70, 3, 2, 4, 50];
pub(crate) const NAMES: [&str; 8] = [
    "Retiring",
    "Bad_Speculation",
    "Frontend_Bound",
    "Backend_Bound",
    "Heavy_Operations",
    "Branch_Mispredicts",
    "Fetch_Latency",
    "Memory_Bound",
];

/// Slots a second.
pub(crate) const SLOTS: u64 = 6_000_000_000;

/// Returns rate lines for the tasks of a cgroup, or for all tasks.
pub(crate) fn rates(shares: &Shares, instructions: u64, owner: &str) -> String {
    let mut lines = vec![
        format!("cpu 400 ffff {SLOTS} {owner}"),
        format!("cpu 3c ffff 1000000000 {owner}"),
        format!("cpu c0 ffff {instructions} {owner}"),
        // Nothing is dropped between front end and back end.
        format!("cpu 10ad ffff 0 {owner}"),
    ];
    let codes = [0x8000, 0x8100, 0x8200, 0x8300, 0x8400, 0x8500, 0x8600, 0x8700];
    lines.extend(
        codes
            .iter()
            .zip(shares)
            .map(|(code, share)| format!("cpu {code:x} ffff {} {owner}", SLOTS / 100 * share)),
    );
    lines.join("\n")
}

pub(crate) fn metric<'a>(rows: &'a Rows, path: &str, name: &str) -> &'a Value {
    let is = |row: &&Value| row["metric"] == name && row["owner"]["path"] == path && row["level"].is_u64();
    rows.of_kind("metric").find(is).unwrap_or_else(|| panic!("no {name} of {path}"))
}

pub(crate) fn assert_shares(rows: &Rows, path: &str, shares: &Shares) {
    for (name, share) in NAMES.iter().zip(shares) {
        let row = metric(rows, path, name);
        let value = row["value"].as_f64().unwrap_or_else(|| panic!("{row}"));
        assert_close(name, value, *share as f64, 0.0, 0.5);
        assert!(row["coverage"].as_f64().unwrap() > 0.9, "{row}");
    }
}

fn spinning(groups: &[Cgroup], seconds: u32) -> Vec<Started> {
    let spin = workload("spin", &["-g"]);
    groups.iter().map(|group| group.spawn(&format!("{spin} {seconds}"))).collect()
}

/// Runs pmbpf on cgroups that spin for a while.
pub(crate) fn run_on(groups: &[Cgroup], arguments: &[&str], seconds: u32) -> Rows {
    let mut all = vec!["--no-sampling", "--cpu-model", "sapphirerapids"];
    all.extend(arguments);
    groups.iter().for_each(|group| all.extend(["--cgroup", group.path.as_str()]));
    let running = Running::start(&all);
    let mut started = spinning(groups, seconds);
    thread::sleep(Duration::from_secs(u64::from(seconds)));
    started.iter_mut().for_each(|one| drop(one.wait()));
    running.stop()
}

#[test]
fn two_cgroups_have_trees_of_their_own() {
    let simulated = Simulated::load(&[]);
    let groups = [Cgroup::new("computing"), Cgroup::new("waiting")];
    for (group, (shares, instructions)) in
        groups.iter().zip([(COMPUTING, 3_000_000_000), (WAITING, 500_000_000)])
    {
        simulated.write("rates", &rates(&shares, instructions, &format!("cgroup={}", cgroup_id(group))));
    }
    let rows = run_on(&groups, &["--level", "2"], 3);
    for (group, (shares, ipc)) in groups.iter().zip([(COMPUTING, 3.0), (WAITING, 0.5)]) {
        assert_shares(&rows, &group.path, &shares);
        let found = metric(&rows, &group.path, "Info_Thread_IPC")["value"].as_f64().unwrap();
        assert_close("IPC", found, ipc, 0.01, 0.0);
    }
    let path = |group: &Cgroup| {
        let row = rows.of_kind("bottleneck").find(|row| row["owner"]["path"] == group.path.as_str()).unwrap();
        assert_eq!(row["mismeasured"], Value::Array(Vec::new()), "{row}");
        row["path"].clone()
    };
    assert_eq!(path(&groups[0])[0], "Frontend_Bound");
    assert_eq!(path(&groups[1])[1], "Memory_Bound");
}

/// Tests cores without a counter of slots: large ones before Ice Lake (of four slots a cycle, and one thread
/// here), and small ones (of six).
#[test]
fn cores_without_slots_have_their_first_level() {
    let simulated = Simulated::load(&[]);
    let haswell = [("3c", 1000), ("19c", 800), ("10e", 2600), ("2c2", 2000), ("30d", 50)];
    let sierraforest = [("3c", 1000), ("71", 1200), ("73", 600), ("74", 2400), ("72", 1800)];
    for (model, millions, shares) in
        [("haswell", haswell, [50, 20, 20, 10]), ("sierraforest", sierraforest, [30, 10, 20, 40])]
    {
        let group = Cgroup::new(model);
        let lines = millions.map(|(code, millions)| format!("cpu {code} ffff {millions}000000"));
        simulated.write("rates", &lines.join("\n"));
        let running =
            Running::start(&["--no-sampling", "--cpu-model", model, "--level", "1", "--cgroup", &group.path]);
        let mut started = spinning(std::slice::from_ref(&group), 3);
        started.iter_mut().for_each(|one| drop(one.wait()));
        let rows = running.stop();
        for (name, share) in NAMES.iter().zip(shares) {
            let row = metric(&rows, &group.path, name);
            let value = row["value"].as_f64().unwrap_or_else(|| panic!("{row}"));
            assert_close(name, value, f64::from(share), 0.0, 0.5);
        }
    }
}

/// Tests that scraped shares of slots equal the programmed ones, of each cgroup and of both together.
#[test]
fn what_is_served_are_slots_that_add_up() {
    let simulated = Simulated::load(&[]);
    let groups = [Cgroup::new("computing"), Cgroup::new("waiting")];
    for (group, (shares, instructions)) in
        groups.iter().zip([(COMPUTING, 3_000_000_000), (WAITING, 500_000_000)])
    {
        simulated.write("rates", &rates(&shares, instructions, &format!("cgroup={}", cgroup_id(group))));
    }
    let cgroups: Vec<String> = groups.iter().map(|group| format!("--cgroup {}", group.path)).collect();
    let program = pmbpf().get_program().to_str().unwrap().to_owned();
    let options = format!("-I 500ms --cpu-model sapphirerapids --level 2 {}", cgroups.join(" "));
    let _serving = Started::new(&format!("exec {program} serve {options}"));
    wait_until("it serves", || get("/readyz").is_some());
    let _spinning = spinning(&groups, 60);
    let mut scrape = None;
    let slots = |scrape: &Scrape, group: &Cgroup| of(scrape, "topdown_slots", group);
    wait_until("both have slots of their own", || {
        scrape = Scrape::now();
        let scrape = scrape.as_ref().unwrap();
        groups.iter().all(|group| slots(scrape, group) > 3.0 * SLOTS as f64)
    });
    let scrape = scrape.unwrap();
    for (group, (shares, ipc)) in groups.iter().zip([(COMPUTING, 3.0), (WAITING, 0.5)]) {
        let known = slots(&scrape, group) - of(&scrape, "topdown_unknown_slots", group);
        for (name, share) in NAMES.iter().zip(shares) {
            let found = of(&scrape, &format!("topdown_{}_slots", name.to_lowercase()), group);
            assert_close(name, found / known * 100.0, share as f64, 0.0, 0.5);
        }
        let found = of(&scrape, "instructions", group) / of(&scrape, "cycles", group);
        assert_close("IPC", found, ipc, 0.01, 0.0);
    }
}

/// Returns a counter of a cgroup's series.
fn of(scrape: &Scrape, name: &str, group: &Cgroup) -> f64 {
    scrape.series(&format!("pmbpf_{name}_total"), &format!("path:{}", group.path)).unwrap_or(0.0)
}

#[test]
fn what_is_below_a_flagged_node_is_measured_without_being_asked_for() {
    let simulated = Simulated::load(&[]);
    let group = Cgroup::new("waiting");
    simulated.write("rates", &rates(&WAITING, 500_000_000, ""));
    // EXE_ACTIVITY.BOUND_ON_LOADS, MEMORY_ACTIVITY.STALLS_L1D_MISS, _L2_MISS and _L3_MISS: L2_Bound is their difference.
    simulated.write(
        "rates",
        "cpu 21a6 ffff 600000000\ncpu 347 ffff 500000000\ncpu 547 ffff 200000000\ncpu 947 ffff 100000000",
    );
    let rows = run_on(std::slice::from_ref(&group), &[], 12);
    // Memory_Bound is 50 % of the slots, L2_Bound 30 % of the clocks.
    let row = metric(&rows, &group.path, "L2_Bound");
    let value = row["value"].as_f64().unwrap_or_else(|| panic!("L2_Bound was never measured: {row}"));
    assert_close("L2_Bound", value, 30.0, 0.1, 0.0);
    assert!(row["low"].as_f64() < row["high"].as_f64() && row["coverage"].as_f64() < Some(0.9), "{row}");
}

#[test]
fn the_bottleneck_of_each_mix_is_found_first() {
    // Retiring, bad speculation, front end, back end; heavy operations, mispredicted branches, fetch latency, memory.
    let mixes = [
        ([40, 5, 45, 10, 4, 4, 35, 4], "Frontend_Bound → Fetch_Latency"),
        (WAITING, "Backend_Bound → Memory_Bound"),
        ([40, 40, 10, 10, 4, 36, 6, 4], "Bad_Speculation → Branch_Mispredicts"),
    ];
    let simulated = Simulated::load(&[]);
    for (shares, path) in mixes {
        simulated.write("rates", "clear");
        simulated.write("rates", &rates(&shares, 1_000_000_000, ""));
        let group = Cgroup::new("mix");
        let rows = run_on(std::slice::from_ref(&group), &["--level", "2"], 3);
        // Effects of the emulator on the guest are not findings of the mix.
        let outside = ["steal", "masked", "masked_span"];
        let is_of_it = |finding: &&Value| !outside.contains(&finding["finding"].as_str().unwrap());
        let found: Vec<&Value> = rows.of_kind("finding").filter(is_of_it).collect();
        let first = found.first().unwrap_or_else(|| panic!("{path}: nothing was found"));
        assert_eq!(first["finding"], "bottleneck", "{path}: {found:?}");
        assert!(first["says"].as_str().unwrap().contains(path), "{path}: {first}");
    }
}

#[test]
fn a_dead_pmu_is_found_out_and_not_believed() {
    let simulated = Simulated::load(&[]);
    simulated.write("faults", "cpu c0 ffff dead");
    let group = Cgroup::new("any");
    let rows = run_on(std::slice::from_ref(&group), &[], 1);
    assert!(rows.of_kind("bottleneck").next().is_none());
    let missing =
        rows.summary()["missing"].as_array().unwrap().iter().find(|one| one["what"] == "Top-Down").unwrap();
    assert!(missing["why"].as_str().unwrap().contains("it is dead"), "{missing}");
}
