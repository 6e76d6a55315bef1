//! Counts of the programs for I/O between two drains, and over any number of drains.
//!
//! Slots of owners that are gone are used again. The counts of such a row are reported once, in the first
//! drain without the row, as a retired row. They are part of the tick that this drain ends. Rows are matched
//! by their contents, never by their slot. A slot's next owner begins at 0 in a separate row, and so does an
//! owner that comes back. Until the old row is given up, a drain may hold two rows of one key: both count.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
};

use pmu_common::{
    histogram::BLOCK,
    io::{block::BlockCount, net::NetCount},
};

use crate::{
    drain::io::{
        block::{self, BlockRow, DeviceNumber, InFlightRow, Operation, Whose},
        net::{self, Interface, NetOwner, NetRow},
        traffic::Traffic,
    },
    model::histogram::Histogram,
    untrusted::Untrusted,
};

/// Rows of each kind that are kept apart although their owners have no row any more: some 8 MB of block
/// requests.
const GONE_MAX: usize = 4096;

/// Requests of one device, operation and owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests that completed, failed ones included.
    pub requests: u64,
    /// Bytes that completed.
    pub bytes: u64,
    /// Sum of the device latencies, in ns.
    pub latency_ns: u64,
    /// Histogram of device latencies.
    pub latency: Histogram,
    /// Requests that waited in a queue. All others that were seen from their start went straight to the device.
    pub queued: u64,
    /// Sum of the queue latencies, in ns.
    pub queue_ns: u64,
    /// Histogram of queue latencies.
    pub queue: Histogram,
    /// Requests without a latency, because their start was not seen.
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

    /// Adds requests of another owner or operation. Those of another device only if neither device is stacked
    /// on the other.
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
            // A recording may hold any number.
            *sum = sum.wrapping_add(count);
        }
    }
}

/// Counts from one drain to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficInterval {
    /// Length of the interval in ns.
    pub duration_ns: u64,
    /// Requests; only rows with any.
    pub block: BTreeMap<BlockKey, Requests>,
    /// Requests that had not completed at the end of the interval.
    pub in_flight: Vec<InFlightRow>,
    /// Packets; only rows with any.
    pub net: BTreeMap<NetKey, NetCount>,
    /// Losses by reason.
    pub losses: BTreeMap<String, u64>,
    /// Program runs that the kernel skipped.
    pub missed: BTreeMap<String, u64>,
}

impl TrafficInterval {
    /// Returns the counts from one drain to the next: `later` without the counts of `earlier`.
    pub fn between(earlier: &Traffic, later: &Traffic) -> Self {
        let before = block_rows(&earlier.block);
        let changed = |(key, row): &(BlockKey, Cow<'_, BlockRow>)| before.get(key) != Some(row);
        let block = block_rows(later.block.iter().chain(&later.retired.block)).into_iter();
        let block = block.filter(changed).map(|(key, row)| {
            let requests = Requests::between(before.get(&key).map(Cow::as_ref), &row);
            (key, requests)
        });
        let net_before = net_rows(&earlier.net);
        let net = net_rows(later.net.iter().chain(&later.retired.net)).into_iter().map(|(key, count)| {
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

    /// Adds the interval that follows.
    pub fn append(&mut self, next: Self) {
        self.duration_ns = self.duration_ns.saturating_add(next.duration_ns);
        for (key, requests) in next.block {
            match self.block.entry(key) {
                Entry::Occupied(mut sum) => sum.get_mut().merge(&requests),
                Entry::Vacant(entry) => {
                    entry.insert(requests);
                }
            }
        }
        self.in_flight = next.in_flight;
        for (key, count) in next.net {
            let sum = self.net.entry(key).or_insert(NetCount::ZERO);
            *sum = net::sum(sum, &count);
        }
        for (sums, lost) in [(&mut self.losses, next.losses), (&mut self.missed, next.missed)] {
            for (name, count) in lost {
                let sum = sums.entry(name).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }

    /// Merges rows into those of the owners beyond the limit. This is done if more than `GONE_MAX` of a kind
    /// have owners without a row in `now`, the last drain. The rows with the fewest requests or packets are
    /// merged.
    pub fn fold(&mut self, now: &Traffic) {
        self.fold_to(now, GONE_MAX);
    }

    fn fold_to(&mut self, now: &Traffic, most: usize) {
        let live = || now.block.iter().map(BlockKey::of).collect();
        for key in beyond(&self.block, live, most, |requests| requests.requests) {
            let Some(requests) = self.block.remove(&key) else { continue };
            let many = BlockKey { whose: Whose::Many, name: Untrusted::default(), ..key };
            self.block.entry(many).or_default().merge(&requests);
        }
        let live = || now.net.iter().map(key_of).collect();
        let packets = |count: &NetCount| count.packets.iter().flatten().copied().fold(0, u64::wrapping_add);
        for key in beyond(&self.net, live, most, packets) {
            let Some(count) = self.net.remove(&key) else { continue };
            let sum = self.net.entry((key.0, NetOwner::Many)).or_insert(NetCount::ZERO);
            *sum = net::sum(sum, &count);
        }
    }

    /// Returns the ids of the cgroups that have a row, with repetitions.
    pub fn cgroups(&self) -> impl Iterator<Item = u64> {
        let of_block =
            self.block.keys().map(|key| key.whose).chain(self.in_flight.iter().map(|row| row.whose));
        of_block.filter_map(Whose::cgroup).chain(self.net.keys().filter_map(|(_, owner)| owner.cgroup()))
    }

    /// Returns the requests of one device and operation, of all owners.
    pub fn of_device(&self, device: DeviceNumber, operation: Operation) -> Requests {
        let mut all = Requests::default();
        for (_, requests) in self.rows_of(device, operation) {
            all.merge(requests);
        }
        all
    }

    /// Returns the share of the bytes of a device and operation that has a known owner (0 to 1); `None` if
    /// there are no bytes.
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

/// Returns the keys of the excess rows, those with the most first. This leaves room, so that it is rare.
fn beyond<K: Clone + Ord, V>(
    rows: &BTreeMap<K, V>,
    live: impl FnOnce() -> BTreeSet<K>,
    most: usize,
    weight: impl Fn(&V) -> u64,
) -> Vec<K> {
    if rows.len() <= most {
        return Vec::new();
    }
    let live = live();
    let gone = rows.iter().filter(|(key, _)| !live.contains(key));
    let mut gone: Vec<(u64, &K)> = gone.map(|(key, row)| (weight(row), key)).collect();
    if gone.len() <= most {
        return Vec::new();
    }
    gone.sort_unstable_by_key(|&(weight, key)| (Reverse(weight), key));
    gone.into_iter().skip(most / 2).map(|(_, key)| key.clone()).collect()
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

/// Returns the growth of counts by name, for those that grew.
pub(super) fn grown(earlier: &[(String, u64)], later: &[(String, u64)]) -> BTreeMap<String, u64> {
    let before: BTreeMap<&str, u64> = earlier.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    let since = |(name, count): &(String, u64)| {
        (name.clone(), count.saturating_sub(before.get(name.as_str()).copied().unwrap_or(0)))
    };
    later.iter().map(since).filter(|&(_, count)| count > 0).collect()
}

/// Device, operation and owner of block requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockKey {
    /// Device of the requests.
    pub device: DeviceNumber,
    /// Operation of the requests.
    pub operation: Operation,
    /// Owner of the requests.
    pub whose: Whose,
    /// Name of the process, if the owner is one.
    pub name: Untrusted,
}

impl BlockKey {
    fn of(row: &BlockRow) -> Self {
        Self { device: row.device, operation: row.operation, whose: row.whose, name: row.name.clone() }
    }
}

/// Interface and owner of packets.
type NetKey = (Interface, NetOwner);

/// Returns the rows by key. Rows with one key are added up.
fn block_rows<'a>(rows: impl IntoIterator<Item = &'a BlockRow>) -> BTreeMap<BlockKey, Cow<'a, BlockRow>> {
    let mut sums: BTreeMap<BlockKey, Cow<'_, BlockRow>> = BTreeMap::new();
    for row in rows {
        sums.entry(BlockKey::of(row))
            .and_modify(|sum| *sum = Cow::Owned(added(sum, row)))
            .or_insert(Cow::Borrowed(row));
    }
    sums
}

/// Returns the rows of packets by key, likewise.
fn net_rows<'a>(rows: impl IntoIterator<Item = &'a NetRow>) -> BTreeMap<NetKey, NetCount> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let sum = sums.entry(key_of(row)).or_insert(NetCount::ZERO);
        *sum = net::sum(sum, &row.count);
    }
    sums
}

fn key_of(row: &NetRow) -> NetKey {
    (row.interface.clone(), row.owner)
}

/// Adds two rows. Numbers wrap as the kernel's do: a sum of wrapped numbers, less what wrapped before, is
/// right.
fn added(left: &BlockRow, right: &BlockRow) -> BlockRow {
    BlockRow {
        count: block::sum(&left.count, &right.count),
        latency: added_buckets(&left.latency, &right.latency),
        queue: added_buckets(&left.queue, &right.queue),
        ..left.clone()
    }
}

fn added_buckets(left: &[(u16, u32)], right: &[(u16, u32)]) -> Vec<(u16, u32)> {
    let mut sums: BTreeMap<u16, u32> = BTreeMap::new();
    for &(bucket, count) in left.iter().chain(right) {
        let sum = sums.entry(bucket).or_default();
        *sum = sum.wrapping_add(count);
    }
    sums.into_iter().collect()
}
