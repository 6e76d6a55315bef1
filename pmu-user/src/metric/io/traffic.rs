//! Rows of block requests and packets: of every disk and interface, and of every owner that moved bytes
//! there.

use std::collections::BTreeMap;

use pmu_common::{
    io::net::{OTHER, RECEIVED, SENT, TCP, UDP},
    owner::START_TICK_NS,
};

use super::{
    Label, Row, Subject,
    latency::{self, NO_TIME},
};
use crate::{
    drain::{
        Owner, TARGET_UNSEEN,
        io::{
            IoHeader,
            block::{DeviceNumber, Operation, Whose},
            net::NetOwner,
        },
    },
    machine::{cgroup::ancestors, io::Platform},
    metric::value::{Distribution, Value},
    model::{
        FollowedPaths,
        io::{
            IoLedger,
            names::CgroupPaths,
            traffic::{Requests, TrafficInterval},
        },
    },
    plan::{Target, request::Descend},
    table::metric::{self, Metric},
    untrusted::Untrusted,
};

/// Names of disks, interfaces and cgroups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    /// Disks and interfaces.
    pub platform: &'a Platform,
    /// Disks that have been seen.
    pub disks: &'a BTreeMap<DeviceNumber, Untrusted>,
    /// Cgroups that have been seen.
    pub cgroups: &'a CgroupPaths,
    /// Cgroups that became targets.
    pub followed: &'a FollowedPaths,
    /// Target of the run, if the values of a cgroup include those of its descendants.
    pub within: Option<&'a Target>,
}

/// Reason why a target has no requests although it is known to have made some.
pub(super) const UNSEEN: &str =
    "it read from block devices, as the kernel accounts it, but no request of it was seen";

/// Indexes of directions, with their words.
pub const DIRECTIONS: [(usize, &str); 2] = [(RECEIVED, "received"), (SENT, "sent")];

impl<'a> Names<'a> {
    /// Returns the names that are known so far.
    pub(super) fn new(header: &'a IoHeader, ledger: &'a IoLedger) -> Self {
        Self {
            platform: &header.platform,
            disks: &ledger.disks,
            cgroups: &ledger.cgroups,
            followed: &ledger.followed,
            within: (header.plan.descend == Descend::Yes).then_some(&header.plan.target),
        }
    }

    /// Returns the owners that are charged for what `owner` moved: itself and its requested ancestor cgroups,
    /// as in `io.stat`.
    pub(super) fn holders(&self, owner: Owner) -> Vec<Owner> {
        let above = match (&owner, self.within) {
            (Owner::Cgroup { path, .. }, Some(target)) => ancestors(path.as_bytes())
                .filter(|above| target.names(above) || target.is_above(above) || self.followed.has(above))
                .filter_map(|above| self.told_of(target, Untrusted::new(above)))
                .collect(),
            _ => Vec::new(),
        };
        std::iter::once(owner).chain(above).collect()
    }

    /// Returns the name of the disk, or its number if it no longer has a name.
    pub(super) fn disk(&self, device: DeviceNumber) -> Untrusted {
        let number = (device.major, device.minor);
        if let Some(name) = self.disks.get(&device) {
            return name.clone();
        }
        let known = self.platform.disks.iter().find(|disk| disk.number == number);
        known.map_or_else(
            || Untrusted::from(format!("{}:{}", device.major, device.minor)),
            |disk| disk.name.clone(),
        )
    }

    /// Returns the cgroup with this path. A cgroup that was not reported is identified by its path alone.
    pub(super) fn cgroup_at(&self, path: Untrusted) -> Owner {
        Owner::cgroup(self.cgroups.id(&path).unwrap_or(0), path)
    }

    fn cgroup(&self, id: u64) -> Owner {
        let path = self.cgroups.path(id).cloned();
        Owner::cgroup(id, path.unwrap_or_else(|| Untrusted::from(format!("cgroup {id}"))))
    }

    /// Returns the cgroup with this path, if it was reported or is a target.
    fn told_of(&self, target: &Target, path: Untrusted) -> Option<Owner> {
        let of_target = || match target {
            Target::Cgroups(targets) => targets.iter().find(|target| target.path == path),
            _ => None,
        };
        let id = self.cgroups.id(&path).or_else(|| of_target().map(|target| target.id.0))?;
        Some(Owner::cgroup(id, path))
    }

    /// Returns the owner of block requests, if they have one.
    pub(super) fn whose(&self, whose: Whose, name: &Untrusted) -> Option<Owner> {
        match whose {
            Whose::Process { pid, born } => {
                Some(Owner::Process { pid, born_ns: u64::from(born) * START_TICK_NS, name: name.clone() })
            }
            Whose::Cgroup(id) | Whose::OnBehalfOf(id) => Some(self.cgroup(id.0)),
            Whose::Kernel | Whose::Outsider | Whose::Unseen | Whose::Many => None,
        }
    }

    /// Returns the owner of packets, if they have one.
    pub(super) fn net_owner(&self, owner: NetOwner) -> Option<Owner> {
        match owner {
            NetOwner::Cgroup(id) => Some(self.cgroup(id.0)),
            NetOwner::Nobody | NetOwner::Outsider | NetOwner::Many => None,
        }
    }
}

/// Returns rows of disks, then rows of interfaces, each with the rows of their owners.
pub(super) fn rows(traffic: &TrafficInterval, names: Names<'_>) -> Vec<Row> {
    let mut rows = disks(traffic, names);
    rows.extend(interfaces(traffic, names));
    rows
}

fn disks(traffic: &TrafficInterval, names: Names<'_>) -> Vec<Row> {
    let mut totals: BTreeMap<(DeviceNumber, Operation), Requests> = BTreeMap::new();
    let mut owners: BTreeMap<(DeviceNumber, Operation, Owner), Requests> = BTreeMap::new();
    for (key, requests) in &traffic.block {
        totals.entry((key.device, key.operation)).or_default().merge(requests);
        for owner in names.whose(key.whose, &key.name).into_iter().flat_map(|owner| names.holders(owner)) {
            owners.entry((key.device, key.operation, owner)).or_default().merge(requests);
        }
    }
    let mut rows = Vec::new();
    for ((device, operation), requests) in totals {
        let subject = Subject::Disk(names.disk(device), operation.name());
        rows.extend(of_requests(&subject, &requests, traffic.duration_ns, Label::System));
        let told_apart = match traffic.coverage(device, operation) {
            _ if traffic.losses.contains_key(TARGET_UNSEEN) => Value::Missing(UNSEEN.to_owned()),
            Some(share) => Value::exact(share * 100.0),
            None => Value::Missing("no bytes were moved".to_owned()),
        };
        rows.push(row(&subject, &metric::BLOCK_TOLD_APART, told_apart, Label::System));
    }
    for ((device, operation, owner), requests) in owners {
        let disk = Subject::Disk(names.disk(device), operation.name());
        let subject = Subject::Owner(owner, Box::new(disk));
        rows.extend(of_requests(&subject, &requests, traffic.duration_ns, Label::Measured));
    }
    rows
}

fn of_requests(subject: &Subject, requests: &Requests, duration_ns: u64, label: Label) -> Vec<Row> {
    let report = latency::report(requests, duration_ns);
    let row = |metric: &Metric, value: Value| row(subject, metric, value, label);
    let mut rows = vec![
        row(&metric::BLOCK_REQUESTS_RATE, report.requests_per_second),
        row(&metric::BLOCK_BANDWIDTH, scaled(report.bytes_per_second, 1e-6)),
        row(&metric::BLOCK_REQUEST_SIZE, report.request_bytes),
        row(&metric::BLOCK_ERRORS, Value::exact(requests.errors as f64)),
        row(&metric::BLOCK_QUEUED, scaled(report.queued_share, 100.0)),
    ];
    rows.push(of_latency(subject, &metric::BLOCK_LATENCY, report.device, label));
    rows.push(of_latency(subject, &metric::BLOCK_QUEUE, report.queue, label));
    rows
}

pub(super) fn of_latency(
    subject: &Subject,
    metric: &Metric,
    latency: Result<Distribution, &'static str>,
    label: Label,
) -> Row {
    match latency {
        Ok(latency) => {
            let row = row(subject, metric, Value::Known(latency.mean()), label);
            Row { distribution: Some(Box::new(latency)), ..row }
        }
        Err(why) => row(subject, metric, Value::Missing(why.to_owned()), label),
    }
}

fn interfaces(traffic: &TrafficInterval, names: Names<'_>) -> Vec<Row> {
    let mut totals: BTreeMap<(Untrusted, &'static str), [f64; 5]> = BTreeMap::new();
    let mut owners: BTreeMap<(Untrusted, &'static str, Owner), [f64; 5]> = BTreeMap::new();
    for ((interface, owner), count) in &traffic.net {
        for (way, direction) in DIRECTIONS {
            let bytes = count.bytes[way].map(|bytes| bytes as f64);
            let packets: f64 = count.packets[way].iter().map(|packets| *packets as f64).sum();
            let owner = names.net_owner(*owner);
            let known = if owner.is_some() { bytes.iter().sum() } else { 0.0 };
            let numbers = [packets, bytes[TCP], bytes[UDP], bytes[OTHER], known];
            if packets == 0.0 {
                continue;
            }
            add(totals.entry((interface.name.clone(), direction)).or_default(), numbers);
            for owner in owner.into_iter().flat_map(|owner| names.holders(owner)) {
                add(owners.entry((interface.name.clone(), direction, owner)).or_default(), numbers);
            }
        }
    }
    let seconds = traffic.duration_ns as f64 / 1e9;
    let mut rows = Vec::new();
    for ((name, direction), numbers) in totals {
        let subject = Subject::Interface(name, direction);
        rows.extend(of_packets(&subject, numbers, seconds, Label::System));
        let [_, tcp, udp, other, known] = numbers;
        let share = Value::ratio(known * 100.0, tcp + udp + other, "no bytes were moved");
        rows.push(row(&subject, &metric::NET_TOLD_APART, share, Label::System));
    }
    for ((name, direction, owner), numbers) in owners {
        let subject = Subject::Owner(owner, Box::new(Subject::Interface(name, direction)));
        rows.extend(of_packets(&subject, numbers, seconds, Label::Measured));
    }
    rows
}

fn add(sum: &mut [f64; 5], numbers: [f64; 5]) {
    sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
}

fn of_packets(subject: &Subject, numbers: [f64; 5], seconds: f64, label: Label) -> Vec<Row> {
    let [packets, tcp, udp, other, _] = numbers;
    let rate = |count: f64, unit: f64| Value::ratio(count / unit, seconds, NO_TIME);
    let row = |metric: &Metric, value: Value| row(subject, metric, value, label);
    vec![
        row(&metric::NET_BANDWIDTH, rate(tcp + udp + other, 1e6)),
        row(&metric::NET_PACKETS_RATE, rate(packets, 1.0)),
        row(&metric::NET_TCP, rate(tcp, 1e6)),
        row(&metric::NET_UDP, rate(udp, 1e6)),
        row(&metric::NET_OTHER, rate(other, 1e6)),
    ]
}

pub(super) fn row(subject: &Subject, metric: &Metric, value: Value, label: Label) -> Row {
    let (metric, unit) = (metric.name.to_owned(), metric.unit);
    Row { subject: subject.clone(), metric, unit, value, distribution: None, label, note: None }
}

pub(super) fn scaled(value: Value, factor: f64) -> Value {
    match value {
        Value::Known(known) => Value::Known(known.times(factor)),
        missing => missing,
    }
}
