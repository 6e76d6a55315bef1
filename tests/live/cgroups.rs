//! Cgroups: CPU time against the cgroup's own `cpu.stat`.

use std::{
    os::unix::fs::MetadataExt as _,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use pmbpf::machine::cgroup::Layout;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{
    support::{
        Cgroup, Rows, Running, Started, assert_close, in_guest, output, pmbpf, tick_ns, wait_until, ways,
    },
    workloads::workload,
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn cpu_time_of_a_cgroup_is_its_cpu_stat_at_any_depth() {
    let spin = workload("spin", &["-g"]);
    let shallow = Cgroup::new("shallow");
    let top = Cgroup::new("deep");
    let deep = top.below(&(1..14).map(|level| format!("level{level}")).collect::<Vec<_>>().join("/"));
    for (way, _) in ways() {
        let before = [&shallow, &deep].map(Cgroup::usage_ns);
        let running = Running::start(&["--cgroup", &shallow.path, "--cgroup", &deep.path, "--attach", way]);
        let mut started = [
            shallow.spawn(&format!("sh -c '{spin} 1.5 & for i in $(seq 100); do /bin/true; done; wait'")),
            deep.spawn(&format!("taskset -c 1 {spin} 2")),
        ];
        started.iter_mut().for_each(|one| drop(one.wait()));
        let truth: Vec<f64> =
            [&shallow, &deep].iter().zip(before).map(|(one, before)| one.usage_ns() - before).collect();
        let rows = running.stop();
        assert_close(way, rows.of_cgroup("cpu_time", &shallow.path), truth[0], 0.01, 0.0);
        assert_close(way, rows.of_cgroup("cpu_time", &deep.path), truth[1], 0.01, 0.0);
    }
}

#[test]
fn a_cgroup_that_is_made_again_is_counted_in_both_lives() {
    let (top, spin) = (Cgroup::new("again"), workload("spin", &["-g"]));
    // A path longer than what is read at a time.
    let above = top.below(&"level/".repeat(30));
    for (way, _) in ways() {
        for by in ["cgroup", "process"] {
            let group = above.below("web");
            let running = Running::start(&["--cgroup", &group.path, "--attach", way, "--by", by]);
            let truth: f64 = [0, 1]
                .map(|life| {
                    if life > 0 {
                        group.make_again();
                    }
                    group.spawn(&format!("{spin} 0.5")).wait();
                    group.settled_usage_ns()
                })
                .iter()
                .sum();
            let rows = running.stop();
            assert_close(&format!("{way} by {by}"), rows.total("cpu_time"), truth, 0.01, 5e6);
            group.remove();
        }
    }
}

#[test]
fn a_task_that_never_switches_is_counted_up_to_the_drain() {
    let group = Cgroup::new("hog");
    let _hog = group.spawn(&format!("taskset -c 1 {} 60", workload("spin", &["-g"])));
    sleep(Duration::from_millis(200));
    let outside = group.usage_ns();
    let running = Running::start(&["--cgroup", &group.path]);
    let inside = group.usage_ns();
    sleep(3 * SECOND);
    let at_least = group.usage_ns() - inside;
    let rows = running.stop();
    let at_most = group.usage_ns() - outside;
    let ours = rows.of_cgroup("cpu_time", &group.path);
    assert!(
        (at_least * 0.99 - 2.0 * tick_ns()..at_most * 1.01 + 2.0 * tick_ns()).contains(&ours),
        "{ours} is not within {at_least}..{at_most}"
    );
}

#[test]
fn two_cgroups_that_share_a_cpu_get_their_shares() {
    let duty = workload("duty", &[]);
    let (large, small) = (Cgroup::new("large"), Cgroup::new("small"));
    let running = Running::start(&["--cgroup", &large.path, "--cgroup", &small.path]);
    // Each sleeps while the other may burn: about 70 % and 30 % of one CPU.
    let mut started = [
        large.spawn(&format!("taskset -c 1 {duty} 7 3 3")),
        small.spawn(&format!("taskset -c 1 {duty} 3 7 3")),
    ];
    started.iter_mut().for_each(|one| drop(one.wait()));
    let rows = running.stop();
    let (ours_large, ours_small) =
        (rows.of_cgroup("cpu_time", &large.path), rows.of_cgroup("cpu_time", &small.path));
    assert_close("large", ours_large, large.usage_ns(), 0.01, 0.0);
    assert_close("small", ours_small, small.usage_ns(), 0.01, 0.0);
    let share = ours_large / (ours_large + ours_small);
    assert!((0.55..0.8).contains(&share), "{share}");
}

#[test]
fn a_task_that_moves_while_it_runs_is_billed_to_both() {
    // The kernel updates a running task's time at its ticks, and a hypervisor that holds the CPU delays some
    // of them. Time not booked before the move is then booked after it.
    const ATTEMPTS: u32 = 3;
    for attempt in 1..=ATTEMPTS {
        let (ours, truth) = of_a_move();
        assert_close("both", ours[0] + ours[1], truth[0] + truth[1], 0.001, 0.0);
        let is_close = |of: usize| (ours[of] - truth[of]).abs() <= (0.05 * truth[of]).max(tick_ns());
        if is_close(0) && is_close(1) {
            return;
        }
        assert!(attempt < ATTEMPTS, "before and after the move: {ours:?} is not {truth:?}");
    }
}

/// Returns the CPU time in two cgroups of a task that moves between them while it runs: ours, and the
/// kernel's.
fn of_a_move() -> ([f64; 2], [f64; 2]) {
    let (from, to) = (Cgroup::new("from"), Cgroup::new("to"));
    let running = Running::start(&["--cgroup", &from.path, "--cgroup", &to.path]);
    let mut hog = from.spawn(&format!("taskset -c 1 {} 2", workload("spin", &["-g"])));
    wait_until("it has run for a while", || from.usage_ns() > 7e8);
    to.enter(hog.pid());
    hog.wait();
    let truth = [&from, &to].map(Cgroup::usage_ns);
    let rows = running.stop();
    let ours = [&from, &to].map(|group| rows.of_cgroup("cpu_time", &group.path));
    assert!(truth[0] > 5e8 && truth[1] > 5e8, "it moved in between: {truth:?}");
    assert_eq!(rows.summary()["losses"]["move_untimed"], serde_json::Value::Null);
    (ours, truth)
}

#[test]
fn a_task_that_is_moved_every_millisecond_is_billed_to_each_cgroup() {
    // First equal turns, then a first turn as long as both others, in step with nothing.
    for turns_us in [[1000, 1000, 1000], [1600, 800, 800]] {
        for (way, _) in ways() {
            moved_often(way, turns_us.map(Duration::from_micros));
        }
    }
}

/// Moves a busy task round three cgroups, with these turns. Its time in each equals its time there by the
/// clock. The kernel's `cpu.stat` has the sum. Each part was accounted while the task was there, up to a tick
/// late.
fn moved_often(way: &str, turns: [Duration; 3]) {
    let groups = ["one", "two", "three"].map(Cgroup::new);
    let paths = groups.iter().flat_map(|group| ["--cgroup", &group.path]);
    let arguments: Vec<&str> = ["--attach", way, "--no-sampling"].into_iter().chain(paths).collect();
    let running = Running::start(&arguments);
    let hog = groups[0].spawn(&format!("chrt -r 10 taskset -c 1 {} 60", workload("spin", &["-g"])));
    wait_until("it runs", || groups[0].usage_ns() > 1e8);
    // That CPU belongs to the other task alone.
    let (here, mut other) = (sched_getaffinity(None).unwrap(), CpuSet::new());
    other.set(0);
    sched_setaffinity(None, &other).unwrap();
    let usage_ns = || groups.iter().map(Cgroup::usage_ns).sum::<f64>();
    let (mut in_each, mut unsure, before_ns) = ([Duration::ZERO; 3], Duration::ZERO, usage_ns());
    let (begun, mut turn, mut entered) = (Instant::now(), 0, Instant::now());
    while begun.elapsed() < 2 * SECOND {
        sleep(turns[turn]);
        let next = (turn + 1) % groups.len();
        let asked = Instant::now();
        groups[next].enter(hog.pid());
        let now = Instant::now();
        in_each[turn] += now - entered;
        // The moment of the move within that time is unknown, which matters where another machine has this
        // CPU for a while.
        unsure += (now - asked).saturating_sub(Duration::from_millis(2));
        (turn, entered) = (next, now);
    }
    let until_ns = usage_ns();
    drop(hog);
    sched_setaffinity(None, &here).unwrap();
    let truth_ns: f64 = groups.iter().map(Cgroup::settled_usage_ns).sum();
    let rows = running.stop();
    let ours = groups.each_ref().map(|group| rows.of_cgroup("cpu_time", &group.path));
    let moved = in_each.iter().sum::<Duration>().as_secs_f64() * 1e9;
    let lost_ns = moved - (until_ns - before_ns);
    let shown = format!("{way} {turns:?}: {ours:?} ns of {in_each:?}, {lost_ns} lost, {unsure:?} unsure");
    assert_close(&shown, ours.iter().sum(), truth_ns, 0.001, 2e5);
    assert_eq!(rows.summary()["losses"]["move_untimed"], serde_json::Value::Null, "{shown}");
    for index in [1, 2] {
        let expected_ns = in_each[index].as_nanos() as f64 * (1.0 - lost_ns / moved);
        let row = rows
            .of_kind("metric")
            .find(|row| row["metric"] == "cpu_time" && row["owner"]["path"] == groups[index].path.as_str());
        let half_ns = row.map(|row| row["high"].as_f64().unwrap() - row["value"].as_f64().unwrap()).unwrap();
        // The task's last time was spent where it was at the end.
        let end_ns = if index == turn { truth_ns - until_ns } else { 0.0 };
        // Time of others or of the hypervisor (50 ms of each second, if others want it:
        // `sched_rt_runtime_us`) came in a few long spans.
        let distance = half_ns + end_ns + lost_ns.abs() + unsure.as_nanos() as f64;
        assert_close(&shown, ours[index], expected_ns, 0.01, distance);
    }
}

#[test]
fn cgroups_that_come_and_go_keep_their_names_and_counts() {
    let parent = Cgroup::new("churn");
    let running = Running::start(&["--cgroup", &parent.path]);
    let mut truth = Vec::new();
    // An emulated machine takes a second for each.
    for index in 0..if in_guest() { 40 } else { 200 } {
        let child = parent.below(&format!("short-{index}"));
        child.spawn("sh -c 'i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done'").wait();
        truth.push((child.path.clone(), child.settled_usage_ns()));
        child.remove();
    }
    let rows = running.stop();
    for (path, usage_ns) in &truth {
        assert_close(path, rows.of_cgroup("cpu_time", path), *usage_ns, 0.01, 20_000.0);
    }
    let all: f64 = truth.iter().map(|(_, usage_ns)| usage_ns).sum();
    assert_close("parent", rows.of_cgroup("cpu_time", &parent.path), all, 0.01, 0.0);
    assert_eq!(rows.summary()["losses"], serde_json::json!({}));
}

#[test]
fn a_parent_holds_what_is_below_it_unless_told_not_to() {
    let parent = Cgroup::new("parent");
    let child = parent.below("child");
    let running = Running::start(&["--cgroup", &parent.path, "--no-descend"]);
    child.spawn(&format!("{} 0.3", workload("spin", &["-g"]))).wait();
    let alone = running.stop();
    assert_eq!(alone.of_cgroup("cpu_time", &parent.path), 0.0, "known to be nothing, not missing");
    let unseen_ns = child.settled_usage_ns();
    let running = Running::start(&["--cgroup", &parent.path]);
    child.spawn(&format!("{} 0.3", workload("spin", &["-g"]))).wait();
    let both = running.stop();
    // Both spinners ran there, the first one uncounted.
    let used_ns = child.settled_usage_ns() - unseen_ns;
    assert_close("below", both.of_cgroup("cpu_time", &child.path), used_ns, 0.01, 20_000.0);
    assert_eq!(both.of_cgroup("cpu_time", &parent.path), both.of_cgroup("cpu_time", &child.path));
}

#[test]
fn a_cgroup_that_only_holds_others_has_a_row() {
    let top = Cgroup::new("outer");
    let leaf = top.below("mid/leaf");
    for arguments in [&["--all-cgroups"][..], &["--cgroup", &top.path]] {
        let before_ns = leaf.settled_usage_ns();
        let running = Running::start(arguments);
        leaf.spawn(&format!("{} 0.3", workload("spin", &["-g"]))).wait();
        let rows = running.stop();
        let used_ns = leaf.settled_usage_ns() - before_ns;
        for path in [&top.path, &format!("{}/mid", top.path), &leaf.path] {
            assert_close(path, rows.of_cgroup("cpu_time", path), used_ns, 0.01, 20_000.0);
            let is_same =
                |row: &&serde_json::Value| row["metric"] == "cpu_time" && row["owner"]["path"] == **path;
            assert_eq!(rows.of_kind("metric").filter(is_same).count(), 1, "one row for {path}");
            let row = rows.of_kind("metric").find(is_same).unwrap();
            assert_eq!(row["owner"]["id"].as_u64(), Some(id(path)), "{row}");
        }
        // A cgroup above a target holds more than was counted.
        let above = rows.of_kind("metric").any(|row| row["owner"]["path"] == "/");
        assert_eq!(above, arguments == ["--all-cgroups"]);
    }
}

/// Returns a cgroup's id: the inode of its folder.
fn id(path: &str) -> u64 {
    let mount = Layout::read(Path::new("/")).unwrap().v2.unwrap();
    std::fs::metadata(mount.join(&path[1..])).unwrap().ino()
}

#[test]
fn a_cgroup_made_below_a_new_one_is_below_the_target_too() {
    let parent = Cgroup::new("nested");
    let spin = workload("spin", &["-g"]);
    for by in [&[][..], &["--by", "process"]] {
        let running = Running::start(&[&["--cgroup", &parent.path][..], by].concat());
        let inner = parent.below(&format!("new-{}/inner", by.len()));
        inner.spawn(&format!("{spin} 0.2")).wait();
        let rows = running.stop();
        let used_ns = inner.settled_usage_ns();
        assert_close("total", rows.total("cpu_time"), used_ns, 0.01, 20_000.0);
        if by.is_empty() {
            assert_close("inner", rows.of_cgroup("cpu_time", &inner.path), used_ns, 0.01, 20_000.0);
        }
    }
}

#[test]
fn processes_of_a_cgroup_can_own_the_counts() {
    let group = Cgroup::new("by-process");
    let running = Running::start(&["--cgroup", &group.path, "--by", "process"]);
    let spin = workload("spin", &["-g"]);
    group.spawn(&format!("{spin} 0.3")).wait();
    Started::new(&format!("exec {spin} 0.2")).wait();
    let rows = running.stop();
    let used_ns = group.settled_usage_ns();
    assert_close("inside", rows.of_name("cpu_time", "sping"), used_ns, 0.01, 0.0);
    assert_close("total", rows.total("cpu_time"), used_ns, 0.01, 0.0);
}

#[test]
fn owners_beyond_the_limit_are_counted_together_and_told() {
    let command = "for i in 1 2 3 4 5 6; do sh -c 'sleep 0.05 & wait' & done; wait";
    let rows = Rows::parse(&output(&["--max-owners", "2", "--", "sh", "-c", command]).stderr);
    let other = rows.sum("cpu_time", |owner| owner["kind"] == "other");
    assert!(other > 0.0);
    assert!(rows.summary()["losses"]["owner_limit"].as_u64() > Some(0));
    let owners = rows.sum("cpu_time", |owner| owner["kind"] != "target");
    assert_close("sum", owners, rows.total("cpu_time"), 1e-9, 0.0);
}

#[test]
fn in_a_cgroup_namespace_of_its_own_it_finds_itself_in_the_hosts_hierarchy() {
    let group = Cgroup::new("inside");
    let _spin = group.spawn(&format!("{} 60", workload("spin", &["-g"])));
    let pmbpf = pmbpf().get_program().to_owned();
    let arguments = "run --cgroup self -d 500ms --no-sampling --json --quiet";
    // As in a container that has the host's /sys/fs/cgroup instead of its own.
    let mut inside = group.spawn(&format!("unshare --cgroup {} {arguments}", pmbpf.display()));
    let rows = Rows::parse(inside.wait().as_bytes());
    // Next to other work it gets little of a CPU.
    let cpu_time = rows.of_cgroup("cpu_time", &group.path);
    assert!(cpu_time > 10e6, "{cpu_time} ns");
    let missing = rows.summary()["missing"].to_string();
    assert!(!missing.contains("outside of this container"), "{missing}");
}
