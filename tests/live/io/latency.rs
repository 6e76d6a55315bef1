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

use super::{Loop, can_run, counting, fio, ways};
use crate::support::{Scratch, skipped, unique};

/// What fio measures besides the device, per request: its own call into the kernel, and waking up after.
const ABOVE_NS: f64 = 25_000.0;

/// What is said of the reads of a device since counting started.
fn reads(traffic: &Traffic, device: &Loop) -> RequestReport {
    let interval = TrafficInterval::between(&Traffic::default(), traffic);
    report(&interval.of_device(device.number, Operation::Read), interval.duration_ns)
}

/// Every latency that fio logged, in ns, ascending.
fn logged(prefix: &str) -> Vec<f64> {
    let path = format!("{prefix}_clat.1.log");
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(path).unwrap();
    for other in ["lat", "slat"] {
        let _ = fs::remove_file(format!("{prefix}_{other}.1.log"));
    }
    let mut values: Vec<f64> =
        text.lines().map(|line| line.split(',').nth(1).unwrap().trim().parse().unwrap()).collect();
    values.sort_by(f64::total_cmp);
    values
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
        let options = "--ioengine=psync --rw=randread --bs=1m --size=64m --io_size=4g";
        fio(&device, &format!("{options} --write_lat_log={}", log.as_str()));
        let ours = reads(&object.drain(), &device);
        let theirs = logged(log.as_str());
        for ((name, share), value) in QUANTILES.iter().zip(&ours.device.quantiles_ns) {
            let rank = ((share * theirs.len() as f64).ceil() as usize).clamp(1, theirs.len());
            let (exact, known) = (theirs[rank - 1], value.known().unwrap());
            eprintln!("{way:?} {name}: fio {exact} ns, ours {} to {} ns", known.low, known.high);
            assert!(known.high / known.low <= 1.0625, "{known:?}");
            assert!(known.low <= exact, "{name}: fio cannot be faster than its device: {exact} {known:?}");
            assert!(exact <= known.high + ABOVE_NS, "{name}: {exact} {known:?}");
        }
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
        fio(&device, options);
        let direct = object.drain();
        let (all, queued) =
            (count(&direct, |row| row.count.requests), count(&direct, |row| row.count.queued));
        assert!(queued * 100 <= all, "{queued} of {all}");
        if !device.set_scheduler("mq-deadline") {
            skipped("this kernel has no mq-deadline");
            return;
        }
        let object = counting(way, Wanted::Everybody(By::Cgroup), Parts::Block);
        fio(&device, options);
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
