//! Owners of a ledger: new ones, those known under another name, and the cgroups above them. Ended owners are
//! merged, so that a ledger does not grow with time.

use std::collections::HashMap;

use super::{Ledger, OTHER};
use crate::{
    drain::{Owner, OwnerRow, SlotId, TasksDrain},
    machine::cgroup::ancestors,
    model::{
        Interval, OwnerIndex,
        fold::{BOUNDS, Bounds},
        rare,
    },
    untrusted::Untrusted,
};

/// Time after its end for which an owner may still count: its last task is exiting.
const SETTLING_NS: u64 = 2_000_000_000;

impl Ledger {
    /// Merges owners that have ended: processes by their names. Returns the owner that stands for each.
    pub(in crate::model) fn fold_ended(&mut self, bounds: &Bounds) -> HashMap<OwnerIndex, OwnerIndex> {
        let settled = |ended_ns: &u64| ended_ns.saturating_add(SETTLING_NS) < self.at_ns;
        let over = |(index, (owner, ended_ns)): (&OwnerIndex, &(Owner, Option<u64>))| {
            let folds = matches!(owner, Owner::Process { .. } | Owner::Thread { .. } | Owner::Cgroup { .. });
            let ended_ns = ended_ns.filter(settled).filter(|_| folds)?;
            Some((*index, owner.clone(), ended_ns))
        };
        let ended: Vec<(OwnerIndex, Owner, u64)> = self.owners.iter().filter_map(over).collect();
        for (index, owner, _) in &ended {
            self.owners.remove(index);
            self.known.remove(owner);
            if let Owner::Cgroup { path, .. } = owner {
                self.tree.remove(path, *index);
            }
        }
        let without_cgroups = self.without_cgroups();
        for (path, index) in &without_cgroups {
            self.owners.remove(index);
            self.tree.remove(path, *index);
        }
        // Cgroups above that are left.
        let above = |ledger: &Self, path: &Untrusted| {
            let above = bounds.upwards.then(|| ledger.tree.above(path.as_bytes())).flatten();
            above.unwrap_or(OTHER)
        };
        let mut to = HashMap::with_capacity(ended.len());
        for (index, owner, ended_ns) in ended {
            let target = match &owner {
                Owner::Process { name, .. } | Owner::Thread { name, .. } => {
                    self.stand_in(name, ended_ns, bounds.names)
                }
                Owner::Cgroup { path, .. } => above(self, path),
                _ => OTHER,
            };
            to.insert(index, target);
        }
        to.extend(without_cgroups.into_iter().map(|(path, index)| (index, above(self, &path))));
        self.owner_of_slot.values_mut().for_each(|owner| *owner = to.get(owner).copied().unwrap_or(*owner));
        to
    }

    /// Returns the cgroups that held others and hold none any more.
    fn without_cgroups(&self) -> Vec<(Untrusted, OwnerIndex)> {
        let by_themselves = self.owners.iter().filter_map(|(&index, (owner, _))| match owner {
            Owner::Cgroup { path, .. } if !self.tree.is_inner(index) => Some(path.as_bytes()),
            _ => None,
        });
        self.tree.empty(by_themselves)
    }

    /// Returns the owner that stands for ended processes of a name, with one process more.
    fn stand_in(&mut self, name: &Untrusted, ended_ns: u64, names_max: usize) -> OwnerIndex {
        let index = match self.ended.get(name) {
            Some(&known) => known,
            None if self.ended.len() >= names_max => return OTHER,
            None => {
                let index = self.add(Owner::Ended { name: name.clone(), processes: 0 });
                self.ended.insert(name.clone(), index);
                index
            }
        };
        if let Some((Owner::Ended { processes, .. }, last)) = self.owners.get_mut(&index) {
            *processes += 1;
            *last = Some(ended_ns.max(last.unwrap_or(0)));
        }
        index
    }

    /// Drops slot lives that are over, if there are too many.
    pub(in crate::model) fn forget_slots(&mut self, most: usize) {
        if self.owner_of_slot.len() <= 2 * most {
            return;
        }
        let mut newest: HashMap<u32, u32> = HashMap::new();
        for id in self.owner_of_slot.keys() {
            let generation = newest.entry(id.slot).or_default();
            *generation = id.generation.max(*generation);
        }
        let alive = |id: &SlotId| newest.get(&id.slot).is_none_or(|&generation| generation <= id.generation);
        self.owner_of_slot.retain(|id, _| alive(id));
        self.counts.retain(|(id, _), _| alive(id));
        self.charges.retain(alive);
        self.waits.retain(alive);
        self.rare.retain(alive);
        self.interrupts.retain(alive);
    }
}

impl Ledger {
    /// Takes the owners of a drain and the cgroups above them, and records those that have ended.
    pub(super) fn meet_all(&mut self, drain: &TasksDrain, interval: &mut Interval) {
        for owner in &drain.above {
            if let Owner::Cgroup { id, path, .. } = owner {
                self.meet_inner(*id, path);
                self.meet_above(path);
            }
        }
        for row in &drain.owners {
            let exits = self.exits(row);
            let index = self.meet(row);
            if row.ended_ns.is_some() && matches!(row.owner, Owner::Cgroup { .. }) {
                interval.ended.insert(index);
            }
            rare::add(&mut interval.rare, index, &exits);
        }
    }

    /// Takes the owner that counts in a slot from now on.
    pub(super) fn meet(&mut self, row: &OwnerRow) -> OwnerIndex {
        let index = match self.known.get(&row.owner) {
            Some(&known) => known,
            // A process chooses its name, and an owner known by a name does not end.
            None if row.owner.is_of_many() && self.owners.len() >= BOUNDS.owners => {
                self.owner_of_slot.insert(row.slot, OTHER);
                return OTHER;
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
        index
    }

    /// Takes the cgroups above one. Above the first that is known, all are known.
    pub(super) fn meet_above(&mut self, path: &Untrusted) {
        let mut above = ancestors(path.as_bytes());
        while above.next().is_some_and(|path| self.meet_inner(0, &Untrusted::new(path))) {}
    }

    /// Takes a cgroup above others, which may never count anything by itself. Returns whether it is new.
    pub(super) fn meet_inner(&mut self, id: u64, path: &Untrusted) -> bool {
        let new = self.tree.wants(path);
        if new {
            let index = self.add(Owner::cgroup(id, path.clone()));
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
