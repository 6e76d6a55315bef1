//! Latencies, against fio's log of every single one.

use std::fs;

use pmbpf::{
    bpf::io::{Parts, Wanted},
    drain::io::{
        block::{BlockRow, Operation},
        traffic::Traffic,
    },
    metric::io::latency::{QUANTILES, RequestReport, report},
    model::io::traffic::TrafficInterval,
    plan::request::By,
};

use super::{Loop, can_run, counting, fio, fio_as, fio_command, throttle::Throttle, ways};
use crate::support::{Scratch, assert_close, skipped, unique};

/// What fio measures besides the device, per request, if nothing comes in between: its own calls.
const ABOVE_NS: f64 = 25_000.0;
/// Quantiles up to which nothing comes in between. Above, fio waits for a CPU, too, for as long as the host lets it.
const UNDISTURBED: f64 = 0.5;

/// Share of all requests by which a quantile's may be another one in fio's log.
const NEAR: f64 = 0.01;

/// What is said of the reads of a device since counting started.
fn reads(traffic: &Traffic, device: &Loop) -> RequestReport {
    let interval = TrafficInterval::between(&Traffic::default(), traffic);
    report(&interval.of_device(device.number, Operation::Read), interval.duration_ns)
}

/// Every latency that fio logged, in ns, ascending.
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

/// The least value that this share of all values does not exceed.
fn quantile(ascending: &[f64], share: f64) -> f64 {
    let rank = (share * ascending.len() as f64).ceil() as usize;
    ascending[rank.clamp(1, ascending.len()) - 1]
}

#[test]
fn latencies_are_those_that_fio_logged_less_what_lies_above_the_device() {
    if !can_run() {
        return;
    }
    for way in ways() {
        let device = Loop::new("latency", 64 << 20);
        let object = counting(way, Wanted::Everybody(By::Cgroup), Parts::Block);
        let log = Scratch(std::env::temp_dir().join(unique("fio")));
        // One request at a time, as large as one gets, and looked for in user space, so that nobody is woken up.
        let alone = "--iodepth=1 --userspace_reap --iodepth_batch_complete_min=0";
        let options = format!("--rw=randread --bs=512k --size=64m --io_size=4g {alone}");
        fio(&device.path, &format!("{options} --write_lat_log={}", log.as_str()));
        let ours = reads(&object.drain(), &device);
        let theirs = logged(log.as_str());
        for ((name, share), value) in QUANTILES.iter().zip(&ours.device.quantiles_ns) {
            let (exact, known) = (quantile(&theirs, *share), value.known().unwrap());
            assert!(known.high / known.low <= 1.0625, "{known:?}");
            assert!(known.low <= exact, "{name}: fio cannot be faster than its device: {exact} {known:?}");
            let disturbed = *share > UNDISTURBED || crate::support::in_guest();
            assert!(disturbed || exact <= known.high + ABOVE_NS, "{name}: {exact} {known:?}");
        }
    }
}

#[test]
fn quantiles_of_a_slow_disk_are_fio_s_within_a_bucket() {
    if !can_run() {
        return;
    }
    for way in ways() {
        // On a disk, past the page cache: what the kernel throttles is what the loop device reads from it.
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
            "--rw=randread --bs=4k --size=16m --iodepth=40 --time_based --runtime=5 --write_lat_log={}",
            log.as_str()
        );
        fio_as(&throttle.wrapped(&fio_command(&device.path, &options)));
        let ours = reads(&object.drain(), &device);
        let theirs = logged(log.as_str());
        let at = |share: f64| quantile(&theirs, share);
        assert!(at(0.5) > 50e6, "the disk is slow: {}", at(0.5));
        for ((name, share), value) in QUANTILES.iter().zip(&ours.device.quantiles_ns) {
            let known = value.known().unwrap();
            // A bucket is 6.25 % wide. The kernel lets requests go in batches, of which a quantile may be the last or the
            // first; and fio takes back its last requests all at once.
            let (low, high) = (at(share - NEAR) * 0.9375, at((share + NEAR).min(1.0)) * 1.0625);
            assert!(
                (low..=high).contains(&known.estimate),
                "{name}: {} is not {}",
                known.estimate,
                at(*share)
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
        assert!(
            reads(&scheduled, &device).queue.quantiles_ns[0].known().is_some_and(|p50| p50.estimate > 0.0)
        );
    }
}
