//! Readers of `pmbpf serve`: each gets the counts of short-lived targets, whatever the others read. No series
//! appears above 0, and two containers are never one.

mod nightly;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread::{scope, sleep},
    time::Duration,
};

use crate::{
    podman::Podman,
    serve::Server,
    support::{Cgroup, Started, assert_close, unique, wait_until},
    workloads::workload,
};

const CPU: &str = "pmbpf_cpu_time_seconds_total{";

/// Reader that scrapes at its own interval and adds up the growth of series between its scrapes.
struct Reader<'a> {
    server: &'a Server,
    path: &'static str,
    last: BTreeMap<String, f64>,
    grown_ns: f64,
    /// Series that were above 0 when first seen.
    lost: BTreeMap<String, f64>,
    /// Number of series of all families in each scrape.
    sizes: Vec<usize>,
}

impl<'a> Reader<'a> {
    fn new(server: &'a Server, path: &'static str) -> Self {
        let last = server.scrape_at(path);
        Self { server, path, last, grown_ns: 0.0, lost: BTreeMap::new(), sizes: Vec::new() }
    }

    fn read(&mut self) {
        let now = self.server.scrape_at(self.path);
        self.sizes.push(now.len());
        for (key, value) in now.iter().filter(|(key, _)| key.starts_with(CPU)) {
            match self.last.get(key) {
                Some(before) => self.grown_ns += (value - before).max(0.0) * 1e9,
                None if *value > 0.0 => drop(self.lost.insert(key.clone(), *value)),
                None => {}
            }
        }
        self.last.extend(now);
    }
}

#[test]
fn every_reader_gets_what_short_lives_did() {
    let (above, spin) = (Cgroup::new("readers"), workload("spin", &["-g"]));
    let server = Server::start(&["--cgroup", &above.path, "--no-io", "--linger", "1s"]);
    // The first two readers are not distinguished.
    let plans = [("/metrics", 400), ("/metrics", 3000), ("/metrics?reader=other", 2500)];
    let mut readers =
        plans.map(|(path, every_ms)| (Reader::new(&server, path), Duration::from_millis(every_ms)));
    let (before, is_over) = (above.settled_usage_ns(), AtomicBool::new(false));
    scope(|threads| {
        for (reader, every) in &mut readers {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    sleep(*every);
                    reader.read();
                }
            });
        }
        for number in 0.. {
            let group = above.below(&number.to_string());
            let mut both = [(); 2].map(|()| group.spawn(&format!("{spin} 1.4")));
            both.iter_mut().for_each(|one: &mut Started| drop(one.wait()));
            // Next to other load that takes a while.
            if above.usage_ns() > before + 6e9 || number == 20 {
                break;
            }
        }
        sleep(Duration::from_millis(1500));
        is_over.store(true, Ordering::Relaxed);
    });
    let used = above.settled_usage_ns() - before;
    assert!(used > 3e9, "{used}");
    for (mut reader, every) in readers {
        reader.read();
        let lost = std::mem::take(&mut reader.lost);
        assert!(lost.is_empty(), "{} every {every:?}: above 0 at first: {lost:?}", reader.path);
        assert_close(&format!("{} every {every:?}", reader.path), reader.grown_ns, used, 0.005, 20e6);
    }
}

#[test]
fn nothing_appears_above_0_and_what_every_target_has_is_there_at_first() {
    let (group, spin) = (Cgroup::new("idle"), workload("spin", &["-g"]));
    let _idle = group.spawn("sleep 60");
    let server = Server::start(&["--cgroup", &group.path]);
    let first = server.scrape();
    for family in [
        "pmbpf_runqueue_latency_seconds_count",
        "pmbpf_net_receive_bytes_total",
        "pmbpf_block_read_bytes_total",
    ] {
        let key = format!("{family}{{target=\"path:{}\"}}", group.path);
        assert_eq!(first.get(&key), Some(&0.0), "{key}");
    }
    let sent = "pmbpf_net_bytes_total{interface=\"lo\",direction=\"sent\"}";
    assert!(first.contains_key(sent), "{first:?}");
    // It waits, sends and reads, as does the rest of the host.
    let _busy = [(); 3].map(|()| group.spawn(&format!("{spin} 2")));
    let mut met = first;
    let is_sum = |key: &str| {
        let name = key.split('{').next().unwrap_or_default();
        ["_total", "_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end))
    };
    server.settled(|samples| {
        for (key, value) in samples.iter().filter(|(key, _)| is_sum(key)) {
            assert!(met.contains_key(key) || *value == 0.0, "{key} appears with {value}");
        }
        met.extend(samples.clone());
    });
}

fn cpu_time(samples: &BTreeMap<String, f64>, target: &str) -> f64 {
    samples.get(&format!("{CPU}target=\"{target}\"}}")).copied().unwrap_or(-1.0)
}

#[test]
fn two_cgroups_that_claim_one_container_are_two_and_it_is_said() {
    let (above, spin) = (Cgroup::new("claims"), workload("spin", &["-g"]));
    let id = "5f".repeat(32);
    let [one, other] = ["a", "b"].map(|folder| above.below(&format!("{folder}/docker-{id}.scope")));
    let server = Server::start(&["--cgroup", &above.path, "--no-io"]);
    let _running = [&one, &one, &other].map(|group| group.spawn(&format!("{spin} 60")));
    let names = ["docker:5f5f5f5f5f5f".to_owned(), format!("path:{}", other.path)];
    let alternative = format!("path:{}", one.path);
    let mut samples = BTreeMap::new();
    wait_until("both have series", || {
        sleep(Duration::from_millis(400));
        samples = server.scrape();
        let has = |name: &str| cpu_time(&samples, name) >= 0.0;
        has(&names[0]) && (has(&names[1]) || has(&alternative))
    });
    let said = server.end_and_say();
    assert!(said.contains("two containers are called docker:5f5f5f5f5f5f: path:"), "{said}");
}

#[test]
fn a_container_and_the_one_that_took_its_name_are_two() {
    let Some(podman) = Podman::new(&["podman", "runc"]) else { return };
    if podman.make_image().is_none() {
        return;
    }
    let (web, blue) = (unique("web"), unique("blue"));
    podman.start(&web, &[], "while :; do :; done");
    let server = Server::start(&["--cgroup", &podman.cgroup.path, "--no-io"]);
    let named = format!("podman:{web}");
    assert!(cpu_time(&server.scrape(), &named) > 0.0);
    podman.prints(&["rename", &web, &blue]);
    podman.start(&web, &[], "while :; do :; done");
    wait_until("both have series by their names", || {
        sleep(Duration::from_millis(400));
        let samples = server.scrape();
        cpu_time(&samples, &named) > 0.0 && cpu_time(&samples, &format!("podman:{blue}")) >= 0.0
    });
    let said = server.end_and_say();
    assert!(!said.contains("two containers are called"), "{said}");
}
