//! I/O in a snapshot: what owners moved, devices, and the few numbers of uncore PMUs that the screen shows.

use std::collections::{BTreeMap, BTreeSet};

use super::row::{Bounded, Culprits, Device, OwnerRow, RATES, Uncore, UncoreRow};
use crate::{
    drain::{Absent, Owner, io::IoHeader},
    machine::cgroup::ancestors,
    metric::{
        OwnerOrTarget,
        io::{IoReport, Scope, Subject},
        value::Value,
    },
    plan::Target,
    table::metric::{self, Metric},
};

pub(super) fn io_row(owner: &Owner, (block, net): Moved) -> OwnerRow {
    OwnerRow {
        who: OwnerOrTarget::Owner(owner.clone()),
        has_ended: false,
        cpu: None,
        waits: None,
        culprits: Culprits::default(),
        ipc: None,
        nodes: Box::default(),
        block,
        net,
        rates: [None; RATES.len()],
        blind: None,
    }
}

/// Bytes per second at disks, and at interfaces.
pub(super) type Moved = (Option<Bounded>, Option<Bounded>);

const BYTES_OF_MB: f64 = 1e6;
const NOTHING: Bounded = Bounded { estimate: 0.0, low: 0.0, high: 0.0, coverage: 1.0 };

/// Traffic of owners at all devices.
#[derive(Default)]
pub(super) struct Traffic<'a> {
    pub(super) moved: BTreeMap<&'a Owner, Moved>,
    /// Traffic of a cgroup without numbers: 0 where it would have been counted.
    silent: Moved,
}

impl<'a> Traffic<'a> {
    pub(super) fn of(header: Option<&IoHeader>, io: &'a IoReport, missing: &[Absent]) -> Self {
        // Bytes are charged to cgroups if those are measured, and to processes otherwise.
        let by_cgroup =
            header.is_some_and(|header| matches!(header.plan.target, Target::System | Target::Cgroups(_)));
        // These are the names that `session::io` gives to what it cannot count.
        let silent = |what: &str| {
            let is_missing = missing.iter().any(|absent| absent.what.contains(what));
            (by_cgroup && !is_missing).then_some(NOTHING)
        };
        Self { moved: moved(io), silent: (silent("block requests"), silent("packets")) }
    }

    /// Removes and returns the traffic of an owner.
    pub(super) fn take(&mut self, owner: &Owner) -> Moved {
        let silent = if matches!(owner, Owner::Cgroup { .. }) { self.silent } else { (None, None) };
        let (block, net) = self.moved.remove(owner).unwrap_or_default();
        (block.or(silent.0), net.or(silent.1))
    }

    /// Returns the traffic of all owners. The traffic of a cgroup includes what is below it.
    pub(super) fn total(&self) -> Moved {
        let paths: BTreeSet<&[u8]> = self.moved.keys().filter_map(|owner| path(owner)).collect();
        let is_below = |owner: &&Owner| {
            path(owner).is_some_and(|path| ancestors(path).any(|above| paths.contains(above)))
        };
        let plus = |sum: Option<Bounded>, more: Option<Bounded>| match (sum, more) {
            (Some(sum), Some(more)) => Some(sum.plus(more)),
            (sum, more) => sum.or(more),
        };
        let tops = self.moved.iter().filter(|(owner, _)| !is_below(owner));
        tops.fold(self.silent, |(block, net), (_, moved)| (plus(block, moved.0), plus(net, moved.1)))
    }
}

/// Returns the path of a cgroup.
fn path(owner: &Owner) -> Option<&[u8]> {
    match owner {
        Owner::Cgroup { path, .. } => Some(path.as_bytes()),
        _ => None,
    }
}

/// Returns the traffic of each owner.
fn moved(io: &IoReport) -> BTreeMap<&Owner, Moved> {
    let mut all: BTreeMap<&Owner, Moved> = BTreeMap::new();
    for row in &io.rows {
        let Subject::Owner(owner, of) = &row.subject else { continue };
        if **of != Subject::Scope(Scope::Platform) {
            continue;
        }
        let is = |metrics: [Metric; 2]| metrics.iter().any(|metric| metric.name == row.metric);
        let (block, net) = all.entry(owner).or_default();
        let sum = if is([metric::BLOCK_READ_BW, metric::BLOCK_WRITE_BW]) {
            block
        } else if is([metric::NET_RECEIVE_BW, metric::NET_SEND_BW]) {
            net
        } else {
            continue;
        };
        if let Some(known) = row.value.known().map(|known| Bounded::scaled(known, BYTES_OF_MB)) {
            *sum = Some(sum.map_or(known, |sum| sum.plus(known)));
        }
    }
    all
}

pub(super) fn devices(io: &IoReport) -> Vec<Device> {
    let mut all: BTreeMap<&Subject, Device> = BTreeMap::new();
    for row in &io.rows {
        if !matches!(row.subject, Subject::Disk(..) | Subject::Interface(..)) {
            continue;
        }
        let none = || Device { subject: row.subject.clone(), bandwidth: None, rate: None, p99: None };
        let device = all.entry(&row.subject).or_insert_with(none);
        let is = |metric: Metric| row.metric == metric.name;
        if is(metric::BLOCK_BANDWIDTH) || is(metric::NET_BANDWIDTH) {
            device.bandwidth = row.value.known().map(|known| Bounded::scaled(known, BYTES_OF_MB));
        } else if is(metric::BLOCK_REQUESTS_RATE) || is(metric::NET_PACKETS_RATE) {
            device.rate = row.value.known().map(Bounded::of);
        } else if is(metric::BLOCK_LATENCY) {
            device.p99 = row.distribution.as_ref().map(|found| Bounded::of(&found.quantile(0.99)));
        }
    }
    all.into_values().collect()
}

/// Returns the numbers of uncore PMUs: memory and links between sockets for the platform, traffic and
/// utilization of the link for devices.
pub(super) fn uncore(io: &IoReport) -> Uncore {
    const OF_PLATFORM: [&str; 5] =
        ["dram.read_bw", "dram.write_bw", "dram.utilization", "upi.utilization", "pcie.inbound_read_latency"];
    const OF_DEVICES: [&str; 3] = ["pcie.inbound_read_bw", "pcie.inbound_write_bw", "link.utilization"];
    let is_kept = |subject: &Subject, metric: &str| match subject {
        Subject::Scope(Scope::Platform) => OF_PLATFORM.contains(&metric),
        Subject::Device(..) => OF_DEVICES.contains(&metric),
        _ => false,
    };
    let (mut known, mut missing, mut why) = (Vec::new(), 0, None);
    for row in io.rows.iter().filter(|row| is_kept(&row.subject, &row.metric)) {
        match &row.value {
            Value::Known(value) => known.push(UncoreRow {
                subject: row.subject.clone(),
                metric: row.metric.clone(),
                unit: row.unit,
                value: Bounded::of(value),
            }),
            Value::Missing(reason) => {
                missing += 1;
                why.get_or_insert_with(|| reason.clone());
            }
        }
    }
    Uncore { known, missing, why }
}
