//! Twelve situations, each staged with numbers drawn from a seed: the right finding comes first, and without
//! a fault there is none. `PMBPF_ROUNDS` is the number of seeds. `cargo xtask nightly` requests more than
//! one.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use pmbpf::machine::cgroup::Layout;
use serde_json::Value;

use crate::{
    chance::Chance,
    findings::WithLimits,
    io::Loop,
    support::{Cgroup, Rows, Running, Scratch, in_guest, output, skipped, text},
    workloads::workload,
};

/// Returns whether a finding is an effect of the host that is not staged: of its hypervisor, or of other
/// tasks on its CPUs. Waits for those are the host's, waits for counted tasks are the situation's.
fn is_of_the_host(finding: &Value) -> bool {
    let name = finding["finding"].as_str().unwrap();
    let first = finding["evidence"].as_array().unwrap().iter().find(|row| row["metric"] == CULPRIT);
    let waits_for_others = name == "cpu_wait" && first.is_none_or(|row| row.get("owner").is_none());
    waits_for_others || matches!(name, "steal" | "masked" | "masked_span" | "samples_missing")
}

const CULPRIT: &str = "runqueue_latency.culprit";

/// Returns the findings of a run that are not symptoms of others.
fn causes(rows: &Rows) -> impl Iterator<Item = &Value> {
    rows.of_kind("finding").filter(|row| row.get("explained_by").is_none())
}

/// Returns the causes without those of the host.
fn findings(rows: &Rows) -> Vec<Value> {
    causes(rows).filter(|row| !is_of_the_host(row)).cloned().collect()
}

/// Returns the findings of a command with these options.
fn of(options: &[&str], command: &[&str]) -> Vec<Value> {
    let output = output(&[options, &["--"], command].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    findings(&Rows::parse(&output.stderr))
}

/// Asserts that the first finding is one of `wanted`, and belongs to `owner`.
#[track_caller]
fn assert_first(found: &[Value], wanted: &[&str], owner: Option<&Cgroup>, staged: &str) {
    let first = found.first().unwrap_or_else(|| panic!("{staged}: nothing was found"));
    assert!(wanted.contains(&first["finding"].as_str().unwrap()), "{staged}: {found:#?}");
    if let Some(owner) = owner {
        assert_eq!(first["owner"]["path"], owner.path.as_str(), "{staged}: {found:#?}");
    }
}

/// Stages a situation once for each seed.
fn staged(of_number: u64, stage: impl Fn(&mut Chance, &str)) {
    let rounds: u64 = std::env::var("PMBPF_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    for seed in 0..rounds.min(5) {
        stage(&mut Chance::of(100 * of_number + seed), &format!("seed {seed}"));
    }
}

/// Returns a number from `low` to `high`.
fn between(chance: &mut Chance, low: usize, high: usize) -> usize {
    low + chance.below(high - low + 1)
}

/// Child process, ended on drop.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether the v2 hierarchy has this controller, which it lacks where a v1 hierarchy has it.
fn has(controller: &str) -> bool {
    let layout = Layout::read(Path::new("/")).unwrap();
    let mount = layout.v2.expect("a v2 hierarchy");
    let all = fs::read_to_string(mount.join("cgroup.controllers")).unwrap();
    all.split_whitespace().any(|name| name == controller)
}

#[test]
fn a_limit_of_cpu_time_is_the_cause() {
    if !Layout::read(Path::new("/")).unwrap().limits_cpu_time() {
        return skipped("the v2 hierarchy has no cpu controller here");
    }
    staged(1, |chance, seed| {
        let (percent, threads) = (between(chance, 10, 40), between(chance, 1, 3));
        let group = Cgroup::new("limited");
        let _limits = WithLimits::new(&group);
        fs::write(group.folder().join("cpu.max"), format!("{} 100000", percent * 1000)).unwrap();
        let running = Running::start(&["--cgroup", &group.path]);
        let spin = workload("spin", &["-g"]);
        let mut started: Vec<_> =
            (0..threads).map(|_| group.spawn(&format!("sh -c 'timeout 2 {spin} 9; :'"))).collect();
        started.iter_mut().for_each(|one| drop(one.wait()));
        let found = findings(&running.stop());
        let what = format!("{seed}: {percent} %, {threads} tasks");
        assert_first(&found, &["throttled"], Some(&group), &what);
        assert!(found.iter().all(|one| one["finding"] != "cpu_wait"), "{what}: {found:#?}");
    });
}

/// Returns the findings in a v2 cgroup with memory limits.
fn of_memory(file: &str, megabytes: usize, command: &str) -> (Cgroup, Vec<Value>) {
    let group = Cgroup::new("memory");
    let control = group.folder().parent().unwrap().join("cgroup.subtree_control");
    fs::write(control, "+memory").unwrap();
    fs::write(group.folder().join(file), format!("{}", megabytes << 20)).unwrap();
    let running = Running::start(&["--cgroup", &group.path]);
    group.spawn(command).wait();
    let found = findings(&running.stop());
    (group, found)
}

#[test]
fn a_process_that_the_kernel_kills_for_memory_is_the_cause() {
    if !has("memory") {
        return skipped("the v2 hierarchy has no memory controller here");
    }
    staged(2, |chance, seed| {
        let limit = between(chance, 16, 48);
        let command = format!("sh -c 'head -c {}m /dev/zero | tail; sleep 0.3'", 4 * limit);
        let (group, found) = of_memory("memory.max", limit, &command);
        assert_first(&found, &["oom_kill"], Some(&group), &format!("{seed}: {limit} MB"));
    });
}

#[test]
fn a_limit_that_slows_tasks_down_for_memory_is_the_cause() {
    if !has("memory") {
        return skipped("the v2 hierarchy has no memory controller here");
    }
    staged(3, |chance, seed| {
        let limit = between(chance, 8, 24);
        let file = Scratch(Path::new("/var/tmp").join(format!("pmbpf-test-pressure-{}", std::process::id())));
        fs::write(&file.0, vec![1_u8; (4 * limit) << 20]).unwrap();
        let command =
            format!("sh -c 'timeout 3 sh -c \"while :; do cat {} > /dev/null; done\"; :'", file.as_str());
        let (group, found) = of_memory("memory.high", limit, &command);
        let wanted = ["memory_high", "memory_pressure"];
        assert_first(&found, &wanted, Some(&group), &format!("{seed}: {limit} MB"));
    });
}

#[test]
fn a_task_that_changes_its_cpu_all_the_time_is_the_cause() {
    staged(4, |chance, seed| {
        let (storms, seconds) = (workload("storms", &[]), format!("1.{}", chance.below(9)));
        let found = of(&[], &[&storms, "migrations", &seconds]);
        assert_first(&found, &["migration_storm"], None, seed);
    });
}

#[test]
fn the_function_that_has_the_time_is_the_cause() {
    staged(5, |chance, seed| {
        let (depth, rate) = (between(chance, 0, 40).to_string(), ["199", "499", "997"][chance.below(3)]);
        let found = of(&["-F", rate], &[&workload("spin", &["-g"]), "1", &depth]);
        assert_first(&found, &["hot_function"], None, &format!("{seed}: depth {depth}, {rate} Hz"));
    });
}

#[test]
fn a_noisy_neighbour_is_found_by_its_victim() {
    staged(6, |chance, seed| {
        let count = between(chance, 2, 5);
        let spin = workload("spin", &["-g"]);
        // Where the CPU controller is on, two cgroups have half of a CPU each, which is not noise.
        let above = Cgroup::new("above");
        let [victim, noisy] = ["victim", "noisy"].map(|name| above.below(name));
        let running = Running::start(&["--cgroup", &victim.path, "--cgroup", &noisy.path]);
        let command = format!("taskset -c 1 sh -c 'timeout 2 {spin} 9; :'");
        let mut started = vec![victim.spawn(&command)];
        started.extend((0..count).map(|_| noisy.spawn(&command)));
        started.iter_mut().for_each(|one| drop(one.wait()));
        // Other tasks on the host may have the CPU for longer than the neighbour.
        let rows = running.stop();
        let is_situation = |row: &&Value| row["finding"] == "cpu_wait" || !is_of_the_host(row);
        let found: Vec<Value> = causes(&rows).filter(is_situation).cloned().collect();
        assert_first(&found, &["cpu_wait"], Some(&victim), &format!("{seed}: {count} beside it"));
    });
}

#[test]
fn processes_that_come_and_go_are_the_cause_however_they_are_counted() {
    if in_guest() {
        return skipped("an emulated CPU takes milliseconds for a process");
    }
    staged(7, |chance, seed| {
        let count = between(chance, 800, 1600);
        let script = format!("for i in $(seq {count}); do /bin/true; done");
        for by in ["process", "comm", "exe", "cgroup"] {
            let group = Cgroup::new("forks");
            let running = Running::start(&["--cgroup", &group.path, "--by", by]);
            group.spawn(&format!("sh -c '{script}'")).wait();
            let found = findings(&running.stop());
            let what = format!("{seed}: {count} by {by}");
            assert_first(&found, &["fork_storm"], None, &what);
            let says = found[0]["says"].as_str().unwrap();
            let most = if by == "cgroup" { group.path.as_str() } else { "true" };
            assert!(says.ends_with(most), "{what}: {says}");
        }
    });
}

#[test]
fn page_faults_are_the_cause() {
    if in_guest() {
        return skipped("an emulated CPU spends its time on other things than faults");
    }
    staged(8, |chance, seed| {
        let by = ["process", "comm"][chance.below(2)];
        let found = of(&["--by", by, "-F", "499"], &[&workload("storms", &[]), "faults", "1"]);
        assert_first(&found, &["fault_storm"], None, &format!("{seed}: by {by}"));
    });
}

// A mutex that is taken again before a waiter wakes up starves all others, and waits that last until the end
// of a run are not counted. About one run in five had no convoy to find.
nightly!(threads_that_wait_for_one_lock_are_the_cause);

fn threads_that_wait_for_one_lock_are_the_cause() {
    staged(9, |chance, seed| {
        let (threads, held) = (between(chance, 6, 16), between(chance, 10_000, 60_000));
        let (threads, work, spare) = (threads.to_string(), held.to_string(), (held / 10).to_string());
        let program = workload("convoy", &["-pthread"]);
        let command = [program.as_str(), "1.5", &threads, &work, &spare];
        for options in [&[][..], &["--off-cpu"]] {
            let found = of(options, &command);
            let what = format!("{seed}: {threads} threads, {work} steps, {options:?}");
            assert_first(&found, &["convoy"], None, &what);
            assert!(found.iter().all(|one| one["finding"] != "cpu_wait"), "{what}: {found:#?}");
        }
    });
}

#[test]
fn a_disk_with_more_to_do_than_it_can_is_the_cause() {
    if Command::new("fio").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skipped("there is no fio here");
    }
    staged(10, |chance, seed| {
        let depth = between(chance, 16, 48);
        // One in memory is as fast as the CPUs, which other programs may have.
        let disk = Loop::past_the_cache("queue", 32 << 20).unwrap_or_else(|| Loop::new("queue", 32 << 20));
        let mut fio = Command::new("fio");
        // Large requests: between small ones the disk waits for fio, which has to wait for a CPU.
        fio.args(["--name=x", "--rw=randread", "--bs=1m", "--direct=1", "--ioengine=libaio"]);
        // The job would otherwise be a separate process, which may have begun before the run.
        fio.args([
            "--thread",
            "--time_based",
            "--runtime=30",
            "--size=32m",
            // Where others run, a task that moves between CPUs would be another finding.
            "--cpus_allowed=1",
            &format!("--filename={}", disk.path()),
        ]);
        let fio = fio.arg(format!("--iodepth={depth}")).stdout(Stdio::null()).spawn().unwrap();
        let fio = Beside(fio);
        let rows = Rows::parse(&output(&["--io", "-p", &fio.0.id().to_string(), "-d", "2"]).stdout);
        let wanted = ["disk_saturated", "block_latency", "block_queue"];
        assert_first(&findings(&rows), &wanted, None, &format!("{seed}: depth {depth}"));
    });
}

#[test]
fn programs_that_wait_for_work_are_no_news() {
    staged(11, |chance, seed| {
        let seconds = format!("1.{}", chance.below(9));
        let sleeper = of(&[], &["sleep", &seconds]);
        assert!(sleeper.is_empty(), "{seed}: {sleeper:#?}");
        let bursts = of(&[], &[&workload("storms", &[]), "bursts", &seconds]);
        assert!(bursts.is_empty(), "{seed}: {bursts:#?}");
    });
}

#[test]
fn threads_that_wait_for_a_condition_or_for_each_other_to_end_are_no_convoy() {
    staged(12, |chance, seed| {
        let pause = between(chance, 1, 20).to_string();
        // The first thread waits for a lock, once for each time, and for barriers, or for a timer.
        for what in ["sleep", "lock"] {
            let found = of(&["--off-cpu"], &[&workload("waits", &["-pthread"]), what, "15", &pause]);
            assert!(found.is_empty(), "{seed}: {what} {pause}: {found:#?}");
        }
    });
}
