//! Rows that were given up, and rows of one key added up.
//!
//! Slots of owners that are gone are used again. What such a row had counted is told once, in the drain after which it
//! is gone; whoever subtracts drains adds it. Rows are matched by what they say they are, never by their slot: a slot's
//! next owner begins at 0 in a row of its own, and so does an owner that comes back. Until the old one is given up, a
//! drain may hold two rows of one key: both count.
//!
//! Of more rows than are kept apart, those with the fewest requests or packets are added to the owners beyond the limit.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use pmu_common::io::net::NetCount;

use super::traffic::BlockKey;
use crate::{
    drain::io::{
        block::{self, BlockRow, Whose},
        net::{self, Interface, NetOwner, NetRow},
        traffic::Traffic,
    },
    untrusted::Untrusted,
};

/// Packets' rows: where, and whose.
pub(super) type NetKey = (Interface, NetOwner);

/// Rows of each kind that are kept apart, beside those that the first drain had: some 8 MB of block requests.
const ROWS_MAX: usize = 4096;

/// What rows that were given up had counted, over any number of drains.
#[derive(Clone, Debug)]
pub struct Past {
    block: BTreeMap<BlockKey, BlockRow>,
    net: BTreeMap<NetKey, NetCount>,
    /// Those that counted before the first drain stay apart: what they had counted then is subtracted from their sums.
    began: (BTreeSet<BlockKey>, BTreeSet<NetKey>),
    most: usize,
}

impl Past {
    /// Nothing yet; `first` is the drain that will be subtracted.
    #[must_use]
    pub fn since(first: &Traffic) -> Self {
        Self::within(first, ROWS_MAX)
    }

    fn within(first: &Traffic, most: usize) -> Self {
        let block = first.block.iter().map(BlockKey::of).collect();
        let net = first.net.iter().map(|row| (row.interface.clone(), row.owner)).collect();
        Self { block: BTreeMap::new(), net: BTreeMap::new(), began: (block, net), most }
    }

    /// Adds what was given up before a drain.
    pub fn add(&mut self, drain: &Traffic) {
        for row in &drain.retired.block {
            let key = BlockKey::of(row);
            self.block.entry(key).and_modify(|sum| *sum = added(sum, row)).or_insert_with(|| row.clone());
        }
        for row in &drain.retired.net {
            let sum = self.net.entry((row.interface.clone(), row.owner)).or_insert(NetCount::ZERO);
            *sum = net::sum(sum, &row.count);
        }
        self.fold();
    }

    /// Adds the rows that are not kept apart to those of the owners beyond the limit.
    fn fold(&mut self) {
        let requests = |row: &BlockRow| row.count.requests;
        for key in beyond(&self.block, &self.began.0, self.most, requests) {
            let Some(row) = self.block.remove(&key) else { continue };
            let many = BlockRow { whose: Whose::Many, name: Untrusted::default(), ..row };
            let sum = self.block.entry(BlockKey::of(&many));
            sum.and_modify(|sum| *sum = added(sum, &many)).or_insert(many);
        }
        let packets =
            |count: &NetCount| count.packets.iter().flatten().fold(0, |sum: u64, one| sum.wrapping_add(*one));
        for (interface, owner) in beyond(&self.net, &self.began.1, self.most, packets) {
            let Some(count) = self.net.remove(&(interface.clone(), owner)) else { continue };
            let sum = self.net.entry((interface, NetOwner::Many)).or_insert(NetCount::ZERO);
            *sum = net::sum(sum, &count);
        }
    }

    /// `rows` and these, by key.
    pub(super) fn with<'a>(&'a self, rows: &'a [BlockRow]) -> BTreeMap<BlockKey, Cow<'a, BlockRow>> {
        let mut sums = by_key(rows);
        for (key, row) in &self.block {
            add(&mut sums, key.clone(), row);
        }
        sums
    }

    /// The same of packets.
    pub(super) fn with_net(&self, rows: &[NetRow]) -> BTreeMap<NetKey, NetCount> {
        let mut sums = by_owner(rows);
        for (key, count) in &self.net {
            let sum = sums.entry(key.clone()).or_insert(NetCount::ZERO);
            *sum = net::sum(sum, count);
        }
        sums
    }
}

/// Keys of the rows that are too many, those with the least first; there is room afterwards, so that this is rare.
fn beyond<K: Clone + Ord, V>(
    rows: &BTreeMap<K, V>,
    began: &BTreeSet<K>,
    most: usize,
    weight: impl Fn(&V) -> u64,
) -> Vec<K> {
    if rows.len() <= most {
        return Vec::new();
    }
    let mut keys: Vec<(u64, &K)> = rows.iter().map(|(key, row)| (weight(row), key)).collect();
    keys.sort_unstable_by_key(|&(weight, key)| (Reverse(weight), key));
    let rest = keys.into_iter().skip(most / 2).map(|(_, key)| key);
    rest.filter(|key| !began.contains(key)).cloned().collect()
}

/// Rows by key; several of one key are added up.
pub(super) fn by_key(rows: &[BlockRow]) -> BTreeMap<BlockKey, Cow<'_, BlockRow>> {
    let mut sums = BTreeMap::new();
    for row in rows {
        add(&mut sums, BlockKey::of(row), row);
    }
    sums
}

/// The same of packets.
pub(super) fn by_owner(rows: &[NetRow]) -> BTreeMap<NetKey, NetCount> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let sum = sums.entry((row.interface.clone(), row.owner)).or_insert(NetCount::ZERO);
        *sum = net::sum(sum, &row.count);
    }
    sums
}

fn add<'a>(sums: &mut BTreeMap<BlockKey, Cow<'a, BlockRow>>, key: BlockKey, row: &'a BlockRow) {
    sums.entry(key)
        .and_modify(|sum| *sum = Cow::Owned(added(sum, row)))
        .or_insert_with(|| Cow::Borrowed(row));
}

/// Numbers wrap as the kernel's do: a sum of wrapped numbers, less what wrapped before, is right.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pmu_common::{
        histogram::BLOCK,
        io::{block::BlockCount, net::NetCount},
    };
    use proptest::prelude::{Strategy, prop, prop_assert_eq, proptest};

    use super::Past;
    use crate::{
        drain::io::{
            block::{BlockRow, DeviceNumber, Operation, Whose},
            net::{Interface, NetOwner, NetRow},
            traffic::Traffic,
        },
        machine::cgroup::CgroupId,
        model::io::traffic::TrafficInterval,
        untrusted::Untrusted,
    };

    /// What happens to the rows.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// An owner's newest row counts a request of so many bytes.
        Count(u64, u64),
        /// An owner gets a new row; the old one, if there is one, stays for now.
        Begin(u64),
        /// A row is given up.
        GiveUp(usize),
        /// A drain; or one that ends an interval.
        Drain,
        Report,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = (0_u32..40, 0_u64..=u64::MAX)
            .prop_map(|(bits, noise)| (1_u64 << bits) | (noise & ((1 << bits) - 1)));
        let step =
            (0_u32..12, 1_u64..5, bytes, 0_usize..8).prop_map(|(what, owner, bytes, row)| match what {
                0..6 => Step::Count(owner, bytes),
                6 => Step::Begin(owner),
                7..9 => Step::GiveUp(row),
                9..11 => Step::Drain,
                _ => Step::Report,
            });
        prop::collection::vec(step, 0..120)
    }

    /// Bytes and requests by owner.
    type Sums = BTreeMap<u64, (u64, u64)>;

    /// Rows with the owner of each, and where its numbers began: they wrap.
    struct Kernel {
        rows: Vec<(u64, BlockRow, NetRow)>,
        drain: Traffic,
    }

    fn rows(owner: u64) -> (u64, BlockRow, NetRow) {
        let block = BlockRow {
            device: DeviceNumber { major: 7, minor: 0 },
            operation: Operation::Write,
            whose: Whose::Cgroup(CgroupId(owner)),
            name: Untrusted::default(),
            count: BlockCount::ZERO,
            latency: Vec::new(),
            queue: Vec::new(),
        };
        let net = NetRow {
            interface: Interface { namespace: 1, index: 2, name: Untrusted::from("eth0") },
            owner: NetOwner::Cgroup(CgroupId(owner)),
            count: NetCount::ZERO,
        };
        (owner, block, net)
    }

    impl Kernel {
        fn count(&mut self, owner: u64, bytes: u64) {
            if !self.rows.iter().any(|(of, ..)| *of == owner) {
                self.rows.push(rows(owner));
            }
            let (_, block, net) = self.rows.iter_mut().rfind(|(of, ..)| *of == owner).unwrap();
            block.count.requests += 1;
            block.count.bytes += bytes;
            let bucket = BLOCK.bucket_of(bytes) as u16;
            match block.latency.binary_search_by_key(&bucket, |&(bucket, _)| bucket) {
                Ok(place) => block.latency[place].1 += 1,
                Err(place) => block.latency.insert(place, (bucket, 1)),
            }
            net.count.packets[1][0] += 1;
            net.count.bytes[1][0] += bytes;
        }

        fn give_up(&mut self, row: usize) {
            if row < self.rows.len() {
                let (_, block, net) = self.rows.remove(row);
                self.drain.retired.block.push(block);
                self.drain.retired.net.push(net);
            }
        }

        fn drain(&mut self) -> Traffic {
            let mut drain = std::mem::take(&mut self.drain);
            drain.block = self.rows.iter().map(|(_, block, _)| block.clone()).collect();
            drain.net = self.rows.iter().map(|(.., net)| net.clone()).collect();
            drain
        }
    }

    fn add(sums: &mut Sums, interval: &TrafficInterval) {
        for (key, requests) in &interval.block {
            let Whose::Cgroup(id) = key.whose else { panic!("{key:?}") };
            let net = interval.net[&(rows(id.0).2.interface, NetOwner::Cgroup(id))];
            assert_eq!(requests.latency.count(), requests.requests);
            assert_eq!((net.packets[1][0], net.bytes[1][0]), (requests.requests, requests.bytes));
            let sum = sums.entry(id.0).or_default();
            *sum = (sum.0 + requests.bytes, sum.1 + requests.requests);
        }
        assert_eq!(interval.block.len(), interval.net.len());
    }

    #[test]
    fn owners_beyond_the_most_are_one_and_nothing_is_lost() {
        const MOST: usize = 16;
        let counted = |owner: u64, requests: u64| {
            let mut kernel = Kernel { rows: Vec::new(), drain: Traffic::default() };
            (0..requests).for_each(|_| kernel.count(owner, 512));
            kernel
        };
        // The first had counted 3 before anything else.
        let first = counted(1, 3).drain();
        let mut past = Past::within(&first, MOST);
        let mut later = Traffic::default();
        for owner in 1..=1000 {
            // Every hundredth did more.
            let mut kernel = counted(owner, if owner % 100 == 0 { 50 } else { 4 });
            kernel.give_up(0);
            past.add(&kernel.drain());
            assert!(past.block.len() <= MOST + 2 && past.net.len() <= MOST + 2, "{}", past.block.len());
        }
        // One that was put with the others comes back.
        let mut again = counted(2, 5);
        later.block = again.drain().block;
        later.net = counted(2, 5).drain().net;
        let interval = TrafficInterval::since(&first, &past, &later);
        let mut sums: BTreeMap<Whose, u64> = BTreeMap::new();
        for (key, requests) in &interval.block {
            *sums.entry(key.whose).or_default() += requests.requests;
        }
        let done = 990 * 4 + 10 * 50 - 3 + 5;
        assert_eq!(sums.values().sum::<u64>(), done);
        assert_eq!(sums[&Whose::Cgroup(CgroupId(1))], 1, "what it had counted before is not ours");
        assert_eq!(sums[&Whose::Cgroup(CgroupId(1000))], 50, "who did most is apart");
        assert!(sums[&Whose::Many] > 900 * 4, "{sums:?}");
        let packets = interval.net.values().flat_map(|count| count.packets.iter().flatten());
        assert_eq!(packets.sum::<u64>(), done);
    }

    proptest! {
        #[test]
        fn an_owner_has_what_he_did_however_often_his_row_was_given_up(steps in steps()) {
            let mut kernel = Kernel { rows: Vec::new(), drain: Traffic::default() };
            let (mut truth, mut by_drain, mut by_report, mut whole) =
                (Sums::new(), Sums::new(), Sums::new(), Sums::new());
            let first = Traffic::default();
            let (mut before, mut reported) = (first.clone(), first.clone());
            let (mut open, mut total) = (Past::since(&first), Past::since(&first));
            for step in steps.into_iter().chain([Step::Report]) {
                match step {
                    Step::Count(owner, bytes) => {
                        kernel.count(owner, bytes);
                        let sum = truth.entry(owner).or_default();
                        *sum = (sum.0 + bytes, sum.1 + 1);
                    }
                    Step::Begin(owner) => kernel.rows.push(rows(owner)),
                    Step::GiveUp(row) => kernel.give_up(row),
                    Step::Drain | Step::Report => {
                        let now = kernel.drain();
                        open.add(&now);
                        total.add(&now);
                        add(&mut by_drain, &TrafficInterval::between(&before, &now));
                        if matches!(step, Step::Report) {
                            let past = std::mem::replace(&mut open, Past::since(&now));
                            add(&mut by_report, &TrafficInterval::since(&reported, &past, &now));
                            reported = now.clone();
                        }
                        before = now;
                    }
                }
            }
            add(&mut whole, &TrafficInterval::since(&first, &total, &before));
            prop_assert_eq!(&by_drain, &truth);
            prop_assert_eq!(&by_report, &truth);
            prop_assert_eq!(&whole, &truth);
        }
    }
}
