//! The last reading of every row of I/O.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    drain::io::{
        IoDrain, Named, NamedDisk,
        block::{DeviceNumber, Whose},
        net::NetOwner,
        traffic::{Retired, Traffic},
    },
    untrusted::Untrusted,
};

/// Cgroup names kept before those without a row are dropped.
const NAMES_MAX: usize = 65_536;

/// Last rows of I/O. Every drain holds all of its traffic, kernel counts and groups.
#[derive(Debug, Default)]
pub(super) struct IoRows {
    last: IoDrain,
    names: BTreeMap<u64, Untrusted>,
    disks: BTreeMap<DeviceNumber, Untrusted>,
}

impl IoRows {
    pub(super) fn take(&mut self, drain: &IoDrain) {
        self.names.extend(drain.names.iter().map(|named| (named.cgroup, named.path.clone())));
        self.disks.extend(drain.disks.iter().map(|named| (named.device, named.name.clone())));
        let last = &mut self.last;
        last.at_ns = drain.at_ns;
        if let Some(traffic) = &drain.traffic {
            last.traffic = Some(Traffic { retired: Retired::default(), ..traffic.clone() });
        }
        if drain.kernel.is_some() {
            last.kernel.clone_from(&drain.kernel);
        }
        if drain.groups.is_some() {
            last.groups.clone_from(&drain.groups);
        }
        if !drain.owned.is_empty() {
            last.owned.clone_from(&drain.owned);
        }
        last.programs.clone_from(&drain.programs);
        last.cost = drain.cost;
        last.losses.clone_from(&drain.losses);
    }

    /// Returns the paths of the cgroups that rows refer to.
    pub(super) fn cgroups(&self) -> impl Iterator<Item = &Untrusted> {
        self.names.values()
    }

    /// Returns all rows as a drain.
    pub(super) fn drain(&mut self) -> IoDrain {
        if self.names.len() > NAMES_MAX {
            let counted = counted(self.last.traffic.as_ref());
            self.names.retain(|cgroup, _| counted.contains(cgroup));
        }
        let named = |(&cgroup, path): (&u64, &Untrusted)| Named { cgroup, path: path.clone() };
        let disk = |(&device, name): (&DeviceNumber, &Untrusted)| NamedDisk { device, name: name.clone() };
        IoDrain {
            names: self.names.iter().map(named).collect(),
            disks: self.disks.iter().map(disk).collect(),
            ..self.last.clone()
        }
    }
}

/// Returns the ids of the cgroups that have a row.
fn counted(traffic: Option<&Traffic>) -> BTreeSet<u64> {
    let of_block = |whose: &Whose| match whose {
        Whose::Cgroup(id) | Whose::OnBehalfOf(id) => Some(id.0),
        _ => None,
    };
    let blocks = traffic.iter().flat_map(|traffic| &traffic.block).map(|row| &row.whose);
    let in_flight = traffic.iter().flat_map(|traffic| &traffic.in_flight).map(|row| &row.whose);
    let net = traffic.iter().flat_map(|traffic| &traffic.net).filter_map(|row| match row.owner {
        NetOwner::Cgroup(id) => Some(id.0),
        _ => None,
    });
    blocks.chain(in_flight).filter_map(of_block).chain(net).collect()
}
