//! I/O of every owner over all devices: one row that is shown next to the row of its tasks.
//!
//! Stacked disks and interfaces are left out, because they would count the bytes of those below them again.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Label, Row, Scope, Subject,
    latency::{self, NO_TIME},
    traffic::{DIRECTIONS, Names, of_latency, row, scaled},
};
use crate::{
    drain::{Owner, io::block::Operation},
    machine::io::Platform,
    metric::value::Value,
    model::io::traffic::{Requests, TrafficInterval},
    table::metric::{
        BLOCK_READ_BW, BLOCK_READ_LATENCY, BLOCK_WRITE_BW, BLOCK_WRITE_LATENCY, Metric, NET_RECEIVE_BW,
        NET_SEND_BW,
    },
};

/// Metrics of reads and of writes.
const OPERATIONS: [(Operation, Metric, Metric); 2] = [
    (Operation::Read, BLOCK_READ_BW, BLOCK_READ_LATENCY),
    (Operation::Write, BLOCK_WRITE_BW, BLOCK_WRITE_LATENCY),
];

/// Requests and packets of one owner.
#[derive(Default)]
struct Moved {
    /// Requests in the order of [`OPERATIONS`].
    requests: [Requests; 2],
    /// Bytes in the order of [`DIRECTIONS`].
    packets: [f64; 2],
}

/// Returns a row for each owner and metric with requests or bytes.
pub(super) fn rows(traffic: &TrafficInterval, names: Names<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (owner, moved) in owners(traffic, names) {
        let subject = Subject::Owner(owner, Box::new(Subject::Scope(Scope::Platform)));
        for ((_, bandwidth, latency), requests) in OPERATIONS.iter().zip(&moved.requests) {
            if *requests == Requests::default() {
                continue;
            }
            let report = latency::report(requests, traffic.duration_ns);
            rows.push(row(&subject, bandwidth, scaled(report.bytes_per_second, 1e-6), Label::Measured));
            rows.push(of_latency(&subject, latency, report.device, Label::Measured));
        }
        for (metric, bytes) in [NET_RECEIVE_BW, NET_SEND_BW].iter().zip(moved.packets) {
            if bytes > 0.0 {
                let seconds = traffic.duration_ns as f64 / 1e9;
                let rate = Value::ratio(bytes / 1e6, seconds, NO_TIME);
                rows.push(row(&subject, metric, rate, Label::Measured));
            }
        }
    }
    rows
}

fn owners(traffic: &TrafficInterval, names: Names<'_>) -> BTreeMap<Owner, Moved> {
    let mut owners: BTreeMap<Owner, Moved> = BTreeMap::new();
    let above = above(names.platform);
    for (key, requests) in &traffic.block {
        let at = OPERATIONS.iter().position(|(operation, ..)| *operation == key.operation);
        let number = (key.device.major, key.device.minor);
        let (Some(at), false) = (at, above.disks.contains(&number)) else { continue };
        let holders = names.whose(key.whose, &key.name).into_iter().flat_map(|owner| names.holders(owner));
        holders.for_each(|owner| owners.entry(owner).or_default().requests[at].merge(requests));
    }
    for ((interface, owner), count) in &traffic.net {
        if above.interfaces.contains(interface.name.as_bytes()) {
            continue;
        }
        for owner in names.net_owner(*owner).into_iter().flat_map(|owner| names.holders(owner)) {
            let moved = owners.entry(owner).or_default();
            for (sum, (way, _)) in moved.packets.iter_mut().zip(DIRECTIONS) {
                *sum += count.bytes[way].iter().map(|bytes| *bytes as f64).sum::<f64>();
            }
        }
    }
    owners
}

/// Disks and interfaces that are stacked on others.
struct Above<'a> {
    disks: BTreeSet<(u32, u32)>,
    interfaces: BTreeSet<&'a [u8]>,
}

fn above(platform: &Platform) -> Above<'_> {
    let disks = platform.disks.iter().filter(|disk| !disk.below.is_empty());
    let interfaces = platform.interfaces.iter().filter(|interface| !interface.below.is_empty());
    Above {
        disks: disks.map(|disk| disk.number).collect(),
        interfaces: interfaces.map(|interface| interface.name.as_bytes()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::rows;
    use crate::{
        drain::{
            Owner,
            io::{
                IoDrain, IoHeader, Named,
                block::{DeviceNumber, Operation, Whose},
                testing,
            },
        },
        machine::{
            cgroup::{Cgroup, CgroupId},
            io::function::Disk,
        },
        metric::io::{Names, Subject},
        model::io::{
            IoLedger,
            traffic::{BlockKey, Requests, TrafficInterval},
        },
        plan::{Target, request::Descend},
        untrusted::Untrusted,
    };

    const DISK: (u32, u32) = (259, 0);
    const ABOVE_IT: (u32, u32) = (253, 0);

    fn header(descend: Descend) -> IoHeader {
        let mut header = testing::header();
        let disk = |name: &str, number, below: &[&str]| Disk {
            name: Untrusted::from(name),
            number,
            devices: Vec::new(),
            below: below.iter().map(|name| Untrusted::from(*name)).collect(),
            model: None,
            mapped: None,
            partitions: Vec::new(),
        };
        header.platform.disks = vec![disk("nvme0n1", DISK, &[]), disk("dm-0", ABOVE_IT, &["nvme0n1"])];
        let web = Cgroup { path: Untrusted::from("/web"), id: CgroupId(5) };
        header.plan.target = Target::Cgroups(vec![web]);
        header.plan.descend = descend;
        header
    }

    /// Returns reads of two cgroups in a second: of 2 MB through a mapped disk, and of 1 MB.
    fn traffic() -> TrafficInterval {
        let read = |(major, minor), cgroup, bytes| {
            let (device, whose) = (DeviceNumber { major, minor }, Whose::Cgroup(CgroupId(cgroup)));
            let key = BlockKey { device, operation: Operation::Read, whose, name: Untrusted::default() };
            (key, Requests { requests: 1, bytes, ..Requests::default() })
        };
        let block = [read(DISK, 7, 2_000_000), read(ABOVE_IT, 7, 2_000_000), read(DISK, 8, 1_000_000)];
        TrafficInterval { duration_ns: 1_000_000_000, block: block.into(), ..TrafficInterval::default() }
    }

    /// Returns the read bandwidth of each cgroup, in MB/s.
    fn read(descend: Descend) -> Vec<(u64, f64)> {
        let header = header(descend);
        let mut ledger = IoLedger::new(&header.plan);
        let named = |(cgroup, path)| Named { cgroup, path: Untrusted::from(path) };
        let names = [(7, "/web/a"), (8, "/web/b")].map(named).to_vec();
        ledger.advance(IoDrain { names, ..IoDrain::default() });
        let rows = rows(&traffic(), Names::new(&header, &ledger));
        let read = rows.iter().filter(|row| row.metric == "block.read_bw").filter_map(|row| {
            let Subject::Owner(Owner::Cgroup { id, .. }, _) = &row.subject else { return None };
            Some((*id, row.value.known()?.estimate))
        });
        read.collect()
    }

    #[test]
    fn an_owner_has_what_it_read_from_every_disk_once() {
        assert_eq!(read(Descend::No), [(7, 2.0), (8, 1.0)]);
    }

    #[test]
    fn a_cgroup_has_what_those_below_it_read() {
        assert_eq!(read(Descend::Yes), [(5, 3.0), (7, 2.0), (8, 1.0)]);
    }
}
