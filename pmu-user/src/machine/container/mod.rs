//! Containers: owner and name of each cgroup. Ids come from the paths of cgroups. Names come from files that
//! runtimes and kubelet keep, the cheapest and least sensitive first, and never from a socket. Of files that
//! hold a container's environment only the named fields are read.

mod claims;
mod conmon;
mod docker;
mod file;
mod follow;
mod known;
mod kubelet;
mod monitors;
mod name;
mod oci;
mod only_v1;
mod path;
mod podman;
mod resolve;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

pub(crate) use self::path::{system_unit, tenant};
use self::{
    claims::{MOUNTS, ROOT},
    conmon::Named,
    known::{Known, NAME_BYTES_MAX},
    path::{ById, Place},
};
pub use self::{
    follow::Follow,
    monitors::{Monitors, SUBCOMMAND as MONITORS, serve as serve_monitors},
    resolve::{named, resolve},
};
use crate::{named::named, untrusted::Untrusted};

named! {
    /// Runtime of a container.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Runtime {
        Docker = "docker", "dockerd.";
        Podman = "podman", "podman.";
        Containerd = "containerd", "containerd, for Kubernetes or for `ctr`.";
        CriO = "cri-o", "CRI-O.";
        Ecs = "ecs", "The agent of AWS ECS.";
        Nspawn = "nspawn", "systemd-nspawn.";
        Lxc = "lxc", "LXC and LXD.";
        Nomad = "nomad", "Nomad.";
    }
}

/// A pod of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pod {
    /// Name of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Untrusted>,
    /// Namespace of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Untrusted>,
    /// Uid of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Untrusted>,
}

/// A container of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Container {
    /// Runtime of the container. `None` if no source names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    /// Id of the container, as the runtime gives it. Some runtimes give a name.
    pub id: Untrusted,
    /// Name of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Untrusted>,
    /// Image of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Untrusted>,
    /// The container only holds a pod's namespaces, or watches another container.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_infrastructure: bool,
}

/// Longest wait for command lines of conmon, where counting has not begun.
const PATIENCE: Duration = Duration::from_secs(1);

/// Digits of a short container id.
const SHORT_ID_DIGITS: usize = 12;

impl Container {
    /// Returns the prefix of a container's name on the command line (`--cgroup docker:NAME`).
    #[must_use]
    pub const fn prefix(&self) -> &'static str {
        match self.runtime {
            Some(Runtime::Docker) => "docker",
            Some(Runtime::Podman) => "podman",
            Some(Runtime::Containerd | Runtime::CriO) => "cri",
            _ => "container",
        }
    }

    /// Returns the short id: the first digits, which distinguish the container from others.
    #[must_use]
    pub fn short_id(&self) -> String {
        self.id.terminal().chars().take(SHORT_ID_DIGITS).collect()
    }
}

/// Owner of a cgroup, as far as it is known. Different cgroups may have equal identities.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    /// Container that the cgroup belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// Rest of the cgroup's path, if it is below the container's own cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<Untrusted>,
    /// Pod that the cgroup belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,
    /// Innermost systemd unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Untrusted>,
    /// Slurm job, and the step if the cgroup belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<(Untrusted, Option<Untrusted>)>,
    /// Number, from 1, among the successive cgroups of this name. 0 where it was not requested. Set in a
    /// report only.
    #[serde(skip)]
    pub generation: u32,
}

/// Names of the [`Identity::columns`].
pub const COLUMNS: [&str; 5] = ["container", "namespace", "pod", "systemd_unit", "job"];

impl Identity {
    /// Returns whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the display name: `shop/web-7f9c/nginx` of a pod's container, `web` of another,
    /// `web:/init.scope` of a cgroup inside it. Returns `None` where only the unit is known, which the path
    /// contains as well.
    #[must_use]
    pub fn in_words(&self) -> Option<String> {
        let words = |name: &Untrusted| name.terminal().into_owned();
        let pod = self.pod.as_ref().and_then(|pod| {
            let name = pod.name.as_ref()?;
            Some(
                pod.namespace
                    .as_ref()
                    .map_or_else(|| words(name), |of| format!("{}/{}", words(of), words(name))),
            )
        });
        let container = self.container.as_ref().and_then(|container| container.name.as_ref()).map(words);
        let called = match (pod, container) {
            (Some(pod), Some(container)) => format!("{pod}/{container}"),
            (pod, container) => pod.or(container)?,
        };
        let inside = self.inside.as_ref().map_or_else(String::new, |path| format!(":{}", words(path)));
        Some(called + &inside)
    }

    /// Returns every name of the cgroup: its display name, its container's, its pod's and its unit's.
    pub fn names(&self) -> impl Iterator<Item = Untrusted> + '_ {
        let container = self.container.as_ref().and_then(|container| container.name.clone());
        let pod = self.pod.as_ref().and_then(|pod| pod.name.clone());
        let called = self.in_words().map(Untrusted::from);
        called.into_iter().chain(container).chain(pod).chain(self.unit.clone())
    }

    /// Returns the Slurm job as typed on the command line: `JOB`, or `JOB.STEP`.
    #[must_use]
    pub fn job_name(&self) -> Option<String> {
        let (job, step) = self.job.as_ref()?;
        let step = step.as_ref().map_or_else(String::new, |step| format!(".{}", step.terminal()));
        Some(format!("{}{step}", job.terminal()))
    }

    /// Returns the table columns, as far as they are known: a container's name, a pod's namespace and name, a
    /// unit, a job.
    #[must_use]
    pub fn columns(&self) -> [Option<&Untrusted>; COLUMNS.len()] {
        let pod = self.pod.as_ref();
        [
            self.container.as_ref().and_then(|container| container.name.as_ref()),
            pod.and_then(|pod| pod.namespace.as_ref()),
            pod.and_then(|pod| pod.name.as_ref()),
            self.unit.as_ref(),
            self.job.as_ref().map(|(job, _)| job),
        ]
    }

    /// Returns whether this is a container without a known name. A container that holds a pod's namespaces
    /// has none.
    #[must_use]
    pub fn lacks_a_name(&self) -> bool {
        self.container
            .as_ref()
            .is_some_and(|container| container.name.is_none() && !container.is_infrastructure)
    }
}

/// Names of containers, as read from files.
#[derive(Clone, Debug, Default)]
pub struct Containers {
    by_id: BTreeMap<String, Known>,
    /// Ids by cgroup, where the path does not contain the id.
    by_cgroup: BTreeMap<Untrusted, String>,
    /// Names from conmon's command lines, by container id, each with its source.
    by_monitor: BTreeMap<String, Vec<Named>>,
    /// Mount points of cgroups to look in.
    mounts: Vec<PathBuf>,
    /// Pods by uid. The pod of one named container applies to all containers of that pod.
    pods: BTreeMap<String, Pod>,
    /// Sources that may not be read, each with its remedy.
    unread: BTreeSet<String>,
}

/// Result of a source: containers by id, or the reason why it cannot be read.
type Found = Result<Vec<(String, Known)>, String>;

impl Containers {
    /// Reads the files that runtimes keep below `root` (`/` for this host). [`Containers::unread`] returns
    /// the sources that may not be read.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let mounts = MOUNTS.iter().map(|mount| root.join(mount)).collect();
        let mut containers = Self { mounts, ..Self::default() };
        // The first source wins: world-readable files come before those that need privileges.
        [kubelet::read, podman::read, docker::read, oci::read]
            .into_iter()
            .for_each(|source| containers.take(source(root)));
        containers
    }

    /// Reads the same files, and the command lines of conmon, which contain names that no file has. A process
    /// that does not respond is waited for up to `PATIENCE`, once.
    #[must_use]
    pub fn read_with_processes(root: &Path) -> Self {
        Self::read_beside(root, &Monitors::new(root), PATIENCE)
    }

    /// Reads the same files, and takes the names that `monitors` reads, waiting for them up to `patience`.
    #[must_use]
    pub fn read_beside(root: &Path, monitors: &Monitors, patience: Duration) -> Self {
        let mut containers = Self::read(root);
        for named in monitors.look(patience) {
            containers.by_monitor.entry(named.id.clone()).or_default().push(named);
        }
        containers
    }

    fn take(&mut self, found: Found) {
        match found {
            Ok(found) => found.into_iter().for_each(|(id, known)| self.add(id, known)),
            Err(why) => drop(self.unread.insert(why)),
        }
    }

    fn add(&mut self, id: String, known: Known) {
        // A cgroup's name cannot contain an id that is longer than a path component.
        if id.len() > NAME_BYTES_MAX {
            return;
        }
        let known = known.bounded();
        if let Some(cgroup) = &known.cgroup {
            self.by_cgroup.insert(cgroup.clone(), id.clone());
        }
        if let Some(uid) = &known.pod.uid {
            let pod = self.pods.entry(uid.terminal().into_owned()).or_default();
            pod.uid.get_or_insert_with(|| uid.clone());
            if pod.name.is_none() {
                (pod.name, pod.namespace) = (known.pod.name.clone(), known.pod.namespace.clone());
            }
        }
        self.by_id.entry(id).or_default().add(known);
    }

    /// Returns the sources that may not be read, each with its remedy.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        self.unread.iter().map(String::as_str)
    }

    /// Returns a container that files name but that has no cgroup, as typed on the command line. It is
    /// matched by its name or the beginning of its id, among these runtimes (any, if the list is empty).
    fn without_cgroup(&self, name: &str, runtimes: &[Runtime]) -> Option<String> {
        let is_it = |(id, known): &(&String, &Known)| {
            let is_of =
                known.runtime.is_none_or(|runtime| runtimes.is_empty() || runtimes.contains(&runtime));
            let called = known.name.as_ref().is_some_and(|called| called.as_bytes() == name.as_bytes());
            let is_id = name.len() >= SHORT_ID_DIGITS && id.starts_with(name);
            is_of && (called || is_id) && !known.is_infrastructure
        };
        let (id, known) = self.by_id.iter().find(is_it)?;
        let container = Container { runtime: known.runtime, id: id.as_str().into(), ..Container::default() };
        let name = known.name.as_ref().map(|name| name.terminal().into_owned());
        Some(format!("{}:{}", container.prefix(), name.unwrap_or_else(|| container.short_id())))
    }

    /// Returns the identity of the cgroup at `path`.
    #[must_use]
    pub fn identity(&self, path: &Untrusted) -> Identity {
        let mut place = Place::of(path);
        let maker = self.maker(path, &place);
        if maker != ROOT {
            // Nothing that system runtimes and schedulers create lies below a user's cgroup.
            (place.pod_uid, place.job) = (None, None);
            place.container = place.container.filter(|found| self.is_of_user(found));
        }
        let by_cgroup = || {
            let above = super::cgroup::ancestors(path.as_bytes());
            let mut paths = std::iter::once(path.as_bytes()).chain(above);
            let (own, id) = paths.find_map(|path| Some((path, self.by_cgroup.get(path)?)))?;
            Some(ById { runtime: None, id: id.clone(), name: None, watches: false, end: own.len() })
        };
        let of_path = place.container.or_else(by_cgroup);
        let known = of_path.as_ref().map(|found| self.known(found, path, maker));
        let known = known.as_ref();
        let inside =
            of_path.as_ref().map(|found| &path.as_bytes()[found.end..]).filter(|rest| !rest.is_empty());
        let inside = inside.map(Untrusted::new);
        let container = of_path.map(|ById { runtime, id, name, watches, .. }| Container {
            runtime: runtime.or_else(|| known?.runtime),
            id: Untrusted::from(id),
            name: name.or_else(|| known?.name.clone()),
            image: known.and_then(|known| known.image.clone()),
            is_infrastructure: watches || known.is_some_and(|known| known.is_infrastructure),
        });
        Identity {
            container,
            inside,
            pod: self.pod(place.pod_uid, known),
            unit: place.unit,
            job: place.job.map(|(job, step)| (Untrusted::from(job), step.map(Untrusted::from))),
            generation: 0,
        }
    }

    fn pod(&self, uid: Option<String>, known: Option<&Known>) -> Option<Pod> {
        let of_container =
            known.map(|known| &known.pod).filter(|pod| pod.name.is_some() || pod.uid.is_some());
        let of_uid = || uid.as_ref().and_then(|uid| self.pods.get(uid));
        let mut pod = of_container.or_else(of_uid).cloned().unwrap_or_default();
        pod.uid = pod.uid.or_else(|| uid.map(Untrusted::from));
        (pod != Pod::default()).then_some(pod)
    }
}
