//! Counters per owner on the simulated core PMU, against the programmed rates.

use std::{collections::BTreeMap, fs, time::Duration};

use pmbpf::{
    drain::reading::SliceRow,
    plan::request::{By, Rate, Request, Target},
};

use crate::{
    counts::cgroup_id,
    session::{Counted, count, turns},
    simulated::{Simulated, perf_stat},
    support::{Cgroup, assert_close},
    workloads::workload,
};

const SLICE: Duration = Duration::from_millis(20);

fn system(seconds: u64) -> Request {
    Request { rate: Rate::Off, duration: Some(Duration::from_secs(seconds)), ..Request::default() }
}

fn by_cgroup(groups: &[Cgroup], seconds: u64) -> Request {
    let paths = groups.iter().map(|group| group.path.clone()).collect();
    Request { target: Target::Cgroups(paths), ..system(seconds) }
}

fn spin(group: &Cgroup, seconds: f64) {
    drop(group.spawn(&format!("{} {seconds}", workload("spin", &["-g"]))).wait());
}

fn sum(rows: &[SliceRow], of: impl Fn(&SliceRow) -> u64) -> u64 {
    rows.iter().map(of).sum()
}

/// Returns the rate of an event that always counts, over its owner's running time.
fn per_second(counted: &Counted, group: &Cgroup, event: usize) -> f64 {
    let rows = counted.slices(counted.cgroup(&group.path));
    sum(rows, |row| row.always[event]) as f64 * 1e9 / sum(rows, |row| row.time_ns) as f64
}

#[test]
fn owners_that_share_cpus_have_counts_of_their_own() {
    let simulated = Simulated::load(&[]);
    let groups = [Cgroup::new("slow"), Cgroup::new("fast"), Cgroup::new("more")];
    let rates = [1_000_000_000_u64, 3_000_000_000, 500_000_000];
    for (group, rate) in groups.iter().zip(rates) {
        simulated.write("rates", &format!("cpu c0 ffff {rate} cgroup={}", cgroup_id(group)));
        simulated.write("rates", &format!("cpu c5 ffff {} cgroup={}", rate / 100, cgroup_id(group)));
    }
    let turns = turns("cpu", "{instructions,branch-misses}", "", SLICE);
    let counted = count(&by_cgroup(&groups, 10), vec![turns], None, || {
        std::thread::scope(|scope| {
            let spin = |group| scope.spawn(move || spin(group, 0.7));
            groups.iter().map(spin).for_each(drop);
        });
    });
    for (group, rate) in groups.iter().zip(rates) {
        let [instructions, misses] = [0, 1].map(|event| per_second(&counted, group, event));
        assert_close("misses", misses / instructions, 0.01, 1e-5, 0.0);
        // The module's clock stands still while the switch program runs, which takes long on an emulator.
        assert_close("instructions", instructions, rate as f64, 0.04, 0.0);
        let rows = counted.slices(counted.cgroup(&group.path));
        assert!(rows.iter().all(|row| row.always_running_ns == [row.time_ns]), "{rows:?}");
        assert_close("time", sum(rows, |row| row.time_ns) as f64, group.settled_usage_ns(), 0.05, 20e6);
    }
}

#[test]
fn owners_add_up_to_what_perf_stat_counts() {
    let simulated = Simulated::stopped(&[]);
    // Every task counts and idle tasks do not: the rest is the owners'.
    simulated.write("rates", "cpu c0 ffff 3000000001\ncpu c0 ffff 0 tgid=0");
    let request = Request { by: Some(By::Process), ..system(15) };
    let turns = turns("cpu", "{instructions,cycles}", "", SLICE);
    let mut perf = 0.0;
    let counted = count(&request, vec![turns], None, || {
        let advance = "for i in 1 2 3 4 5 6 7; do echo 12345678 >/sys/kernel/debug/pmusim/advance_ns; done";
        perf = perf_stat("instructions", advance)[0].1;
    });
    let ours: u64 = counted.whole.slices.values().map(|rows| sum(rows, |row| row.always[0])).sum();
    assert!(ours >= 7 * 37_037_034, "{ours}");
    assert_eq!(ours as f64, perf);
}

#[test]
fn groups_count_at_their_rates_while_it_is_their_turn() {
    let simulated = Simulated::load(&["gp=4"]);
    let codes: Vec<u64> = (0x10..0x1c).collect();
    let rates: Vec<_> =
        codes.iter().map(|code| format!("cpu {code:x} ffff {}", code * 100_000_000)).collect();
    simulated.write("rates", &rates.join("\n"));
    let events: Vec<_> = codes.iter().map(|code| format!("cpu/event={code:#x}/")).collect();
    let taking: Vec<_> = events.chunks(4).map(|group| format!("{{{}}}", group.join(","))).collect();
    let groups = [Cgroup::new("spin")];
    // The slice is long, because an emulator takes milliseconds to exchange groups.
    let turns = turns("cpu", "{instructions}", &taking.join(","), 10 * SLICE);
    let counted = count(&by_cgroup(&groups, 12), vec![turns], None, || spin(&groups[0], 3.0));
    let rows = counted.slices(counted.cgroup(&groups[0].path));
    let mut by_group: BTreeMap<u32, Vec<SliceRow>> = BTreeMap::new();
    for row in rows {
        by_group.entry(row.group.unwrap()).or_default().push(row.clone());
    }
    assert_eq!(by_group.len(), 3);
    let time_ns = sum(rows, |row| row.time_ns);
    for (group, rows) in by_group {
        let running_ns = sum(&rows, |row| row.running_ns);
        for event in 0..4 {
            let count = sum(&rows, |row| row.counts[event]);
            let rate = codes[group as usize * 4 + event] as f64 * 0.1;
            assert_close("count", count as f64, rate * running_ns as f64, 0.02, 0.0);
        }
        let in_force_ns = sum(&rows, |row| row.time_ns);
        assert!(running_ns <= in_force_ns, "{running_ns} of {in_force_ns}");
        assert_close("running", running_ns as f64, in_force_ns as f64, 0.25, 0.0);
        assert!((0.18..0.5).contains(&(in_force_ns as f64 / time_ns as f64)), "{in_force_ns} of {time_ns}");
    }
}

#[test]
fn a_group_whose_counters_someone_else_has_did_not_run() {
    let simulated = Simulated::load(&["gp=4"]);
    simulated.write("taken", "cpu 7");
    let groups = [Cgroup::new("spin")];
    let turns = turns("cpu", "{instructions}", "{cpu/event=0x10/,cpu/event=0x11/}", SLICE);
    let counted = count(&by_cgroup(&groups, 5), vec![turns], None, || spin(&groups[0], 0.5));
    let rows = counted.slices(counted.cgroup(&groups[0].path));
    assert_eq!((sum(rows, |row| row.running_ns), sum(rows, |row| row.counts[0])), (0, 0));
    assert!(sum(rows, |row| row.time_ns) > 400_000_000, "{rows:?}");
    assert!(rows.iter().all(|row| row.always_running_ns == [row.time_ns]), "{rows:?}");
}

#[test]
fn topdown_events_of_an_owner_are_read_as_one() {
    let simulated = Simulated::load(&[]);
    simulated.write("rates", "cpu 400 ffff 18000000000\ncpu 8000 ffff 9000000000\ncpu 8100 ffff 1800000000");
    simulated.write("rates", "cpu 8200 ffff 3600000000\ncpu 8300 ffff 3600000000");
    let groups = [Cgroup::new("spin")];
    let slots = "{slots,topdown-retiring,topdown-bad-spec,topdown-fe-bound,topdown-be-bound}";
    let turns = turns("cpu", slots, "", SLICE);
    let counted = count(&by_cgroup(&groups, 5), vec![turns], None, || spin(&groups[0], 0.7));
    let rows = counted.slices(counted.cgroup(&groups[0].path));
    let slots = sum(rows, |row| row.always[0]) as f64;
    for (event, share) in [(1, 0.5), (2, 0.1), (3, 0.2), (4, 0.2)] {
        assert_close("share", sum(rows, |row| row.always[event]) as f64 / slots, share, 0.001, 0.0);
    }
}

#[test]
fn a_cpu_that_goes_and_comes_back_counts_again() {
    let simulated = Simulated::load(&[]);
    let groups = [Cgroup::new("before"), Cgroup::new("after")];
    simulated.write("rates", "cpu c0 ffff 1000000000");
    let turns = turns("cpu", "{instructions}", "{cycles},{branch-misses}", SLICE);
    let online = |text: &str| fs::write("/sys/devices/system/cpu/cpu1/online", text).unwrap();
    let pinned = |group: &Cgroup| {
        drop(group.spawn(&format!("taskset -c 1 {} 0.4", workload("spin", &["-g"]))).wait());
    };
    let counted = count(&by_cgroup(&groups, 14), vec![turns], None, || {
        pinned(&groups[0]);
        online("0");
        // Two drains, a second apart, detect it.
        std::thread::sleep(Duration::from_millis(2500));
        online("1");
        std::thread::sleep(Duration::from_millis(2500));
        pinned(&groups[1]);
    });
    for group in &groups {
        assert_close("instructions", per_second(&counted, group, 0), 1e9, 0.02, 0.0);
        let rows = counted.slices(counted.cgroup(&group.path));
        assert_close("time", sum(rows, |row| row.time_ns) as f64, group.settled_usage_ns(), 0.1, 30e6);
    }
    assert_eq!(counted.whole.losses.get("cpu_offline"), Some(&1), "{:?}", counted.whole.losses);
}
