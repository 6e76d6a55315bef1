//! Latencies, against fio's log of every request.

use std::{collections::HashMap, fs, process::Command};

use pmbpf::{
    bpf::io::{Parts, Wanted},
    drain::io::{
        block::{BlockRow, Operation},
        traffic::Traffic,
    },
    metric::{
        io::latency::{RequestReport, report},
        value::QUANTILES,
    },
    model::io::traffic::TrafficInterval,
    plan::request::By,
};
use serde_json::Value;

use super::{Loop, can_run, counting, fio, fio_as, fio_command, throttle::Throttle, ways};
use crate::support::{Rows, Scratch, assert_close, pmbpf, skipped, unique};

/// Maximum time between the clock readings of two handlers of one tracepoint, in ns.
const APART_NS: f64 = 5_000.0;
/// Share of requests for which the host may take the CPU away between the two, or which complete in parts. It
/// is small on a quiet machine and larger on one in use.
const DISTURBED: f64 = 0.01;

/// Rank distance, as a share of all requests, at which a quantile's request may lie in fio's log.
const NEAR: f64 = 0.01;
/// Number of requests that fio keeps in flight on a slow disk.
const DEPTH: f64 = 40.0;

/// Returns the report of a device's reads since counting started.
fn reads(traffic: &Traffic, device: &Loop) -> RequestReport {
    let interval = TrafficInterval::between(&Traffic::default(), traffic);
    report(&interval.of_device(device.number, Operation::Read), interval.duration_ns)
}

/// Returns every latency that fio logged, in ns, ascending.
fn logged(prefix: &str) -> Vec<f64> {
    let text = fs::read_to_string(format!("{prefix}_lat.1.log")).unwrap();
    for log in ["lat", "clat", "slat"] {
        let _ = fs::remove_file(format!("{prefix}_{log}.1.log"));
    }
    let mut values: Vec<f64> =
        text.lines().map(|line| line.split(',').nth(1).unwrap().trim().parse().unwrap()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the least value that this share of all values does not exceed.
fn quantile(ascending: &[f64], share: f64) -> f64 {
    let rank = (share * ascending.len() as f64).ceil() as usize;
    ascending[rank.clamp(1, ascending.len()) - 1]
}

/// Returns a command line with perf that records each request to this device while a shell command runs.
fn noted(file: &Scratch, device: &Loop, command: &str) -> String {
    let number = (device.number.major << 20) | device.number.minor;
    let events = ["issue", "complete"].map(|end| format!("-e block:block_rq_{end} --filter dev=={number}"));
    // Runs in a separate mount namespace, because perf mounts tracefs and leaves it.
    let perf = "unshare --mount perf record --quiet --all-cpus --clockid monotonic --mmap-pages 1024";
    format!("{perf} --output {} {} -- {command}", file.as_str(), events.join(" "))
}

/// Returns the latencies between the two tracepoints from perf's record, in ns, ascending.
fn between_tracepoints(file: &Scratch) -> Vec<f64> {
    let mut perf = Command::new("perf");
    perf.args(["script", "--ns", "--fields", "time,event,trace", "--input", file.as_str()]);
    let output = perf.output().expect("the live ring needs perf");
    let text = std::str::from_utf8(&output.stdout).unwrap();
    // A sector is read again only after the first read. If one seems to be in flight still, perf missed its
    // end.
    let mut issued: HashMap<String, u64> = HashMap::new();
    let (mut latencies, mut unseen) = (Vec::new(), 0);
    for line in text.lines() {
        // ` 35430.118938292: block:block_rq_issue: 7,0 R 524288 () 7168 + 1024 0x2,0,4 [fio]`
        let (time, rest) = line.trim().split_once(": ").unwrap();
        let (seconds, fraction) = time.split_once('.').unwrap();
        let ns = seconds.parse::<u64>().unwrap() * 1_000_000_000 + fraction.parse::<u64>().unwrap();
        let sector = rest.split_once(" + ").unwrap().0.rsplit_once(' ').unwrap().1.to_owned();
        if rest.contains("block_rq_issue") {
            issued.insert(sector, ns);
        } else {
            // A request that is completed in parts is recorded for each, and a host may withhold events from
            // perf.
            match issued.remove(&sector) {
                Some(since) => latencies.push((ns - since) as f64),
                None => unseen += 1,
            }
        }
    }
    assert!(f64::from(unseen) <= DISTURBED * latencies.len() as f64, "{unseen} of {}", latencies.len());
    latencies.sort_by(f64::total_cmp);
    latencies
}

#[test]
fn latencies_are_those_that_perf_notes_and_fio_sees_no_shorter_ones() {
    if !can_run() {
        return;
    }
    for (way, bs, depth, loops) in
        ways().into_iter().flat_map(|way| [(way, "512k", 1, 32), (way, "4k", 16, 4)])
    {
        let device = Loop::new("latency", 64 << 20);
        let object = counting(way, Wanted::Everybody(By::Cgroup), Parts::Block);
        let (log, file) = (Scratch::new("fio"), Scratch::new("perf"));
        let options = format!(
            "--rw=randread --bs={bs} --iodepth={depth} --size=64m --loops={loops} --write_lat_log={}",
            log.as_str()
        );
        fio_as(&noted(&file, &device, &fio_command(&device.path, &options)));
        let ours = object.drain();
        let requests = TrafficInterval::between(&Traffic::default(), &ours);
        let requests = requests.of_device(device.number, Operation::Read).requests as f64;
        let ours = reads(&ours, &device);
        let (exact, theirs) = (between_tracepoints(&file), logged(log.as_str()));
        assert!(exact.len() > 500, "{}", exact.len());
        // Latencies that perf lost may have been the shortest or the longest.
        let unsure = DISTURBED + (1.0 - exact.len() as f64 / requests).max(0.0);
        let ours = ours.device.unwrap();
        for (name, share) in QUANTILES {
            let known = ours.quantile(share);
            assert!(known.high / known.low <= 1.0625, "{known:?}");
            let least = quantile(&exact, (share - unsure).max(0.0)) - APART_NS;
            let most = quantile(&exact, (share + unsure).min(1.0)) + APART_NS;
            assert!(known.low <= most && least <= known.high, "{name}: {least} to {most}, not {known:?}");
            let seen = quantile(&theirs, share);
            assert!(known.low <= seen, "{name}: fio cannot be faster than its device: {seen} {known:?}");
        }
    }
}

fn quantiles_of_a_slow_disk_are_fio_s_within_a_bucket() {
    if !can_run() {
        return;
    }
    for way in ways() {
        // On a disk, past the page cache: the kernel throttles the loop device's reads from it.
        let backing = Scratch(std::env::temp_dir().join(unique("slow")));
        let Some(device) = Loop::over(backing, 16 << 20, &["--direct-io=on"]) else {
            skipped("losetup takes no file here without the page cache");
            return;
        };
        let Some(throttle) = Throttle::new(&std::env::temp_dir(), 400) else {
            skipped("temporary files lie on no disk that the kernel throttles");
            return;
        };
        let object = counting(way, Wanted::Everybody(By::Cgroup), Parts::Block);
        let log = Scratch(std::env::temp_dir().join(unique("fio")));
        let options = format!(
            "--rw=randread --bs=4k --size=16m --iodepth={DEPTH} --time_based --runtime=5 --write_lat_log={}",
            log.as_str()
        );
        // On a machine in use fio waits for a CPU, too, which is not disk time.
        fio_as(&throttle.wrapped(&format!("chrt -f 10 {}", fio_command(&device.path, &options))));
        let ours = reads(&object.drain(), &device);
        let theirs = logged(log.as_str());
        let at = |share: f64| quantile(&theirs, share);
        assert!(at(0.5) > 50e6, "the disk is slow: {}", at(0.5));
        let ours = ours.device.unwrap();
        for (name, share) in QUANTILES {
            let known = ours.quantile(share);
            // A bucket is 6.25 % wide. The kernel releases requests in batches, and a quantile may be the
            // last or the first of one. fio reaps its last requests all at once, which lengthens that number
            // of latencies.
            let near = NEAR.max(1.5 * DEPTH / theirs.len() as f64);
            let (low, high) = (at(share - near) * 0.9375, at((share + near).min(1.0)) * 1.0625);
            assert!(
                (low..=high).contains(&known.estimate),
                "{name}: {} is not {}",
                known.estimate,
                at(share)
            );
        }
    }
}

#[test]
fn latencies_add_up_to_the_time_that_the_kernel_books_for_the_device() {
    if !can_run() {
        return;
    }
    for way in ways() {
        let device = Loop::new("ticks", 64 << 20);
        // Fourth field: time of reads in ms, from when each was allocated.
        let read_ms = || {
            let text = fs::read_to_string(format!("/sys/block/{}/stat", device.name())).unwrap();
            text.split_whitespace().nth(3).unwrap().parse::<f64>().unwrap()
        };
        let object = counting(way, Wanted::Everybody(By::Cgroup), Parts::Block);
        let before_ms = read_ms();
        fio(&device.path, "--rw=randread --bs=64k --iodepth=16 --size=64m --io_size=2g");
        let interval = TrafficInterval::between(&Traffic::default(), &object.drain());
        let ours = interval.of_device(device.number, Operation::Read);
        let kernel_ms = read_ms() - before_ms;
        assert_close("ms", ours.latency_ns as f64 / 1e6, kernel_ms, 0.05, 5.0);
        assert_eq!(ours.latency.count(), ours.requests);
    }
}

#[test]
fn a_request_that_went_straight_to_its_device_did_not_wait_and_one_in_a_queue_did() {
    if !can_run() {
        return;
    }
    for way in ways() {
        let device = Loop::new("queue", 64 << 20);
        let options = "--rw=randread --bs=4k --iodepth=16 --io_size=64m --size=64m";
        let count = |traffic: &Traffic, of: fn(&BlockRow) -> u64| -> u64 {
            traffic.block.iter().filter(|row| row.device == device.number).map(of).sum()
        };
        let object = counting(way, Wanted::Everybody(By::Cgroup), Parts::Block);
        fio(&device.path, options);
        let direct = object.drain();
        let (all, queued) =
            (count(&direct, |row| row.count.requests), count(&direct, |row| row.count.queued));
        assert!(queued * 100 <= all, "{queued} of {all}");
        if !device.set_scheduler("mq-deadline") {
            skipped("this kernel has no mq-deadline");
            return;
        }
        let object = counting(way, Wanted::Everybody(By::Cgroup), Parts::Block);
        fio(&device.path, options);
        let scheduled = object.drain();
        let (all, queued) =
            (count(&scheduled, |row| row.count.requests), count(&scheduled, |row| row.count.queued));
        assert!(queued * 100 >= all * 99, "{queued} of {all}");
        let buckets = count(&scheduled, |row| row.queue.iter().map(|&(_, count)| u64::from(count)).sum());
        assert_eq!(buckets, queued);
        assert!(reads(&scheduled, &device).queue.unwrap().quantile(0.5).estimate > 0.0);
    }
}

#[test]
fn the_tail_of_a_slow_disk_is_found_first() {
    if !can_run() {
        return;
    }
    let backing = Scratch(std::env::temp_dir().join(unique("slow")));
    let Some(device) = Loop::over(backing, 16 << 20, &["--direct-io=on"]) else {
        skipped("losetup takes no file here without the page cache");
        return;
    };
    let Some(throttle) = Throttle::new(&std::env::temp_dir(), 400) else {
        skipped("temporary files lie on no disk that the kernel throttles");
        return;
    };
    let options = format!("--rw=randread --bs=4k --size=16m --iodepth={DEPTH} --time_based --runtime=2");
    let fio = throttle.wrapped(&fio_command(device.path(), &options));
    let output = pmbpf().args(["io", "--json", "-a", "--", "sh", "-c", &fio]).output().unwrap();
    let rows = Rows::parse(&output.stderr);
    let found: Vec<&Value> = rows.of_kind("finding").collect();
    // Other disks of a host in use may be slow, too.
    let is_of_it = |finding: &&&Value| finding["subject"]["name"] == device.name();
    let slow = found.iter().find(is_of_it).unwrap_or_else(|| panic!("{found:?}"));
    assert_eq!(slow["finding"], "block_latency", "{found:?}");
    assert!(found[0]["finding"] == "block_latency", "{found:?}");
}

// The test waits for a slow disk.
nightly!(quantiles_of_a_slow_disk_are_fio_s_within_a_bucket);
