//! What becomes of owners that have ended, so that a ledger does not grow with time.

use std::collections::HashMap;

use super::{Ledger, OTHER};
use crate::model::OwnerIndex;
use crate::{
    drain::{Owner, SlotId},
    model::fold::Bounds,
    untrusted::Untrusted,
};

/// How long after its end an owner may still count: its last task is on its way out.
const SETTLING_NS: u64 = 2_000_000_000;

impl Ledger {
    /// Puts owners together that have ended: processes by their names. Returns who stands for whom.
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
        // Those above that are left.
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

    /// Cgroups that held others, and hold none any more.
    fn without_cgroups(&self) -> Vec<(Untrusted, OwnerIndex)> {
        let by_themselves = self.owners.iter().filter_map(|(&index, (owner, _))| match owner {
            Owner::Cgroup { path, .. } if !self.tree.is_inner(index) => Some(path.as_bytes()),
            _ => None,
        });
        self.tree.empty(by_themselves)
    }

    /// Who stands for ended processes of a name, one more now.
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

    /// Forgets what slots held in lives that are over, if there are too many of those.
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
    }
}
