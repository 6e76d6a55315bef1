//! Owners that a ledger meets: new ones, those that it knows under another name, and the cgroups above them.

use super::{Ledger, OTHER};
use crate::model::OwnerIndex;
use crate::{
    drain::{Owner, OwnerRow},
    machine::cgroup::ancestors,
    model::fold::BOUNDS,
    untrusted::Untrusted,
};

impl Ledger {
    pub(super) fn meet(&mut self, row: &OwnerRow) {
        let index = match self.known.get(&row.owner) {
            Some(&known) => known,
            // A process chooses its name, and what is known by a name does not end.
            None if row.owner.is_of_many() && self.owners.len() >= BOUNDS.owners => {
                self.owner_of_slot.insert(row.slot, OTHER);
                return;
            }
            None => {
                let promoted = match &row.owner {
                    Owner::Cgroup { path, .. } => self.tree.promote(path),
                    _ => None,
                };
                let index = promoted.unwrap_or_else(|| self.add(row.owner.clone()));
                self.known.insert(row.owner.clone(), index);
                index
            }
        };
        if let Owner::Cgroup { path, .. } = &row.owner {
            self.tree.add(path.clone(), index);
            self.meet_above(path);
        }
        self.owners.insert(index, (row.owner.clone(), row.ended_ns));
        self.owner_of_slot.insert(row.slot, index);
    }

    /// The cgroups above one: above the first that is known, all are.
    pub(super) fn meet_above(&mut self, path: &Untrusted) {
        let mut above = ancestors(path.as_bytes());
        while above.next().is_some_and(|path| self.meet_inner(0, &Untrusted::new(path))) {}
    }

    /// A cgroup above others, which may never count anything by itself. Is it new?
    pub(super) fn meet_inner(&mut self, id: u64, path: &Untrusted) -> bool {
        let new = self.tree.wants(path);
        if new {
            let index = self.add(Owner::Cgroup { id, path: path.clone() });
            self.tree.add_inner(path.clone(), index);
        }
        new
    }

    pub(super) fn add(&mut self, owner: Owner) -> OwnerIndex {
        let index = OwnerIndex(self.met);
        self.met += 1;
        self.owners.insert(index, (owner, None));
        index
    }
}
