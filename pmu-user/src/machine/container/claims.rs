//! Trust in statements about a container: its cgroup belongs to root or to a user, by the owners of the
//! cgroups above it. Only root and that user may name it.

use std::{fs, os::unix::fs::MetadataExt as _, path::PathBuf};

use super::{
    Containers, Known, Runtime,
    path::{ById, Place},
};
use crate::{machine::cgroup::ancestors, untrusted::Untrusted};

/// Owner of the system's runtimes.
pub(super) const ROOT: u32 = 0;
/// Mount points of version 2 cgroups, or of systemd's own hierarchy.
pub(super) const MOUNTS: [&str; 3] = ["sys/fs/cgroup/unified", "sys/fs/cgroup", "sys/fs/cgroup/systemd"];

impl Containers {
    /// Returns the creator of the container's cgroup, or the pod's or job's: the first user that owns a
    /// cgroup above it, else root.
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

    /// Returns whether a container below a user's cgroup may be the user's own. Those of podman are named by
    /// conmon of that user. An id that the system's runtimes list is theirs.
    pub(super) fn is_of_user(&self, found: &ById) -> bool {
        found.runtime == Some(Runtime::Podman) && !self.by_id.contains_key(&found.id)
    }

    /// Returns what is known of a container whose cgroup `maker` created: runtime files are root's, and a
    /// monitor's statement holds for its own user.
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
