//! Readers of different intervals, and a collector, during ten minutes of short-lived cgroups.

use std::{
    collections::{BTreeMap, HashMap},
    env, fs,
    sync::atomic::{AtomicBool, Ordering},
    thread::{Scope, scope, sleep},
    time::{Duration, Instant},
};

use super::Reader;
use crate::{
    collector::Collector,
    protobuf::Message,
    serve::Server,
    support::{Cgroup, Started, assert_close, pmbpf, wait_until},
    workloads::workload,
};

/// Variable that sets the length of the churn, in seconds.
const LENGTH: &str = "PMBPF_CHURN";
/// Interval between new cgroups, and their lifetime: 200 are alive.
const MADE: Duration = Duration::from_millis(200);
const LIFE: Duration = Duration::from_secs(40);
/// Allowed deviation of each reader from the kernel's sum, as a share.
const SHARE: f64 = 0.005;
/// Allowed growth of memory in the last third, for a server with some eight thousand series.
const GROWTH_KB: f64 = 10.0 * 1024.0;
/// Allowed growth of the number of series in the last third, as a share.
const GROWN: f64 = 0.2;

/// Reads the CPU time of an OTLP request, by attributes and start of a series.
fn pushed(body: &[u8], last: &mut BTreeMap<(Vec<Vec<u8>>, u64), f64>) {
    let request = Message::read(body);
    let metrics = request.messages(1).into_iter().flat_map(|of| of.messages(2)).flat_map(|of| of.messages(2));
    for metric in metrics.filter(|metric| metric.texts(1) == ["pmbpf.cpu_time"]) {
        for point in metric.messages(7).iter().flat_map(|sum| sum.messages(1)) {
            let attributes = point.messages(7).iter().flat_map(|pair| [pair.one(1), pair.one(2)]).collect();
            let value = f64::from_bits(point.number(4));
            let before = last.insert((attributes, point.number(2)), value);
            assert!(before.is_none_or(|before| before <= value), "a sum fell from {before:?} to {value}");
        }
    }
}

/// Returns the resident memory of a server, in KB.
fn resident_kb(server: &Server) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Makes cgroups that each use some CPU time, ends them, and returns their number.
fn churn(above: &Cgroup, length: Duration, mut every_second: impl FnMut()) -> u32 {
    let duty = workload("duty", &[]);
    let command = format!("{duty} 4 990 {}", LIFE.as_secs());
    let (begun, mut made, mut second) = (Instant::now(), 0, 0);
    let mut living: HashMap<u32, (Cgroup, Started, Instant)> = HashMap::new();
    while begun.elapsed() < length || !living.is_empty() {
        if begun.elapsed() < length {
            let group = above.below(&made.to_string());
            let running = group.spawn(&command);
            living.insert(made, (group, running, Instant::now() + LIFE));
            made += 1;
        }
        living.retain(|_, (group, running, until)| {
            let lives = *until > Instant::now();
            if !lives {
                running.wait();
                wait_until("the cgroup is removed", || fs::remove_dir(group.folder()).is_ok());
            }
            lives
        });
        if begun.elapsed().as_secs() > second {
            second = begun.elapsed().as_secs();
            every_second();
        }
        sleep((MADE * made).saturating_sub(begun.elapsed()).max(Duration::from_millis(1)));
    }
    made
}

/// Returns the maximum of the last third less that of the third before. In the first third, tables fill up to
/// their bounds.
fn grown(values: &[f64]) -> f64 {
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let third = values.len() / 3;
    most(&values[2 * third..]) - most(&values[third..2 * third])
}

/// Reads at each reader's interval until it is over.
fn read<'threads>(
    threads: &'threads Scope<'threads, '_>,
    readers: &'threads mut [(Reader<'_>, Duration)],
    is_over: &'threads AtomicBool,
) {
    for (reader, every) in readers {
        threads.spawn(move || {
            let mut next = Instant::now() + *every;
            while !is_over.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(50));
                if Instant::now() >= next {
                    next += *every;
                    reader.read();
                }
            }
        });
    }
}

/// Returns the CPU time that a collector received, in ns, once the current counts have arrived.
fn collected_ns(collector: &Collector) -> f64 {
    let requests = || collector.requests.lock().unwrap();
    let before = requests().len();
    wait_until("two more requests came", || requests().len() >= before + 2);
    let mut last = BTreeMap::new();
    requests().iter().for_each(|(_, body)| pushed(body, &mut last));
    last.values().sum::<f64>() * 1e9
}

#[test]
fn ten_minutes_of_churn_reach_two_readers_three_readers_and_a_collector() {
    let length = env::var(LENGTH).map_or(600, |seconds| seconds.parse().unwrap());
    let (above, collector) = (Cgroup::new("churn"), Collector::start());
    let url = format!("http://{}", collector.address);
    let [two, three] = [&[][..], &["--otlp", &url, "--otlp-interval", "10s"]]
        .map(|options| Server::plain(pmbpf(), &[&["--cgroup", &above.path, "-I", "1s"], options].concat()));
    let mut readers = [
        (&two, "/metrics", 1),
        (&two, "/metrics?reader=b", 7),
        (&three, "/metrics", 1),
        (&three, "/metrics?reader=b", 15),
        (&three, "/metrics?reader=c", 60),
    ]
    .map(|(server, path, every_s)| (Reader::new(server, path), Duration::from_secs(every_s)));
    let (before, is_over) = (above.settled_usage_ns(), AtomicBool::new(false));
    let mut resident_kbs = [Vec::new(), Vec::new()];
    let made = scope(|threads| {
        read(threads, &mut readers, &is_over);
        let made = churn(&above, Duration::from_secs(length), || {
            resident_kbs
                .iter_mut()
                .zip([&two, &three])
                .for_each(|(kbs, server)| kbs.push(resident_kb(server)));
        });
        // Waits until an interval includes all of it.
        sleep(Duration::from_secs(3));
        is_over.store(true, Ordering::Relaxed);
        made
    });
    let used = above.settled_usage_ns() - before;
    readers.iter_mut().for_each(|(reader, _)| reader.read());
    println!("{made} cgroups used {:.3} s; resident: {resident_kbs:?} KB", used / 1e9);
    assert_close("OTLP every 10 s", collected_ns(&collector), used, SHARE, 0.0);
    for (reader, every) in &readers {
        let what = format!("{} every {every:?}", reader.path);
        println!("{what}: {:.2} %, series: {:?}", reader.grown_ns / used * 100.0, reader.sizes);
        assert!(reader.lost.is_empty(), "{what}: above 0 at first: {:?}", reader.lost);
        assert_close(&what, reader.grown_ns, used, SHARE, 0.0);
        let sizes: Vec<f64> = reader.sizes.iter().map(|&size| size as f64).collect();
        assert!(grown(&sizes) <= sizes[sizes.len() / 2] * GROWN, "{what}: series grew");
    }
    for held in &resident_kbs {
        assert!(grown(held) <= GROWTH_KB, "memory grew by {} KB", grown(held));
    }
}
