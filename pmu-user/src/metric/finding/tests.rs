//! Tests of what is found, and what is not, in reports.

use super::{Cause, Finding, Known, exact, findings, rate, share_beside};
use crate::{
    drain::{Header, Owner},
    metric::{
        OwnerOrTarget, Pressure, Report, TasksReport, Throttled,
        io::{IoReport, Label, Row, Scope, Subject},
        testing::{header, machine, with_late_ticks},
        value::{Distribution, How, Value},
    },
    model::histogram::Histogram,
    plan::Target,
    table::metric,
    untrusted::Untrusted,
};

fn between(low: f64, estimate: f64, high: f64) -> Known {
    Known { estimate, low, high, coverage: 0.5, how: How::Sampled }
}

#[test]
fn what_may_be_below_the_threshold_is_none_nor_is_a_share_of_more_than_all() {
    let of = |low, high| Finding::of(Cause::HotFunction, between(low, (low + high) / 2.0, high)).is_some();
    assert!(of(30.1, 40.0) && of(99.0, 101.0));
    assert!(!of(30.0, 80.0) && !of(10.0, 20.0) && !of(120.0, 130.0));
}

#[test]
fn rates_and_shares_are_as_sure_as_the_time_that_they_are_of() {
    let time = between(0.5e9, 1e9, 2e9);
    let per = rate(&exact(1000.0), &time);
    assert_eq!((per.low, per.estimate, per.high, per.coverage), (500.0, 1000.0, 2000.0, 0.5));
    let share = share_beside(1e9, &time);
    assert_eq!((share.estimate, share.high), (50.0, 1e11 / 1.5e9));
    assert_eq!(rate(&exact(1.0), &exact(0.0)).estimate, f64::INFINITY);
}

#[test]
fn a_cgroup_above_one_that_is_found_tells_less_and_one_that_begins_as_it_does_is_another() {
    let of = |id, path: &str| Throttled {
        owner: Owner::cgroup(id, Untrusted::from(path)),
        periods: 100,
        share: Value::exact(50.0),
        time: Value::exact(1e9 * id as f64),
        limit: None,
    };
    let throttled = vec![of(1, "/"), of(2, "/web"), of(3, "/web/a"), of(4, "/webs")];
    let (header, ledger, interval) = with_late_ticks(Target::System, 1, 0);
    let tasks = TasksReport::new(&machine(), &header, &ledger, &interval, &[]);
    let tasks = Some(TasksReport { throttled, ..tasks });
    let header = Header::from(header);
    let found = findings(&header, &Report { tasks, ..Report::default() });
    let paths: Vec<_> = found.iter().filter_map(Finding::path).collect();
    assert_eq!(paths, [&b"/webs"[..], b"/web/a"]);
}

fn row(subject: Subject, metric: metric::Metric, value: Value) -> Row {
    let (metric, unit) = (metric.name.to_owned(), metric.unit);
    Row { subject, metric, unit, value, distribution: None, label: Label::System, note: None }
}

/// Returns requests, of which all but `slow` took a millisecond.
fn requests(subject: Subject, slow: u32, slow_ns: u64) -> Row {
    use pmu_common::histogram::BLOCK;
    let at = |ns: u64| BLOCK.bucket_of(ns) as u16;
    let histogram = Histogram::between(BLOCK, &[], &[(at(1_000_000), 1000), (at(slow_ns), slow)]);
    let max = histogram.last().unwrap();
    let found = Distribution { histogram, sum: 1, max, coverage: 1.0 };
    let row = row(subject, metric::BLOCK_LATENCY, Value::exact(1e6));
    Row { distribution: Some(Box::new(found)), ..row }
}

fn found(rows: Vec<Row>) -> Vec<Finding> {
    let io = Some(IoReport { rows, ..IoReport::default() });
    findings(&header(Target::System).into(), &Report { io, ..Report::default() })
}

#[test]
fn a_disk_whose_last_per_cent_is_slow_is_found_with_whose_most_requests_are() {
    let disk = Subject::Disk(Untrusted::from("sda"), "read");
    let owner = Owner::cgroup(7, Untrusted::from("/db"));
    let of_owner = Subject::Owner(owner.clone(), Box::new(disk.clone()));
    let rows = |slow_ns| vec![requests(disk.clone(), 30, slow_ns), requests(of_owner.clone(), 20, slow_ns)];
    assert_eq!(found(rows(20_000_000)), []);
    let [slow] = &found(rows(200_000_000))[..] else { panic!("one of the disk") };
    assert_eq!((slow.rule.cause, slow.subject.as_ref()), (Cause::BlockLatency, Some(&disk)));
    assert!(slow.value.low <= 2e8 && slow.value.high >= 2e8);
    let whose = slow.evidence.iter().find_map(|evidence| evidence.whose.clone());
    assert_eq!(whose, Some(OwnerOrTarget::Owner(owner)));
}

#[test]
fn memory_that_is_full_is_told_of_for_the_sockets_and_shares_only_of_enough_traffic() {
    let (socket, all) = (Subject::Scope(Scope::Socket(1)), Subject::Scope(Scope::Platform));
    let of = |subject: &Subject, metric, value| row(subject.clone(), metric, Value::exact(value));
    let full = [of(&all, metric::DRAM_UTILIZATION, 85.0), of(&socket, metric::DRAM_UTILIZATION, 92.0)];
    let subjects: Vec<_> = found(full.to_vec()).into_iter().map(|found| found.subject).collect();
    assert_eq!(subjects, [Some(socket.clone())]);
    let misses = |moved| {
        let rows = [
            of(&socket, metric::DDIO_WRITE_L3_MISS, 80.0),
            of(&socket, metric::PCIE_INBOUND_WRITE_BW, moved),
        ];
        found(rows.to_vec()).len()
    };
    assert_eq!((misses(900.0), misses(2000.0)), (0, 1));
    let remote = |part| {
        let rows = [
            of(&socket, metric::PCIE_INBOUND_READ_BW_REMOTE, part),
            of(&socket, metric::PCIE_INBOUND_READ_BW, 4000.0),
        ];
        found(rows.to_vec()).first().map(|found| (found.rule.cause, found.value.estimate))
    };
    assert_eq!((remote(1000.0), remote(3000.0)), (None, Some((Cause::RemoteDevice, 75.0))));
}

#[test]
fn what_the_kernel_counts_of_disks_and_packets_is_found_where_there_is_enough_of_it() {
    let of = |subject: &Subject, metric, value| row(subject.clone(), metric, Value::exact(value));
    let causes = |subject: &Subject, share: (metric::Metric, f64), amount: (metric::Metric, f64)| {
        let rows = [of(subject, share.0, share.1), of(subject, amount.0, amount.1)];
        found(rows.to_vec()).iter().map(|found| found.rule.cause).collect::<Vec<_>>()
    };
    let disk = Subject::Disk(Untrusted::from("sda"), "all");
    let of_disk =
        |busy, depth| causes(&disk, (metric::BLOCK_UTILIZATION, busy), (metric::BLOCK_QUEUE_DEPTH, depth));
    assert_eq!((of_disk(99.0, 1.0), of_disk(80.0, 9.0)), (vec![], vec![]));
    assert_eq!(of_disk(99.0, 9.0), [Cause::DiskSaturated]);
    let eth0 = Subject::Interface(Untrusted::from("eth0"), "received");
    let drops = |share, count| causes(&eth0, (metric::NET_DROP_SHARE, share), (metric::NET_DROPS, count));
    assert_eq!((drops(5.0, 3.0), drops(0.05, 300.0)), (vec![], vec![]));
    assert_eq!(drops(0.2, 300.0), [Cause::PacketDrops]);
    let web = Owner::cgroup(7, Untrusted::from("/web"));
    let tcp = Subject::Owner(web, Box::new(Subject::Scope(Scope::Platform)));
    let again = |share, count| {
        causes(&tcp, (metric::NET_RETRANSMITTED_SHARE, share), (metric::NET_RETRANSMITTED, count))
    };
    assert_eq!((again(2.0, 20.0), again(2.0, 200.0)), (vec![], vec![Cause::Retransmits]));
}

#[test]
fn pressure_is_found_of_cgroups_and_of_the_host_where_it_is_the_target() {
    let of = |whose, share| Pressure {
        whose,
        shares: vec![(metric::PRESSURE_IO_FULL, Value::exact(share))],
        of_ns: 1,
    };
    let causes = |target, pressure| {
        let (header, ledger, interval) = with_late_ticks(target, 1, 0);
        let tasks = TasksReport::new(&machine(), &header, &ledger, &interval, &[]);
        let tasks = Some(TasksReport { pressure: vec![pressure], ..tasks });
        let header = Header::from(header);
        let found = findings(&header, &Report { tasks, ..Report::default() });
        let causes = found.iter().map(|found| found.rule.cause);
        causes.filter(|cause| *cause == Cause::IoPressure).collect::<Vec<_>>()
    };
    let web = Owner::cgroup(7, Untrusted::from("/web"));
    let processes = || Target::Processes(vec![7]);
    assert_eq!(causes(processes(), of(None, 90.0)), []);
    assert_eq!(causes(Target::System, of(None, 90.0)), [Cause::IoPressure]);
    assert_eq!(causes(processes(), of(Some(web.clone()), 90.0)), [Cause::IoPressure]);
    assert_eq!(causes(processes(), of(Some(web), 40.0)), []);
}
