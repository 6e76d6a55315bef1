//! resctrl's groups during a run: the count of each, and the owners of its threads.

mod attribution;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use self::attribution::{Held, Threads};
use crate::{
    drain::{
        Owner,
        io::group::{GroupRow, Groups},
    },
    machine::{
        cgroup::Layout,
        io::{
            process::name,
            resctrl::{Monitoring, MonitoringGroup},
        },
        stat::born_ns,
    },
    plan::{
        Target,
        io::IoPlan,
        request::{Descend, Inherit},
    },
    untrusted::Untrusted,
};

/// Description of the default group.
const REST: &str =
    "it counts for whatever is in no group of its own (a `mkdir` in its `mon_groups` makes one)";

/// Groups whose memory traffic is counted.
pub(crate) struct Monitored {
    monitoring: Monitoring,
    root: PathBuf,
    layout: Layout,
    target: Target,
    inherit: Inherit,
    descend: Descend,
    /// The process that is, or will be, the command.
    command: Option<u32>,
}

impl Monitored {
    /// Returns the groups that `plan` names, if there are any. Nothing is opened: every drain reads them
    /// again.
    pub(crate) fn new(plan: &IoPlan, layout: &Layout, root: &Path, command: Option<u32>) -> Option<Self> {
        Some(Self {
            monitoring: plan.monitoring.clone()?,
            root: root.to_owned(),
            layout: layout.clone(),
            target: plan.target.clone(),
            inherit: plan.inherit,
            descend: plan.descend,
            command,
        })
    }

    /// Returns all groups at `at_ns`.
    pub(crate) fn drain(&self, at_ns: u64) -> Groups {
        let groups = self.monitoring.groups(&self.root);
        let is_gone = |thread: u32| !self.root.join(format!("proc/{thread}")).exists();
        // Without groups that a user made, owners cannot be distinguished.
        let nothing = groups.len() < 2 && self.target == Target::System;
        let mut threads = if nothing { Threads::default() } else { self.threads() };
        let held = self.held(&groups);
        // Threads that began during the read.
        if held.iter().any(|held| threads.lacks(&held.threads)) {
            threads.add(self.threads());
        }
        let told = attribution::of(&held, &threads, &self.target, is_gone);
        let rows =
            groups.into_iter().zip(told.owners).map(|(group, whose)| GroupRow { group, whose }).collect();
        Groups { at_ns, rows, untold: told.untold }
    }

    /// Returns the threads in each group itself, without those in monitoring groups inside it.
    fn held(&self, groups: &[MonitoringGroup]) -> Vec<Held> {
        let mut held: Vec<Held> = groups.iter().map(|group| self.held_by(group)).collect();
        for (index, group) in groups.iter().enumerate() {
            let outer = groups.iter().position(|other| group.of == Some(other.id));
            if let Some(outer) = outer {
                let inner = held[index].threads.clone();
                held[outer].threads.retain(|thread| !inner.contains(thread));
            }
        }
        held
    }

    fn held_by(&self, group: &MonitoringGroup) -> Held {
        if group.is_default() {
            // All other threads: their list is long, and of no use.
            return Held { nobody: Some(REST.to_owned()), threads: BTreeSet::new() };
        }
        let Some(threads) = self.monitoring.threads(&self.root, group) else {
            return Held { nobody: Some("its threads cannot be read".to_owned()), threads: BTreeSet::new() };
        };
        let cpus = self.monitoring.cpus(&self.root, group);
        let why = || format!("it also counts what is in no group and runs on CPUs {cpus}");
        Held { nobody: (!cpus.is_empty()).then(why), threads: threads.into_iter().collect() }
    }

    /// Returns every thread that matters, with its owner.
    fn threads(&self) -> Threads {
        let mut threads = Threads::default();
        match &self.target {
            Target::System => {
                for cgroup in self.layout.list(&Untrusted::from("/")).unwrap_or_default() {
                    let inside = self.layout.threads(&cgroup).unwrap_or_default();
                    threads.put(Owner::cgroup(cgroup.id.0, cgroup.path), inside);
                }
            }
            Target::Cgroups(cgroups) => {
                for cgroup in cgroups {
                    let all = match self.descend {
                        Descend::Yes => self.layout.list(&cgroup.path).unwrap_or_default(),
                        Descend::No => vec![cgroup.clone()],
                    };
                    let inside = all.iter().flat_map(|one| self.layout.threads(one).unwrap_or_default());
                    let owner = Owner::cgroup(cgroup.id.0, cgroup.path.clone());
                    threads.put(owner, inside.collect());
                }
            }
            Target::Processes(ids) => ids.iter().for_each(|&id| self.put_process(id, &mut threads)),
            Target::Threads(ids) => ids.iter().for_each(|&id| threads.put(self.process(id), vec![id])),
            Target::Command(_) => self.command.iter().for_each(|&id| self.put_process(id, &mut threads)),
        }
        threads
    }

    /// Adds a process's threads, and those of its children and theirs. A kernel without CONFIG_PROC_CHILDREN
    /// does not list these. A group that contains them is then not the process's.
    fn put_process(&self, id: u32, threads: &mut Threads) {
        let (mut next, mut found, mut seen) = (vec![id], Vec::new(), Vec::new());
        while let Some(id) = next.pop() {
            // A process id may be used again during the search.
            if seen.contains(&id) {
                continue;
            }
            seen.push(id);
            let folder = self.root.join(format!("proc/{id}/task"));
            let each = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            for thread in each.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
                found.push(thread);
                if self.inherit == Inherit::Yes {
                    let children = crate::machine::read(&folder, &format!("{thread}/children"));
                    let children = children.unwrap_or_default();
                    next.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
                }
            }
        }
        threads.put(self.process(id), found);
    }

    fn process(&self, pid: u32) -> Owner {
        let born_ns = born_ns(&self.root, pid).unwrap_or(0);
        Owner::Process { pid, born_ns, name: name(&self.root, pid).unwrap_or_default() }
    }
}
