//! A simulated host: what its pods, disks and interfaces do in a minute, as reports.

use std::collections::BTreeMap;

use pmbpf::{
    drain::{Header, Owner, OwnerRow, SlotId, TasksDrain},
    machine::{
        container::{Container, Identity, Pod, Runtime},
        cpu::Cpu,
    },
    metric::{
        Report, TasksReport,
        io::{IoReport, Label, Row, Scope, Subject},
        value::{Distribution, Value},
    },
    model::{Counts, CpuCounts, Interval, Ledger, histogram::Histogram},
    table::metric::{self, Metric},
    untrusted::Untrusted,
};
use pmu_common::histogram::{BLOCK, Layout, RUNQUEUE};
use serde::Serialize;

use crate::{MINUTE_NS, Planted};

const DEPLOYMENTS: [(&str, &str); 10] = [
    ("shop", "web"),
    ("shop", "api"),
    ("shop", "cart"),
    ("shop", "search"),
    ("shop", "payment"),
    ("data", "db"),
    ("data", "cache"),
    ("data", "queue"),
    ("batch", "etl"),
    ("batch", "train"),
];

/// The name of a pod.
pub(crate) fn pod(host: usize, number: usize) -> String {
    let (_, deployment) = deployment(host, number);
    format!("{deployment}-{:05x}-{:05x}", 0x7f9c0 + host * 31, number * 7919 + host)
}

const fn deployment(host: usize, number: usize) -> (&'static str, &'static str) {
    DEPLOYMENTS[(host * 7 + number) % DEPLOYMENTS.len()]
}

/// What was made, to hold answers against.
#[derive(Default, Serialize)]
pub(crate) struct Sums {
    pub(crate) by_metric: BTreeMap<&'static str, f64>,
    pub(crate) cpu_by_namespace_and_hour: BTreeMap<String, f64>,
    /// Waits of the deployment `web` in the first hour, by the first ns above their bucket.
    pub(crate) waits_of_web: BTreeMap<u64, u64>,
}

impl Sums {
    pub(crate) fn merge(&mut self, other: &Self) {
        for (metric, sum) in &other.by_metric {
            *self.by_metric.entry(metric).or_default() += sum;
        }
        for (key, sum) in &other.cpu_by_namespace_and_hour {
            *self.cpu_by_namespace_and_hour.entry(key.clone()).or_default() += sum;
        }
        for (bound, count) in &other.waits_of_web {
            *self.waits_of_web.entry(*bound).or_default() += count;
        }
    }

    fn add(&mut self, metric: &'static str, amount: f64) {
        *self.by_metric.entry(metric).or_default() += amount;
    }
}

/// Random numbers, the same on every run (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    /// From 0 to 1, without 1.
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Of an exponential distribution.
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }

    /// Of a normal one, nearly.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// So many values around `median_ns`, in buckets, and their sum.
    fn values(&mut self, layout: Layout, count: u32, median_ns: f64) -> (Histogram, u64) {
        let mut buckets: BTreeMap<u16, u32> = BTreeMap::new();
        let mut sum_ns = 0_u64;
        // Many come in lots of the same.
        let lots = count.min(24);
        for lot in 0..lots {
            let of_lot = count / lots + u32::from(lot < count % lots);
            let value_ns = (median_ns * (1.1 * self.normal()).exp()) as u64;
            *buckets.entry(layout.bucket_of(value_ns) as u16).or_default() += of_lot;
            sum_ns += value_ns * u64::from(of_lot);
        }
        let counted: Vec<(u16, u32)> = buckets.into_iter().collect();
        (Histogram::between(layout, &[], &counted), sum_ns)
    }
}

/// A host.
pub(crate) struct Host {
    number: usize,
    random: Random,
    ledger: Ledger,
    pods: Vec<Owner>,
    /// What it did.
    pub(crate) did: Sums,
}

impl Host {
    pub(crate) fn new(number: usize, pods: usize) -> Self {
        let pods = (0..pods).map(|of| {
            let (namespace, deployment) = deployment(number, of);
            let container = Container {
                runtime: Some(Runtime::Containerd),
                id: Untrusted::from(format!("{:016x}", (number * 1000 + of) * 0x9e37_79b9).as_str()),
                name: Some(Untrusted::from(deployment)),
                image: Some(Untrusted::from(format!("registry.example/{deployment}:1.4").as_str())),
                ..Container::default()
            };
            let pod = Pod {
                name: Some(Untrusted::from(pod(number, of).as_str())),
                namespace: Some(Untrusted::from(namespace)),
                uid: None,
            };
            let path = format!("/kubepods.slice/pod{number:03}-{of:03}/cri-containerd-{of:03}.scope");
            let identity = Identity { container: Some(container), pod: Some(pod), ..Identity::default() };
            Owner::Cgroup {
                id: of as u64 + 1,
                path: path.as_str().into(),
                identity: Some(Box::new(identity)),
            }
        });
        let seed = 0x5eed_f1ee_7000 + number as u64;
        Self {
            number,
            random: Random(seed),
            ledger: Ledger::new(),
            pods: pods.collect(),
            did: Sums::default(),
        }
    }

    /// The report of a minute.
    pub(crate) fn minute(&mut self, header: &Header, minute: u64) -> Report {
        let at_ns = (minute + 1) * MINUTE_NS;
        let new = if minute == 0 { self.pods.as_slice() } else { &[] };
        let owners = new.iter().enumerate().map(|(slot, owner)| OwnerRow {
            slot: SlotId { slot: slot as u32 + 1, generation: 0 },
            owner: owner.clone(),
            ended_ns: None,
        });
        self.ledger.advance(&TasksDrain { at_ns, owners: owners.collect(), ..TasksDrain::default() });
        let indices: BTreeMap<Owner, _> =
            self.ledger.owners().map(|(index, owner)| (owner.clone(), index)).collect();
        let cpu =
            CpuCounts { ticks: 15_000, late_ticks: [20; 3], blind_ticks: [25; 3], ..CpuCounts::default() };
        let mut interval = Interval {
            from_ns: at_ns - MINUTE_NS,
            to_ns: at_ns,
            cpus: (0..8).map(|number| (Cpu(number), cpu.clone())).collect(),
            ..Interval::default()
        };
        let mut rows = Vec::new();
        for of in 0..self.pods.len() {
            let counts = self.pod(of, minute);
            interval.owners.insert(indices[&self.pods[of]], counts);
            rows.extend(self.traffic(of));
        }
        rows.extend(self.devices());
        let mut losses = BTreeMap::new();
        if self.number == Planted::LOSES && minute % 10 == 5 {
            losses.insert("slots_full".to_owned(), 17);
            self.did.add("losses", 17.0);
        }
        let tasks = header.tasks.as_ref();
        let tasks = tasks.map(|tasks| TasksReport::new(&header.machine, tasks, &self.ledger, &interval, &[]));
        let (from_ns, length_ns) = (interval.from_ns, MINUTE_NS);
        let io = IoReport { from_ns, length_ns, traffic_ns: length_ns, rows, ..IoReport::default() };
        Report { tasks, io: Some(io), losses, ..Report::default() }
    }

    /// What a pod's tasks do.
    fn pod(&mut self, of: usize, minute: u64) -> Counts {
        let (namespace, deployment) = deployment(self.number, of);
        let is_busier = deployment == Planted::BUSIER && minute >= 60;
        let waits_long = (self.number, of) == (Planted::WAITS, Planted::POD) && (30..40).contains(&minute);
        let cpu_time_ns = (self.random.exponential(8e9) * if is_busier { 2.0 } else { 1.0 }) as u64 + 1;
        let count = (cpu_time_ns / 400_000) as u32 + 1;
        let median_ns = if waits_long { 2e7 } else { 20_000.0 };
        let (waits, wait_ns) = self.random.values(RUNQUEUE, count, median_ns);
        let seconds = cpu_time_ns as f64 / 1e9;
        self.did.add("cpu_time_seconds", seconds);
        self.did.add("runqueue_latency_seconds", f64::from(count));
        self.did.add("runqueue_latency_seconds.sum", wait_ns as f64 / 1e9);
        let key = format!("{namespace} {}", 13 + minute / 60);
        *self.did.cpu_by_namespace_and_hour.entry(key).or_default() += seconds;
        if deployment == "web" && minute < 60 {
            for (bucket, count) in waits.iter() {
                *self.did.waits_of_web.entry(bucket.high + 1).or_default() += count;
            }
        }
        let ticks = cpu_time_ns / 4_000_000;
        Counts {
            cpu_time_ns,
            voluntary_switches: u64::from(count),
            involuntary_switches: u64::from(count) / 9,
            minor_faults: (self.random.exponential(900.0)) as u64,
            migrations: u64::from(count) / 40,
            waits,
            wait_ns,
            wait_max_ns: (0, u64::MAX / 2),
            ticks,
            late_ticks: ticks / 2000,
            blind_ticks: ticks / 1500,
            ..Counts::default()
        }
    }

    /// What a pod moves.
    fn traffic(&mut self, of: usize) -> Vec<Row> {
        let owner = self.pods[of].clone();
        let subject = Subject::Owner(owner, Box::new(Subject::Scope(Scope::Platform)));
        let mut rows = Vec::new();
        let moved = [
            (metric::BLOCK_READ_BW, "block_read_bytes", 3e6),
            (metric::BLOCK_WRITE_BW, "block_write_bytes", 5e6),
            (metric::NET_RECEIVE_BW, "net_receive_bytes", 4e7),
            (metric::NET_SEND_BW, "net_send_bytes", 6e7),
        ];
        for (metric, name, mean) in moved {
            let bytes = self.random.exponential(mean).round();
            self.did.add(name, bytes);
            rows.push(row(&subject, metric, bytes / 1e6 / 60.0, Label::Measured));
        }
        let latency = self.random.values(BLOCK, 200, 150_000.0);
        rows.push(distributed(&subject, metric::BLOCK_READ_LATENCY, latency, Label::Measured));
        rows
    }

    /// What disks and interfaces do.
    fn devices(&mut self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (disk, operation) in
            [("nvme0n1", "read"), ("nvme0n1", "write"), ("sda", "read"), ("sda", "write")]
        {
            let subject = Subject::Disk(Untrusted::from(disk), operation);
            let is_slow = self.number == Planted::SLOW_DISK && disk == "nvme0n1";
            let median_ns = if is_slow { 1e8 } else { 120_000.0 };
            let latency = self.random.values(BLOCK, 3000, median_ns);
            rows.push(distributed(&subject, metric::BLOCK_LATENCY, latency, Label::System));
            rows.push(row(&subject, metric::BLOCK_BANDWIDTH, self.random.exponential(2.0), Label::System));
            rows.push(row(&subject, metric::BLOCK_REQUESTS_RATE, 50.0, Label::System));
            rows.push(row(&subject, metric::BLOCK_UTILIZATION, self.random.exponential(8.0), Label::System));
        }
        for direction in ["receive", "send"] {
            let subject = Subject::Interface(Untrusted::from("eth0"), direction);
            rows.push(row(&subject, metric::NET_BANDWIDTH, self.random.exponential(20.0), Label::System));
            rows.push(row(&subject, metric::NET_PACKETS_RATE, self.random.exponential(9e3), Label::System));
        }
        rows
    }
}

fn row(subject: &Subject, metric: Metric, value: f64, label: Label) -> Row {
    Row {
        subject: subject.clone(),
        metric: metric.name.to_owned(),
        unit: metric.unit,
        value: Value::exact(value),
        distribution: None,
        label,
        note: None,
    }
}

fn distributed(subject: &Subject, metric: Metric, values: (Histogram, u64), label: Label) -> Row {
    let (histogram, sum) = values;
    let max = histogram.last().unwrap_or(pmbpf::model::histogram::Bucket { low: 0, high: 0 });
    let distribution = Distribution { histogram, sum, max, coverage: 1.0 };
    let mean = distribution.mean().estimate;
    Row { distribution: Some(Box::new(distribution)), ..row(subject, metric, mean, label) }
}
