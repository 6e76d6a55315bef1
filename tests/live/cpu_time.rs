//! CPU time accounting: tasks, idle, interrupts and the hypervisor add up to all time, on every CPU and in
//! every interval.

use std::{
    fs,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    support::{Cgroup, Rows, Running, Scratch, Started, in_guest, pmbpf, text, tick_ns, ways},
    workloads::workload,
};

/// Closing error that is allowed.
const SHARE: f64 = 0.001;

/// Returns the allowed distance of two clocks that are read one after the other at both ends of a run, in ns.
/// An emulator's CPU may stand still in between.
fn edges_ns() -> f64 {
    if in_guest() { 1e7 } else { 0.0 }
}

/// Returns the same distance for the ends of an interval inside a run. Where the TSC is unstable, the
/// scheduler's clock stands until a late tick, and catches up then (kernel/sched/clock.c,
/// `sched_clock_local`).
fn edges_inside_ns() -> f64 {
    if in_guest() { 5e7 } else { 0.0 }
}

/// Kernel accounting of a CPU since boot, in ns.
struct Told {
    idle: f64,
    interrupts: f64,
}

fn told() -> Vec<Told> {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let cpu = |line: &str| {
        let words = line.strip_prefix("cpu")?.split(' ');
        let ticks: Vec<f64> = words.skip(1).filter_map(|word| word.parse().ok()).collect();
        let of_one = line.as_bytes()[3].is_ascii_digit();
        of_one.then(|| Told { idle: (ticks[3] + ticks[4]) * 1e7, interrupts: (ticks[5] + ticks[6]) * 1e7 })
    };
    stat.lines().filter_map(cpu).collect()
}

/// Returns the CPU time so far of this host's first process, which no program sees, with its ended threads:
/// /proc has those to 10 ms only. In guests everything is seen.
fn hidden_so_far() -> f64 {
    if in_guest() {
        return 0.0;
    }
    let output = Command::new(workload("cpuclock", &[])).arg("1").output().unwrap();
    text(&output.stdout).trim().parse().unwrap()
}

fn of(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or(0.0)
}

/// Asserts for a run of everything with `load` that each CPU and interval is attributed, and that the whole
/// agrees with the kernel's accounting.
fn assert_closes(what: &str, way: &str, load: impl FnOnce() -> Vec<Started>) {
    let hidden = hidden_so_far();
    let mut started = load();
    let running = Running::start(&["--attach", way]);
    let (before, begun) = (told(), Instant::now());
    sleep(Duration::from_millis(4200));
    // On a busy host it took longer.
    let (took, after) = (begun.elapsed(), told());
    let (_, rows) = running.stop_and_replay(&["-I", "1s"]);
    started.iter_mut().for_each(|one| drop(one.wait()));
    let hidden = hidden_so_far() - hidden;
    let cpus: Vec<&Value> = rows.of_kind("cpu").collect();
    let quality = &rows.summary()["quality"];
    assert!(cpus.len() >= 4 * before.len(), "{what}, {way}: a row for each interval and CPU, not {cpus:?}");
    for row in cpus {
        let allowed = hidden + edges_inside_ns() + SHARE * of(row, "capacity_ns");
        assert!(of(row, "rest_ns").abs() <= allowed, "{what}, {way}: {row} beyond {allowed}, {quality}");
    }
    let books = &quality["books"];
    let allowed = hidden + edges_ns() + SHARE * of(books, "capacity_ns");
    assert!(of(books, "rest_ns").abs() <= allowed, "{what}, {way}: {books} beyond {allowed}");
    // Coverage of the time by which rates are divided, however long beginning and ending took.
    let covered = of(books, "capacity_ns") / (of(rows.summary(), "duration_ns") * before.len() as f64);
    assert!((covered - 1.0).abs() < SHARE, "{what}, {way}: {covered} of the interval: {books}");
    // An emulated CPU is slow between idle and a task, and each side attributes that time to the other. Linux
    // 7.2 reports more than there is.
    if !in_guest() {
        assert_is_told(&format!("{what}, {way}"), &rows, (&before, &after), (took, hidden));
    }
}

/// Asserts that idle time and interrupts agree with the kernel within its accuracy: in steps of 10 ms, over a
/// span that ends earlier.
fn assert_is_told(
    what: &str,
    rows: &Rows,
    (before, after): (&[Told], &[Told]),
    (took, hidden): (Duration, f64),
) {
    let books = &rows.summary()["quality"]["books"];
    let cpus = before.len() as f64;
    let passed =
        |pick: fn(&Told) -> f64| after.iter().map(pick).sum::<f64>() - before.iter().map(pick).sum::<f64>();
    // Excess of the run's length over the span between readings, from its start and its end.
    let around = of(books, "capacity_ns") - took.as_nanos() as f64 * cpus;
    // The kernel's idle time begins later in every span, and excludes its interrupts
    // (kernel/time/tick-sched.c, `tick_nohz_start_idle`).
    let spans = of(&rows.summary()["quality"], "switches") * 2e4;
    let idle = of(books, "idle_ns") - passed(|told| told.idle);
    assert!(
        idle > -(cpus * 2e7 + hidden) && idle < around + spans + cpus * 2e7 + hidden,
        "{what}: idle differs by {idle}, {around} around it: {books}"
    );
    if let Some(interrupts) = books["interrupts_ns"].as_f64() {
        let differs = interrupts - passed(|told| told.interrupts);
        assert!(differs.abs() < around + cpus * 2e7, "{what}: interrupts differ by {differs}: {books}");
    }
}

#[test]
fn the_time_of_an_idle_machine_is_accounted_for() {
    ways().iter().for_each(|(way, _)| assert_closes("idle", way, Vec::new));
}

#[test]
fn the_time_of_cpus_that_are_fought_over_is_accounted_for() {
    let spin = workload("spin", &["-g"]);
    let (web, batch) = (Cgroup::new("web"), Cgroup::new("batch"));
    for (way, _) in ways() {
        assert_closes("one busy CPU", way, || vec![Started::new(&format!("taskset -c 0 {spin} 5"))]);
        // 1024 to 423 by weight: 70 to 30.
        assert_closes("70 to 30", way, || {
            vec![
                web.spawn(&format!("taskset -c 1 {spin} 3.5")),
                batch.spawn(&format!("nice -n 4 taskset -c 1 {spin} 1.5")),
            ]
        });
    }
}

#[test]
fn the_time_of_short_processes_and_of_io_is_accounted_for() {
    let (forks, flood) = (workload("forks", &[]), workload("flood", &[]));
    let file = Scratch::new("written");
    for (way, _) in ways() {
        assert_closes("processes", way, || vec![Started::new(&format!("timeout 5 {forks} 100000; :"))]);
        assert_closes("datagrams", way, || vec![Started::new(&format!("{flood} 5"))]);
        let write = format!("dd if=/dev/zero of={} bs=64k count=400 conv=fsync 2>/dev/null", file.as_str());
        assert_closes("storage", way, || {
            vec![Started::new(&format!("timeout 5 sh -c 'while :; do {write}; done'; :"))]
        });
    }
}

#[test]
fn what_is_not_attributed_can_fail_a_run() {
    let fails = |arguments: &[&str]| {
        let output = pmbpf().args(["run", "-d", "1s", "--json"]).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    // A tick is 0.4 % of a second. Time that running tasks have not been given yet is not an error.
    assert!(tick_ns() > SHARE * 1e9);
    assert_eq!(fails(&["--fail-on", "unattributed>5%"]).0, Some(0));
    // Most runs have some ns too many or too few. Runs of a CPU with enough pending time to cover them have
    // none.
    let failed = (0..10).map(|_| fails(&["--fail-on", "unattributed>0%"])).find(|(code, _)| *code == Some(3));
    assert!(
        failed.is_some_and(|(_, why)| why.contains("not attributed")),
        "ten runs attributed all of their time"
    );
    let (code, why) = fails(&["--fail-on", "unattributed>1%", "-p", &std::process::id().to_string()]);
    assert!(code == Some(3) && why.contains("everything is the target"), "{code:?}: {why}");
}
