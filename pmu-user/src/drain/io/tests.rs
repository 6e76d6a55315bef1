//! Round trips of headers and drains through a recording.

use pmu_common::io::{block::BlockCount, net::NetCount};
use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};

use super::{
    DiskCount, IoDrain, IoHeader, KernelCounts, Named, NamedDisk, NetworkCount, UncoreSlice,
    block::{BlockRow, DeviceNumber, InFlightRow, Operation, Whose},
    group::{GroupOwner, GroupRow, Groups},
    net::{Interface, NetOwner, NetRow},
    testing::header,
    traffic::{Retired, Traffic},
};
use crate::{
    drain::{Absent, Cost, Owner, ProgramRow},
    machine::{
        cgroup::CgroupId,
        disk::InUse,
        io::{
            Fact,
            bdf::Bdf,
            owner::{Ownership, User},
            resctrl::{Domain, MonitoringGroup},
        },
        network::{InterfaceCount, Packets, TcpCount},
    },
    untrusted::Untrusted,
};

/// Generates numbers of uniform bit length.
fn number() -> impl Strategy<Value = u64> {
    (0_u32..=64, any::<u64>()).prop_map(|(bits, noise)| noise.checked_shr(64 - bits).unwrap_or(0))
}

/// Generates names, which are bytes and not text.
fn name() -> impl Strategy<Value = Untrusted> {
    prop::collection::vec(any::<u8>(), 0..12).prop_map(Untrusted::new)
}

fn few<S: Strategy>(one: S) -> impl Strategy<Value = Vec<S::Value>> {
    prop::collection::vec(one, 0..4)
}

fn counted() -> impl Strategy<Value = Vec<(String, u64)>> {
    few(("[a-z_]{1,9}", number()))
}

fn slice() -> impl Strategy<Value = UncoreSlice> {
    let places = (any::<u32>(), any::<u32>(), any::<u32>(), number());
    (places, number(), few(number()), number(), number()).prop_map(
        |((kind, at, group, slice), ended_ns, counts, enabled_ns, running_ns)| UncoreSlice {
            kind,
            at,
            slice,
            group,
            ended_ns,
            counts,
            enabled_ns,
            running_ns,
        },
    )
}

fn whose() -> impl Strategy<Value = Whose> {
    prop_oneof![
        (any::<u32>(), any::<u32>()).prop_map(|(pid, born)| Whose::Process { pid, born }),
        number().prop_map(|id| Whose::Cgroup(CgroupId(id))),
        number().prop_map(|id| Whose::OnBehalfOf(CgroupId(id))),
        Just(Whose::Kernel),
        Just(Whose::Outsider),
        Just(Whose::Unseen),
        Just(Whose::Many),
    ]
}

fn device() -> impl Strategy<Value = DeviceNumber> {
    (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| DeviceNumber { major, minor })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop::sample::select(Operation::ALL.to_vec())
}

fn block() -> impl Strategy<Value = BlockRow> {
    let buckets = || few((any::<u16>(), any::<u32>()));
    let count = (number(), number(), number(), number()).prop_map(|(requests, bytes, queue_ns, partial)| {
        BlockCount { requests, bytes, queue_ns, partial, ..BlockCount::ZERO }
    });
    (device(), operation(), whose(), name(), count, buckets(), buckets()).prop_map(
        |(device, operation, whose, name, count, latency, queue)| BlockRow {
            device,
            operation,
            whose,
            name,
            count,
            latency,
            queue,
        },
    )
}

fn in_flight() -> impl Strategy<Value = InFlightRow> {
    (device(), operation(), whose(), number(), number(), number()).prop_map(
        |(device, operation, whose, queued, issued, oldest_ns)| InFlightRow {
            device,
            operation,
            whose,
            queued,
            issued,
            oldest_ns,
        },
    )
}

fn net() -> impl Strategy<Value = NetRow> {
    let owner = prop_oneof![
        number().prop_map(|id| NetOwner::Cgroup(CgroupId(id))),
        Just(NetOwner::Nobody),
        Just(NetOwner::Outsider),
        Just(NetOwner::Many),
    ];
    let interface = (any::<u32>(), any::<u32>(), name()).prop_map(|(namespace, index, name)| Interface {
        namespace,
        index,
        name,
    });
    let count = (any::<[[u64; 3]; 2]>(), any::<[[u64; 3]; 2]>()).prop_map(|(packets, bytes)| NetCount {
        packets,
        bytes,
        ..NetCount::ZERO
    });
    (interface, owner, count).prop_map(|(interface, owner, count)| NetRow { interface, owner, count })
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let retired = (few(block()), few(net())).prop_map(|(block, net)| Retired { block, net });
    (number(), few(block()), few(in_flight()), few(net()), retired, counted(), counted()).prop_map(
        |(at_ns, block, in_flight, net, retired, losses, missed)| Traffic {
            at_ns,
            block,
            in_flight,
            net,
            retired,
            losses,
            missed,
        },
    )
}

fn owned() -> impl Strategy<Value = (Bdf, Ownership)> {
    let bdf = (0_u32..0x1_0001, any::<u8>(), 0_u8..32, 0_u8..8)
        .prop_map(|(domain, bus, device, function)| Bdf { domain, bus, device, function });
    let users = || {
        few((any::<u32>(), number(), name(), name(), name())
            .prop_map(|(pid, born_ns, name, cgroup, through)| User { pid, born_ns, name, cgroup, through }))
    };
    let ownership = prop_oneof![
        (any::<Option<u32>>(), name(), users()).prop_map(|(pid, cgroup, users)| Ownership::Exclusive {
            pid,
            cgroup,
            users
        }),
        (users(), "[a-z ]{0,9}").prop_map(|(users, why)| Ownership::Shared { users, why }),
        Just(Ownership::None),
        "[a-z ]{0,9}".prop_map(Ownership::Unknown),
    ];
    (bdf, ownership)
}

fn domain() -> impl Strategy<Value = Domain> {
    let count = prop_oneof![number().prop_map(Fact::Known), "[a-z ]{0,9}".prop_map(Fact::Missing)];
    (name(), few(count)).prop_map(|(name, counts)| Domain { name, counts })
}

fn groups() -> impl Strategy<Value = Groups> {
    let owner = (number(), name()).prop_map(|(id, path)| Owner::cgroup(id, path));
    let whose = prop_oneof![
        few(owner).prop_map(GroupOwner::Of),
        "[a-z ]{0,9}".prop_map(GroupOwner::Nobody),
        Just(GroupOwner::Outsider),
        Just(GroupOwner::Empty),
    ];
    let group = (number(), name(), any::<Option<u64>>(), few(domain()), few(domain()));
    let row = (group, whose).prop_map(|((id, path, of, domains, again), whose)| {
        let group = MonitoringGroup { id, path, of, domains, again };
        GroupRow { group, whose }
    });
    let untold = ("[a-z ]{0,9}", "[a-z ]{0,9}").prop_map(|(what, why)| Absent { what, why });
    (number(), few(row), few(untold)).prop_map(|(at_ns, rows, untold)| Groups { at_ns, rows, untold })
}

fn kernel() -> impl Strategy<Value = KernelCounts> {
    let packets = || {
        (number(), number(), number()).prop_map(|(packets, errors, dropped)| Packets {
            packets,
            errors,
            dropped,
        })
    };
    let interface = (name(), packets(), packets()).prop_map(|(name, received, sent)| InterfaceCount {
        name,
        received,
        sent,
    });
    let tcp = (number(), number(), number()).prop_map(|(sent, retransmitted, listen_drops)| TcpCount {
        sent,
        retransmitted,
        listen_drops,
    });
    let owner = prop::option::of((number(), name()).prop_map(|(id, path)| Owner::cgroup(id, path)));
    let network = (owner, few(interface), tcp).prop_map(|(owner, interfaces, tcp)| NetworkCount {
        owner,
        interfaces,
        tcp,
    });
    let in_use = any::<(u32, u32)>().prop_map(|(busy_ms, queue_ms)| InUse { busy_ms, queue_ms });
    let disk =
        (device(), name(), in_use).prop_map(|(device, name, in_use)| DiskCount { device, name, in_use });
    (number(), few(disk), few(network)).prop_map(|(at_ns, disks, networks)| KernelCounts {
        at_ns,
        disks,
        networks,
    })
}

fn drain() -> impl Strategy<Value = IoDrain> {
    let named = (number(), name()).prop_map(|(cgroup, path)| Named { cgroup, path });
    let disk = (device(), name()).prop_map(|(device, name)| NamedDisk { device, name });
    let gone = ("[a-z ]{0,9}", "[a-z ]{0,9}").prop_map(|(what, why)| Absent { what, why });
    let programs = ("[a-z_]{1,9}", number(), number(), any::<Option<u64>>()).prop_map(
        |(name, measured_runs, measured_ns, runs)| ProgramRow {
            name,
            measured_runs,
            measured_ns,
            runs,
            undisturbed: None,
        },
    );
    let cost = (number(), number()).prop_map(|(cpu_ns, drains)| Cost { cpu_ns, drains, ..Cost::default() });
    let counted_rows = (prop::option::of(traffic()), prop::option::of(groups()), prop::option::of(kernel()));
    let rows = (few(slice()), counted_rows, few(named), few(disk), few(owned()), few(gone));
    (number(), rows, few(programs), cost, counted()).prop_map(
        |(at_ns, (uncore, (traffic, groups, kernel), names, disks, owned, gone), programs, cost, losses)| {
            IoDrain {
                at_ns,
                uncore,
                traffic,
                groups,
                kernel,
                names,
                disks,
                owned,
                gone,
                programs,
                cost,
                losses,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_drain_survives_a_recording(drain in drain()) {
        let text = serde_json::to_string(&drain).unwrap();
        let read: IoDrain = serde_json::from_str(&text).unwrap();
        // Owners compare equal regardless of their names. The names survive, too.
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), text);
        prop_assert_eq!(read, drain);
    }
}

#[test]
fn a_header_survives_a_recording() {
    let header = header();
    let text = serde_json::to_string(&header).unwrap();
    let read: IoHeader = serde_json::from_str(&text).unwrap();
    assert_eq!((&read.plan, &read.platform), (&header.plan, &header.platform));
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}

#[test]
fn what_a_drain_does_not_say_is_empty() {
    let cost = serde_json::to_string(&Cost::default()).unwrap();
    let text = format!("{{\"at_ns\":5,\"cost\":{cost},\"losses\":[]}}");
    let read: IoDrain = serde_json::from_str(&text).unwrap();
    assert_eq!(read, IoDrain { at_ns: 5, ..IoDrain::default() });
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}
