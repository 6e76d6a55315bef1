//! Names of containers, each held by one container at a time. Two containers may have one name at a time: one
//! was renamed where no file records it, or two cgroups claim to be one container. They are two targets. The
//! second is named by its id or its path until the first has ended.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::target;
use crate::{drain::Owner, metric::Report, untrusted::Untrusted};

/// Maximum number of remembered names. Beyond it, remembering starts again.
const NAMES_MAX: usize = 8192;
/// Maximum number of names that are reported as claimed twice.
const SAID_MAX: usize = 100;

/// Container that has a name.
#[derive(Debug)]
struct Holder {
    /// The container's own cgroup.
    base: Untrusted,
    /// Cgroups of the container that have not ended.
    cgroups: HashSet<Owner>,
}

/// Names of containers, each with its holder.
#[derive(Debug, Default)]
pub(super) struct Claims {
    holders: HashMap<Arc<str>, Holder>,
    /// Name by which each cgroup belongs to a holder.
    of: HashMap<Owner, Arc<str>>,
    /// Owners that end in the interval.
    ended: HashSet<Owner>,
    said: HashSet<Arc<str>>,
    to_say: Vec<String>,
}

impl Claims {
    /// Begins an interval: a cgroup that ends in it, or has another name now, releases its name.
    pub(super) fn begin(&mut self, report: &Report) {
        if self.of.len() > NAMES_MAX {
            (self.of, self.holders) = Default::default();
        }
        let tasks = report.tasks.iter();
        self.ended = tasks.clone().flat_map(|tasks| &tasks.ended).cloned().collect();
        let owners = tasks.flat_map(|tasks| &tasks.owners).filter_map(|row| row.who.owner());
        let renamed = |owner: &&Owner| {
            self.of.get(*owner).is_some_and(|known| target::name(owner).is_none_or(|name| **known != *name))
        };
        let gone: Vec<Owner> = owners.filter(renamed).chain(&self.ended).cloned().collect();
        gone.iter().for_each(|owner| self.release(owner));
    }

    fn release(&mut self, owner: &Owner) {
        let Some(name) = self.of.remove(owner) else { return };
        if let Some(holder) = self.holders.get_mut(&name) {
            holder.cgroups.remove(owner);
            if holder.cgroups.is_empty() {
                self.holders.remove(&name);
            }
        }
    }

    /// Returns the name of an owner's target in this interval, `None` for an owner without one.
    pub(super) fn name(&mut self, owner: &Owner) -> Option<Arc<str>> {
        let name: Arc<str> = target::name(owner)?.into();
        // An ended cgroup releases its name, but its last counts go to the target of that name.
        let Some(base) = target::container_base(owner).filter(|_| !self.ended.contains(owner)) else {
            return Some(name);
        };
        let new = || Holder { base: base.clone(), cgroups: HashSet::new() };
        let holder = self.holders.entry(Arc::clone(&name)).or_insert_with(new);
        if holder.base == base {
            if holder.cgroups.insert(owner.clone()) {
                self.of.insert(owner.clone(), Arc::clone(&name));
            }
            return Some(name);
        }
        let by_id = target::name_by_id(owner).filter(|by_id| **by_id != *name && !has_id(holder, owner));
        let apart = by_id.unwrap_or_else(|| target::name_by_path(&base));
        if self.said.len() < SAID_MAX && self.said.insert(Arc::clone(&name)) {
            let first = target::name_by_path(&holder.base);
            let says =
                format!("two containers are called {name}: {first} has its series, the other is {apart}");
            self.to_say.push(says);
        }
        Some(apart.into())
    }

    /// Returns sentences about names that were claimed twice since the last call.
    pub(super) fn take_said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.to_say)
    }
}

/// Returns whether the holder of a name has the id of an owner.
fn has_id(holder: &Holder, owner: &Owner) -> bool {
    let id = target::name_by_id(owner);
    holder.cgroups.iter().any(|other| target::name_by_id(other) == id)
}

#[cfg(test)]
mod tests {
    use super::Claims;
    use crate::{
        drain::Owner,
        machine::container::{Container, Identity, Runtime},
        metric::{
            OwnerOrTarget, OwnerReport, Report,
            exposed::testing::{World, did},
        },
    };

    fn container(cgroup: u64, path: &str, id: &str, name: &str) -> Owner {
        let container = Container {
            runtime: Some(Runtime::Docker),
            id: id.into(),
            name: Some(name.into()),
            ..Container::default()
        };
        let identity = Identity { container: Some(container), ..Identity::default() };
        Owner::Cgroup { id: cgroup, path: path.into(), identity: Some(Box::new(identity)) }
    }

    /// Returns the names of `owners` in an interval in which those in `ends` end.
    fn names(claims: &mut Claims, owners: &[&Owner], ends: &[&Owner]) -> Vec<String> {
        let mut report: Report = World::new().interval(&[did(Owner::cgroup(99, "/x".into()), 1)]);
        let tasks = report.tasks.as_mut().unwrap();
        let row = tasks.owners[0].clone();
        let of = |owner: &&Owner| OwnerReport { who: OwnerOrTarget::Owner((*owner).clone()), ..row.clone() };
        tasks.owners = owners.iter().map(of).collect();
        tasks.ended = ends.iter().map(|owner| (*owner).clone()).collect();
        claims.begin(&report);
        owners.iter().map(|owner| claims.name(owner).unwrap().to_string()).collect()
    }

    #[test]
    fn two_of_one_name_are_two_until_one_has_ended() {
        let mut claims = Claims::default();
        let (old, new) = (container(1, "/a", "aaaa", "web"), container(2, "/b", "bbbb", "web"));
        assert_eq!(names(&mut claims, &[&old], &[]), ["docker:web"]);
        assert_eq!(names(&mut claims, &[&old, &new], &[]), ["docker:web", "docker:bbbb"]);
        assert_eq!(
            claims.take_said(),
            ["two containers are called docker:web: path:/a has its series, the other is docker:bbbb"]
        );
        assert_eq!(names(&mut claims, &[&new], &[]), ["docker:bbbb"], "the first is there, though idle");
        assert!(claims.take_said().is_empty(), "once is enough");
        assert_eq!(names(&mut claims, &[&old, &new], &[&old]), ["docker:web", "docker:web"]);
    }

    #[test]
    fn one_that_starts_again_has_its_name_at_once() {
        let mut claims = Claims::default();
        let (old, new) = (container(1, "/a", "aaaa", "web"), container(2, "/b", "bbbb", "web"));
        names(&mut claims, &[&old], &[]);
        assert_eq!(names(&mut claims, &[&new, &old], &[&old]), ["docker:web", "docker:web"]);
        assert!(claims.take_said().is_empty());
    }

    #[test]
    fn two_cgroups_that_claim_one_container_are_two() {
        let mut claims = Claims::default();
        let (true_one, other) = (container(1, "/a", "aaaa", "web"), container(2, "/b", "aaaa", "web"));
        assert_eq!(names(&mut claims, &[&true_one, &other], &[]), ["docker:web", "path:/b"]);
    }

    #[test]
    fn one_that_was_renamed_leaves_its_name() {
        let mut claims = Claims::default();
        let old = container(1, "/a", "aaaa", "web");
        names(&mut claims, &[&old], &[]);
        let (renamed, new) = (container(1, "/a", "aaaa", "web-blue"), container(2, "/b", "bbbb", "web"));
        for both in [[&new, &renamed], [&renamed, &new]] {
            let mut found = names(&mut claims, &both, &[]);
            found.sort();
            assert_eq!(found, ["docker:web", "docker:web-blue"]);
        }
        assert!(claims.take_said().is_empty() && claims.of.len() == 2);
    }
}
