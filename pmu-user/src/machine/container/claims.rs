//! Which words about a container hold: its cgroup is root's or a user's, by who owns those above it, and only root and that user name it.

use std::{fs, os::unix::fs::MetadataExt as _, path::PathBuf};

use super::{
    Containers, Known, Runtime,
    path::{ById, Place},
};
use crate::{machine::cgroup::ancestors, untrusted::Untrusted};

/// Who runs the system's runtimes.
pub(super) const ROOT: u32 = 0;
/// Where cgroups of version 2, or of systemd's own hierarchy, are mounted.
pub(super) const MOUNTS: [&str; 3] = ["sys/fs/cgroup/unified", "sys/fs/cgroup", "sys/fs/cgroup/systemd"];

impl Containers {
    /// Who made the container's cgroup, or the pod's or job's: the first user who owns one above it, else root.
    pub(super) fn maker(&self, path: &Untrusted, place: &Place) -> u32 {
        if place.container.is_none() && place.pod_uid.is_none() && place.job.is_none() {
            return ROOT;
        }
        let end = place.container.as_ref().map_or(path.as_bytes().len(), |container| container.end);
        let mut above: Vec<&[u8]> = ancestors(&path.as_bytes()[..end]).collect();
        above.reverse();
        let owner = |mount: &PathBuf, above: &[u8]| {
            let folder = mount.join(Untrusted::new(above).to_path().strip_prefix("/").ok()?);
            fs::symlink_metadata(folder).ok().map(|metadata| metadata.uid())
        };
        let owners = |mount| above.iter().filter_map(move |above| owner(mount, above));
        self.mounts.iter().find_map(|mount| owners(mount).find(|uid| *uid != ROOT)).unwrap_or(ROOT)
    }

    /// May a container below a user's cgroup be the user's own? Those of podman are called by conmon of that user; an id that the
    /// system's runtimes know is theirs.
    pub(super) fn is_of_user(&self, found: &ById) -> bool {
        found.runtime == Some(Runtime::Podman) && !self.by_id.contains_key(&found.id)
    }

    /// What is known of a container whose cgroup a user made: files are root's, and a monitor's word holds for its own user.
    pub(super) fn known(&self, found: &ById, path: &Untrusted, maker: u32) -> Known {
        let mut known = Known::default();
        if maker == ROOT {
            known.add(self.by_id.get(&found.id).cloned().unwrap_or_default());
        }
        let is_within = |own: &String| {
            let rest = path.as_bytes().strip_prefix(own.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(b"/"))
        };
        for named in self.by_monitor.get(&found.id).into_iter().flatten() {
            let is_its_own = named.user == maker || named.user == ROOT;
            if is_its_own && named.within.as_ref().is_none_or(is_within) {
                known.add(named.known());
            }
        }
        known
    }
}
