//! Cgroup hierarchies: their mount points, and the cgroup that a name stands for. Only v2 cgroups can own
//! counts. Their id is the inode of their folder.

#[cfg(test)]
mod tests;

use std::{
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirEntryExt as _, MetadataExt as _},
    },
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::mount::{self, Mount};
use crate::untrusted::{Untrusted, exact};

/// Identity of a v2 cgroup: the inode of its folder, the kernel's `kernfs_node.id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CgroupId(pub u64);

/// Suffixes of systemd units that are cgroups.
pub(super) const UNITS: [&str; 3] = [".service", ".scope", ".slice"];

/// Longest path of the kernel, in bytes (PATH_MAX, include/uapi/linux/limits.h).
pub(crate) const PATH_BYTES_MAX: usize = 4096;

/// Returns the paths above a cgroup's path, the root last: `/a/b` has `/a` and `/`. No path above is longer
/// than the kernel's limit. A recording may have a path of any length, and the sum of its ancestors' lengths
/// is quadratic.
pub(crate) fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = (1..path.len().min(PATH_BYTES_MAX)).rev();
    let parents = ends.filter(|&at| path[at] == b'/').map(|at| &path[..at]);
    parents.chain((path.len() > 1 && path.starts_with(b"/")).then_some(&b"/"[..]))
}

/// Controllers of v1 hierarchies whose limits and accounts are read.
const LIMITED_V1: [&str; 3] = ["cpu", "blkio", "memory"];

/// Mount points of the hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Mount point of the v2 hierarchy, if there is one.
    pub v2: Option<PathBuf>,
    /// Controllers (or names) of the mounted v1 hierarchies.
    pub v1: Vec<String>,
    /// Mount points of the v1 hierarchies whose limits and accounts are read, by controller.
    #[serde(skip)]
    pub controllers: Vec<(&'static str, PathBuf)>,
}

/// A cgroup that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Path from the hierarchy's root: `/system.slice/web.service`.
    #[serde(with = "exact")]
    pub path: Untrusted,
    /// Id of the cgroup.
    pub id: CgroupId,
}

/// Reason why a name stands for no cgroup.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// No v2 hierarchy is mounted.
    #[error("no cgroup v2 hierarchy is mounted, so a cgroup cannot be a target")]
    NoV2,
    /// The folder belongs to a v1 hierarchy.
    #[error("`{0}` is a v1 cgroup; only cgroups of the v2 hierarchy at {1} can be counted")]
    V1(String, String),
    /// A container is in v1 hierarchies alone: its cgroup there, and its processes.
    #[error("`{0}` is in the v1 hierarchy {1} alone; only cgroups of the v2 hierarchy have rows")]
    OnlyV1(String, String, String),
    /// No cgroup has that name.
    #[error("no cgroup `{0}`{near}", near = near(.1))]
    Unknown(String, Vec<String>),
    /// A container has that name, but no cgroup.
    #[error("no cgroup `{0}`: the container {1} is not running, or not visible from here")]
    NoneHere(String, String),
    /// No source that could be read has that name.
    #[error("no cgroup `{0}`{near}; {2}", near = near(.1))]
    Unread(String, Vec<String>, String),
    /// Several cgroups have that name.
    #[error("`{0}` names {count} cgroups: {list}", count = .1.len(), list = .1.join(", "))]
    Ambiguous(String, Vec<String>),
    /// The hierarchy could not be read.
    #[error("cannot read the cgroup hierarchy: {0}")]
    Io(#[from] io::Error),
}

fn near(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; the nearest are {}", names.join(", ")) }
}

impl Layout {
    /// Reads the mounts below `root`.
    ///
    /// # Errors
    ///
    /// `/proc/self/mountinfo` cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        Ok(Self::of(mount::of_process(root, "self")?))
    }

    fn of(mounts: Vec<Mount>) -> Self {
        let mut layout = Self::default();
        let mut is_above_ours = false;
        for Mount { kind, part, point, options, .. } in mounts {
            match kind.as_slice() {
                // In a container with the host's hierarchy mounted as well, the host's is taken: it contains
                // both.
                b"cgroup2" if layout.v2.is_none() || !is_above_ours && is_above(&part) => {
                    is_above_ours = is_above(&part);
                    layout.v2 = Some(point.to_path());
                }
                b"cgroup" => {
                    let has = |name: &&'static str| {
                        options.split(|&byte| byte == b',').any(|option| option == name.as_bytes())
                    };
                    let limits = LIMITED_V1.into_iter().filter(has).map(|name| (name, point.to_path()));
                    layout.controllers.extend(limits);
                    let point = point.terminal();
                    layout.v1.push(point.rsplit('/').next().unwrap_or_default().to_owned());
                }
                _ => {}
            }
        }
        layout.v1.sort();
        layout
    }

    /// Returns the kind of hierarchy in one word, for a report.
    pub fn kind(&self) -> &'static str {
        match (self.v2.is_some(), self.v1.is_empty()) {
            (true, true) => "v2",
            (true, false) => "hybrid",
            (false, false) => "v1",
            (false, true) => "none",
        }
    }

    /// Returns every cgroup below `path` and itself, parents first. Cgroups that vanish during the read are
    /// left out.
    ///
    /// # Errors
    ///
    /// The top folder cannot be read.
    pub fn list(&self, path: &Untrusted) -> Result<Vec<Cgroup>, ResolveError> {
        let mount = self.v2.as_deref().ok_or(ResolveError::NoV2)?;
        let top = folder(mount, path);
        let mut cgroups = vec![Cgroup { path: path.clone(), id: CgroupId(fs::metadata(&top)?.ino()) }];
        let mut folders = vec![top];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                // The folder entry already has inode and kind: no stat call is needed for each of thousands
                // of cgroups.
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let folder = entry.path();
                    cgroups.push(Cgroup { path: path_below(mount, &folder), id: CgroupId(entry.ino()) });
                    folders.push(folder);
                }
            }
        }
        Ok(cgroups)
    }

    /// Returns the threads in a cgroup, without those below it. Returns `None` if the cgroup is gone or may
    /// not be read.
    pub fn threads(&self, cgroup: &Cgroup) -> Option<Vec<u32>> {
        let folder = folder(self.v2.as_deref()?, &cgroup.path);
        let list = fs::read_to_string(folder.join("cgroup.threads")).ok()?;
        Some(list.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Returns the cgroup that `name` stands for. It is a path from the root or from `/`, or the last part of
    /// a path, with or without systemd's `.service`, `.scope` or `.slice`.
    ///
    /// # Errors
    ///
    /// No cgroup or several match. The function never guesses.
    pub fn resolve(&self, name: &str) -> Result<Cgroup, ResolveError> {
        let mount = self.v2.as_deref().ok_or(ResolveError::NoV2)?;
        let given = Path::new(name);
        if let Ok(below) = given.strip_prefix(mount) {
            return self.exact(&Path::new("/").join(below), name);
        }
        if given.is_absolute()
            && mount.parent().is_some_and(|base| self.v1.iter().any(|v1| given.starts_with(base.join(v1))))
        {
            return Err(ResolveError::V1(name.to_owned(), mount.display().to_string()));
        }
        if given.is_absolute() || name.contains('/') {
            return self.exact(&Path::new("/").join(given), name);
        }
        let all = self.list(&Untrusted::from("/"))?;
        if let Some(top) = all.iter().find(|cgroup| cgroup.path.as_bytes() == format!("/{name}").as_bytes()) {
            return Ok(top.clone());
        }
        let mut hits: Vec<&Cgroup> = all.iter().filter(|cgroup| is_called(cgroup, name)).collect();
        match hits.len() {
            1 => Ok(hits.remove(0).clone()),
            0 => Err(ResolveError::Unknown(name.to_owned(), nearest(&all, name))),
            _ => Err(ResolveError::Ambiguous(
                name.to_owned(),
                hits.iter().take(10).map(|cgroup| cgroup.path.terminal().into_owned()).collect(),
            )),
        }
    }

    /// Returns the paths of the other cgroups that a name matches if it stands for `/NAME`. Returns none if
    /// there is no such cgroup.
    pub fn others_called(&self, name: &str) -> Vec<String> {
        let all = self.list(&Untrusted::from("/")).unwrap_or_default();
        let top = format!("/{name}");
        let is_top = |cgroup: &&Cgroup| cgroup.path.as_bytes() == top.as_bytes();
        if name.contains('/') || !all.iter().any(|cgroup| is_top(&cgroup)) {
            return Vec::new();
        }
        let others = all.iter().filter(|cgroup| is_called(cgroup, name) && !is_top(cgroup)).take(10);
        others.map(|cgroup| cgroup.path.terminal().into_owned()).collect()
    }

    /// Returns the cgroup of a process in this hierarchy. The given path is that of /proc, which in a cgroup
    /// namespace starts at the namespace's root. The result starts at the hierarchy's root.
    pub(super) fn of_process(&self, pid: u32, told: &Untrusted) -> Option<Cgroup> {
        let holds = |cgroup: &Cgroup| {
            let folder = self.folder(&cgroup.path)?;
            // A threaded cgroup has no list of processes.
            let list = fs::read_to_string(folder.join("cgroup.procs"))
                .or_else(|_| fs::read_to_string(folder.join("cgroup.threads")));
            list.ok()?.lines().any(|line| line.parse() == Ok(pid)).then_some(())
        };
        let told = self.below(told.to_path().strip_prefix("/").ok()?);
        if let Some(cgroup) = told.as_ref().filter(|cgroup| holds(cgroup).is_some()) {
            return Some(cgroup.clone());
        }
        let all = self.list(&Untrusted::from("/")).ok()?;
        all.into_iter().find(|cgroup| holds(cgroup).is_some()).or(told)
    }

    /// Returns the cgroup with this path, if it exists.
    pub fn at(&self, path: &Untrusted) -> Option<Cgroup> {
        let metadata = fs::metadata(self.folder(path)?).ok().filter(fs::Metadata::is_dir)?;
        Some(Cgroup { path: path.clone(), id: CgroupId(metadata.ino()) })
    }

    /// Returns the mount point of the v1 hierarchy of a controller.
    pub(super) fn v1_mount(&self, controller: &str) -> Option<&Path> {
        self.controllers.iter().find(|(name, _)| *name == controller).map(|(_, mount)| mount.as_path())
    }

    /// Returns the folder of the cgroup with this path in the v1 hierarchy of a controller, or in the v2
    /// hierarchy without one. Returns `None` where that is not mounted, or the path leads elsewhere.
    pub(super) fn folder_of(&self, controller: Option<&str>, path: &Untrusted) -> Option<PathBuf> {
        let mount = match controller {
            Some(controller) => self.v1_mount(controller)?,
            None => self.v2.as_deref()?,
        };
        (!climbs(&path.to_path())).then(|| folder(mount, path))
    }

    /// Returns the folder of the cgroup with this path. Returns `None` without a v2 hierarchy.
    pub(super) fn folder(&self, path: &Untrusted) -> Option<PathBuf> {
        Some(folder(self.v2.as_deref()?, path))
    }

    /// Returns the cgroup at a path from the root, if it exists and the path leads nowhere else.
    pub(super) fn below(&self, path: &Path) -> Option<Cgroup> {
        let path: PathBuf = Path::new("/").join(path).components().collect();
        if climbs(&path) { None } else { self.at(&Untrusted::from(path.as_path())) }
    }

    fn exact(&self, path: &Path, given: &str) -> Result<Cgroup, ResolveError> {
        if let Some(cgroup) = self.below(path) {
            return Ok(cgroup);
        }
        let all = self.list(&Untrusted::from("/"))?;
        Err(ResolveError::Unknown(given.to_owned(), nearest(&all, given)))
    }
}

/// Returns whether a part of the hierarchy is above the root of this process's cgroup namespace.
fn is_above(part: &Untrusted) -> bool {
    part.as_bytes() == b"/.." || part.as_bytes().starts_with(b"/../")
}

/// Link of the first cgroup namespace (PROC_CGROUP_INIT_INO, include/linux/proc_ns.h).
const FIRST_NAMESPACE: &str = "cgroup:[4026531835]";

/// Returns whether a process below `root` sees the whole hierarchy. In a separate cgroup namespace, as of a
/// container, it does only where the host's hierarchy is mounted. Otherwise it sees what is below its own
/// cgroup.
pub(crate) fn sees_all(root: &Path) -> bool {
    let namespace = fs::read_link(root.join("proc/self/ns/cgroup"));
    let is_first = namespace.is_ok_and(|namespace| namespace == Path::new(FIRST_NAMESPACE));
    let mounts = mount::of_process(root, "self").unwrap_or_default();
    is_first || mounts.iter().any(|mount| mount.kind == b"cgroup2" && is_above(&mount.part))
}

/// Returns whether a path leads out of its starting folder.
fn climbs(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

fn folder(mount: &Path, path: &Untrusted) -> PathBuf {
    let path = path.to_path();
    mount.join(path.strip_prefix("/").unwrap_or(&path))
}

fn path_below(mount: &Path, folder: &Path) -> Untrusted {
    let below = folder.strip_prefix(mount).unwrap_or(folder);
    Untrusted::from(Path::new("/").join(below).as_path())
}

fn is_called(cgroup: &Cgroup, name: &str) -> bool {
    let path = cgroup.path.to_path();
    let Some(last) = path.file_name().map(OsStrExt::as_bytes) else { return false };
    let rest = last.strip_prefix(name.as_bytes());
    rest.is_some_and(|rest| matches!(rest, b"" | b".service" | b".scope" | b".slice"))
}

/// Returns up to three paths whose last part is most similar to the given one's.
fn nearest(all: &[Cgroup], name: &str) -> Vec<String> {
    let names = all.iter().map(|cgroup| cgroup.path.terminal().into_owned()).filter(|path| path != "/");
    nearest_of(names, name.rsplit('/').next().unwrap_or_default())
}

/// Returns up to three names and paths whose last part is most similar to the wanted one.
pub(super) fn nearest_of(names: impl Iterator<Item = String>, wanted: &str) -> Vec<String> {
    crate::suggest::nearest(wanted, names, |path| {
        let last = path.rsplit('/').next().unwrap_or_default();
        let last = last.rsplit(':').next().unwrap_or(last);
        UNITS.iter().find_map(|unit| last.strip_suffix(unit)).unwrap_or(last)
    })
}
