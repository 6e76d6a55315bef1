//! Cgroups by path. Cgroups that run nothing themselves count nothing and have no slot: they are known only
//! by what is below them.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::OwnerIndex;
use crate::{
    machine::cgroup::{PATH_BYTES_MAX, ancestors},
    untrusted::Untrusted,
};

/// Limit for cgroups that are known only by what is below them. A recording may name any number, and a chain
/// of them in one path.
const INNER_MAX: usize = 8192;

/// Cgroups by path, and the set of those that are known only by what is below them.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The last of several cgroups that had a path one after the other.
    newest: HashMap<Untrusted, OwnerIndex>,
    inner: BTreeSet<OwnerIndex>,
}

impl Tree {
    /// Returns whether the cgroup is known only by what is below it.
    pub(super) fn is_inner(&self, index: OwnerIndex) -> bool {
        self.inner.contains(&index)
    }

    /// Returns the cgroup with this path.
    pub(super) fn at(&self, path: &[u8]) -> Option<OwnerIndex> {
        self.newest.get(path).copied()
    }

    /// Returns the nearest cgroup above this path.
    pub(super) fn above(&self, path: &[u8]) -> Option<OwnerIndex> {
        ancestors(path).find_map(|above| self.at(above))
    }

    /// Returns whether there is no cgroup with this path, and room for one.
    pub(super) fn wants(&self, path: &Untrusted) -> bool {
        self.inner.len() < INNER_MAX
            && path.as_bytes().len() < PATH_BYTES_MAX
            && !self.newest.contains_key(path)
    }

    /// Takes a cgroup that is known only by what is below it.
    pub(super) fn add_inner(&mut self, path: Untrusted, index: OwnerIndex) {
        self.newest.insert(path, index);
        self.inner.insert(index);
    }

    /// Returns the cgroup with this path that was known only by what is below it. It counts by itself now.
    pub(super) fn promote(&mut self, path: &Untrusted) -> Option<OwnerIndex> {
        self.newest.get(path).copied().filter(|index| self.inner.remove(index))
    }

    /// Takes a cgroup that counts by itself, or has ended since it was taken.
    pub(super) fn add(&mut self, path: Untrusted, index: OwnerIndex) {
        let newest = self.newest.entry(path).or_insert(index);
        *newest = index.max(*newest);
    }

    /// Removes a cgroup from the tree.
    pub(super) fn remove(&mut self, path: &Untrusted, index: OwnerIndex) {
        if self.newest.get(path) == Some(&index) {
            self.newest.remove(path);
        }
        self.inner.remove(&index);
    }

    /// Returns the cgroups known only by what is below them that have nothing below them any more. `paths`
    /// are those of all other cgroups.
    pub(super) fn empty<'a>(&self, paths: impl Iterator<Item = &'a [u8]>) -> Vec<(Untrusted, OwnerIndex)> {
        let held: HashSet<&[u8]> = paths.flat_map(ancestors).collect();
        let is_empty = |(path, index): &(&Untrusted, &OwnerIndex)| {
            self.inner.contains(*index) && !held.contains(path.as_bytes())
        };
        self.newest.iter().filter(is_empty).map(|(path, &index)| (path.clone(), index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        drain::{Owner, OwnerRow, SlotId, TasksDrain},
        model::Ledger,
        untrusted::Untrusted,
    };

    fn cgroup(id: u64, path: &str) -> Owner {
        Owner::cgroup(id, Untrusted::from(path))
    }

    fn row(slot: u32, owner: Owner) -> OwnerRow {
        OwnerRow { slot: SlotId { slot, generation: 0 }, owner, ended_ns: None }
    }

    /// Returns the owners in words, and whether they are known only by what is below them.
    fn owners(ledger: &Ledger) -> Vec<(String, bool)> {
        ledger.owners().skip(1).map(|(index, owner)| (owner.in_words(), ledger.is_inner(index))).collect()
    }

    #[test]
    fn cgroups_above_one_that_counts_are_known() {
        let mut ledger = Ledger::new();
        let above = vec![cgroup(3, "/a")];
        ledger.advance(&TasksDrain {
            above,
            owners: vec![row(1, cgroup(5, "/a/b/c"))],
            ..TasksDrain::default()
        });
        let is = |owner: &Owner| *owner == cgroup(3, "/a") && owner.in_words() == "/a";
        assert!(ledger.owners().any(|(_, owner)| is(owner)), "with its id, where it is told");
        let is = |path: &str, inner: bool| (path.to_owned(), inner);
        let mut all = owners(&ledger);
        all.sort();
        assert_eq!(all, [is("/", true), is("/a", true), is("/a/b", true), is("/a/b/c", false)]);
    }

    #[test]
    fn one_that_begins_to_count_stays_the_same() {
        let mut ledger = Ledger::new();
        ledger.advance(&TasksDrain { owners: vec![row(1, cgroup(5, "/a/b"))], ..TasksDrain::default() });
        let before = owners(&ledger).len();
        ledger.advance(&TasksDrain { owners: vec![row(2, cgroup(4, "/a"))], ..TasksDrain::default() });
        assert_eq!(owners(&ledger).len(), before);
        assert!(owners(&ledger).contains(&("/a".to_owned(), false)));
    }

    #[test]
    fn of_two_that_had_a_path_the_last_is_meant_though_the_first_ends_later() {
        let mut ledger = Ledger::new();
        let ends = |slot, owner| OwnerRow { ended_ns: Some(5), ..row(slot, owner) };
        for owner in [row(1, cgroup(5, "/a")), row(2, cgroup(9, "/a")), ends(1, cgroup(5, "/a"))] {
            ledger.advance(&TasksDrain { owners: vec![owner], ..TasksDrain::default() });
        }
        let index = ledger.cgroup_at(b"/a").unwrap();
        assert_eq!(
            (ledger.owner(index), ledger.owner(index).in_words()),
            (&cgroup(9, "/a"), "/a".to_owned())
        );
        assert_eq!(ledger.cgroup_at(b"/b"), None);
    }

    #[test]
    fn a_path_of_any_length_makes_a_bounded_number() {
        let mut ledger = Ledger::new();
        for id in 1..=20 {
            let path = format!("/{id}{}", "/a".repeat(1900));
            ledger.advance(&TasksDrain { owners: vec![row(1, cgroup(id, &path))], ..TasksDrain::default() });
        }
        assert!(ledger.owners().count() <= super::INNER_MAX + 21);
    }
}
