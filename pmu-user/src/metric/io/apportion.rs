//! Attribution of a PCI device's traffic. An exclusive owner of the device is charged for all of it.
//! Otherwise traffic is apportioned by the bytes that each owner's block requests and packets moved through
//! the device.
//!
//! Only bytes are apportioned. A ratio or a latency belongs to the device, and a share of it has no meaning.

use std::collections::BTreeMap;

use super::{Label, Row, Subject, devices::names, traffic::Names};
use crate::{
    drain::{
        Owner,
        io::block::{DeviceNumber, Operation},
    },
    machine::io::{
        Platform,
        bdf::Bdf,
        owner::{Ownership, User, together},
        stack::Port,
    },
    metric::value::{How, Known, Value},
    model::io::traffic::TrafficInterval,
    plan::Target,
};
use pmu_common::io::net::{RECEIVED, SENT};

/// Metrics of bytes, and the bytes of [`Moved`] by which they are apportioned.
const SHARED: [(&str, Way); 5] = [
    ("pcie.inbound_write_bw", Way::FromDevice),
    ("pcie.inbound_read_bw", Way::ToDevice),
    ("pcie.outbound_read_bw", Way::Both),
    ("pcie.outbound_read_bw.by_cpu", Way::Both),
    ("pcie.outbound_write_bw", Way::Both),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    FromDevice,
    ToDevice,
    Both,
}

/// Bytes that were moved through a port.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moved {
    from_device: f64,
    to_device: f64,
}

impl Moved {
    fn of(&self, way: Way) -> f64 {
        match way {
            Way::FromDevice => self.from_device,
            Way::ToDevice => self.to_device,
            Way::Both => self.from_device + self.to_device,
        }
    }

    /// Returns the bytes in both directions.
    pub(super) fn bytes(&self) -> f64 {
        self.of(Way::Both)
    }

    /// Returns the bytes from devices: reads of disks, and received packets.
    pub(super) fn inbound(&self) -> f64 {
        self.of(Way::FromDevice)
    }

    fn add(&mut self, other: Self) {
        self.from_device += other.from_device;
        self.to_device += other.to_device;
    }
}

/// Returns rows of owners for the devices behind `port`. `rows` are the rows of the devices.
pub(super) fn rows(
    rows: &[Row],
    port: &Port,
    traffic: &TrafficInterval,
    names: Names<'_>,
    owned: &[(Bdf, Ownership)],
    target: &Target,
) -> Vec<Row> {
    let (all, owners) = moved(port, traffic, names);
    let device = Subject::Device(port.bdf.to_string(), self::names(names.platform, port));
    if let Some(owner) = exclusive(&port.devices, owned, target, names) {
        let subject = Subject::Owner(owner, Box::new(device));
        let bytes = rows.iter().filter(|row| SHARED.iter().any(|(metric, _)| *metric == row.metric));
        return bytes
            .map(|row| Row { subject: subject.clone(), label: Label::Measured, ..row.clone() })
            .collect();
    }
    let mut holders: BTreeMap<Owner, Moved> = BTreeMap::new();
    for (owner, moved) in owners {
        names.holders(owner).into_iter().for_each(|owner| holders.entry(owner).or_default().add(moved));
    }
    let seconds = traffic.duration_ns as f64 / 1e9;
    let mut found = Vec::new();
    for (owner, moved) in &holders {
        for (metric, way) in SHARED {
            let Some(row) = rows.iter().find(|row| row.metric == metric) else { continue };
            let share = moved.of(way) / all.of(way);
            let (Value::Known(known), true) = (&row.value, share.is_finite()) else { continue };
            // Bytes that no request or packet explains have no owner.
            let measured = known.estimate * 1e6 * seconds;
            let coverage = if measured > 0.0 { (all.of(way) / measured).min(1.0) } else { 0.0 };
            let label = Label::Apportioned { share, coverage };
            let value = Value::Known(Known { how: How::Apportioned, ..known.times(share) });
            let subject = Subject::Owner(owner.clone(), Box::new(device.clone()));
            found.push(Row { subject, label, value, ..row.clone() });
        }
    }
    found
}

/// Returns the bytes that went through a port, in total and by owner, of disks that it carries alone and of
/// its interfaces.
pub(super) fn moved(
    port: &Port,
    traffic: &TrafficInterval,
    names: Names<'_>,
) -> (Moved, BTreeMap<Owner, Moved>) {
    let mut all = Moved::default();
    let mut owners: BTreeMap<Owner, Moved> = BTreeMap::new();
    let mut add = |owner: Option<Owner>, moved: Moved| {
        all.add(moved);
        if let Some(owner) = owner {
            owners.entry(owner).or_default().add(moved);
        }
    };
    for (key, requests) in &traffic.block {
        let moved = match key.operation {
            Operation::Read => Moved { from_device: requests.bytes as f64, to_device: 0.0 },
            Operation::Write => Moved { from_device: 0.0, to_device: requests.bytes as f64 },
            Operation::Flush | Operation::Discard | Operation::Other => continue,
        };
        if is_behind(names.platform, key.device, port) {
            add(names.whose(key.whose, &key.name), moved);
        }
    }
    for ((interface, owner), count) in &traffic.net {
        let is = |known: &&crate::machine::io::function::Interface| {
            known.name == interface.name && known.device.is_some_and(|bdf| port.devices.contains(&bdf))
        };
        if names.platform.interfaces.iter().any(|known| is(&known)) {
            let bytes = |way: usize| count.bytes[way].iter().sum::<u64>() as f64;
            let moved = Moved { from_device: bytes(RECEIVED), to_device: bytes(SENT) };
            add(names.net_owner(*owner), moved);
        }
    }
    (all, owners)
}

/// Returns whether this port alone carries the traffic of the disk. Bytes of a stacked disk belong to the
/// disks below it.
fn is_behind(platform: &Platform, device: DeviceNumber, port: &Port) -> bool {
    let number = (device.major, device.minor);
    let disk = platform.disks.iter().find(|disk| disk.number == number);
    disk.is_some_and(|disk| {
        !disk.devices.is_empty() && disk.devices.iter().all(|bdf| port.devices.contains(bdf))
    })
}

/// Returns the exclusive owner of all of these devices, if the target includes it.
pub(super) fn exclusive(
    devices: &[Bdf],
    owned: &[(Bdf, Ownership)],
    target: &Target,
    names: Names<'_>,
) -> Option<Owner> {
    let of = |bdf: &Bdf| owned.iter().find(|(known, _)| known == bdf).map(|(_, ownership)| ownership);
    let each: Vec<&Ownership> = devices.iter().map(of).collect::<Option<_>>()?;
    let Ownership::Exclusive { pid, cgroup, users } = together(each) else { return None };
    match target {
        Target::Processes(ids) | Target::Threads(ids) => {
            let pid = pid.filter(|pid| ids.contains(pid))?;
            let User { born_ns, name, .. } = users.first()?;
            Some(Owner::Process { pid, born_ns: *born_ns, name: name.clone() })
        }
        Target::Command(_) => None,
        Target::System | Target::Cgroups(_) => Some(names.cgroup_at(cgroup)),
    }
}
