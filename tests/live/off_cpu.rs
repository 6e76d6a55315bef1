//! Off-CPU time against programs that report the kind and the duration of their waits, and against the
//! kernel's own accounting.

use std::{
    fs,
    path::{Path, PathBuf},
};

use pmbpf::machine::cgroup::Layout;
use serde_json::Value;

use crate::{
    findings::WithLimits,
    support::{
        Cgroup, Rows, Running, Scratch, Started, assert_close, in_guest, output, pmbpf, run, skipped, text,
        unique, wait_until, ways,
    },
    workloads::workload,
};

const KINDS: [&str; 6] = ["run_queue", "throttled", "io", "lock", "uninterruptible", "sleep"];
const BLOCKED: [&str; 4] = ["io", "lock", "uninterruptible", "sleep"];

/// Returns the time of a kind for owners that match `is`, in ns, or 0 where this kernel does not report it.
fn time(rows: &Rows, kind: &str, is: impl Fn(&Value) -> bool) -> f64 {
    let metric = format!("off_cpu.{kind}");
    let of = rows.of_kind("metric").filter(|row| row["metric"] == metric.as_str() && is(&row["owner"]));
    of.filter_map(|row| row["value"].as_f64()).sum()
}

/// Returns whether this attach method distinguishes a kind from others.
fn is_told(rows: &Rows, kind: &str) -> bool {
    let metric = format!("off_cpu.{kind}");
    let row =
        rows.of_kind("metric").find(|row| row["metric"] == metric.as_str()).expect("a row of every kind");
    row["status"] != "missing"
}

/// Run of `waits`, with the report of the program's first thread about itself.
struct Waits {
    rows: Rows,
    wall_ns: f64,
    cpu_ns: f64,
    tid: f64,
}

impl Waits {
    fn run(options: &[&str], what: &[&str]) -> Self {
        let program = workload("waits", &["-pthread"]);
        let run = [options, &["--no-sampling", "--off-cpu", "--by", "thread", "--", &program], what].concat();
        let output = output(&run);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = text(&output.stdout);
        let said: Vec<f64> = said.split_whitespace().map(|number| number.parse().unwrap()).collect();
        Self { rows: Rows::parse(&output.stderr), wall_ns: said[0], cpu_ns: said[1], tid: said[2] }
    }

    /// Returns the thread's wait time in ns, by the kernel's accounting of its CPU time.
    fn waited_ns(&self) -> f64 {
        self.wall_ns - self.cpu_ns
    }

    /// Asserts that `time_ns` is the thread's wait time. Hypervisor time is in neither the thread's CPU time
    /// nor its waits. On an emulated CPU a wake-up from another CPU corrects the scheduler's clocks, and the
    /// thread is billed for it. There the wait is only known to lie between [`Self::waited_ns`] and the
    /// whole.
    fn assert_waited(&self, what: &str, time_ns: f64, share: f64) {
        let most_ns = if in_guest() { self.wall_ns } else { self.waited_ns() };
        assert_close(what, time_ns, time_ns.clamp(self.waited_ns(), most_ns), share, 40e6);
    }

    /// Returns the thread's time in a kind of wait, in ns.
    fn of(&self, kind: &str) -> f64 {
        time(&self.rows, kind, |owner| owner["tid"].as_f64() == Some(self.tid))
    }

    /// Asserts that the thread's waits are of one kind, apart from later waits for a CPU, and as long as it
    /// reports.
    fn assert_are(&self, kind: &str) {
        let ready = self.of("run_queue") + self.of("throttled");
        self.assert_waited(kind, self.of(kind) + ready, 0.05);
        for other in BLOCKED.into_iter().filter(|&other| other != kind) {
            assert!(self.of(other) < 0.05 * self.waited_ns(), "{other}: {} ns", self.of(other));
        }
        let all: f64 = KINDS.into_iter().map(|kind| self.of(kind)).sum();
        assert_eq!(all, self.of("time"), "kinds add up");
    }
}

#[test]
fn a_timer_a_futex_and_a_child_that_shares_the_memory_are_told_apart() {
    for (way, _) in ways() {
        for (what, kind) in [("sleep", "sleep"), ("lock", "lock"), ("vfork", "uninterruptible")] {
            let waits = Waits::run(&["--attach", way], &[what, "40", "10"]);
            let kind = if is_told(&waits.rows, kind) { kind } else { "sleep" };
            assert!(waits.wall_ns >= 0.4e9, "{}", waits.wall_ns);
            waits.assert_are(kind);
        }
    }
}

#[test]
fn reads_past_the_page_cache_wait_for_io() {
    let file = Scratch::new("blocks");
    fs::write(&file.0, vec![7; 4096 * 256]).unwrap();
    let (way, _) = ways()[0];
    let program = workload("waits", &["-pthread"]);
    if !std::process::Command::new(program)
        .args(["read", "1", "256", file.as_str()])
        .status()
        .unwrap()
        .success()
    {
        return skipped("this file system reads nothing past the page cache");
    }
    Waits::run(&["--attach", way], &["read", "2000", "256", file.as_str()]).assert_are("io");
}

#[test]
fn waits_for_a_cpu_are_the_run_queue_latencies() {
    let (spin, hog) = (workload("spin", &["-g"]), workload("spin", &["-g"]));
    for (way, _) in ways() {
        let group = Cgroup::new("waiting");
        let running = Running::start(&["--attach", way, "--off-cpu", "--cgroup", &group.path]);
        let mut hog = Started::new(&format!("exec taskset -c 1 {hog} 0.4"));
        group.spawn(&format!("taskset -c 1 {spin} 0.2")).wait();
        hog.wait();
        let (rows, replayed) = running.stop_and_replay(&[]);
        for rows in [&rows, &replayed] {
            let is = |owner: &Value| owner["path"] == group.path.as_str();
            let mut waits = rows.of_kind("histogram").filter(|row| is(&row["owner"]));
            let waited = waits.next().unwrap()["sum"].as_f64().unwrap();
            let ready = time(rows, "run_queue", is) + time(rows, "throttled", is);
            assert_close("waits for a CPU", ready, waited, 0.001, 0.0);
            assert!(ready > 1e8, "{ready}");
        }
    }
}

#[test]
fn a_process_that_sleeps_through_the_whole_run_slept_as_long_as_it_took() {
    let sleeping = Started::new("exec sleep 100");
    let pid = sleeping.pid().to_string();
    let rows = run(&["--off-cpu", "-d", "700ms", "-I", "200ms", "-p", &pid]);
    if rows.of_kind("header").next().unwrap()["attach"] == "raw_tp" {
        return skipped("attached by address, a wait counts from a task's first switch");
    }
    let length: f64 = rows
        .of_kind("metric")
        .filter(|row| row["metric"] == "off_cpu.sleep" && row["owner"]["kind"] == "target")
        .map(|row| row["dt"].as_f64().unwrap())
        .sum();
    assert_close("sleep", rows.total("off_cpu.sleep"), length, 0.02, 5e6);
    assert!(length > 6e8, "{length}");
}

/// Cgroup of the v1 hierarchy with the CPU controller, where there is one, limited to a fifth of the time.
struct LimitedV1(PathBuf);

impl LimitedV1 {
    fn new() -> Option<Self> {
        let above = Path::new("/sys/fs/cgroup/cpu");
        above.join("cpu.cfs_quota_us").exists().then(|| {
            let folder = above.join(unique("throttled"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("cpu.cfs_quota_us"), "20000").unwrap();
            Self(folder)
        })
    }
}

impl Drop for LimitedV1 {
    fn drop(&mut self) {
        wait_until("nobody is in the cgroup", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

/// Returns a number of a cgroup's `cpu.stat`.
fn stat(folder: &Path, name: &str) -> f64 {
    let stat = fs::read_to_string(folder.join("cpu.stat")).unwrap();
    let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {stat}")).parse().unwrap()
}

#[test]
fn what_a_limit_of_cpu_time_takes_is_throttled() {
    let v1 = LimitedV1::new();
    let v2 = Layout::read(Path::new("/")).unwrap().limits_cpu_time();
    if v1.is_none() && !v2 {
        return skipped("no hierarchy has a cpu controller here");
    }
    let group = Cgroup::new("throttled");
    let _limits = v2.then(|| WithLimits::new(&group));
    let (folder, name, unit) = match &v1 {
        Some(LimitedV1(folder)) => (folder.as_path(), "throttled_time", 1.0),
        None => {
            fs::write(group.folder().join("cpu.max"), "20000 100000").unwrap();
            (group.folder(), "throttled_usec", 1e3)
        }
    };
    // On one CPU the kernel's sum is that of one run queue, and its only task is the throttled one. It never
    // leaves that CPU: for a task that moves while it waits, only the throttled time of the run queue it left
    // is known.
    let spin = format!("exec {} 0.2", workload("spin", &["-g"]));
    let command = format!("echo $$ > {}; {spin}", folder.join("cgroup.procs").display());
    for (way, _) in ways() {
        let before = stat(folder, name) * unit;
        let on_one_cpu = ["--", "taskset", "-c", "1", "sh", "-c", &command];
        let ended = output(&[&["--attach", way, "--off-cpu", "--no-sampling"], &on_one_cpu[..]].concat());
        assert!(ended.status.success(), "{}", text(&ended.stderr));
        let rows = Rows::parse(&ended.stderr);
        let held_ns = stat(folder, name) * unit - before;
        assert!(held_ns > 2e8, "{held_ns}");
        let is = |owner: &Value| owner["kind"] == "target";
        if is_told(&rows, "throttled") {
            assert_close("throttled", time(&rows, "throttled", is), held_ns, 0.01, 1e6);
        } else {
            assert!(time(&rows, "run_queue", is) > 0.9 * held_ns);
        }
    }
}

#[test]
fn nobody_pays_for_what_was_not_asked_for() {
    let rows = run(&["--no-sampling", "--", "true"]);
    assert!(rows.of_kind("metric").all(|row| !row["metric"].as_str().unwrap().starts_with("off_cpu")));
    let program = workload("waits", &["-pthread"]);
    let run = pmbpf().args(["run", "--off-cpu", "--", &program, "sleep", "2", "5"]).output().unwrap();
    assert!(text(&run.stderr).contains("OFF CPU"), "{}", text(&run.stderr));
}

/// Returns the stacks with which tasks blocked, of owners that match `is`.
fn stacks(rows: &Rows, is: impl Fn(&Value) -> bool) -> Vec<&Value> {
    rows.of_kind("off_cpu_stack").filter(|row| is(&row["owner"])).collect()
}

/// Returns the names of a stack's functions.
fn functions(stack: &Value) -> Vec<&str> {
    stack["frames"].as_array().unwrap().iter().filter_map(|frame| frame["function"].as_str()).collect()
}

#[test]
fn what_blocks_longest_has_the_stack_that_led_there() {
    for (way, _) in ways() {
        for (what, function) in [("sleep", "nanosleep"), ("lock", "futex"), ("vfork", "fork")] {
            let waits = Waits::run(&["--attach", way, "--stacks"], &[what, "40", "10"]);
            let stacks = stacks(&waits.rows, |owner| owner["tid"].as_f64() == Some(waits.tid));
            let times = || stacks.iter().map(|stack| &stack["time_ns"]);
            let sum: f64 = times().map(|time| time["value"].as_f64().unwrap()).sum();
            // On a busy host the thread waits for a CPU after each of them, which has no stack.
            let ready = waits.of("run_queue") + waits.of("throttled");
            waits.assert_waited(what, sum + ready, 0.1);
            let blocked: f64 = BLOCKED.into_iter().map(|kind| waits.of(kind)).sum();
            assert_close("waits and their stacks", sum, blocked, 0.05, 0.0);
            assert!(
                times().all(|time| time["low"] == time["high"]),
                "so few waits are all taken: {stacks:?}"
            );
            let longest = functions(stacks[0]);
            assert!(longest.contains(&"main"), "{longest:?}");
            // An emulated machine may have no time left for kernel names. Then nothing can be left out.
            let unnamed =
                stacks[0]["frames"].as_array().unwrap().iter().any(|frame| frame["function"].is_null());
            let names_kernel = unnamed || longest.iter().any(|name| name.contains(function));
            assert!(names_kernel && !longest.iter().any(|name| name.ends_with("schedule")), "{}", stacks[0]);
            // Only the thread's own waits: other waits in the run depend on the machine.
            let first = stacks[0]["time_ns"]["value"].as_f64().unwrap();
            assert!(first > 0.8 * blocked, "{first} of {blocked}: {stacks:?}");
            let all: f64 = self::stacks(&waits.rows, |_| true)
                .iter()
                .map(|stack| stack["time_ns"]["value"].as_f64().unwrap())
                .sum();
            assert_close("share", stacks[0]["share"].as_f64().unwrap(), first / all, 1e-6, 1e-6);
        }
    }
}

#[test]
fn of_many_short_waits_few_stacks_are_taken_and_stand_for_all() {
    for (way, _) in ways() {
        // A timer wakes it up, which no stack capture delays.
        let Waits { rows, .. } = Waits::run(&["--attach", way, "--stacks"], &["sleep", "10000", "0"]);
        let is = |owner: &Value| owner["kind"] == "target";
        let truth: f64 = BLOCKED.iter().map(|kind| time(&rows, kind, is)).sum();
        let stacks = stacks(&rows, |_| true);
        let of = |stack: &Value, name: &str| stack["time_ns"][name].as_f64().unwrap();
        let sum: f64 = stacks.iter().map(|stack| of(stack, "value")).sum();
        let variance: f64 =
            stacks.iter().map(|stack| ((of(stack, "high") - of(stack, "value")) / 1.96).powi(2)).sum();
        assert!(variance > 0.0, "some stand for others");
        // One run in 16,000 is further away by chance. Waits that begin or end with the run are in one of the
        // two.
        assert!(
            (sum - truth).abs() < 4.0 * variance.sqrt() + 20e6,
            "{sum} for {truth} ± {}",
            variance.sqrt()
        );
        let taken: u64 = stacks.iter().map(|stack| stack["waits"].as_u64().unwrap()).sum();
        let switches = rows.total("voluntary_switches");
        assert!((taken as f64) < switches / 4.0, "{taken} of {switches}");
    }
}

#[test]
fn a_recording_has_the_stacks_with_which_tasks_blocked_and_so_has_an_export() {
    let (file, folded) = (Scratch::new("blocked.pmbpf"), Scratch::new("blocked.folded"));
    let program = workload("waits", &["-pthread"]);
    let arguments = ["--off-cpu", "--stacks", "-o", file.as_str(), "--", &program, "sleep", "20", "10"];
    assert!(output(&arguments).status.success());
    let report = pmbpf().args(["report", "--json", file.as_str()]).output().unwrap();
    let rows = Rows::parse(&report.stdout);
    let reported: f64 =
        stacks(&rows, |_| true).iter().map(|stack| stack["time_ns"]["value"].as_f64().unwrap()).sum();
    assert!(reported > 0.2e9, "{reported}");
    let export = ["export", "--to", "folded", "--event", "offcpu-time", "-o", folded.as_str(), file.as_str()];
    assert!(pmbpf().args(export).status().unwrap().success());
    let lines = fs::read_to_string(&folded.0).unwrap();
    let exported: f64 =
        lines.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum();
    assert_eq!(exported, reported);
    let text = pmbpf().args(["report", file.as_str()]).output().unwrap().stdout;
    assert!(self::text(&text).contains("OFF-CPU STACKS"), "{}", self::text(&text));
}
