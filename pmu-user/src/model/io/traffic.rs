//! What the programs for I/O counted between two readings.

use std::{borrow::Cow, collections::BTreeMap};

use pmu_common::{
    histogram::BLOCK,
    io::{block::BlockCount, net::NetCount},
};

use super::past::{self, Past};
use crate::{
    drain::io::{
        block::{BlockRow, DeviceNumber, InFlightRow, Operation, Whose},
        net::{Interface, NetOwner},
        traffic::Traffic,
    },
    model::histogram::Histogram,
    untrusted::Untrusted,
};

/// Requests of one device, operation and owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests that completed, failed ones included.
    pub requests: u64,
    /// Bytes that completed.
    pub bytes: u64,
    /// Sum of the device latencies, in ns.
    pub latency_ns: u64,
    /// Device latencies.
    pub latency: Histogram,
    /// Requests that waited in a queue. All others that were seen from their start went straight to the device.
    pub queued: u64,
    /// Sum of the queue latencies, in ns.
    pub queue_ns: u64,
    /// Queue latencies.
    pub queue: Histogram,
    /// Requests that are in no latency, because their start was not seen.
    pub unstarted: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that the device gave back at least once before it completed them.
    pub requeued: u64,
}

impl Requests {
    fn between(earlier: Option<&BlockRow>, later: &BlockRow) -> Self {
        let nothing = BlockCount::ZERO;
        let before = earlier.map_or(&nothing, |row| &row.count);
        let since = |of: fn(&BlockCount) -> u64| of(&later.count).wrapping_sub(of(before));
        let (latency, queue) = earlier.map_or((&[][..], &[][..]), |row| (&row.latency, &row.queue));
        Self {
            requests: since(|count| count.requests),
            bytes: since(|count| count.bytes),
            latency_ns: since(|count| count.latency_ns),
            latency: Histogram::between(BLOCK, latency, &later.latency),
            queued: since(|count| count.queued),
            queue_ns: since(|count| count.queue_ns),
            queue: Histogram::between(BLOCK, queue, &later.queue),
            unstarted: since(|count| count.unstarted),
            errors: since(|count| count.errors),
            requeued: since(|count| count.requeued),
        }
    }

    /// Adds others: of another owner, or another operation. Of another device only if neither is stacked on the other.
    pub fn merge(&mut self, other: &Self) {
        self.latency.merge(&other.latency);
        self.queue.merge(&other.queue);
        for (sum, count) in [
            (&mut self.requests, other.requests),
            (&mut self.bytes, other.bytes),
            (&mut self.latency_ns, other.latency_ns),
            (&mut self.queued, other.queued),
            (&mut self.queue_ns, other.queue_ns),
            (&mut self.unstarted, other.unstarted),
            (&mut self.errors, other.errors),
            (&mut self.requeued, other.requeued),
        ] {
            // A recording may hold anything.
            *sum = sum.wrapping_add(count);
        }
    }
}

/// Whose requests, where, and what is done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockKey {
    /// The device.
    pub device: DeviceNumber,
    /// What is done.
    pub operation: Operation,
    /// For whom.
    pub whose: Whose,
    /// The process's name, if the owner is one.
    pub name: Untrusted,
}

impl BlockKey {
    pub(super) fn of(row: &BlockRow) -> Self {
        Self { device: row.device, operation: row.operation, whose: row.whose, name: row.name.clone() }
    }
}

/// What was counted between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficInterval {
    /// Its length in ns.
    pub duration_ns: u64,
    /// Requests; only rows with any.
    pub block: BTreeMap<BlockKey, Requests>,
    /// Requests that had not completed at its end.
    pub in_flight: Vec<InFlightRow>,
    /// Packets; only rows with any.
    pub net: BTreeMap<(Interface, NetOwner), NetCount>,
    /// What was lost, by reason.
    pub losses: BTreeMap<String, u64>,
    /// Runs of programs that the kernel left out.
    pub missed: BTreeMap<String, u64>,
}

impl TrafficInterval {
    /// What two drains say of which one follows the other: `later` without what `earlier` had counted already.
    #[must_use]
    pub fn between(earlier: &Traffic, later: &Traffic) -> Self {
        let mut past = Past::since(earlier);
        past.add(later);
        Self::since(earlier, &past, later)
    }

    /// The same of drains with others between them; `past`: rows that were given up in all drains since `earlier`.
    #[must_use]
    pub fn since(earlier: &Traffic, past: &Past, later: &Traffic) -> Self {
        let block_before = past::by_key(&earlier.block);
        let block = past.with(&later.block).into_iter().map(|(key, row)| {
            let requests = Requests::between(block_before.get(&key).map(Cow::as_ref), &row);
            (key, requests)
        });
        let net_before = past::by_owner(&earlier.net);
        let net = past.with_net(&later.net).into_iter().map(|(key, count)| {
            let before = net_before.get(&key).copied().unwrap_or(NetCount::ZERO);
            (key, since(&before, &count))
        });
        Self {
            duration_ns: later.at_ns.saturating_sub(earlier.at_ns),
            block: block.filter(|(_, requests)| *requests != Requests::default()).collect(),
            in_flight: later.in_flight.clone(),
            net: net.filter(|(_, count)| *count != NetCount::ZERO).collect(),
            losses: grown(&earlier.losses, &later.losses),
            missed: grown(&earlier.missed, &later.missed),
        }
    }

    /// Requests of one device and operation, whoever wanted them.
    #[must_use]
    pub fn of_device(&self, device: DeviceNumber, operation: Operation) -> Requests {
        let mut all = Requests::default();
        for (_, requests) in self.rows_of(device, operation) {
            all.merge(requests);
        }
        all
    }

    /// Share of the bytes of a device and operation of which it is known who wanted them (0 to 1); none if there are no
    /// bytes.
    #[must_use]
    pub fn coverage(&self, device: DeviceNumber, operation: Operation) -> Option<f64> {
        let (mut known, mut all) = (0.0, 0.0);
        for (key, requests) in self.rows_of(device, operation) {
            let bytes = requests.bytes as f64;
            all += bytes;
            known += if key.whose.is_known() { bytes } else { 0.0 };
        }
        (all > 0.0).then(|| known / all)
    }

    fn rows_of(
        &self,
        device: DeviceNumber,
        operation: Operation,
    ) -> impl Iterator<Item = (&BlockKey, &Requests)> {
        self.block.iter().filter(move |(key, _)| key.device == device && key.operation == operation)
    }
}

fn since(earlier: &NetCount, later: &NetCount) -> NetCount {
    let subtract = |later: [[u64; 3]; 2], earlier: [[u64; 3]; 2]| {
        [0, 1].map(|way| [0, 1, 2].map(|kind| later[way][kind].wrapping_sub(earlier[way][kind])))
    };
    NetCount {
        packets: subtract(later.packets, earlier.packets),
        bytes: subtract(later.bytes, earlier.bytes),
        ..NetCount::ZERO
    }
}

fn grown(earlier: &[(String, u64)], later: &[(String, u64)]) -> BTreeMap<String, u64> {
    let before: BTreeMap<&str, u64> = earlier.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    let since = |(name, count): &(String, u64)| {
        (name.clone(), count.saturating_sub(before.get(name.as_str()).copied().unwrap_or(0)))
    };
    later.iter().map(since).filter(|&(_, count)| count > 0).collect()
}

#[cfg(test)]
mod tests {
    use pmu_common::io::{block::BlockCount, net::NetCount};

    use super::{Requests, TrafficInterval};
    use crate::{
        drain::io::{
            block::{BlockRow, DeviceNumber, Operation, Whose},
            net::{Interface, NetOwner, NetRow},
            traffic::Traffic,
        },
        machine::cgroup::CgroupId,
        untrusted::Untrusted,
    };

    const DISK: DeviceNumber = DeviceNumber { major: 7, minor: 0 };

    fn row(whose: Whose, requests: u64, bytes: u64) -> BlockRow {
        BlockRow {
            device: DISK,
            operation: Operation::Read,
            whose,
            name: Untrusted::default(),
            count: BlockCount { requests, bytes, ..BlockCount::ZERO },
            latency: vec![(300, requests as u32)],
            queue: Vec::new(),
        }
    }

    fn drain(at_ns: u64, block: Vec<BlockRow>) -> Traffic {
        Traffic { at_ns, block, losses: vec![("io_nested".to_owned(), at_ns)], ..Traffic::default() }
    }

    #[test]
    fn an_interval_holds_what_was_added_in_it() {
        let cgroup = Whose::Cgroup(CgroupId(9));
        let earlier = drain(100, vec![row(cgroup, u64::MAX - 1, 5), row(Whose::Kernel, 4, 4)]);
        let later =
            drain(300, vec![row(cgroup, 3, 105), row(Whose::Kernel, 4, 4), row(Whose::Unseen, 1, 100)]);
        let interval = TrafficInterval::between(&earlier, &later);
        assert_eq!((interval.duration_ns, interval.block.len(), interval.losses["io_nested"]), (200, 2, 200));
        let all = interval.of_device(DISK, Operation::Read);
        assert_eq!((all.requests, all.bytes, all.latency.count()), (6, 200, 6));
        assert_eq!(interval.coverage(DISK, Operation::Read), Some(0.5));
        assert_eq!(interval.coverage(DISK, Operation::Write), None);
        assert_eq!(interval.of_device(DISK, Operation::Write), Requests::default());
    }

    #[test]
    fn packets_are_subtracted_by_interface_and_owner() {
        let net = |owner, packets, bytes| NetRow {
            interface: Interface { namespace: 1, index: 1, name: Untrusted::from("lo") },
            owner,
            count: NetCount {
                packets: [[0, 0, 0], [packets, 0, 0]],
                bytes: [[0, 0, 0], [bytes, 0, 0]],
                ..NetCount::ZERO
            },
        };
        let of = |net| Traffic { net, ..Traffic::default() };
        let earlier = of(vec![net(NetOwner::Nobody, 1, 60)]);
        let later = of(vec![net(NetOwner::Nobody, 1, 60), net(NetOwner::Cgroup(CgroupId(9)), 2, 120)]);
        let interval = TrafficInterval::between(&earlier, &later);
        let found: Vec<_> =
            interval.net.iter().map(|((_, owner), count)| (*owner, count.bytes[1][0])).collect();
        assert_eq!(found, [(NetOwner::Cgroup(CgroupId(9)), 120)]);
    }

    #[test]
    fn a_drain_survives_a_recording() {
        let traffic = drain(7, vec![row(Whose::OnBehalfOf(CgroupId(3)), 1, 2)]);
        let text = serde_json::to_string(&traffic).unwrap();
        assert_eq!(serde_json::from_str::<Traffic>(&text).unwrap(), traffic);
    }
}
