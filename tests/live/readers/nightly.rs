//! Readers of different intervals, and a collector, beside ten minutes of cgroups that come and go.

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

/// Names the variable that sets the length of the churn, in seconds.
const LENGTH: &str = "PMBPF_CHURN";
/// Cgroups made a second, and how long each of them lives: 200 are alive.
const MADE: Duration = Duration::from_millis(200);
const LIFE: Duration = Duration::from_secs(40);
/// The share of the kernel's sum that each reader gets.
const SHARE: f64 = 0.005;
/// What memory may grow by in the last third, of a server that holds some eight thousand series.
const GROWTH_KB: f64 = 10.0 * 1024.0;
/// What the number of series may grow by in the last third, as a share.
const GROWN: f64 = 0.2;

/// CPU time in a request of OTLP, by attributes and start of a series.
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

/// Resident memory of a server, in KB.
fn resident_kb(server: &Server) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Makes cgroups that burn some CPU time each, and ends them; how many there were.
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

/// The most of the last third less the most of the one before: in the first, tables fill up to their bounds.
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

/// What reached a collector, in ns; once what there is by now has come.
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
        // Until an interval has all of it.
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
