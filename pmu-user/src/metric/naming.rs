//! Names of cgroups in a report: the identity of each, set in every owner. They are found by path, regardless
//! of the source, and are not a part of an owner's identity.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{OwnerOrTarget, Report, TasksReport, culprit::Culprit, finding::Finding, io::Subject};
use crate::{drain::Owner, machine::container::Identity, untrusted::Untrusted};

/// Identities of cgroups, by path.
pub type CgroupNames = BTreeMap<Untrusted, Identity>;

/// Number of cgroups that are kept although a report has none of them; twice the report's number where that
/// is larger. Beyond that only those remain that a runtime named, or that share their name with earlier ones.
const KEPT_MAX: usize = 4096;
/// Maximum number of cgroups that are kept; beyond that, the numbering of generations starts again.
const NAMED_MAX: usize = 65_536;

/// Successive cgroups of one name: containers that started again, units. A cgroup's id is larger than that of
/// any before it (fs/kernfs/dir.c, `__kernfs_new_node`).
#[derive(Clone, Debug, Default)]
pub struct Generations {
    /// Ids by name, the oldest first.
    by_name: HashMap<String, Vec<u64>>,
    /// Known ids, and whether a runtime gave the name.
    known: HashMap<u64, bool>,
    /// Whether any name has several ids.
    has_several: bool,
    kept_max: usize,
}

impl Generations {
    /// Adds a cgroup of a report.
    fn meet(&mut self, owner: &Owner) {
        let Owner::Cgroup { id, identity, .. } = owner else { return };
        let is_named = identity.is_some();
        if *id == 0 || self.known.get(id).is_some_and(|before| *before || !is_named) {
            return;
        }
        self.known.insert(*id, is_named);
        let ids = self.by_name.entry(owner.in_words()).or_default();
        if let Err(at) = ids.binary_search(id) {
            ids.insert(at, *id);
        }
        self.has_several |= ids.len() > 1;
    }

    /// Forgets cgroups if there are many: those that are not in `report`, have no runtime's name, and share
    /// their name with no other.
    fn keep_within_bounds(&mut self, report: &mut Report) {
        if self.known.len() <= self.kept_max.max(KEPT_MAX) {
            return;
        }
        let mut met = HashSet::new();
        report.each_owner(|owner| {
            if let Owner::Cgroup { id, .. } = owner {
                met.insert(*id);
            }
        });
        let known = &self.known;
        let is_kept = |id: &u64| met.contains(id) || known.get(id) == Some(&true);
        self.by_name.retain(|_, ids| ids.len() > 1 || ids.iter().any(is_kept));
        let kept: HashMap<u64, bool> = self
            .by_name
            .values()
            .flatten()
            .filter_map(|id| known.get_key_value(id))
            .map(|(id, named)| (*id, *named))
            .collect();
        self.by_name.shrink_to_fit();
        self.known = kept;
        self.kept_max = 2 * self.known.len();
        if self.known.len() > NAMED_MAX {
            *self = Self::default();
        }
    }

    /// Returns the generation of a cgroup among those of its name, from 1, if there are several.
    fn of(&self, owner: &Owner) -> Option<u32> {
        let Owner::Cgroup { id, .. } = owner else { return None };
        let ids = self.by_name.get(&owner.in_words()).filter(|ids| ids.len() > 1)?;
        u32::try_from(ids.binary_search(id).ok()? + 1).ok()
    }
}

impl Report {
    /// Sets the identity of every cgroup, as far as `names` contain it, and its generation.
    pub fn name_cgroups(&mut self, names: &CgroupNames, generations: &mut Generations) {
        self.each_owner(|owner| {
            if let Owner::Cgroup { path, identity, .. } = owner {
                *identity = names.get(path).cloned().map(Box::new);
            }
            generations.meet(owner);
        });
        generations.keep_within_bounds(self);
        if !generations.has_several {
            return;
        }
        self.each_owner(|owner| {
            let generation = generations.of(owner);
            if let (Some(generation), Owner::Cgroup { identity, .. }) = (generation, owner) {
                identity.get_or_insert_default().generation = generation;
            }
        });
    }

    /// Calls `name` for every owner of any row.
    fn each_owner(&mut self, mut name: impl FnMut(&mut Owner)) {
        if let Some(tasks) = &mut self.tasks {
            tasks.each_owner(&mut name);
        }
        if let Some(io) = &mut self.io {
            for row in &mut io.rows {
                if let Subject::Owner(owner, _) = &mut row.subject {
                    name(owner);
                }
            }
        }
        self.followed.iter_mut().for_each(|followed| name(&mut followed.owner));
        let of_counts = self.counts.iter_mut().flat_map(|counts| &mut counts.rows);
        of_counts.filter_map(|row| row.owner.as_mut()).for_each(&mut name);
        let all = self.findings.iter_mut().flat_map(|finding| {
            let Finding { whose, symptoms, .. } = finding;
            std::iter::once(whose).chain(symptoms.iter_mut().map(|symptom| &mut symptom.whose))
        });
        all.filter_map(Option::as_mut).for_each(|whose| each(whose, &mut name));
    }
}

fn each(who: &mut OwnerOrTarget, name: &mut impl FnMut(&mut Owner)) {
    if let OwnerOrTarget::Owner(owner) = who {
        name(owner);
    }
}

impl TasksReport {
    /// Calls `name` for every owner of any row.
    fn each_owner(&mut self, name: &mut impl FnMut(&mut Owner)) {
        let mut owners = vec![&mut self.owners];
        let hot = self.hot.iter_mut().chain(self.functions.iter_mut().map(|function| &mut function.hot));
        hot.for_each(|row| name(&mut row.owner));
        let functions = self.functions.iter_mut().flat_map(|function| &mut function.owners);
        functions.for_each(|(owner, _)| name(owner));
        let stacks = [&mut self.stacks, &mut self.off_cpu_stacks];
        let mut waited = vec![&mut self.waited];
        if let Some(folded) = &mut self.folded {
            owners.push(&mut folded.owners);
            waited.push(&mut folded.waited);
            for topdown in &mut folded.topdown {
                topdown.owners.iter_mut().for_each(|(who, _)| each(who, name));
            }
        }
        owners.into_iter().flatten().for_each(|row| each(&mut row.who, name));
        self.ended.iter_mut().for_each(&mut *name);
        stacks.into_iter().flatten().for_each(|row| name(&mut row.owner));
        for row in waited.into_iter().flatten() {
            each(&mut row.who, name);
            for charge in &mut row.charges {
                if let Culprit::Owner(owner) = &mut charge.culprit {
                    name(owner);
                }
            }
        }
        self.throttled.iter_mut().for_each(|row| name(&mut row.owner));
        self.limits.iter_mut().for_each(|row| name(&mut row.owner));
        self.pressure.iter_mut().filter_map(|row| row.whose.as_mut()).for_each(&mut *name);
        let gaps = self.blind.gaps.iter_mut().chain(&mut self.blind.others_gaps);
        gaps.filter_map(|row| row.owner.as_mut()).for_each(&mut *name);
        for topdown in self.topdown.iter_mut().flatten() {
            topdown.owners.iter_mut().for_each(|(who, _)| each(who, name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CgroupNames, Generations, KEPT_MAX};
    use crate::{
        drain::{self, Owner},
        machine::{
            cgroup::{Cgroup, CgroupId},
            container::{Container, Identity, Runtime},
        },
        metric::Report,
    };

    /// Returns the names in a report of cgroups with these ids and paths, in this order.
    fn named(ids: &[(u64, &str)], names: &CgroupNames, generations: &mut Generations) -> Vec<String> {
        let followed = |(id, path): &(u64, &str)| {
            let cgroup = Cgroup { path: (*path).into(), id: CgroupId(*id) };
            drain::Followed { cgroup, at_ns: 0, late_ns: None }.into()
        };
        let mut report = Report { followed: ids.iter().map(followed).collect(), ..Report::default() };
        report.name_cgroups(names, generations);
        report.followed.iter().map(|followed| followed.owner.in_words()).collect()
    }

    #[test]
    fn cgroups_of_one_name_are_counted_in_the_order_of_their_lives() {
        let mut generations = Generations::default();
        let container = |id: &str| {
            let (runtime, id) = (Some(Runtime::Podman), id.into());
            let (name, image, is_infrastructure) = (Some("web".into()), None, false);
            let container = Some(Container { runtime, id, name, image, is_infrastructure });
            Identity { container, ..Identity::default() }
        };
        let mut names = CgroupNames::new();
        assert_eq!(named(&[(5, "/x"), (9, "/a")], &names, &mut generations), ["/x", "/a"]);
        // A unit's path again, and the first container before its name is known.
        assert_eq!(named(&[(12, "/x"), (5, "/x")], &names, &mut generations), ["/x #2", "/x"]);
        names.extend([("/a".into(), container("a")), ("/b".into(), container("b"))]);
        assert_eq!(named(&[(20, "/b"), (9, "/a")], &names, &mut generations), ["web #2", "web"]);
        // An interval with the second one alone.
        assert_eq!(named(&[(20, "/b")], &names, &mut generations), ["web #2"]);
        let owner = Owner::cgroup(0, "/x".into());
        generations.meet(&owner);
        assert_eq!(generations.of(&owner), None, "who has no id has no order");
    }

    #[test]
    fn cgroups_that_come_and_go_are_forgotten_but_not_those_of_one_name() {
        let (names, mut generations) = (CgroupNames::new(), Generations::default());
        assert_eq!(named(&[(1, "/x"), (2, "/x"), (3, "/there")], &names, &mut generations)[1], "/x #2");
        for id in 10..40_000 {
            named(&[(3, "/there"), (id, &format!("/gone/{id}"))], &names, &mut generations);
        }
        assert!(generations.known.len() <= KEPT_MAX + 1 && generations.by_name.len() <= KEPT_MAX + 1);
        assert_eq!(
            named(&[(50_000, "/x"), (50_001, "/there")], &names, &mut generations),
            ["/x #3", "/there #2"]
        );
    }
}
