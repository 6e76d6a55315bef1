//! Names that refer to other cgroups during a run: later matches of a pattern, and a container that restarts
//! with another id.

use std::{fs, thread::sleep, time::Duration};

use serde_json::Value;

use crate::{
    containers::{WORK_ONCE, cgroup_of},
    podman::Podman,
    serve::Server,
    support::{Cgroup, Rows, Running, assert_close, in_guest, pmbpf, signal, text, unique, wait_until, ways},
    workloads::workload,
};

/// Returns the cgroups that became targets according to the summary, by path.
fn followed(rows: &Rows) -> Vec<(String, &Value)> {
    let summary = rows.of_kind("summary").next().unwrap();
    let each = summary["followed"].as_array().into_iter().flatten();
    each.map(|one| (one["owner"]["path"].as_str().unwrap().to_owned(), &one["late_ns"])).collect()
}

#[test]
fn what_a_pattern_means_later_counts_from_its_first_moment() {
    let (top, spin) = (Cgroup::new("later"), workload("spin", &["-g"]));
    let _first = top.below("web-1");
    for (way, _) in ways() {
        for by in ["cgroup", "process"] {
            let pattern = format!("path:{}/web-*", top.path);
            let running = Running::start(&["--cgroup", &pattern, "--attach", way, "--by", by]);
            let (second, other) = (top.below("web-2"), top.below("batch"));
            let inner = second.below("inner");
            let mut work =
                [&second, &inner, &other].map(|group| group.spawn(&format!("taskset -c 1 {spin} 0.3")));
            work.iter_mut().for_each(|work| drop(work.wait()));
            let (truth, beside) = (second.settled_usage_ns(), other.settled_usage_ns());
            let (said, replayed) = running.stop_and_replay(&[]);
            let what = format!("{way} by {by}");
            assert!(truth > 5e8 && beside > 2e8, "{truth} {beside}");
            assert_close(&what, said.total("cpu_time"), truth, 0.01, 5e6);
            if by == "cgroup" {
                assert_close(&what, said.of_cgroup("cpu_time", &second.path), truth, 0.01, 5e6);
                let of_other = said.sum("cpu_time", |owner| owner["path"] == other.path.as_str());
                assert_eq!(of_other, 0.0, "{what}");
            }
            for rows in [&said, &replayed] {
                let told = followed(rows);
                assert_eq!(told.len(), 1, "{told:?}");
                assert_eq!(told[0].0, second.path);
                assert!(told[0].1.as_f64().unwrap() < 1e9, "{told:?}");
            }
            assert_close("replayed", replayed.total("cpu_time"), said.total("cpu_time"), 0.0, 0.0);
            drop((inner, second, other));
        }
    }
}

#[test]
fn what_ran_before_anybody_looked_counts_from_then_on() {
    let (top, spin) = (Cgroup::new("late"), workload("spin", &["-g"]));
    let _first = top.below("web-1");
    for (way, _) in ways() {
        for by in ["cgroup", "process"] {
            let pattern = format!("path:{}/web-*", top.path);
            let running = Running::start(&["--cgroup", &pattern, "--attach", way, "--by", by]);
            signal(running.pid(), "STOP");
            let second = top.below("web-2");
            // The cgroup is checked at many switches and found not to be a target.
            let work =
                second.spawn(&format!("taskset -c 1 sh -c 'while :; do {spin} 0.01; sleep 0.01; done'"));
            wait_until("it has run", || second.usage_ns() > 2e8);
            let at_most = second.usage_ns();
            signal(running.pid(), "CONT");
            sleep(Duration::from_secs(1));
            let at_least = second.usage_ns();
            wait_until("it has run on", || second.usage_ns() > at_least + 3e8);
            drop(work);
            let end = second.settled_usage_ns();
            let rows = running.stop();
            let ours = rows.total("cpu_time");
            let possible = (end - at_least) * 0.98..(end - at_most) * 1.02 + 2e7;
            assert!(possible.contains(&ours), "{way} by {by}: {ours} is not within {possible:?}");
            assert!(followed(&rows)[0].1.as_f64().unwrap() > 1e8, "{:?}", followed(&rows));
        }
    }
}

#[test]
fn targets_that_are_gone_at_once_leave_room_for_others() {
    let (top, spin) = (Cgroup::new("brief"), workload("spin", &["-g"]));
    let _first = top.below("web-1");
    let running = Running::start(&["--cgroup", &format!("path:{}/web-*", top.path)]);
    // More cgroups than slots, most of them removed before they can become targets.
    for round in 0..9000 {
        let brief = top.folder().join("web-brief");
        fs::create_dir(&brief).unwrap();
        fs::remove_dir(&brief).unwrap();
        if round % 20 == 0 {
            sleep(Duration::from_millis(5));
        }
    }
    sleep(Duration::from_secs(1));
    let last = top.below("web-last");
    // A cgroup becomes a target when pmbpf reads its event. Earlier runtime is not counted.
    sleep(Duration::from_millis(500));
    last.spawn(&format!("{spin} 0.3")).wait();
    let truth = last.settled_usage_ns();
    let rows = running.stop();
    // On an emulated CPU events may come faster than they are read, which is reported. Nothing else may be
    // lost.
    let losses = rows.summary()["losses"].as_object().unwrap();
    assert!(losses.keys().all(|reason| in_guest() && reason == "ring_full"), "{losses:?}");
    assert!(followed(&rows).len() > 1000, "{}", followed(&rows).len());
    assert_close("CPU time", rows.total("cpu_time"), truth, 0.01, 0.0);
}

#[test]
fn a_service_waits_for_those_that_a_pattern_means() {
    let (top, spin) = (Cgroup::new("awaited"), workload("spin", &["-g"]));
    let server = Server::start(&["--cgroup", &format!("path:{}/pod-*", top.path)]);
    let before = cpu_time_ns(&server);
    assert_eq!(before, 0.0, "nobody was meant");
    let pod = top.below("pod-1");
    pod.spawn(&format!("{spin} 1")).wait();
    let truth = pod.settled_usage_ns();
    wait_until("it is scraped", || cpu_time_ns(&server) > 0.9 * truth);
    sleep(Duration::from_secs(1));
    assert_close("CPU time", cpu_time_ns(&server), truth, 0.01, 5e6);
    let typo = pmbpf().args(["serve", "--cgroup", "/no/such", "--listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(typo.status.code(), Some(2), "{}", text(&typo.stderr));
}

/// Returns the CPU time of all targets of a server together.
fn cpu_time_ns(server: &Server) -> f64 {
    let samples = server.scrape();
    let of_targets = samples.iter().filter(|(key, _)| key.starts_with("pmbpf_cpu_time_seconds_total{"));
    of_targets.map(|(_, seconds)| seconds * 1e9).sum()
}

#[test]
fn a_container_that_starts_again_with_another_id_is_followed_by_its_name() {
    let Some(podman) = Podman::new(&["podman", "runc"]) else { return };
    if podman.make_image().is_none() {
        return;
    }
    let web = unique("web");
    let start = || {
        let id = podman.start(&web, &[], "exec /bin/busybox sleep 600");
        (cgroup_of(&podman, &id), id)
    };
    let work = || podman.prints(&["exec", &web, "/bin/busybox", "sh", "-c", WORK_ONCE]);
    let (first, _) = start();
    let running = Running::start(&["--cgroup", &web]);
    let before = first.settled_usage_ns();
    work();
    let of_first = first.settled_usage_ns() - before;
    // podman keeps its files elsewhere here. The name comes from the container's monitor process, at a tick.
    sleep(Duration::from_secs(2));
    podman.prints(&["rm", "--force", "--time", "0", &web]);
    let (second, id) = start();
    work();
    let of_second = second.settled_usage_ns();
    let rows = running.stop();
    assert!(of_first > 5e7 && of_second > 5e7, "{of_first} {of_second}");
    let is_web = |owner: &Value| owner["called"] == web.as_str();
    let ours = rows.sum("cpu_time", is_web);
    let told = followed(&rows);
    let off_by = (of_first + of_second - ours).abs();
    assert!(off_by < 0.01 * ours + 10e6, "{ours} is not {of_first} + {of_second}: {told:?}");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].0.contains(&id), "{told:?}");
    for (cgroup, generation) in [(&first, 1), (&second, 2)] {
        let is_its =
            |owner: &Value| owner["path"] == cgroup.path.as_str() && owner["generation"] == generation;
        assert!(rows.sum("cpu_time", is_its) > 5e7, "{generation}");
    }
}
