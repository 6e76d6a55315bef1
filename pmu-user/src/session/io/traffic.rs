//! The programs for I/O during a run: whose requests and packets, and what cgroups are called.

use std::{collections::BTreeSet, path::Path};

use crate::{
    bpf::{
        LoadError, Log, Options,
        io::{Bios, IoObject, IoOptions, Parts, Wanted},
    },
    drain::{
        Absent,
        io::{Named, block::Whose, net::NetOwner, traffic::Traffic},
    },
    machine::{Machine, cgroup::Layout},
    plan::{Target, io::IoPlan, request::By},
    untrusted::Untrusted,
};

/// Programs that count block requests and packets.
pub(super) struct Counted {
    object: IoObject,
    layout: Layout,
    /// Cgroups whose names have been told.
    named: BTreeSet<u64>,
}

impl Counted {
    /// Loads and attaches the programs; they count from now on. `command`: the process that will be the command.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub(super) fn open(
        plan: &IoPlan,
        machine: &Machine,
        root: &Path,
        command: Option<u32>,
        missing: &mut Vec<Absent>,
    ) -> Result<Self, LoadError> {
        let wanted = match &plan.target {
            Target::System => Wanted::Everybody(By::Cgroup),
            Target::Processes(ids) | Target::Threads(ids) => Wanted::Processes(ids.clone(), plan.inherit),
            Target::Command(_) => Wanted::Processes(command.into_iter().collect(), plan.inherit),
            Target::Cgroups(cgroups) => {
                Wanted::Cgroups(cgroups.iter().map(|cgroup| cgroup.id).collect(), plan.descend)
            }
        };
        let options = IoOptions { wanted, parts: Parts::Both, bios: Bios::if_any(root) };
        let mut object =
            IoObject::load(&options, machine, root, &Options { attach: None, btf: None, log: Log::Off })?;
        object.enable(&machine.cgroups)?;
        if let Err(error) = object.net() {
            missing.push(Absent { what: "packets".to_owned(), why: error.to_string() });
        }
        Ok(Self { object, layout: machine.cgroups.clone(), named: BTreeSet::new() })
    }

    /// What was counted so far, and the names of cgroups that are new in it.
    pub(super) fn drain(&mut self) -> (Traffic, Vec<Named>) {
        let traffic = self.object.drain();
        let of_block = traffic.block.iter().filter_map(|row| match row.whose {
            Whose::Cgroup(id) | Whose::OnBehalfOf(id) => Some(id.0),
            _ => None,
        });
        let of_net = traffic.net.iter().filter_map(|row| match row.owner {
            NetOwner::Cgroup(id) => Some(id.0),
            _ => None,
        });
        let new: BTreeSet<u64> = of_block.chain(of_net).filter(|id| !self.named.contains(id)).collect();
        if new.is_empty() {
            return (traffic, Vec::new());
        }
        let all = self.layout.list(&Untrusted::from("/")).unwrap_or_default();
        let found = all.into_iter().filter(|cgroup| new.contains(&cgroup.id.0));
        let names = found.map(|cgroup| Named { cgroup: cgroup.id.0, path: cgroup.path }).collect();
        // One that is gone by now is not looked for again.
        self.named.extend(new);
        (traffic, names)
    }

    /// What each program has cost while the kernel measured it: name, runs, ns.
    pub(super) fn costs(&self) -> Vec<(String, u64, u64)> {
        self.object.program_costs()
    }

    pub(super) fn map_bytes(&self) -> u64 {
        self.object.map_bytes()
    }
}
