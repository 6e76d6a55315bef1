//! Identities of the cgroups in a run. Each is reported once, and again once its name is known.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    drain::{CgroupName, Drain, Owner},
    machine::container::{Containers, Identity, Monitors},
    untrusted::Untrusted,
};

/// Interval at which the files of runtimes are read for containers that have no name yet.
const READ_EVERY: Duration = Duration::from_millis(900);
/// Time for which a container may have no name. Its runtime writes the name before the container starts,
/// kubelet a moment later.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for which the counting thread waits for command lines of conmon. Later ones are there at the next
/// read.
const WAIT: Duration = Duration::from_millis(30);
/// Wait at the first read, at which the process that reads them starts.
const WAIT_FIRST: Duration = Duration::from_secs(1);
/// Cgroups that are remembered although a drain has none of them. The limit rises to twice the number in a
/// drain. A cgroup that comes back after that is looked up and reported again.
const KEPT_MAX: usize = 4096;

/// Reported cgroups, and what is known of containers: at first from files, and from processes as soon as one
/// has no name.
#[derive(Debug)]
pub(super) struct CgroupNames {
    root: PathBuf,
    containers: Containers,
    monitors: Monitors,
    /// Time at which processes were read, if they were.
    read: Option<Instant>,
    /// Reported cgroups, with the names of those that are containers.
    told: HashMap<Untrusted, Option<Untrusted>>,
    kept_max: usize,
    /// Cgroups without a name, with the time at which they were first seen.
    unnamed: Vec<(Untrusted, Instant)>,
}

impl CgroupNames {
    /// Reads the files of runtimes below `root`.
    pub(super) fn new(root: &Path, monitors: Monitors) -> Self {
        Self {
            root: root.to_owned(),
            containers: Containers::read(root),
            monitors,
            read: None,
            told: HashMap::new(),
            kept_max: KEPT_MAX,
            unnamed: Vec::new(),
        }
    }

    /// Returns the identities of the cgroups of `drain` that were not reported yet, and of those that have a
    /// name by now.
    pub(super) fn of(&mut self, drain: &Drain) -> Vec<CgroupName> {
        let now = Instant::now();
        if self.told.len() > self.kept_max {
            let met: HashSet<&Untrusted> = paths(drain).collect();
            self.told.retain(|path, _| met.contains(path));
            self.told.shrink_to_fit();
            self.kept_max = KEPT_MAX.max(2 * self.told.len());
        }
        let mut met: Vec<&Untrusted> = paths(drain).filter(|path| !self.told.contains_key(*path)).collect();
        met.sort();
        met.dedup();
        let lacks_a_name = |path: &Untrusted| self.containers.identity(path).lacks_a_name();
        let mut told = Vec::new();
        let is_due = self.read.is_none_or(|read| now.duration_since(read) >= READ_EVERY);
        if is_due && (!self.unnamed.is_empty() || met.iter().any(|path| lacks_a_name(path))) {
            let wait = if self.read.is_none() { WAIT_FIRST } else { WAIT };
            self.containers = Containers::read_beside(&self.root, &self.monitors, wait);
            self.read = Some(now);
            told = self.renamed();
        }
        for path in met {
            let identity = self.containers.identity(path);
            if identity.lacks_a_name() {
                self.unnamed.push((path.clone(), now));
            }
            told.extend(self.tell(path, identity));
        }
        for (path, since) in std::mem::take(&mut self.unnamed) {
            let identity = self.containers.identity(&path);
            if identity.lacks_a_name() && now.duration_since(since) < PATIENCE {
                self.unnamed.push((path, since));
            } else if !identity.lacks_a_name() {
                told.extend(self.tell(&path, identity));
            }
        }
        told
    }

    /// Returns the containers that were renamed since they were reported, such as one that gave its name to
    /// the next.
    fn renamed(&mut self) -> Vec<CgroupName> {
        let now = |path: &Untrusted| self.containers.identity(path);
        let is_renamed = |(path, name): (&Untrusted, &Option<Untrusted>)| {
            let identity = now(path);
            let called = identity.container.as_ref().and_then(|container| container.name.as_ref());
            (name.is_some() && called.is_some() && called != name.as_ref()).then(|| (path.clone(), identity))
        };
        let renamed: Vec<(Untrusted, Identity)> = self.told.iter().filter_map(is_renamed).collect();
        renamed.into_iter().filter_map(|(path, identity)| self.tell(&path, identity)).collect()
    }

    fn tell(&mut self, path: &Untrusted, identity: Identity) -> Option<CgroupName> {
        let container = identity.container.as_ref();
        self.told.insert(path.clone(), container.and_then(|container| container.name.clone()));
        (!identity.is_empty()).then(|| CgroupName { path: path.clone(), identity })
    }
}

/// Returns the paths of the cgroups in a drain.
fn paths(drain: &Drain) -> impl Iterator<Item = &Untrusted> {
    let tasks = drain.tasks.iter();
    let owners = tasks.clone().flat_map(|tasks| tasks.owners.iter().map(|row| &row.owner));
    let owners = owners.chain(tasks.flat_map(|tasks| &tasks.above));
    let of_tasks = owners.filter_map(|owner| match owner {
        Owner::Cgroup { path, .. } => Some(path),
        _ => None,
    });
    of_tasks.chain(drain.io.iter().flat_map(|io| io.names.iter().map(|named| &named.path)))
}
