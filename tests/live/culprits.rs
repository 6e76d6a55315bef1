//! Culprits: owners that had the CPU while a task waited for it.

use std::{
    collections::BTreeMap,
    io::Read as _,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    support::{Cgroup, Rows, Running, Scratch, Started, Waiting, assert_close, in_guest, skipped, text},
    workloads::workload,
};

/// Returns the wait time of an owner that is charged to culprits for which `is` holds, in ns.
fn charged<'a>(rows: &'a Rows, path: &'a str, is: impl Fn(&Value) -> bool) -> f64 {
    let rows = rows.of_kind("culprit").filter(|row| row["owner"]["path"] == path && is(&row["culprit"]));
    rows.map(|row| row["wait_ns"].as_f64().unwrap()).sum()
}

/// Returns the sum of run-queue latencies to which an owner's rows apply, in ns.
fn waited(rows: &Rows, path: &str) -> f64 {
    let mut rows = rows.of_kind("culprit").filter(|row| row["owner"]["path"] == path);
    rows.next().unwrap_or_else(|| panic!("nothing of {path}"))["of_ns"].as_f64().unwrap()
}

/// Tests tasks of three cgroups on one CPU, one of which needs half the time of the others. Every wait is for
/// the others' turns, however the kernel shares the CPU.
#[test]
fn waits_are_charged_to_whoever_had_the_cpu_and_add_up() {
    let spin = workload("spin", &["-g"]);
    let groups = [("victim", 0.5), ("other", 0.25), ("hog", 0.5)].map(|(name, s)| (Cgroup::new(name), s));
    let running = Running::start(&["--all-cgroups"]);
    let mut started = groups.each_ref().map(|(group, s)| group.spawn(&format!("taskset -c 1 {spin} {s}")));
    started.iter_mut().for_each(|one| drop(one.wait()));
    let (rows, replayed) = running.stop_and_replay(&[]);
    for rows in [&rows, &replayed] {
        for (Cgroup { path, .. }, _) in &groups {
            let [all, unknown] =
                [charged(rows, path, |_| true), charged(rows, path, |by| by["kind"] == "unknown")];
            assert_eq!(all, waited(rows, path), "{path}");
            assert!(unknown < 0.001 * all, "{unknown} of {all} is nobody's");
        }
        let of =
            |culprit: &Cgroup| charged(rows, &groups[0].0.path, |by| by["path"] == culprit.path.as_str());
        let [itself, other, hog] = groups.each_ref().map(|(group, _)| of(group));
        assert_eq!(itself, 0.0, "the only task of a cgroup does not wait for it");
        // The victim does not end before the others, and waits while they run.
        assert_close("the other's time", other, 0.25e9, 0.15, 30e6);
        assert_close("the hog's time", hog, 0.5e9, 0.15, 30e6);
        // Other tasks that ran there, such as tests next to this one, are named too.
        let all = waited(rows, &groups[0].0.path);
        let unnamed =
            charged(rows, &groups[0].0.path, |by| !["cgroup", "idle"].map(Value::from).contains(&by["kind"]));
        assert!(unnamed < 0.01 * all, "{unnamed} of {all}; {hog} and {other} are the other cgroups'");
    }
}

#[test]
fn tasks_that_were_not_asked_for_are_outside() {
    let spin = workload("spin", &["-g"]);
    let (victim, noisy) = (Cgroup::new("asked"), Cgroup::new("unasked"));
    let running = Running::start(&["--cgroup", victim.path.as_str()]);
    let mut started = [&victim, &noisy].map(|group| group.spawn(&format!("taskset -c 1 {spin} 0.3")));
    started.iter_mut().for_each(|one| drop(one.wait()));
    let rows = running.stop();
    let outside = charged(&rows, &victim.path, |by| by["kind"] == "outside");
    let all = waited(&rows, &victim.path);
    assert!(outside > 0.9 * all, "{outside} of {all}");
    assert_eq!(charged(&rows, &victim.path, |by| by["path"] == noisy.path.as_str()), 0.0);
}

/// Returns the number after `name=` in a tracepoint's fields.
fn field(fields: &str, name: &str) -> Option<u32> {
    let behind = &fields[fields.rfind(&format!("{name}="))? + name.len() + 1..];
    behind.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// Returns a thread's wait for a CPU and its parts by the running thread, in ns. The input is perf's record
/// of one CPU's switches and wake-ups: lines of `[CPU] TIME: EVENT: FIELDS`.
fn waits_by_perf(script: &str, victim: u32) -> (f64, BTreeMap<u32, f64>) {
    let (mut ready, mut running) = (None, None);
    let (mut all, mut by) = (0.0, BTreeMap::new());
    for line in script.lines() {
        let mut rest = line;
        let mut word = || {
            let (word, behind) = rest.trim_start().split_once(' ')?;
            rest = behind;
            Some(word)
        };
        let (Some(_), Some(time), Some(event)) = (word(), word(), word()) else { continue };
        let fields = rest;
        let (seconds, fraction) = time.trim_end_matches(':').split_once('.').unwrap();
        let now = seconds.parse::<f64>().unwrap() * 1e9 + fraction.parse::<f64>().unwrap();
        if event.contains("sched_wakeup") {
            if field(fields, "pid") == Some(victim) && running.is_none_or(|(tid, _)| tid != victim) {
                ready = Some(now);
            }
            continue;
        }
        let (from, to) = (field(fields, "prev_pid"), field(fields, "next_pid").unwrap());
        if let (Some(ready), Some((tid, since))) = (ready, running) {
            *by.entry(tid).or_insert(0.0) += now - f64::max(since, ready);
        }
        if to == victim {
            all += ready.take().map_or(0.0, |ready: f64| now - ready);
        } else if from == Some(victim) && fields.contains("prev_state=R") {
            ready = Some(now);
        }
        running = Some((to, now));
    }
    (all, by)
}

#[test]
fn shares_are_those_of_a_recording_of_perf() {
    let recording = Scratch::new("sched.data");
    let switches =
        ["record", "-q", "-C", "1", "-e", "sched:sched_switch,sched:sched_wakeup,sched:sched_wakeup_new"];
    let mut perf = Command::new("perf");
    perf.args(switches).args(["-o", recording.as_str(), "--", "sh", "-c", "echo records; read end; true"]);
    let Ok(mut perf) = perf.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
        return skipped("perf is not installed");
    };
    let spin = workload("spin", &["-g"]);
    let running = Running::start(&["--all-cgroups", "--no-sampling"]);
    let mut said = [0; 8];
    if perf.stdout.as_mut().unwrap().read_exact(&mut said).is_err() {
        return skipped("perf does not record the scheduler's tracepoints here");
    }
    let groups = [("victim", 0.5), ("other", 0.3), ("hog", 0.5)].map(|(name, s)| (Cgroup::new(name), s));
    let mut started = groups.each_ref().map(|(group, s)| {
        // The task is on that CPU before it counts, because perf records no other CPU.
        let waiting = Waiting::new(&format!("{spin} {s}"));
        let pid = waiting.pid().to_string();
        assert!(
            Command::new("taskset")
                .args(["-cp", "1", &pid])
                .stdout(Stdio::null())
                .status()
                .unwrap()
                .success()
        );
        group.enter(waiting.pid());
        waiting.go()
    });
    let pids = started.each_ref().map(Started::pid);
    started.iter_mut().for_each(|one| drop(one.wait()));
    let rows = running.stop();
    drop(perf.stdin.take());
    assert!(perf.wait().unwrap().success());
    let script = ["script", "--ns", "-F", "cpu,time,event,trace", "-i", recording.as_str()];
    let script = text(&Command::new("perf").args(script).output().unwrap().stdout);
    let (all, by) = waits_by_perf(&script, pids[0]);
    let victim = &groups[0].0.path;
    assert_close("waits", waited(&rows, victim), all, 0.02, 2e6);
    for ((group, _), pid) in groups.iter().zip(pids).skip(1) {
        let ours = charged(&rows, victim, |by| by["path"] == group.path.as_str()) / waited(&rows, victim);
        let theirs = by[&pid] / all;
        assert!((ours - theirs).abs() < 0.02, "{}: {ours}, by perf {theirs}", group.path);
        // Next to other work the neighbours get less of the CPU, but more than the allowed difference of
        // shares.
        assert!(theirs > 0.04, "{}: {theirs}", group.path);
    }
}

/// Tests a storm of processes that live less than a tick and have the CPU for which another task waits. The
/// drain that reads the culprits comes after their end.
#[test]
fn processes_of_a_storm_are_charged_by_name_although_they_have_ended() {
    if in_guest() {
        return skipped("an emulated CPU takes milliseconds for a process");
    }
    let spin = workload("spin", &["-g"]);
    let running = Running::start(&["-a", "--no-sampling"]);
    // The storm runs before all else on that CPU.
    let storm = "nice -n -10 taskset -c 1 timeout 3 sh -c 'while :; do /bin/true; done'";
    let storms: Vec<Started> = (0..2).map(|_| Started::new(&format!("exec {storm}"))).collect();
    let mut victim = Started::new(&format!("exec nice -n -10 taskset -c 1 {spin} 1"));
    victim.wait();
    let (pid, (rows, replayed)) = (victim.pid(), running.stop_and_replay(&[]));
    drop(storms);
    for rows in [&rows, &replayed] {
        let of_victim = |row: &&Value| row["owner"]["pid"] == pid;
        let charges: Vec<&Value> = rows.of_kind("culprit").filter(of_victim).collect();
        let all = charges.first().unwrap()["of_ns"].as_f64().unwrap();
        let of = |is: &dyn Fn(&Value) -> bool| -> f64 {
            let found = charges.iter().filter(|row| is(&row["culprit"]));
            found.map(|row| row["wait_ns"].as_f64().unwrap()).sum()
        };
        let unknown = of(&|by| by["kind"] == "unknown");
        assert!(unknown < 0.05 * all, "{unknown} of {all} is not known");
        let ended = of(&|by| ["true", "sh"].map(Value::from).contains(&by["name"]));
        assert!(ended > 0.25 * all, "{ended} of {all}: {charges:?}");
    }
}
