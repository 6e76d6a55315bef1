//! Packets on the loopback interface: known amounts, against the interface's own counters.

use std::{
    fs,
    io::Read as _,
    net::{TcpListener, UdpSocket},
};

use pmbpf::{
    bpf::io::{Parts, Wanted},
    drain::io::{
        net::{NetOwner, NetRow},
        traffic::Traffic,
    },
    plan::request::{By, Descend},
};
use pmu_common::io::net::{RECEIVED, SENT, TCP, UDP};

use super::{counting, found, id, is_root, ways};
use crate::support::{Cgroup, assert_close};

/// Bytes that the sender sends.
const SENT_BYTES: u64 = 20_000_000;
/// Bytes of an Ethernet header, which the interface counts.
const HEADER_BYTES: f64 = 14.0;

/// Bytes of the IP and TCP headers, with the options of every packet after the first.
const TCP_HEADERS_BYTES: u64 = 52;

/// Maximum size of a segment in bytes.
const SEGMENT_BYTES: u64 = 1 << 16;

/// Returns an upper bound of TCP's retransmitted bytes so far: on a busy host the kernel probes for losses.
fn sent_again() -> u64 {
    let text = fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut fields = names.split_whitespace().zip(values.split_whitespace());
    fields.find(|(name, _)| *name == "RetransSegs").unwrap().1.parse::<u64>().unwrap() * SEGMENT_BYTES
}

/// Asserts that the bytes and packets are those of `send_from`, with at most `others` further bytes. The
/// number of packets depends on the kernel.
#[track_caller]
fn assert_sent(bytes: u64, packets: u64, others: u64) {
    let expected = SENT_BYTES + TCP_HEADERS_BYTES * packets;
    let range = expected - expected / 500..=expected + expected / 500 + others;
    assert!(range.contains(&bytes), "{bytes} bytes, not {expected} and at most {others}");
}

/// Returns the bytes and packets that the loopback interface received, which equal those it sent.
fn interface_counts() -> (f64, f64) {
    let text = fs::read_to_string("/proc/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("lo:")).unwrap();
    let fields: Vec<f64> = line.split_whitespace().map(|field| field.parse().unwrap()).collect();
    (fields[0], fields[1])
}

fn rows(traffic: &Traffic) -> impl Iterator<Item = &NetRow> {
    traffic.net.iter().filter(|row| row.interface.name.as_bytes() == b"lo")
}

/// Sends bytes over TCP from a cgroup to this process.
fn send_from(group: &Cgroup) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut sender =
        group.spawn(&format!("bash -c 'head -c {SENT_BYTES} /dev/zero >/dev/tcp/127.0.0.1/{port}'"));
    let (mut connection, _) = listener.accept().unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut received = 0;
    loop {
        match connection.read(&mut buffer).unwrap() {
            0 => break,
            bytes => received += bytes as u64,
        }
    }
    assert_eq!(received, SENT_BYTES);
    sender.wait();
}

#[test]
fn bytes_of_a_cgroup_are_what_it_sent_and_all_of_them_are_the_interfaces() {
    if !is_root() {
        return;
    }
    for way in ways() {
        let group = Cgroup::new("sender");
        let owner = NetOwner::Cgroup(id(&group));
        let object = counting(way, Wanted::Everybody(By::Cgroup), Parts::Net);
        let (before, again) = (interface_counts(), sent_again());
        send_from(&group);
        let traffic = object.drain();
        let after = interface_counts();
        let ours: Vec<_> = rows(&traffic).filter(|row| row.owner == owner).collect();
        let [ours] = ours[..] else { panic!("{traffic:?}") };
        assert_sent(ours.count.bytes[SENT][TCP], ours.count.packets[SENT][TCP], sent_again() - again);
        assert!(ours.count.packets[RECEIVED][TCP] > 0, "acknowledgements come back");
        assert_eq!(ours.count.bytes[SENT][UDP], 0);
        for direction in [RECEIVED, SENT] {
            let all = |of: fn(&NetRow) -> [[u64; 3]; 2]| -> f64 {
                rows(&traffic).map(|row| of(row)[direction].iter().sum::<u64>() as f64).sum()
            };
            let (bytes, packets) = (all(|row| row.count.bytes), all(|row| row.count.packets));
            assert_close("bytes", HEADER_BYTES.mul_add(packets, bytes), after.0 - before.0, 0.01, 0.0);
            let truth = after.1 - before.1;
            // Packets too large for the device are split after they were counted as sent.
            assert!(
                packets <= truth + 10.0 && (direction == SENT || packets >= truth - 10.0),
                "{packets} {truth}"
            );
        }
        assert_eq!(traffic.losses, []);
    }
}

#[test]
fn datagrams_are_told_from_streams() {
    if !is_root() {
        return;
    }
    const DATAGRAMS: u64 = 100;
    for way in ways() {
        let object = counting(way, Wanted::Everybody(By::Cgroup), Parts::Net);
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(receiver) = UdpSocket::bind(address) else { continue };
            let to = receiver.local_addr().unwrap();
            let sender = UdpSocket::bind(address).unwrap();
            let before = object.drain();
            for _ in 0..DATAGRAMS {
                sender.send_to(&[7; 100], to).unwrap();
                receiver.recv(&mut [0; 100]).unwrap();
            }
            let after = object.drain();
            let sent = |traffic: &Traffic| rows(traffic).map(|row| row.count.packets[SENT][UDP]).sum::<u64>();
            let more = sent(&after) - sent(&before);
            assert!((DATAGRAMS..DATAGRAMS + 10).contains(&more), "{address}: {more}");
        }
    }
}

#[test]
fn packets_of_cgroups_not_asked_for_share_a_row() {
    if !is_root() {
        return;
    }
    for way in ways() {
        let (wanted, other) = (Cgroup::new("wanted"), Cgroup::new("other"));
        let inside = wanted.below("inside");
        let object = counting(way, Wanted::Cgroups(vec![found(&wanted)], Descend::Yes), Parts::Net);
        let again = sent_again();
        send_from(&inside);
        send_from(&other);
        let traffic = object.drain();
        let sent = |owner: NetOwner| {
            let rows = rows(&traffic).filter(|row| row.owner == owner);
            rows.fold((0, 0), |(packets, bytes), row| {
                (packets + row.count.packets[SENT][TCP], bytes + row.count.bytes[SENT][TCP])
            })
        };
        let (packets, bytes) = sent(NetOwner::Cgroup(id(&inside)));
        assert_sent(bytes, packets, sent_again() - again);
        // This test receives outside, where other processes run too.
        let (packets, bytes) = sent(NetOwner::Outsider);
        assert_sent(bytes, packets, sent_again() - again + SENT_BYTES / 100);
        assert_eq!(sent(NetOwner::Cgroup(id(&other))), (0, 0));
    }
}
