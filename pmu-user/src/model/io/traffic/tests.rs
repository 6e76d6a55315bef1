//! Tests of traffic counts while rows come and go.

use std::collections::BTreeMap;

use pmu_common::{
    histogram::BLOCK,
    io::{block::BlockCount, net::NetCount},
};
use proptest::prelude::{Strategy, prop, prop_assert_eq, proptest};

use super::{Requests, TrafficInterval};
use crate::{
    drain::io::{
        block::{BlockRow, DeviceNumber, InFlightRow, Operation, Whose},
        net::{Interface, NetOwner, NetRow},
        traffic::{Retired, Traffic},
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
    let later = drain(300, vec![row(cgroup, 3, 105), row(Whose::Kernel, 4, 4), row(Whose::Unseen, 1, 100)]);
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
    let found: Vec<_> = interval.net.iter().map(|((_, owner), count)| (*owner, count.bytes[1][0])).collect();
    assert_eq!(found, [(NetOwner::Cgroup(CgroupId(9)), 120)]);
}

#[test]
fn a_drain_survives_a_recording() {
    let traffic = drain(7, vec![row(Whose::OnBehalfOf(CgroupId(3)), 1, 2)]);
    let text = serde_json::to_string(&traffic).unwrap();
    assert_eq!(serde_json::from_str::<Traffic>(&text).unwrap(), traffic);
}

/// Change to the rows.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The newest row of an owner counts a request of this many bytes.
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
    let bytes =
        (0_u32..40, 0_u64..=u64::MAX).prop_map(|(bits, noise)| (1_u64 << bits) | (noise & ((1 << bits) - 1)));
    let step = (0_u32..12, 1_u64..5, bytes, 0_usize..8).prop_map(|(what, owner, bytes, row)| match what {
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

/// Rows with the owner of each. Their numbers wrap.
#[derive(Default)]
struct Kernel {
    rows: Vec<(u64, BlockRow, NetRow)>,
    drain: Traffic,
}

fn rows(owner: u64) -> (u64, BlockRow, NetRow) {
    let block = BlockRow {
        device: DISK,
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

fn in_flight_row(issued: u64) -> InFlightRow {
    let (device, operation) = (DISK, Operation::Write);
    InFlightRow { device, operation, whose: Whose::Kernel, queued: 0, issued, oldest_ns: 7 }
}

impl Kernel {
    fn count(&mut self, owner: u64, bytes: u64) {
        if !self.rows.iter().any(|(of, ..)| *of == owner) {
            self.rows.push(rows(owner));
        }
        let (_, block, net) = self.rows.iter_mut().rfind(|(of, ..)| *of == owner).unwrap();
        let add = |sum: &mut u64, count: u64| *sum = sum.wrapping_add(count);
        add(&mut block.count.requests, 1);
        add(&mut block.count.bytes, bytes);
        add(&mut net.count.packets[1][0], 1);
        add(&mut net.count.bytes[1][0], bytes);
        let bucket = BLOCK.bucket_of(bytes) as u16;
        match block.latency.binary_search_by_key(&bucket, |&(bucket, _)| bucket) {
            Ok(place) => block.latency[place].1 = block.latency[place].1.wrapping_add(1),
            Err(place) => block.latency.insert(place, (bucket, 1)),
        }
    }

    /// Ages every row, as if it had counted until its numbers are about to wrap.
    fn age(&mut self) {
        let age = |sum: &mut u64| *sum = sum.wrapping_sub(1 << 20);
        for (_, block, net) in &mut self.rows {
            [&mut block.count.requests, &mut block.count.bytes].into_iter().for_each(age);
            [&mut net.count.packets[1][0], &mut net.count.bytes[1][0]].into_iter().for_each(age);
            block.latency.iter_mut().for_each(|(_, count)| *count = count.wrapping_sub(10));
        }
    }

    fn change(&mut self, step: Step) {
        match step {
            Step::Count(owner, bytes) => self.count(owner, bytes),
            Step::Begin(owner) => self.rows.push(rows(owner)),
            Step::GiveUp(row) => self.give_up(row),
            Step::Drain | Step::Report => {}
        }
    }

    fn give_up(&mut self, row: usize) {
        if row < self.rows.len() {
            let (_, block, net) = self.rows.remove(row);
            self.drain.retired.block.push(block);
            self.drain.retired.net.push(net);
        }
    }

    fn drain(&mut self) -> Traffic {
        self.drain.at_ns += 1_000;
        let in_flight = (self.drain.at_ns / 1_000) % 3;
        let next = Traffic { at_ns: self.drain.at_ns, ..Traffic::default() };
        let mut drain = std::mem::replace(&mut self.drain, next);
        drain.in_flight = (0..in_flight).map(in_flight_row).collect();
        drain.losses = vec![("io_nested".to_owned(), drain.at_ns)];
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

/// Returns the requests by owner.
fn by_owner(interval: &TrafficInterval) -> BTreeMap<Whose, u64> {
    let mut sums: BTreeMap<Whose, u64> = BTreeMap::new();
    for (key, requests) in &interval.block {
        *sums.entry(key.whose).or_default() += requests.requests;
    }
    sums
}

fn counted(owners: impl IntoIterator<Item = (u64, u64)>) -> Kernel {
    let mut kernel = Kernel::default();
    for (owner, requests) in owners {
        (0..requests).for_each(|_| kernel.count(owner, 512));
    }
    kernel
}

#[test]
fn owners_beyond_the_most_are_one_and_nothing_is_lost() {
    const MOST: usize = 16;
    // The first had counted 3 before anything else.
    let (mut interval, mut before) = (TrafficInterval::default(), counted([(1, 3)]).drain());
    for owner in 1..=1000 {
        // Every hundredth owner did more.
        let mut kernel = counted([(owner, if owner % 100 == 0 { 50 } else { 4 })]);
        kernel.give_up(0);
        let now = kernel.drain();
        interval.append(TrafficInterval::between(&before, &now));
        interval.fold_to(&now, MOST);
        assert!(interval.block.len() <= MOST + 1 && interval.net.len() <= MOST + 1, "{interval:?}");
        before = now;
    }
    // An owner that was merged with the others comes back.
    let now = counted([(2, 5)]).drain();
    interval.append(TrafficInterval::between(&before, &now));
    interval.fold_to(&now, MOST);
    let sums = by_owner(&interval);
    let done = 990 * 4 + 10 * 50 - 3 + 5;
    assert_eq!(sums.values().sum::<u64>(), done, "what was counted before is not ours");
    assert_eq!(sums[&Whose::Cgroup(CgroupId(1000))], 50, "who did most is apart");
    assert_eq!(sums[&Whose::Cgroup(CgroupId(2))], 5, "who came back is apart");
    assert!(sums[&Whose::Many] > 900 * 4, "{sums:?}");
    let packets = interval.net.values().flat_map(|count| count.packets.iter().flatten());
    assert_eq!(packets.sum::<u64>(), done);
}

#[test]
fn owners_with_rows_stay_apart_however_many_they_are() {
    let now = counted((1..=100).map(|owner| (owner, owner))).drain();
    let mut interval = TrafficInterval::between(&Traffic::default(), &now);
    let whole = interval.clone();
    interval.fold_to(&now, 16);
    assert_eq!(interval, whole);
    interval.fold_to(&Traffic::default(), 16);
    assert_eq!(interval.block.len(), 8 + 1);
    assert_eq!(by_owner(&interval)[&Whose::Many], (1..=92).sum::<u64>());
}

proptest! {
    #[test]
    fn ticks_add_up_to_what_was_done_however_often_rows_were_given_up(earlier in steps(), steps in steps()) {
        let mut kernel = Kernel::default();
        for step in earlier {
            kernel.change(step);
        }
        kernel.age();
        let first = kernel.drain();
        let (mut truth, mut by_report) = (Sums::new(), Sums::new());
        let (mut open, mut total) = (TrafficInterval::default(), TrafficInterval::default());
        let (mut before, mut retired) = (first.clone(), Retired::default());
        for step in steps.into_iter().chain([Step::Report]) {
            kernel.change(step);
            match step {
                Step::Count(owner, bytes) => {
                    let sum = truth.entry(owner).or_default();
                    *sum = (sum.0 + bytes, sum.1 + 1);
                }
                Step::Begin(_) | Step::GiveUp(_) => {}
                Step::Drain | Step::Report => {
                    let now = kernel.drain();
                    retired.block.extend_from_slice(&now.retired.block);
                    retired.net.extend_from_slice(&now.retired.net);
                    let tick = TrafficInterval::between(&before, &now);
                    open.append(tick.clone());
                    total.append(tick);
                    if matches!(step, Step::Report) {
                        add(&mut by_report, &std::mem::take(&mut open));
                    }
                    before = now;
                }
            }
        }
        let mut whole = Sums::new();
        add(&mut whole, &total);
        prop_assert_eq!(&whole, &truth);
        prop_assert_eq!(&by_report, &truth);
        // The same of two drains, as if there had been none between them.
        prop_assert_eq!(TrafficInterval::between(&first, &Traffic { retired, ..before }), total);
    }
}
