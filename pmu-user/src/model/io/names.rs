//! Paths of cgroups with traffic.

use std::collections::{BTreeMap, BTreeSet};

use crate::{drain::io::Named, machine::cgroup::ancestors, untrusted::Untrusted};

/// Cgroups that are kept although nothing needs them any more. The limit rises to twice the number of needed
/// ones.
const KEPT_MAX: usize = 4096;

/// Paths of cgroups by id, and the id that each path had last.
#[derive(Clone, Debug, Default)]
pub struct CgroupPaths {
    paths: BTreeMap<u64, Untrusted>,
    ids: BTreeMap<Untrusted, u64>,
    kept_max: usize,
}

impl CgroupPaths {
    /// Returns the path of the cgroup with this id, if it was reported.
    #[must_use]
    pub fn path(&self, id: u64) -> Option<&Untrusted> {
        self.paths.get(&id)
    }

    /// Returns the id of the cgroup that was reported last with this path.
    #[must_use]
    pub fn id(&self, path: &Untrusted) -> Option<u64> {
        self.ids.get(path).copied()
    }

    /// Returns whether there are too many cgroups, so that those which nothing needs should be dropped.
    pub(super) fn is_full(&self) -> bool {
        self.paths.len() > self.kept_max.max(KEPT_MAX)
    }

    /// Drops all but `needed`, the cgroups above them, and those that `is_needed` selects by path.
    pub(super) fn keep(&mut self, needed: &BTreeSet<u64>, is_needed: impl Fn(&Untrusted) -> bool) {
        let of_needed = needed.iter().filter_map(|id| self.paths.get(id));
        let above: BTreeSet<&[u8]> = of_needed.flat_map(|path| ancestors(path.as_bytes())).collect();
        let kept = |id: &u64, path: &Untrusted| {
            needed.contains(id) || above.contains(path.as_bytes()) || is_needed(path)
        };
        let kept: BTreeMap<u64, Untrusted> = self
            .paths
            .iter()
            .filter(|(id, path)| kept(id, path))
            .map(|(id, path)| (*id, path.clone()))
            .collect();
        // A cgroup that is created again at a path has the larger id.
        self.ids = kept.iter().map(|(id, path)| (path.clone(), *id)).collect();
        self.paths = kept;
        self.kept_max = 2 * self.paths.len();
    }
}

impl Extend<Named> for CgroupPaths {
    fn extend<T: IntoIterator<Item = Named>>(&mut self, names: T) {
        for Named { cgroup, path } in names {
            self.ids.insert(path.clone(), cgroup);
            self.paths.insert(cgroup, path);
        }
    }
}

impl FromIterator<Named> for CgroupPaths {
    fn from_iter<T: IntoIterator<Item = Named>>(names: T) -> Self {
        let mut paths = Self::default();
        paths.extend(names);
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::{CgroupPaths, KEPT_MAX};
    use crate::{drain::io::Named, untrusted::Untrusted};

    #[test]
    fn what_is_needed_stays_and_so_does_what_is_above() {
        let mut paths = CgroupPaths::default();
        let named = |cgroup, path: &str| Named { cgroup, path: Untrusted::from(path) };
        paths.extend([named(1, "/a"), named(2, "/a/b"), named(3, "/owned")]);
        let others = |from: u64| (from..).map(|id| named(id, &format!("/gone/{id}")));
        paths.extend(others(10).take(KEPT_MAX - 3));
        assert!(!paths.is_full());
        paths.extend([named(4, "/a/b")]);
        assert!(paths.is_full());
        paths.keep(&[2].into(), |path| path.as_bytes() == b"/owned");
        assert_eq!([1, 2, 3, 4, 10].map(|id| paths.path(id).is_some()), [true, true, true, false, false]);
        let id = |path: &str| paths.id(&Untrusted::from(path));
        assert_eq!(["/a", "/a/b", "/gone/10"].map(id), [Some(1), Some(2), None]);
        assert!(!paths.is_full());
    }
}
