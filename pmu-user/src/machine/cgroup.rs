//! Cgroup hierarchies: where they are, and which cgroup a name means. Only v2 cgroups can own counts; their id is the
//! inode of their folder.

use std::{
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirEntryExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::mount::{self, Mount};
use crate::untrusted::{Untrusted, exact};

/// Identity of a v2 cgroup: the inode of its folder, the kernel's `kernfs_node.id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CgroupId(pub u64);

/// What the names of systemd's units end in that are cgroups.
pub(super) const UNITS: [&str; 3] = [".service", ".scope", ".slice"];

/// PATH_MAX of the kernel (include/uapi/linux/limits.h).
pub(crate) const PATH_BYTES_MAX: usize = 4096;

/// Paths above a cgroup's path, the root last: `/a/b` has `/a` and `/`. A path that is too long for the kernel is not one of its cgroups: a
/// recording may have one of any length, and those above it are as long together as its square.
pub(crate) fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = (1..path.len().min(PATH_BYTES_MAX)).rev();
    let parents = ends.filter(|&at| path[at] == b'/').map(|at| &path[..at]);
    parents.chain((path.len() > 1 && path.starts_with(b"/")).then_some(&b"/"[..]))
}

/// Where the hierarchies are mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Mount point of the v2 hierarchy, if there is one.
    pub v2: Option<PathBuf>,
    /// Controllers (or names) of the mounted v1 hierarchies.
    pub v1: Vec<String>,
}

/// A cgroup that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Path from the hierarchy's root: `/system.slice/web.service`.
    #[serde(with = "exact")]
    pub path: Untrusted,
    /// Its id.
    pub id: CgroupId,
}

/// Why a name means no cgroup.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// There is no v2 hierarchy.
    #[error("no cgroup v2 hierarchy is mounted, so a cgroup cannot be a target")]
    NoV2,
    /// The folder belongs to a v1 hierarchy.
    #[error("`{0}` is a v1 cgroup; only cgroups of the v2 hierarchy at {1} can be counted")]
    V1(String, String),
    /// Nothing has that name.
    #[error("no cgroup `{0}`{near}", near = near(.1))]
    Unknown(String, Vec<String>),
    /// Nothing that could be read has that name.
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
        let mut layout = Self { v2: None, v1: Vec::new() };
        for Mount { kind, point, .. } in mounts {
            match kind.as_slice() {
                b"cgroup2" if layout.v2.is_none() => layout.v2 = Some(point.to_path()),
                b"cgroup" => {
                    let point = point.terminal();
                    layout.v1.push(point.rsplit('/').next().unwrap_or_default().to_owned());
                }
                _ => {}
            }
        }
        layout.v1.sort();
        layout
    }

    /// In one word, for a report.
    pub fn kind(&self) -> &'static str {
        match (self.v2.is_some(), self.v1.is_empty()) {
            (true, true) => "v2",
            (true, false) => "hybrid",
            (false, false) => "v1",
            (false, true) => "none",
        }
    }

    /// Every cgroup below `path` and itself, parents first. Cgroups that vanish meanwhile are left out.
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
                // The folder already tells inode and kind: nothing is asked about each of thousands of cgroups.
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let folder = entry.path();
                    cgroups.push(Cgroup { path: path_below(mount, &folder), id: CgroupId(entry.ino()) });
                    folders.push(folder);
                }
            }
        }
        Ok(cgroups)
    }

    /// Threads that are in a cgroup now, without those below it; none if it is gone or may not be read.
    pub fn threads(&self, cgroup: &Cgroup) -> Option<Vec<u32>> {
        let folder = folder(self.v2.as_deref()?, &cgroup.path);
        let list = fs::read_to_string(folder.join("cgroup.threads")).ok()?;
        Some(list.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// The one cgroup that `name` means: a path from the root or from `/`, or the last part of a path, with or without
    /// systemd's `.service`, `.scope` or `.slice`.
    ///
    /// # Errors
    ///
    /// None or several match. Never guesses.
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

    /// Paths of the cgroups that a name stands for beside `/NAME`, which it means if there is that one; none otherwise.
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

    /// The cgroup with this path, if it is there.
    pub fn at(&self, path: &Untrusted) -> Option<Cgroup> {
        let metadata = fs::metadata(self.folder(path)?).ok().filter(fs::Metadata::is_dir)?;
        Some(Cgroup { path: path.clone(), id: CgroupId(metadata.ino()) })
    }

    /// The folder of the cgroup with this path; `None` without a v2 hierarchy.
    pub(super) fn folder(&self, path: &Untrusted) -> Option<PathBuf> {
        Some(folder(self.v2.as_deref()?, path))
    }

    /// The cgroup at a path from the root, if it is there and the path leads nowhere else.
    pub(super) fn below(&self, path: &Path) -> Option<Cgroup> {
        let path: PathBuf = Path::new("/").join(path).components().collect();
        let climbs = path.components().any(|part| part == std::path::Component::ParentDir);
        if climbs { None } else { self.at(&Untrusted::from(path.as_path())) }
    }

    fn exact(&self, path: &Path, given: &str) -> Result<Cgroup, ResolveError> {
        if let Some(cgroup) = self.below(path) {
            return Ok(cgroup);
        }
        let all = self.list(&Untrusted::from("/"))?;
        Err(ResolveError::Unknown(given.to_owned(), nearest(&all, given)))
    }
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

/// Up to three paths whose last part is most like the given one's.
fn nearest(all: &[Cgroup], name: &str) -> Vec<String> {
    let names = all.iter().map(|cgroup| cgroup.path.terminal().into_owned()).filter(|path| path != "/");
    nearest_of(names, name.rsplit('/').next().unwrap_or_default())
}

/// Up to three names and paths whose last part is most like the wanted one.
pub(super) fn nearest_of(names: impl Iterator<Item = String>, wanted: &str) -> Vec<String> {
    crate::suggest::nearest(wanted, names, |path| {
        let last = path.rsplit('/').next().unwrap_or_default();
        UNITS.iter().find_map(|unit| last.strip_suffix(unit)).unwrap_or(last)
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Layout, PATH_BYTES_MAX, ResolveError, ancestors};
    use crate::{machine::mount::parse, untrusted::Untrusted};

    const HYBRID: &str = "\
        30 29 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        31 29 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        32 29 0:28 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_paths_above_a_path_end_at_the_root() {
        let above = |path: &'static [u8]| ancestors(path).collect::<Vec<_>>();
        assert_eq!(above(b"/a/b/c"), [&b"/a/b"[..], b"/a", b"/"]);
        assert_eq!(above(b"/a"), [b"/"]);
        assert!(above(b"/").is_empty());
        assert!(above(b"[cgroup 7]").is_empty(), "its path is not known");
    }

    #[test]
    fn no_path_above_one_is_longer_than_the_kernels() {
        let path = "/a".repeat(1 << 19);
        let above: Vec<_> = ancestors(path.as_bytes()).collect();
        assert_eq!((above.len(), above[0].len()), (PATH_BYTES_MAX / 2, PATH_BYTES_MAX - 2));
    }

    /// A folder tree that stands for a v2 hierarchy.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, folders: &[&str]) -> Self {
            let base = std::env::temp_dir().join(format!("pmbpf-cgroup-{name}-{}", std::process::id()));
            for folder in folders {
                std::fs::create_dir_all(base.join(folder)).unwrap();
            }
            Self(base)
        }

        fn layout(&self) -> Layout {
            Layout { v2: Some(self.0.clone()), v1: Vec::new() }
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_hybrid_host_is_recognised() {
        let layout = Layout::of(parse(HYBRID.as_bytes()));
        assert_eq!(layout.kind(), "hybrid");
        assert_eq!(layout.v2, Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(layout.v1, ["cpu", "memory"]);
    }

    #[test]
    fn a_v1_path_says_that_it_is_one() {
        let error = Layout::of(parse(HYBRID.as_bytes())).resolve("/sys/fs/cgroup/cpu/web").unwrap_err();
        assert!(matches!(error, ResolveError::V1(..)), "{error}");
    }

    #[test]
    fn a_name_means_a_path_a_unit_or_nothing() {
        let tree =
            Tree::new("names", &["system.slice/web.service", "system.slice/db.service/worker", "user.slice"]);
        let layout = tree.layout();
        for name in ["web", "web.service", "/system.slice/web.service", "system.slice/web.service/"] {
            assert_eq!(
                layout.resolve(name).unwrap().path,
                Untrusted::from("/system.slice/web.service"),
                "{name}"
            );
        }
        let error = layout.resolve("wbe").unwrap_err().to_string();
        assert!(error.contains("`wbe`") && error.contains("/system.slice/web.service"), "{error}");
    }

    #[test]
    fn an_ambiguous_name_lists_what_it_could_mean() {
        let tree = Tree::new("ambiguous", &["a/web", "b/web"]);
        let error = tree.layout().resolve("web").unwrap_err().to_string();
        assert!(error.contains("/a/web") && error.contains("/b/web"), "{error}");
    }

    #[test]
    fn a_path_does_not_climb_out_of_the_hierarchy() {
        let tree = Tree::new("climb", &["a"]);
        assert!(tree.layout().resolve("/a/../../etc").is_err());
    }

    #[test]
    fn a_list_holds_the_subtree() {
        let tree = Tree::new("list", &["a/b/c", "d"]);
        let mut paths: Vec<String> = tree
            .layout()
            .list(&Untrusted::from("/a"))
            .unwrap()
            .iter()
            .map(|cgroup| cgroup.path.terminal().into_owned())
            .collect();
        paths.sort();
        assert_eq!(paths, ["/a", "/a/b", "/a/b/c"]);
    }
}
