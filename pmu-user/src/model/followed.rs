//! Cgroups that became targets during counting.

use std::collections::BTreeSet;

use crate::{machine::cgroup::ancestors, untrusted::Untrusted};

/// Paths that are kept, including those of cgroups that are not known any more. The limit rises to twice the
/// number of known ones.
const KEPT_MAX: usize = 16_384;

/// Paths of cgroups that became targets.
#[derive(Clone, Debug, Default)]
pub struct FollowedPaths {
    paths: BTreeSet<Untrusted>,
    kept_max: usize,
}

impl FollowedPaths {
    /// Inserts a path. If there are many, drops those that are not known by `is_known`: no later report has
    /// them.
    pub fn insert(&mut self, path: Untrusted, is_known: impl Fn(&Untrusted) -> bool) {
        self.paths.insert(path);
        if self.paths.len() > self.kept_max.max(KEPT_MAX) {
            self.paths.retain(is_known);
            self.kept_max = 2 * self.paths.len();
        }
    }

    /// Returns whether the cgroup with this path is one of them, or below one.
    pub fn has(&self, path: &[u8]) -> bool {
        let is_one = |path: &[u8]| self.paths.contains(&Untrusted::new(path));
        !self.paths.is_empty() && (is_one(path) || ancestors(path).any(is_one))
    }
}

#[cfg(test)]
mod tests {
    use super::{FollowedPaths, KEPT_MAX};
    use crate::untrusted::Untrusted;

    #[test]
    fn what_is_below_a_path_is_followed_and_what_nobody_knows_is_forgotten() {
        let mut followed = FollowedPaths::default();
        assert!(!followed.has(b"/a"));
        followed.insert(Untrusted::from("/a"), |_| true);
        assert!(
            followed.has(b"/a") && followed.has(b"/a/b/c") && !followed.has(b"/ab") && !followed.has(b"/")
        );
        for number in 0..KEPT_MAX {
            followed.insert(Untrusted::from(format!("/b{number}")), |path| path.as_bytes() == b"/a");
        }
        assert!(followed.has(b"/a") && !followed.has(b"/b0") && followed.paths.len() < KEPT_MAX);
    }
}
