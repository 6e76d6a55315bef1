//! Differences of the kernel's own counts of disks, interfaces and TCP.

use std::collections::BTreeMap;

use crate::{
    drain::{
        Owner,
        io::{KernelCounts, NetworkCount, block::DeviceNumber},
    },
    machine::network::{Packets, TcpCount},
    untrusted::Untrusted,
};

/// Counts of the kernel from one reading to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelInterval {
    /// Time from the first reading to the last, in ns.
    pub of_ns: u64,
    /// Number of readings after the first.
    pub readings: u64,
    /// Usage of disks.
    pub disks: BTreeMap<DeviceNumber, DiskUse>,
    /// Network namespaces, by the target in it; `None` is the host's.
    pub networks: BTreeMap<Option<Owner>, NetworkInterval>,
}

/// Usage of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Name of the disk.
    pub name: Untrusted,
    /// Time in ms during which at least one request was in flight.
    pub busy_ms: u64,
    /// Time in ms of all its requests together, from their creation until they completed.
    pub queue_ms: u64,
}

/// Packets and TCP of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkInterval {
    /// Interfaces, with the packets that they received and sent.
    pub interfaces: BTreeMap<Untrusted, [Packets; 2]>,
    /// Counts of TCP.
    pub tcp: TcpCount,
}

impl KernelInterval {
    /// Returns the difference between two readings, without what is missing from the first.
    pub fn between(before: &KernelCounts, now: &KernelCounts) -> Self {
        let earlier: BTreeMap<_, _> = before.disks.iter().map(|disk| (disk.device, disk.in_use)).collect();
        let used = |disk: &crate::drain::io::DiskCount| {
            let since = disk.in_use.since(*earlier.get(&disk.device)?);
            let (busy_ms, queue_ms) = (u64::from(since.busy_ms), u64::from(since.queue_ms));
            Some((disk.device, DiskUse { name: disk.name.clone(), busy_ms, queue_ms }))
        };
        let networks = now.networks.iter().filter_map(|network| {
            let earlier = before.networks.iter().find(|earlier| earlier.owner == network.owner)?;
            Some((network.owner.clone(), of_network(earlier, network)))
        });
        Self {
            of_ns: now.at_ns.saturating_sub(before.at_ns),
            readings: 1,
            disks: now.disks.iter().filter_map(used).collect(),
            networks: networks.collect(),
        }
    }

    /// Adds the interval that follows.
    pub fn append(&mut self, next: Self) {
        self.of_ns = self.of_ns.saturating_add(next.of_ns);
        self.readings += next.readings;
        for (device, more) in next.disks {
            let sum = self.disks.entry(device).or_default();
            sum.name = more.name;
            sum.busy_ms = sum.busy_ms.saturating_add(more.busy_ms);
            sum.queue_ms = sum.queue_ms.saturating_add(more.queue_ms);
        }
        for (owner, more) in next.networks {
            let sum = self.networks.entry(owner).or_default();
            sum.tcp = combined(sum.tcp, more.tcp, u64::saturating_add);
            for (name, more) in more.interfaces {
                let sum = sum.interfaces.entry(name).or_default();
                *sum = [0, 1].map(|way| of_both(sum[way], more[way], u64::saturating_add));
            }
        }
    }
}

fn of_network(before: &NetworkCount, now: &NetworkCount) -> NetworkInterval {
    let earlier: BTreeMap<_, _> = before.interfaces.iter().map(|one| (&one.name, one)).collect();
    let interfaces = now.interfaces.iter().filter_map(|one| {
        let before = earlier.get(&one.name)?;
        let since = |now, before| of_both(now, before, u64::saturating_sub);
        Some((one.name.clone(), [since(one.received, before.received), since(one.sent, before.sent)]))
    });
    NetworkInterval {
        interfaces: interfaces.collect(),
        tcp: combined(now.tcp, before.tcp, u64::saturating_sub),
    }
}

fn of_both(left: Packets, right: Packets, both: fn(u64, u64) -> u64) -> Packets {
    Packets {
        packets: both(left.packets, right.packets),
        errors: both(left.errors, right.errors),
        dropped: both(left.dropped, right.dropped),
    }
}

fn combined(left: TcpCount, right: TcpCount, both: fn(u64, u64) -> u64) -> TcpCount {
    TcpCount {
        sent: both(left.sent, right.sent),
        retransmitted: both(left.retransmitted, right.retransmitted),
        listen_drops: both(left.listen_drops, right.listen_drops),
    }
}

#[cfg(test)]
mod tests {
    use super::{KernelCounts, KernelInterval, NetworkCount, Packets, TcpCount, Untrusted};
    use crate::{
        drain::io::{DiskCount, block::DeviceNumber},
        machine::{disk::InUse, network::InterfaceCount},
    };

    fn reading(at_ms: u64, busy_ms: u32, dropped: u64) -> KernelCounts {
        let received = Packets { packets: 100 * dropped, errors: 0, dropped };
        let interface = InterfaceCount { name: "eth0".into(), received, sent: Packets::default() };
        let tcp = TcpCount { sent: 10 * at_ms, retransmitted: at_ms, listen_drops: 0 };
        KernelCounts {
            at_ns: at_ms * 1_000_000,
            disks: vec![DiskCount {
                device: DeviceNumber { major: 8, minor: 0 },
                name: "sda".into(),
                in_use: InUse { busy_ms, queue_ms: busy_ms.wrapping_mul(4) },
            }],
            networks: vec![NetworkCount { owner: None, interfaces: vec![interface], tcp }],
        }
    }

    #[test]
    fn ticks_add_up_to_what_the_kernel_counted_in_the_run_and_its_32_bits_may_wrap() {
        let readings = [reading(0, u32::MAX - 99, 7), reading(1000, 400, 9), reading(3000, 1400, 17)];
        let mut whole = KernelInterval::default();
        readings.windows(2).for_each(|two| whole.append(KernelInterval::between(&two[0], &two[1])));
        assert_eq!((whole.of_ns, whole.readings), (3_000_000_000, 2));
        let disk = whole.disks.values().next().unwrap();
        assert_eq!((disk.busy_ms, disk.queue_ms), (1500, 6000));
        let host = &whole.networks[&None];
        assert_eq!(
            host.interfaces[&Untrusted::from("eth0")][0],
            Packets { packets: 1000, errors: 0, dropped: 10 }
        );
        assert_eq!(host.tcp, TcpCount { sent: 30_000, retransmitted: 3000, listen_drops: 0 });
    }
}
